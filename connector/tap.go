package connector

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// note travels with a request's context down to the transport and brings back
// what the SDK's types lose: whether the request went out, and the raw result.
type note struct {
	sent atomic.Bool
	want bool // keep the raw result

	mu  sync.Mutex
	raw json.RawMessage
}

type noteKey struct{}

func noteOf(ctx context.Context) *note {
	n, _ := ctx.Value(noteKey{}).(*note)
	return n
}

func (n *note) keep(raw json.RawMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.raw = raw
}

func (n *note) result() json.RawMessage {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.raw
}

// tapTransport puts a tap on the connection that another transport makes.
type tapTransport struct {
	mcp.Transport
	session *session
}

// Connect implements [mcp.Transport].
func (t *tapTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	tap := &tap{Connection: inner, session: t.session, wanted: map[jsonrpc.ID]*note{}}
	t.session.tap = tap
	return tap, nil
}

// tap is a connection that fills notes and tells its session at once when it
// breaks. Streamable HTTP has its own (originRT): the SDK needs that
// connection's own type.
type tap struct {
	mcp.Connection
	session *session

	mu     sync.Mutex
	wanted map[jsonrpc.ID]*note
}

// Write implements [mcp.Connection].
func (t *tap) Write(ctx context.Context, msg jsonrpc.Message) error {
	n := noteOf(ctx)
	req, ok := msg.(*jsonrpc.Request)
	if n == nil || !ok || !req.IsCall() {
		return t.Connection.Write(ctx, msg)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.sent.Store(true)
	if n.want {
		t.mu.Lock()
		t.wanted[req.ID] = n
		t.mu.Unlock()
		context.AfterFunc(ctx, func() { t.forget(req.ID) })
	}
	return t.Connection.Write(ctx, msg)
}

// Read implements [mcp.Connection].
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := t.Connection.Read(ctx)
	if err != nil {
		t.session.die(err)
		return msg, err
	}
	if res, ok := msg.(*jsonrpc.Response); ok {
		if n := t.forget(res.ID); n != nil {
			n.keep(res.Result)
		}
	}
	return msg, nil
}

func (t *tap) forget(id jsonrpc.ID) *note {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.wanted[id]
	delete(t.wanted, id)
	return n
}
