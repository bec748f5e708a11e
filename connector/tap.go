package connector

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// wire carries messages as bytes. Its read is used by one goroutine.
type wire interface {
	read(ctx context.Context) ([]byte, error)
	write(ctx context.Context, data []byte) error
	Close() error
}

// tapTransport makes a tap of a wire.
type tapTransport struct {
	session *session
	open    func(context.Context) (wire, error)
}

// Connect implements [mcp.Transport].
func (t *tapTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	w, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	t.session.tap = &tap{wire: w, session: t.session}
	return t.session.tap, nil
}

// tap is a connection whose messages pass the session's inlet, that fills notes
// and tells its session at once when it breaks. Streamable HTTP has its own
// (originRT): the SDK needs that connection's own type.
type tap struct {
	wire
	session *session
	batch   []json.RawMessage // of Read
}

// SessionID implements [mcp.Connection].
func (t *tap) SessionID() string { return "" }

// Write implements [mcp.Connection].
func (t *tap) Write(ctx context.Context, msg jsonrpc.Message) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		noteOf(ctx).change(func(n *note) { n.sent = true })
		t.session.inlet.asked(ctx, data)
	}
	return t.write(ctx, data)
}

// Read implements [mcp.Connection].
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		data, err := t.next(ctx)
		if err == nil {
			data, err = t.session.inlet.take(data, nil, t.reply)
		}
		if err != nil {
			t.session.spoil(err)
			return nil, err
		}
		if data == nil {
			continue
		}
		if msg, err := jsonrpc.DecodeMessage(data); err == nil {
			return msg, nil
		}
	}
}

func (t *tap) next(ctx context.Context) (json.RawMessage, error) {
	for len(t.batch) == 0 {
		data, err := t.read(ctx)
		if err != nil {
			return nil, err
		}
		t.batch = split(data)
	}
	first := t.batch[0]
	t.batch = t.batch[1:]
	return first, nil
}

func (t *tap) reply(data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.session.conn.pool.limits.Reply)
	defer cancel()
	return t.write(ctx, data)
}

// foreign is the wire of a connection that the SDK made.
type foreign struct{ mcp.Connection }

func (f foreign) read(ctx context.Context) ([]byte, error) {
	msg, err := f.Read(ctx)
	if err != nil {
		return nil, err
	}
	return jsonrpc.EncodeMessage(msg)
}

func (f foreign) write(ctx context.Context, data []byte) error {
	msg, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		return err
	}
	return f.Write(ctx, msg)
}

// closed is io.EOF for the error of a file that we closed ourselves.
func closed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return io.EOF
	}
	return err
}
