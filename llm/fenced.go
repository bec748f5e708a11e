package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"runnerd/task"
)

// Fenced gives tool calls to a model, or an endpoint, that has none of its own:
// tools are described in the system prompt, calls are written as fenced blocks
// and read by the strict parser (see ParseFenced), results go back as text. The
// model itself is never sent a tool, a call or a result. It is what tool mode
// fenced means (DESIGN, section 6).
func Fenced(model Model) Model {
	if f, ok := model.(*fenced); ok {
		return f
	}
	return &fenced{model: model}
}

type fenced struct{ model Model }

// Close closes the model if it can be closed.
func (f *fenced) Close() error {
	if c, ok := f.model.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (f *fenced) Next(ctx context.Context, req *Request) (*Response, error) {
	if err := CheckHistory(req.Messages); err != nil {
		return nil, err
	}
	plain := *req
	plain.Tools = nil
	plain.Messages = fencedHistory(req.Messages)
	if len(req.Tools) > 0 {
		plain.System = strings.TrimLeft(req.System+"\n\n"+RenderTools(req.Tools), "\n")
	}
	var filter *textFilter
	if req.OnText != nil {
		filter = &textFilter{emit: req.OnText}
		plain.OnText = filter.add
	}
	resp, err := f.model.Next(ctx, &plain)
	if err != nil {
		return nil, err
	}
	if filter != nil {
		filter.flush()
	}
	return fencedResponse(resp), nil
}

// fencedResponse takes the calls out of the text. A broken block stays a call,
// which dispatch refuses and answers (see ParseFenced), so its error is not
// needed here.
func fencedResponse(resp *Response) *Response {
	out := *resp
	clean, calls, _ := ParseFenced(resp.Text)
	if len(calls) == 0 {
		return &out
	}
	out.Text = clean
	out.Calls = append(calls, resp.Calls...)
	if out.Finish == FinishStop {
		out.Finish = FinishToolCalls
	}
	return &out
}

// fencedHistory writes a history so that it holds text alone: calls as the model
// would have written them, the results of a step as one message of the user's.
func fencedHistory(msgs []task.Message) []task.Message {
	var out []task.Message
	names := map[string]string{} // of the newest step: call id to tool
	results := -1                // index of the message that gathers results
	for _, m := range msgs {
		if m.Role != task.RoleTool {
			results = -1
		}
		switch m.Role {
		case task.RoleAssistant:
			clear(names)
			for _, c := range m.Calls {
				names[c.ID] = c.Name
				m.Text = strings.TrimLeft(m.Text+"\n\n"+renderCall(c), "\n")
			}
			m.Calls = nil
			out = append(out, m)
		case task.RoleTool:
			text := renderResult(names[m.CallID], m)
			if results >= 0 {
				out[results].Text += "\n\n" + text
				continue
			}
			results = len(out)
			out = append(out, task.Message{Session: m.Session, Run: m.Run, Step: m.Step, Role: task.RoleUser, At: m.At, Text: text})
		default:
			out = append(out, m)
		}
	}
	return out
}

// renderCall writes a call as a block; one that was a broken block, as it was
// written.
func renderCall(c task.ToolCall) string {
	if opensCall.MatchString(c.Arguments) {
		return strings.TrimRight(c.Arguments, "\r\n")
	}
	arguments := c.Arguments
	if !json.Valid([]byte(arguments)) {
		quoted, _ := json.Marshal(arguments) // a string always has a form in JSON
		arguments = string(quoted)
	}
	name, _ := json.Marshal(c.Name)
	return openFence + "\n{\"tool\": " + string(name) + ", \"arguments\": " + arguments + "}\n```"
}

// renderResult writes a result into a fence that is longer than any in it, so that
// it cannot end early.
func renderResult(tool string, m task.Message) string {
	fence := "```"
	for strings.Contains(m.Text, fence) {
		fence += "`"
	}
	outcome := "Result"
	if m.IsError {
		outcome = "Error"
	}
	return fmt.Sprintf("%s of %s:\n%s\n%s\n%s", outcome, tool, fence, m.Text, fence)
}

// textFilter passes on streamed text without the blocks of calls.
type textFilter struct {
	emit   func(string)
	fences fences
	rest   strings.Builder // a line that has no end yet and may be a fence
	begun  bool            // the beginning of this line was passed on
}

func (f *textFilter) add(delta string) {
	for part := range strings.SplitAfterSeq(delta, "\n") {
		f.rest.WriteString(part)
		switch {
		case strings.HasSuffix(part, "\n"):
			f.flush()
		case f.begun || f.fences.open == nil && !mayBeFence(f.rest.String()):
			f.send(f.rest.String())
			f.rest.Reset()
			f.begun = true
		}
	}
}

// mayBeFence tells whether a line that begins so can still be a fence.
func mayBeFence(line string) bool {
	t := strings.TrimLeft(line, " \t")
	return t == "" || t[0] == '`' || t[0] == '~'
}

// flush passes on the line that is complete, or the last one.
func (f *textFilter) flush() {
	line := f.rest.String()
	if line != "" && !f.begun {
		line = f.fences.line(0, line)
	}
	f.send(line)
	f.rest.Reset()
	f.begun = false
}

func (f *textFilter) send(text string) {
	if text != "" {
		f.emit(text)
	}
}
