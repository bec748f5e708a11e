package ollama

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// answer puts an answer together from its lines.
type answer struct {
	tools  bool
	onText func(string)

	text  strings.Builder
	calls []task.ToolCall
	extra extra
	// grown are the message's unknown strings, as they are written in JSON and
	// without their quotes: joined so, each keeps its bytes.
	grown map[string]*strings.Builder
	last  line // the one that says done
}

// line is one line of a stream, or a whole answer.
type line struct {
	Message    object          `json:"message"`
	Done       bool            `json:"done"`
	DoneReason string          `json:"done_reason"`
	Input      int64           `json:"prompt_eval_count"`
	Output     int64           `json:"eval_count"`
	Error      json.RawMessage `json:"error"`
}

func newAnswer(req *llm.Request) *answer {
	return &answer{tools: len(req.Tools) > 0, onText: req.OnText, grown: map[string]*strings.Builder{}}
}

// read takes lines until one says done. It is lenient about the breaks between
// them.
func (a *answer) read(body io.Reader) error {
	lines := json.NewDecoder(body)
	for !a.last.Done {
		var raw json.RawMessage
		err := lines.Decode(&raw)
		var bad *json.SyntaxError
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil // response sees that done is missing
		case errors.As(err, &bad):
			return malformed("read answer: %s", err)
		case err != nil:
			return err
		}
		if err := a.take(raw); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) take(raw json.RawMessage) error {
	var l line
	if err := json.Unmarshal(raw, &l); err != nil {
		return malformed("read answer: %s", err)
	}
	if len(l.Error) > 0 && string(l.Error) != "null" {
		return wire.ParseComplaint(raw).Classify(a.tools)
	}
	a.last = l
	a.say(l.Message.text("content"))
	if raw := l.Message["tool_calls"]; len(raw) > 0 {
		if err := a.takeCalls(raw); err != nil {
			return err
		}
	}
	a.grow(l.Message.without("role", "content", "tool_calls"))
	return nil
}

func (a *answer) say(text string) {
	a.text.WriteString(text)
	if text != "" && a.onText != nil {
		a.onText(text)
	}
}

func (a *answer) takeCalls(raw json.RawMessage) error {
	var calls []object
	if err := json.Unmarshal(raw, &calls); err != nil {
		return malformed("read tool_calls: %s", err)
	}
	for _, c := range calls {
		var function object
		if err := json.Unmarshal(c["function"], &function); err != nil {
			return malformed("read the function of call %d: %s", len(a.calls)+1, err)
		}
		if len(a.calls) >= wire.MaxCalls {
			return malformed("more than %d calls in one answer", wire.MaxCalls)
		}
		a.calls = append(a.calls, task.ToolCall{ID: c.text("id"), Name: function.text("name"), Arguments: arguments(function["arguments"])})
		a.extra.Calls = append(a.extra.Calls, callExtra{Call: c.without("function"), Function: function.without("name", "arguments")})
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

func malformed(format string, args ...any) error {
	return &llm.Error{Kind: llm.Malformed, Message: fmt.Sprintf(format, args...)}
}

// response checks that the answer is whole and turns it into neutral form.
func (a *answer) response(vendor string) (*llm.Response, error) {
	if !a.last.Done {
		return nil, &llm.Error{Kind: llm.CutStream, Message: fmt.Sprintf(
			"the stream ended before its done line, after %d bytes of text and %d calls", a.text.Len(), len(a.calls))}
	}
	for name, s := range a.grown {
		a.extra.Message[name] = json.RawMessage(`"` + s.String() + `"`)
	}
	return &llm.Response{
		Text: a.text.String(), Calls: wire.Calls(a.calls), Finish: a.finished(),
		Usage:  task.Usage{Input: a.last.Input, Output: a.last.Output},
		Opaque: a.extra.encode(), Vendor: vendor,
	}, nil
}

// finished tells how the answer ended: done_reason is stop for calls too.
func (a *answer) finished() llm.Finish {
	switch {
	case a.last.DoneReason == "length":
		return llm.FinishLength
	case len(a.calls) > 0:
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
