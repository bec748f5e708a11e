package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// answer puts an answer together from its chunks.
type answer struct {
	tools  bool
	stream *llm.ThinkFilter

	text    strings.Builder
	thought strings.Builder // reasoning that came as a part of the content
	refused bool
	calls   []*call
	// loose tells that two calls had the same index: it says no more whose a
	// fragment is.
	loose  bool
	extra  growing
	finish string
	usage  task.Usage

	began bool // a choice was seen
	over  bool // the end marker was seen
}

// call is one tool call as it grows.
type call struct {
	index     int
	id, name  string
	arguments strings.Builder
	extra     growing
}

func newAnswer(req *llm.Request) *answer {
	return &answer{tools: len(req.Tools) > 0, stream: llm.NewThinkFilter(req.OnText), extra: growing{}}
}

// Received is what has come so far.
func (a *answer) Received() (task.Usage, int) {
	n := a.text.Len() + a.thought.Len()
	for _, c := range a.calls {
		n += len(c.name) + c.arguments.Len()
	}
	return a.usage, n
}

// Whole tells whether the vendor has said how the answer ends.
func (a *answer) Whole() bool { return a.finish != "" }

// Take adds one chunk of a stream, or a whole answer.
func (a *answer) Take(ev wire.Event) (over bool, err error) {
	a.over = ev.Done
	if ev.Done {
		return true, nil
	}
	return false, a.take(ev.Data)
}

func (a *answer) take(data []byte) error {
	var chunk wire.Object
	if err := json.Unmarshal(data, &chunk); err != nil {
		return wire.Malformed("read answer: %s", err)
	}
	choices, ok := wire.List(chunk["choices"])
	if c, said := wire.ComplaintIn(data, len(choices) > 0); said {
		return wire.Failed(c, a.tools, a.Received)
	}
	a.takeUsage(wire.Parse(chunk["usage"]))
	if !ok {
		return wire.Malformed("read choices: want a list")
	}
	for _, raw := range choices {
		choice := wire.Parse(raw)
		if n, _ := wire.Count(choice["index"]); choice == nil || n != 0 {
			continue
		}
		if choice.Has("error") {
			return wire.Failed(wire.ParseComplaint(raw), a.tools, a.Received)
		}
		a.began = true
		a.takeUsage(wire.Parse(choice["usage"])) // some put it here
		delta := wire.Parse(choice["delta"])
		if delta == nil {
			delta = wire.Parse(choice["message"])
		}
		if err := a.takeDelta(delta); err != nil {
			return err
		}
		if reason := choice.Text("finish_reason"); reason != "" {
			a.finish = reason
		}
	}
	return nil
}

// takeUsage keeps the newest count of each kind.
func (a *answer) takeUsage(u wire.Object) {
	details := wire.Parse(u["prompt_tokens_details"])
	for _, c := range []struct {
		to  *int64
		raw json.RawMessage
	}{
		{&a.usage.Input, u["prompt_tokens"]}, {&a.usage.Output, u["completion_tokens"]},
		{&a.usage.CacheRead, details["cached_tokens"]}, {&a.usage.CacheWrite, details["cache_write_tokens"]},
	} {
		if n, ok := wire.Count(c.raw); ok {
			*c.to = n
		}
	}
}

func (a *answer) takeDelta(delta wire.Object) error {
	text, thought := content(delta["content"])
	a.say(text)
	a.thought.WriteString(thought)
	if refusal, _ := content(delta["refusal"]); refusal != "" {
		a.refused = true
		a.say(refusal)
	}
	calls, ok := wire.List(delta["tool_calls"])
	if !ok {
		return wire.Malformed("read tool_calls: want a list")
	}
	if delta.Has("function_call") { // the older form, which has room for one
		calls = append(calls, wire.JSON(map[string]any{"index": 0, "function": delta["function_call"]}))
	}
	for i, c := range calls {
		if err := a.takeCall(i, wire.Parse(c)); err != nil {
			return err
		}
	}
	a.extra.merge(delta, "role", "content", "refusal", "tool_calls", "function_call", "name", "annotations", "audio")
	return nil
}

func (a *answer) say(text string) {
	a.text.WriteString(text)
	a.stream.Add(text)
}

// content is the text of a content field and the reasoning in it: a string, or a
// list of parts.
func content(raw json.RawMessage) (text, thought string) {
	var s string
	if wire.IsNull(raw) || json.Unmarshal(raw, &s) == nil {
		return s, ""
	}
	parts, _ := wire.List(raw)
	for _, p := range parts {
		part := wire.Parse(p)
		if part == nil {
			text += plain(p)
			continue
		}
		switch part.Text("type") {
		case "text", "output_text", "":
			text += part.Text("text")
		case "thinking":
			inner, _ := content(part["thinking"])
			thought += inner
		}
	}
	return text, thought
}

