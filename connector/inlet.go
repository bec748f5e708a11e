package connector

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Bounds on what a server sends without being asked.
const (
	maxUnasked    = 50_000 // messages in unaskedWindow
	unaskedWindow = time.Minute
	maxID         = 1 << 10 // bytes of a request's id
)

// methodListen is the SDK's request that stays open as long as its session.
const methodListen = "subscriptions/listen"

// note travels with a request's context down to the transport and brings back
// what the SDK's types lose: what became of the request, and the answer as the
// server wrote it.
type note struct {
	sent    bool // it may have reached the server
	refused bool // the server certainly did not carry it out
	lost    bool // and wants another session first

	mu     sync.Mutex
	answer *answer
}

// answer is what the server answered a request with: a result or an error.
type answer struct {
	result json.RawMessage
	err    *jsonrpc.Error
}

type noteKey struct{}

func noteOf(ctx context.Context) *note {
	n, _ := ctx.Value(noteKey{}).(*note)
	return n
}

// change works on a note, which may be nil.
func (n *note) change(f func(*note)) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

// read returns the note's answer and whether the request may have been carried
// out, and whether the session is lost.
func (n *note) read() (a *answer, sent, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answer, n.sent && !n.refused, n.lost
}

// request is one of ours that has no answer yet.
type request struct {
	id     int64
	method string
	note   *note
}

// inlet is what every message of a server passes before the SDK sees it, so that
// nothing that a server sends by itself can pile up there and no odd answer is
// lost in its decoder. A server's own requests are answered here, one after
// another; notifications that change nothing end here; an answer gets the form
// that the SDK expects, while its note gets it as it was written.
type inlet struct {
	session *session

	mu       sync.Mutex
	open     map[int64]*request
	listNews bool // an announcement of another list is on its way
	begun    time.Time
	unasked  int
}

// asked takes note of a request that goes out within ctx.
func (in *inlet) asked(ctx context.Context, data []byte) *request {
	var m struct {
		ID     *int64 `json:"id"`
		Method string `json:"method"`
	}
	if json.Unmarshal(data, &m) != nil || m.ID == nil || m.Method == "" {
		return nil
	}
	r := &request{id: *m.ID, method: m.Method, note: noteOf(ctx)}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.open == nil {
		in.open = map[int64]*request{}
	}
	in.open[r.id] = r
	context.AfterFunc(ctx, func() { in.settle(r) })
	return r
}

func (in *inlet) settle(r *request) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.open[r.id] == r {
		delete(in.open, r.id)
	}
}

// message is a server's message as far as it can be read.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method json.RawMessage `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// take returns what the SDK is to see of a message; nil for nothing. own is the
// request that the message came in answer to, if the transport can tell. An
// error means that the session has to end.
func (in *inlet) take(data []byte, own *request, reply func([]byte) error) ([]byte, error) {
	var m message
	if json.Unmarshal(data, &m) != nil {
		return nil, in.count()
	}
	if len(m.Method) == 0 {
		out := in.answered(m, own)
		if out == nil {
			return nil, in.count()
		}
		return out, nil
	}
	if err := in.count(); err != nil {
		return nil, err
	}
	var method string
	_ = json.Unmarshal(m.Method, &method)
	if len(m.ID) > 0 && !isNull(m.ID) {
		return nil, in.answerBack(m.ID, method, reply)
	}
	return in.notified(data, method), nil
}

// count bounds what nobody asked for.
func (in *inlet) count() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if now := time.Now(); now.Sub(in.begun) > unaskedWindow {
		in.begun, in.unasked = now, 0
	}
	if in.unasked++; in.unasked > maxUnasked {
		return advise("see what it does, or use another server",
			"the server sent more than %d messages that nobody asked for within %s", maxUnasked, unaskedWindow)
	}
	return nil
}

// answerBack answers a server's own request: a ping, and nothing else. It waits
// until the answer is taken, so that there is never more than one.
func (in *inlet) answerBack(id json.RawMessage, method string, reply func([]byte) error) error {
	if len(id) > maxID {
		return nil
	}
	res := map[string]any{"jsonrpc": "2.0", "id": id}
	if method == "ping" {
		res["result"] = struct{}{}
	} else {
		res["error"] = jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
	}
	data, err := json.Marshal(res)
	if err != nil {
		return nil // an id that is no JSON cannot come here
	}
	if err := reply(data); err != nil {
		return advise("see what it does, or use another server", "the server asks, but does not take the answer: %w", err)
	}
	return nil
}

// notified lets one announcement of another list through at a time.
func (in *inlet) notified(data []byte, method string) []byte {
	if method != "notifications/tools/list_changed" {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.listNews {
		return nil
	}
	in.listNews = true
	return data
}

// listChanged is the SDK's word that an announcement arrived.
func (in *inlet) listChanged() {
	in.mu.Lock()
	in.listNews = false
	in.mu.Unlock()
	in.session.dirty.Store(true)
}

// answered gives an answer to its note and returns it in the SDK's form; nil for
// one to no request of ours.
func (in *inlet) answered(m message, own *request) []byte {
	r := in.find(m.ID, own)
	if r == nil {
		return nil
	}
	in.settle(r)
	a := &answer{err: wireError(m.Error), result: m.Result}
	r.note.change(func(n *note) { n.answer = a })
	res := map[string]any{"jsonrpc": "2.0", "id": r.id}
	switch {
	case a.err != nil:
		res["error"] = a.err
	case r.note != nil && r.method == "tools/call":
		res["result"] = json.RawMessage(`{"content":[]}`) // the note has it
	case len(m.Result) == 0:
		res["result"] = json.RawMessage(`{}`)
	default:
		res["result"] = m.Result
	}
	data, err := json.Marshal(res)
	if err != nil {
		return nil
	}
	return data
}

// find returns the open request that an id means: a number, also as text; none
// where only one can be meant.
func (in *inlet) find(id json.RawMessage, own *request) *request {
	in.mu.Lock()
	defer in.mu.Unlock()
	text := string(bytes.Trim(id, `"`))
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return in.open[int64(n)]
	}
	if len(id) > 0 && !isNull(id) && own == nil {
		return nil
	}
	if own != nil {
		return in.open[own.id]
	}
	var only *request
	for _, r := range in.open {
		switch {
		case r.method == methodListen:
		case only != nil:
			return nil
		default:
			only = r
		}
	}
	return only
}

// wireError reads the error of an answer, in whatever form it has; nil if there
// is none.
func wireError(data json.RawMessage) *jsonrpc.Error {
	if len(data) == 0 || isNull(data) {
		return nil
	}
	var e struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if json.Unmarshal(data, &e) != nil {
		e.Message = data
	}
	code, err := strconv.ParseInt(string(e.Code), 10, 64)
	if err != nil {
		code = jsonrpc.CodeInternalError
	}
	return &jsonrpc.Error{Code: code, Message: plainText(e.Message), Data: e.Data}
}

// plainText is a JSON string's text, or what else stands there as it is.
func plainText(data json.RawMessage) string {
	var s string
	switch {
	case len(data) == 0 || isNull(data):
		return ""
	case json.Unmarshal(data, &s) == nil:
		return s
	}
	return string(data)
}

// split returns the messages of a line or body: one, or those of a batch.
func split(data []byte) []json.RawMessage {
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '[' {
		var all []json.RawMessage
		if json.Unmarshal(data, &all) == nil {
			return all
		}
	}
	return []json.RawMessage{data}
}
