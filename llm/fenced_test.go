package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/task"
)

func TestParseFenced(t *testing.T) {
	call := func(name, args string) task.ToolCall { return task.ToolCall{Name: name, Arguments: args} }
	tests := []struct {
		name, text, clean string
		calls             []task.ToolCall
		err               string
	}{
		{"no call", "Just text.\n", "Just text.", nil, ""},
		{"empty", "", "", nil, ""},
		{"one", "I look.\n\n```tool_call\n{\"tool\": \"a\", \"arguments\": {\"x\": 1.0}}\n```\n", "I look.", []task.ToolCall{call("a", `{"x": 1.0}`)}, ""},
		{"exact bytes", "```tool_call\n{\"arguments\":{ \"b\":1e3,\n\t\"a\":\"\\u00e9\", \"a\":2 },\"tool\":\"a\"}\n```", "", []task.ToolCall{call("a", "{ \"b\":1e3,\n\t\"a\":\"\\u00e9\", \"a\":2 }")}, ""},
		{"no arguments", "```tool_call\n{\"tool\":\"report\"}\n```", "", []task.ToolCall{call("report", "{}")}, ""},
		{"two with text", "a\n```tool_call\n{\"tool\":\"x\"}\n```\nb\n```tool_call\n{\"tool\":\"y\"}\n```\nc", "a\nb\nc", []task.ToolCall{call("x", "{}"), call("y", "{}")}, ""},
		{"windows lines", "hi\r\n```tool_call\r\n{\"tool\":\"x\"}\r\n```\r\n", "hi", []task.ToolCall{call("x", "{}")}, ""},
		{"odd arguments are passed on", "```tool_call\n{\"tool\":\"x\",\"arguments\":[1]}\n```", "", []task.ToolCall{call("x", "[1]")}, ""},

		{"another language", "```json\n{\"tool\":\"x\"}\n```", "```json\n{\"tool\":\"x\"}\n```", nil, ""},
		{"longer word", "```tool_calls\n{\"tool\":\"x\"}\n```", "```tool_calls\n{\"tool\":\"x\"}\n```", nil, ""},
		{"in a longer fence", "````\n```tool_call\n{\"tool\":\"x\"}\n```\n````", "````\n```tool_call\n{\"tool\":\"x\"}\n```\n````", nil, ""},
		{"in tildes", "~~~\n```tool_call\n{\"tool\":\"x\"}\n```\n~~~", "~~~\n```tool_call\n{\"tool\":\"x\"}\n```\n~~~", nil, ""},
		{"after a code block", "```\ncode\n```\n```tool_call\n{\"tool\":\"x\"}\n```", "```\ncode\n```", []task.ToolCall{call("x", "{}")}, ""},
		{"within a line", "say ```tool_call {} ```", "say ```tool_call {} ```", nil, ""},

		{"not closed", "```tool_call\n{\"tool\":\"x\"}\n", "", []task.ToolCall{call("x", "```tool_call\n{\"tool\":\"x\"}\n")}, "line 1: tool_call block without its closing fence"},
		{"indented", " ```tool_call\n{\"tool\":\"x\"}\n ```\nb", "b", []task.ToolCall{call("x", " ```tool_call\n{\"tool\":\"x\"}\n ```\n")}, "line 1: tool_call block: its opening fence must stand alone"},
		{"on one line", "```tool_call {\"tool\":\"x\"}```\nb", "b", []task.ToolCall{call("x", "```tool_call {\"tool\":\"x\"}```\n")}, "must stand alone"},
		{"broken JSON", "a\n```tool_call\n{\"tool\": \"x\", \"arguments\": {\"t\": \"un\"quoted\"}}\n```", "a", []task.ToolCall{call("x", "```tool_call\n{\"tool\": \"x\", \"arguments\": {\"t\": \"un\"quoted\"}}\n```")}, "line 2: tool_call block: "},
		{"no JSON", "```tool_call\nfiles/read\n```", "", []task.ToolCall{call("tool_call", "```tool_call\nfiles/read\n```")}, "want one JSON object"},
		{"empty block", "```tool_call\n```", "", []task.ToolCall{call("tool_call", "```tool_call\n```")}, "want one JSON object"},
		{"array", "```tool_call\n[{\"tool\":\"x\"}]\n```", "", []task.ToolCall{call("x", "```tool_call\n[{\"tool\":\"x\"}]\n```")}, "want one JSON object"},
		{"two objects", "```tool_call\n{\"tool\":\"x\"}\n{\"tool\":\"y\"}\n```", "", []task.ToolCall{call("x", "```tool_call\n{\"tool\":\"x\"}\n{\"tool\":\"y\"}\n```")}, "nothing after the JSON object"},
		{"unknown key", "```tool_call\n{\"tool\":\"x\",\"args\":{}}\n```", "", []task.ToolCall{call("x", "```tool_call\n{\"tool\":\"x\",\"args\":{}}\n```")}, `unknown key "args"`},
		{"key twice", "```tool_call\n{\"tool\":\"x\",\"tool\":\"y\"}\n```", "", []task.ToolCall{call("x", "```tool_call\n{\"tool\":\"x\",\"tool\":\"y\"}\n```")}, `key "tool" is there twice`},
		{"no name", "```tool_call\n{\"arguments\":{}}\n```", "", []task.ToolCall{call("tool_call", "```tool_call\n{\"arguments\":{}}\n```")}, "want the tool's name"},
		{"name is a number", "```tool_call\n{\"tool\":3}\n```", "", []task.ToolCall{call("tool_call", "```tool_call\n{\"tool\":3}\n```")}, "want the tool's name"},
		{"a good one beside a broken one", "```tool_call\n{\n```\n```tool_call\n{\"tool\":\"y\"}\n```", "", []task.ToolCall{call("tool_call", "```tool_call\n{\n```\n"), call("y", "{}")}, "line 1: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean, calls, err := llm.ParseFenced(tt.text)
			if clean != tt.clean {
				t.Errorf("clean text %q, want %q", clean, tt.clean)
			}
			for i := range tt.calls {
				tt.calls[i].ID = fmt.Sprintf("fenced_%d", i+1)
			}
			if fmt.Sprintf("%q", calls) != fmt.Sprintf("%q", tt.calls) {
				t.Errorf("calls %q, want %q", calls, tt.calls)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestRenderTools(t *testing.T) {
	tools := []llm.Tool{
		{Name: "mcp__files__read_file", Description: "Reads\n a file.", InputSchema: json.RawMessage("{ \"type\": \"object\" }")},
		{Name: "report"},
	}
	got := llm.RenderTools(tools)
	for _, want := range []string{"```tool_call\n{\"tool\": \"NAME\", \"arguments\": {}}\n```",
		"\n- mcp__files__read_file: Reads a file.\n  arguments: {\"type\":\"object\"}\n- report"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got != llm.RenderTools(tools) {
		t.Error("the same tools gave other bytes")
	}
	// The example is one that the parser takes.
	if _, calls, err := llm.ParseFenced(got); err != nil || len(calls) != 1 || calls[0].Name != "NAME" {
		t.Errorf("the example reads as %v, %v", calls, err)
	}
}

// plain is a model without tools that plays the script as text.
type plain struct {
	t      llmtest.TB
	script []llmtest.Turn
}

func (p *plain) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(req.Tools) > 0 || !strings.Contains(req.System, "mcp__files__read_file") {
		p.t.Errorf("tools were not moved into the prompt: %q", req.System)
	}
	turn, ok := llmtest.Hear(p.t, p.script, p.unfence(req.Messages))
	if !ok {
		return nil, &llm.Error{Kind: llm.BadRequest}
	}
	if turn.Hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	pieces := append([]string{}, turn.Pieces...)
	for _, c := range turn.Calls {
		pieces = append(pieces, "\n``", "`tool_", "call\n{\"tool\": \""+c.Name+"\", \"argu", "ments\": "+c.Arguments+"}", "\n```\n")
	}
	if req.OnText != nil {
		for _, piece := range pieces {
			req.OnText(piece)
		}
	}
	finish := turn.Finish
	if finish == "" {
		finish = llm.FinishStop
	}
	return &llm.Response{Text: strings.Join(pieces, ""), Finish: finish, Usage: turn.Usage}, nil
}

// unfence turns the text that the model was sent back into calls and results, so
// that it can be compared with what was played.
func (p *plain) unfence(msgs []task.Message) []task.Message {
	var out []task.Message
	var calls []task.ToolCall
	for _, m := range msgs {
		if m.Role == task.RoleTool || len(m.Calls) > 0 {
			p.t.Errorf("a call or a result was sent as such: %+v", m)
		}
		if m.Role == task.RoleAssistant {
			m.Text, calls, _ = llm.ParseFenced(m.Text)
			m.Calls = calls
			out = append(out, m)
			continue
		}
		for _, c := range calls {
			want := "Result of " + c.Name + ":\n```\n" + llmtest.Result(c) + "\n```"
			if !strings.Contains(m.Text, want) {
				p.t.Errorf("results %q lack %q", m.Text, want)
			}
			out = append(out, task.Message{Role: task.RoleTool, CallID: c.ID, Text: llmtest.Result(c)})
		}
		if calls == nil {
			out = append(out, m)
		}
		calls = nil
	}
	return out
}

func TestFencedConformance(t *testing.T) {
	llmtest.Conformance(t, llmtest.Subject{
		New: func(t llmtest.TB, script []llmtest.Turn) llm.Model {
			return llm.Fenced(llm.Fenced(&plain{t, script}))
		},
		Lacks: []llmtest.Feature{llmtest.RawArguments, llmtest.Reasoning},
	})
}

// recorder answers with one text and keeps what it was asked.
type recorder struct {
	text string
	got  llm.Request
}

func (r *recorder) Next(_ context.Context, req *llm.Request) (*llm.Response, error) {
	r.got = *req
	return &llm.Response{Text: r.text, Finish: llm.FinishStop, Vendor: "v", Opaque: json.RawMessage(`1`)}, nil
}

func TestFencedHistory(t *testing.T) {
	broken := "```tool_call\n{\"tool\": \"a\"\n```\n"
	r := &recorder{text: "Fine."}
	resp, err := llm.Fenced(r).Next(t.Context(), &llm.Request{Messages: []task.Message{
		{Role: task.RoleUser, Text: "Go."},
		{Role: task.RoleAssistant, Text: "Both.", Vendor: "v", Opaque: json.RawMessage(`2`), Calls: []task.ToolCall{
			{ID: "1", Name: "a", Arguments: `{"x":1}`}, {ID: "2", Name: "b", Arguments: `{"cut`}, {ID: "3", Name: "a", Arguments: broken}}},
		{Role: task.RoleTool, CallID: "1", Text: "one ```` two"},
		{Role: task.RoleTool, CallID: "2", Text: "bad arguments", IsError: true},
		{Role: task.RoleTool, CallID: "3", Text: "bad block", IsError: true},
		{Role: task.RoleSummary, Text: "Before."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Go.",
		"Both.\n\n```tool_call\n{\"tool\": \"a\", \"arguments\": {\"x\":1}}\n```\n\n```tool_call\n{\"tool\": \"b\", \"arguments\": \"{\\\"cut\"}\n```\n\n" + strings.TrimRight(broken, "\n"),
		"Result of a:\n`````\none ```` two\n`````\n\nError of b:\n```\nbad arguments\n```\n\nError of a:\n```\nbad block\n```",
		"Before.",
	}
	if len(r.got.Messages) != len(want) {
		t.Fatalf("sent %+v", r.got.Messages)
	}
	for i, m := range r.got.Messages {
		if m.Text != want[i] || m.Calls != nil || m.Role == task.RoleTool {
			t.Errorf("message %d: %s %q, want %q", i+1, m.Role, m.Text, want[i])
		}
	}
	if string(r.got.Messages[1].Opaque) != "2" || resp.Text != "Fine." || resp.Finish != llm.FinishStop || string(resp.Opaque) != "1" {
		t.Errorf("opaque parts or the answer were changed: %+v, %+v", r.got.Messages[1], resp)
	}
	if r.got.System != "" {
		t.Errorf("without tools nothing is taught: %q", r.got.System)
	}
}

func TestFencedKeepsLength(t *testing.T) {
	r := &recorder{text: "```tool_call\n{\"tool\": \"a\", \"arg"}
	resp, err := llm.Fenced(lengthened{r}).Next(t.Context(), &llm.Request{Messages: []task.Message{llmtest.Opening()}})
	if err != nil || resp.Finish != llm.FinishLength || len(resp.Calls) != 1 || json.Valid([]byte(resp.Calls[0].Arguments)) {
		t.Errorf("%+v, %v", resp, err)
	}
}

type lengthened struct{ *recorder }

func (l lengthened) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	r, err := l.recorder.Next(ctx, req)
	r.Finish = llm.FinishLength
	return r, err
}

// chunked streams a text in pieces.
type chunked struct {
	text string
	size int
}

func (c chunked) Next(_ context.Context, req *llm.Request) (*llm.Response, error) {
	for s := c.text; s != ""; {
		n := min(c.size, len(s))
		req.OnText(s[:n])
		s = s[n:]
	}
	return &llm.Response{Text: c.text, Finish: llm.FinishStop}, nil
}

func FuzzParseFenced(f *testing.F) {
	f.Add("a\n```tool_call\n{\"tool\":\"x\",\"arguments\":{\"a\":[1]}}\n```\nb", 3)
	f.Add("````\n```tool_call\n````\n ```tool_call x\n```", 1)
	f.Add("~~~\n``` \n x ```tool_call", 2)
	f.Fuzz(func(t *testing.T, text string, size int) {
		clean, calls, err := llm.ParseFenced(text)
		if len(clean) > len(text) || err != nil && len(calls) == 0 {
			t.Fatalf("%q: clean %q, calls %q, %v", text, clean, calls, err)
		}
		for i, c := range calls {
			if c.ID != fmt.Sprintf("fenced_%d", i+1) || c.Name == "" {
				t.Fatalf("call %q", c)
			}
			// Arguments are bytes that the model wrote, or none.
			if c.Arguments != "{}" && json.Valid([]byte(c.Arguments)) && !strings.Contains(text, c.Arguments) {
				t.Fatalf("arguments %q are not the bytes of %q", c.Arguments, text)
			}
		}
		if size < 1 || !strings.Contains(text, "tool_call") {
			return
		}
		var shown strings.Builder
		_, err = llm.Fenced(chunked{text, size}).Next(t.Context(), &llm.Request{
			Messages: []task.Message{llmtest.Opening()}, OnText: func(s string) { shown.WriteString(s) }})
		if err != nil || strings.TrimSpace(shown.String()) != clean && len(calls) > 0 {
			t.Fatalf("streamed %q, clean %q, %v", shown.String(), clean, err)
		}
	})
}
