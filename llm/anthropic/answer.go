package anthropic

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// answer puts an answer together from its events.
type answer struct {
	tools  bool
	stream *llm.ThinkFilter

	blocks []*block
	open   map[int]*block // by the index that deltas name
	calls  int
	chars  int // of text and calls
	stop   string
	usage  usage

	began bool // a message was seen
	over  bool // the end marker was seen
}

// usage is what the vendor counted. The counts are apart there: input_tokens are
// those that were neither read from a cache nor written to one.
type usage struct{ input, output, cacheRead, cacheWrite int64 }

// take keeps the newest count of each kind: they are totals, and events leave
// out what they have no news of.
func (u *usage) take(newer wire.Object) {
	for name, have := range map[string]*int64{
		"input_tokens": &u.input, "output_tokens": &u.output,
		"cache_read_input_tokens": &u.cacheRead, "cache_creation_input_tokens": &u.cacheWrite,
	} {
		if n, ok := wire.Count(newer[name]); ok && n > 0 {
			*have = n
		}
	}
}

// neutral counts as input everything that was charged as such.
func (u usage) neutral() task.Usage {
	return wire.Usage(task.Usage{Input: u.input + u.cacheRead + u.cacheWrite, Output: u.output, CacheRead: u.cacheRead, CacheWrite: u.cacheWrite})
}

// eventType is what names of events look like, known or not; a problem document's
// type is a URI.
var eventType = regexp.MustCompile(`^[a-z_]+$`)

func newAnswer(req *llm.Request) *answer {
	return &answer{tools: len(req.Tools) > 0, stream: llm.NewThinkFilter(req.OnText), open: map[int]*block{}}
}

// Received is what has come so far.
func (a *answer) Received() (task.Usage, int) { return a.usage.neutral(), a.chars }

// Take adds one event, or an answer that did not stream.
func (a *answer) Take(ev wire.Event) (over bool, err error) {
	if ev.Done { // no marker of this wire, but some proxies write it
		a.over = true
		return true, nil
	}
	var e wire.Object
	if err := json.Unmarshal(ev.Data, &e); err != nil {
		return false, wire.Malformed("read answer: %s", err)
	}
	if c, said := wire.ComplaintIn(ev.Data, e.Has("content") || eventType.MatchString(e.Text("type"))); said {
		return false, wire.Failed(c, a.tools, a.Received)
	}
	if e.Text("type") == "" {
		e["type"], _ = json.Marshal(ev.Type) // some name it in the event alone
	}
	err = a.take(e)
	return a.over, err
}

// Whole tells whether the vendor has said how the answer ends and left nothing of
// it open.
func (a *answer) Whole() bool { return a.stop != "" && len(a.open) == 0 }

// take adds one event by its kind. Kinds that it does not
// know, ping among them, change nothing: the vendor says that there will be more.
func (a *answer) take(e wire.Object) error {
	index := 0
	if n, ok := wire.Count(e["index"]); ok {
		index = int(n)
	}
	switch e.Text("type") {
	case "message_start":
		a.began = true
		return a.takeMessage(wire.Parse(e["message"]))
	case "content_block_start":
		return a.start(index, wire.Parse(e["content_block"]))
	case "content_block_delta":
		b := a.open[index]
		if b == nil && wire.Parse(e["delta"]).Text("type") == "input_json_delta" {
			b = a.newestCall()
		}
		if b == nil {
			return wire.Malformed("a delta for block %d, which has not begun", index)
		}
		delta := wire.Parse(e["delta"])
		a.chars += len(delta.Text("partial_json"))
		a.say(b.add(delta))
	case "content_block_stop":
		delete(a.open, index)
	case "message_delta":
		if reason := wire.Parse(e["delta"]).Text("stop_reason"); reason != "" {
			a.stop = reason
		}
		a.usage.take(wire.Parse(e["usage"]))
	case "message_stop":
		a.over = true
		clear(a.open)
	case "message", "":
		if !e.Has("content") {
			return nil
		}
		a.began, a.over = true, true
		defer clear(a.open)
		return a.takeMessage(e)
	}
	return nil
}

// takeMessage takes a whole message, or the head of one that streams.
func (a *answer) takeMessage(m wire.Object) error {
	a.usage.take(wire.Parse(m["usage"]))
	if reason := m.Text("stop_reason"); reason != "" {
		a.stop = reason
	}
	blocks, ok := wire.List(m["content"])
	var text string
	if !ok && json.Unmarshal(m["content"], &text) == nil {
		blocks, ok = []json.RawMessage{wire.JSON(map[string]string{"type": "text", "text": text})}, true
	}
	if !ok {
		return wire.Malformed("read content: want a list of blocks")
	}
	for i, raw := range blocks {
		if err := a.start(i, wire.Parse(raw)); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) start(index int, start wire.Object) error {
	b := newBlock(start)
	if b.kind == "" {
		return wire.Malformed("block %d has no type", index)
	}
	if b.kind == "tool_use" {
		a.chars += len(b.fields["name"]) + len(b.fields["input"])
		if a.calls++; a.calls > wire.MaxCalls {
			return wire.Malformed("more than %d calls in one answer", wire.MaxCalls)
		}
	}
	a.blocks = append(a.blocks, b)
	a.open[index] = b
	a.say(b.text.String())
	return nil
}

// newestCall is the newest block if it is a call and not at its end: what continues a
// call whose number nobody has is its own.
func (a *answer) newestCall() *block {
	if len(a.blocks) == 0 {
		return nil
	}
	newest := a.blocks[len(a.blocks)-1]
	for _, b := range a.open {
		if b == newest && b.kind == "tool_use" {
			return b
		}
	}
	return nil
}

func (a *answer) say(text string) {
	a.chars += len(text)
	a.stream.Add(text)
}

// Response checks that the answer is whole and turns it into neutral form.
func (a *answer) Response(vendor string) (*llm.Response, error) {
	switch {
	case !a.over && !a.Whole():
		return nil, &llm.Error{Kind: llm.CutStream, Message: fmt.Sprintf(
			"the stream ended before message_stop, after %d bytes of text and %d calls", a.chars, a.calls)}
	case !a.began && len(a.blocks) == 0:
		return nil, wire.Malformed("the answer holds no message")
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
			r.Calls = append(r.Calls, task.ToolCall{ID: b.fields.Text("id"), Name: b.fields.Text("name"), Arguments: b.arguments()})
			parts = append(parts, part{Call: b.extra()})
		default:
			parts = append(parts, part{Block: b.raw()})
		}
	}
	a.stream.End()
	r.Text, r.Reasoning = llm.SplitThinking(text.String())
	r.Calls = wire.Calls(r.Calls)
	r.Opaque = parts.encode()
	var err error
	if r.Finish, err = wire.AnthropicEnds.Judge(a.stop, len(r.Calls)); err != nil {
		return nil, err
	}
	return r, nil
}