// takeCall adds a fragment to the call that it belongs to.
func (a *answer) takeCall(pos int, delta wire.Object) error {
	if delta == nil {
		return nil
	}
	function := wire.Parse(delta["function"])
	if function == nil {
		function = delta // some leave out the level between
	}
	f := fragment{index: pos, id: plain(delta["id"]), name: function.Text("name"), arguments: plain(function["arguments"])}
	if n, ok := wire.Count(delta["index"]); ok {
		f.index, f.numbered = int(n), true
	}
	c := a.callOf(f)
	if c == nil {
		if len(a.calls) >= wire.MaxCalls {
			return wire.Malformed("more than %d calls in one answer", wire.MaxCalls)
		}
		a.loose = a.loose || a.find(f.index) != nil
		c = &call{index: f.index, extra: growing{}}
		a.calls = append(a.calls, c)
	}
	if c.id == "" {
		c.id = f.id
	}
	if c.name != f.name { // some repeat the whole name with each fragment
		c.name += f.name
	}
	c.arguments.WriteString(f.arguments)
	c.extra.merge(delta, "index", "id", "type", "function", "name", "arguments")
	return nil
}

// fragment is what a piece of a call says of whose it is.
type fragment struct {
	index     int
	numbered  bool
	id, name  string
	arguments string
}

// callOf returns the call that a fragment continues; nil if it begins one. Most
// servers number the calls; some give every call the number 0, none, or the tail
// of a call another than its head, and tell them apart by id; some give each
// fragment an id of its own, but only the first a name. So a known id decides
// first, and what has neither id nor name and no call of its number continues the
// newest call.
func (a *answer) callOf(f fragment) *call {
	if len(a.calls) == 0 {
		return nil
	}
	newest := a.calls[len(a.calls)-1]
	numbered := a.find(f.index)
	if a.loose || !f.numbered {
		numbered = nil
	}
	if known := a.byID(f.id); known != nil && !known.complete(f) {
		return known
	}
	switch {
	case f.name == "" && numbered != nil:
		return numbered
	case f.name == "":
		return newest
	case numbered != nil && (f.id == "" || numbered.id == "" || f.id == numbered.id) && !numbered.complete(f):
		return numbered
	}
	return nil
}

// complete tells whether a named fragment must be another call than c, although
// their ids or numbers agree.
func (c *call) complete(f fragment) bool {
	whole := json.Valid([]byte(c.arguments.String()))
	switch {
	case f.name == "" || c.name == "":
		return false
	case f.index != c.index:
		return whole || f.name != c.name
	}
	return f.id == "" && whole && strings.TrimSpace(f.arguments) != ""
}

func (a *answer) byID(id string) *call {
	for i := len(a.calls) - 1; i >= 0 && id != ""; i-- {
		if a.calls[i].id == id {
			return a.calls[i]
		}
	}
	return nil
}

// find returns the newest call of an index.
func (a *answer) find(index int) *call {
	for i := len(a.calls) - 1; i >= 0; i-- {
		if a.calls[i].index == index {
			return a.calls[i]
		}
	}
	return nil
}

// plain is a string's value, or the bytes of anything else: some servers number
// their ids, some send arguments as an object.
func plain(raw json.RawMessage) string {
	var s string
	if wire.IsNull(raw) || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Response checks that the answer is whole and turns it into neutral form.
func (a *answer) Response(vendor string) (*llm.Response, error) {
	switch {
	case a.finish == "" && !a.over:
		return nil, &llm.Error{Kind: llm.CutStream, Message: fmt.Sprintf(
			"the stream ended before its end marker, after %d characters of text and %d calls", a.text.Len(), len(a.calls))}
	case !a.began:
		return nil, wire.Malformed("the answer holds no choice")
	}
	a.stream.End()
	r := &llm.Response{Usage: wire.Usage(a.usage), Vendor: vendor}
	r.Text, r.Reasoning = llm.SplitThinking(a.text.String())
	r.Reasoning = strings.TrimSpace(a.thought.String() + "\n" + r.Reasoning)
	x := extra{Message: a.extra.object(), Calls: map[int]object{}}
	for i, c := range a.calls {
		r.Calls = append(r.Calls, task.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
		if len(c.extra) > 0 {
			x.Calls[i] = c.extra.object()
		}
	}
	r.Calls = wire.Calls(r.Calls)
	r.Opaque = x.encode()
	var err error
	if r.Finish, err = wire.OpenAIEnds.Judge(a.finish, len(r.Calls)); err != nil {
		return nil, err
	}
	if a.refused {
		r.Finish = llm.FinishContentFilter
	}
	return r, nil
}
