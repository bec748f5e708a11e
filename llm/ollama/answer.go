package ollama

import (
	"encoding/json"
	"fmt"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// answer puts an answer together from its lines.
type answer struct {
	tools  bool
	stream *llm.ThinkFilter

	text  strings.Builder
	calls []task.ToolCall
	extra extra
	// grown are the message's unknown strings, as they are written in JSON and
	// without their quotes: joined so, each keeps its bytes.
	grown map[string]*strings.Builder
	usage task.Usage
	over  bool // the line that says done was seen
	end   string
}

func newAnswer(req *llm.Request) *answer {
	return &answer{tools: len(req.Tools) > 0, stream: llm.NewThinkFilter(req.OnText), grown: map[string]*strings.Builder{}}
}

// Received is what has come so far.
func (a *answer) Received() (task.Usage, int) {
	n := a.text.Len()
	for _, c := range a.calls {
		n += len(c.Name) + len(c.Arguments)
	}
	for _, s := range a.grown {
		n += s.Len()
	}
	return a.usage, n
}

// Whole tells whether the line that says done was seen.
func (a *answer) Whole() bool { return a.over }

// Take adds one line.
func (a *answer) Take(ev wire.Event) (over bool, err error) {
	if ev.Done { // no marker of this wire, but some proxies write it
		return true, nil
	}
	err = a.take(ev.Data)
	return a.over, err
}

func (a *answer) take(raw json.RawMessage) error {
	var l wire.Object
	if err := json.Unmarshal(raw, &l); err != nil {
		return wire.Malformed("read answer: %s", err)
	}
	if c, said := wire.ComplaintIn(raw, wire.Parse(l["message"]) != nil || l.Has("done")); said {
		return wire.Failed(c, a.tools, a.Received)
	}
	if n, ok := wire.Count(l["prompt_eval_count"]); ok {
		a.usage.Input = n
	}
	if n, ok := wire.Count(l["eval_count"]); ok {
		a.usage.Output = n
	}
	_ = json.Unmarshal(l["done"], &a.over) // anything but true is no end
	a.end = l.Text("done_reason")
	message := wire.Parse(l["message"])
	a.say(message.Text("content"))
	if raw := message["tool_calls"]; len(raw) > 0 {
		if err := a.takeCalls(raw); err != nil {
			return err
		}
	}
	a.grow(message.Without("role", "content", "tool_calls"))
	return nil
}

func (a *answer) say(text string) {
	a.text.WriteString(text)
	a.stream.Add(text)
}

func (a *answer) takeCalls(raw json.RawMessage) error {
	calls, ok := wire.List(raw)
	if !ok {
		return wire.Malformed("read tool_calls: want a list")
	}
	for _, raw := range calls {
		c := wire.Parse(raw)
		function := wire.Parse(c["function"])
		if function == nil {
			return wire.Malformed("read call %d: it has no function", len(a.calls)+1)
		}
		if len(a.calls) >= wire.MaxCalls {
			return wire.Malformed("more than %d calls in one answer", wire.MaxCalls)
		}
		a.calls = append(a.calls, task.ToolCall{ID: c.Text("id"), Name: function.Text("name"), Arguments: arguments(function["arguments"])})
		a.extra.Calls = append(a.extra.Calls, callExtra{Call: c.Without("function"), Function: function.Without("name", "arguments")})
	}
	return nil
}

// arguments are the exact bytes of the object that the wire has; servers like it
// that send a string instead mean its value.
func arguments(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil { // null has no value
		return s
	}
	return string(raw)
}

// grow adds strings to those that came before, as thinking streams; anything
// else replaces.
func (a *answer) grow(fields object) {
	for name, raw := range fields {
		if a.extra.Message == nil {
			a.extra.Message = object{}
		}
		a.extra.Message[name] = raw
		if raw[0] == '"' {
			if a.grown[name] == nil {
				a.grown[name] = &strings.Builder{}
			}
			a.grown[name].Write(raw[1 : len(raw)-1])
		}
	}
}

// Response checks that the answer is whole and turns it into neutral form.
func (a *answer) Response(vendor string) (*llm.Response, error) {
	if !a.over {
		return nil, &llm.Error{Kind: llm.CutStream, Message: fmt.Sprintf(
			"the stream ended before its done line, after %d bytes of text and %d calls", a.text.Len(), len(a.calls))}
	}
	for name, s := range a.grown {
		a.extra.Message[name] = json.RawMessage(`"` + s.String() + `"`)
	}
	a.stream.End()
	r := &llm.Response{Calls: wire.Calls(a.calls), Usage: a.usage, Opaque: a.extra.encode(), Vendor: vendor}
	r.Text, r.Reasoning = llm.SplitThinking(a.text.String())
	var err error
	if r.Finish, err = wire.OllamaEnds.Judge(a.end, len(r.Calls)); err != nil {
		return nil, err
	}
	return r, nil
}
