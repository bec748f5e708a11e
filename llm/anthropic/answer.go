package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tmaxmax/go-sse"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// answer puts an answer together from its events.
type answer struct {
	tools  bool
	onText func(string)

	blocks []*block
	open   map[int]*block // by the index that deltas name
	calls  int
	chars  int
	stop   string
	usage  usage

	began bool // message_start was seen
	done  bool // message_stop was seen
}

// usage is what the vendor counted. The counts are apart there: input_tokens are
// those that were neither read from a cache nor written to one.
type usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// take keeps the newest count of each kind: they are totals, and events leave
// out what they have no news of.
func (u *usage) take(newer usage) {
	for _, c := range []struct {
		have *int64
		now  int64
	}{{&u.Input, newer.Input}, {&u.Output, newer.Output}, {&u.CacheRead, newer.CacheRead}, {&u.CacheWrite, newer.CacheWrite}} {
		if c.now > 0 {
			*c.have = c.now
		}
	}
}

// neutral counts as input everything that was charged as such.
func (u usage) neutral() task.Usage {
	return task.Usage{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
}

func newAnswer(req *llm.Request) *answer {
	return &answer{tools: len(req.Tools) > 0, onText: req.OnText, open: map[int]*block{}}
}

// event is one event of a stream.
type event struct {
	Type    string          `json:"type"`
	Message *message        `json:"message"`
	Index   int             `json:"index"`
	Block   object          `json:"content_block"`
	Delta   object          `json:"delta"`
	Usage   usage           `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

// message is a whole answer, or the head of one that streams.
type message struct {
	Content    []object `json:"content"`
	StopReason string   `json:"stop_reason"`
	Usage      usage    `json:"usage"`
}

func (a *answer) readStream(body io.Reader) error {
	for ev, err := range sse.Read(body, &sse.ReadConfig{MaxEventSize: int(llm.DefaultMaxBytes)}) {
		if err != nil {
			return err
		}
		if ev.Type == "error" {
			return wire.ParseComplaint([]byte(ev.Data)).Classify(a.tools)
		}
		var e event
		if err := json.Unmarshal([]byte(ev.Data), &e); err != nil {
			return malformed("read answer: %s", err)
		}
		if e.Type == "error" {
			return wire.ParseComplaint([]byte(ev.Data)).Classify(a.tools)
		}
		if err := a.take(e); err != nil || a.done {
			return err
		}
	}
	return nil
}

// readWhole reads the answer of a server that does not stream.
func (a *answer) readWhole(body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var whole struct {
		message
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return malformed("read answer: %s", err)
	}
	if whole.Type == "error" {
		return wire.ParseComplaint(data).Classify(a.tools)
	}
	a.began, a.done = whole.Content != nil, true
	return a.takeMessage(whole.message)
}

// take adds one event. Kinds that it does not know, ping among them, change
// nothing: the vendor says that there will be more.
func (a *answer) take(e event) error {
	switch e.Type {
	case "message_start":
		a.began = true
		if e.Message != nil {
			return a.takeMessage(*e.Message)
		}
	case "content_block_start":
		return a.start(e.Index, e.Block)
	case "content_block_delta":
		b := a.open[e.Index]
		if b == nil {
			return malformed("a delta for block %d, which has not begun", e.Index)
		}
		a.say(b.add(e.Delta))
	case "content_block_stop":
		delete(a.open, e.Index)
	case "message_delta":
		if reason := e.Delta.text("stop_reason"); reason != "" {
			a.stop = reason
		}
		a.usage.take(e.Usage)
	case "message_stop":
		a.done = true
	}
	return nil
}

func (a *answer) takeMessage(m message) error {
	a.usage.take(m.Usage)
	if m.StopReason != "" {
		a.stop = m.StopReason
	}
	for i, b := range m.Content {
		if err := a.start(i, b); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) start(index int, start object) error {
	b := newBlock(start)
	if b.kind == "" {
		return malformed("block %d has no type", index)
	}
	if b.kind == "tool_use" {
		if a.calls++; a.calls > wire.MaxCalls {
			return malformed("more than %d calls in one answer", wire.MaxCalls)
		}
	}
	a.blocks = append(a.blocks, b)
	a.open[index] = b
	a.say(b.text.String())
	return nil
}

func (a *answer) say(text string) {
	a.chars += len(text)
	if text != "" && a.onText != nil {
		a.onText(text)
	}
}

func malformed(format string, args ...any) error {
	return &llm.Error{Kind: llm.Malformed, Message: fmt.Sprintf(format, args...)}
}

// response checks that the answer is whole and turns it into neutral form.
func (a *answer) response(vendor string) (*llm.Response, error) {
	switch {
	case !a.done:
		return nil, &llm.Error{Kind: llm.CutStream, Message: fmt.Sprintf(
			"the stream ended before message_stop, after %d bytes of text and %d calls", a.chars, a.calls)}
	case !a.began && len(a.blocks) == 0:
		return nil, malformed("the answer holds no message")
	}
	r := &llm.Response{Usage: a.usage.neutral(), Vendor: vendor}
	var text strings.Builder
	var parts parts
	for _, b := range a.blocks {
		switch b.kind {
		case "text":
			text.WriteString(b.text.String())
			parts = append(parts, part{Text: b.text.Len()})
		case "tool_use":
			r.Calls = append(r.Calls, task.ToolCall{ID: b.fields.text("id"), Name: b.fields.text("name"), Arguments: b.arguments()})
			parts = append(parts, part{Call: b.extra()})
		default:
			parts = append(parts, part{Block: b.raw()})
		}
	}
	r.Text, r.Calls = text.String(), wire.Calls(r.Calls)
	r.Opaque = parts.encode()
	r.Finish = a.finished()
	return r, nil
}

// finished maps the stop reason. pause_turn is an answer that the vendor
// interrupted and would go on with: what is there is not the whole.
func (a *answer) finished() llm.Finish {
	switch a.stop {
	case "max_tokens", "model_context_window_exceeded", "pause_turn":
		return llm.FinishLength
	case "refusal":
		return llm.FinishContentFilter
	}
	if a.calls > 0 {
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
