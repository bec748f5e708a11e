package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"runnerd/llm"
	"runnerd/task"
)

// Conformance runs every case that the subject has the features for.
func Conformance(t *testing.T, s Subject) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range c.needs {
				if !s.can(f) {
					t.Skipf("the wire has no %s", f)
				}
			}
			play(t, s, c.script)
		})
	}
	t.Run("cancel", func(t *testing.T) { cancels(t, s) })
	t.Run("cancelled before", func(t *testing.T) { cancelledBefore(t, s) })
	t.Run("bad history", func(t *testing.T) { badHistory(t, s) })
	t.Run("concurrent use", func(t *testing.T) { concurrent(t, s) })
}

type testCase struct {
	name   string
	needs  []Feature
	script []Turn
}

func cases() []testCase {
	call := func(id, name, args string) task.ToolCall {
		return task.ToolCall{ID: id, Name: name, Arguments: args}
	}
	done := Turn{Pieces: []string{"Done."}}
	return []testCase{
		{"text", nil, []Turn{{Pieces: []string{"Good ", "morning, ", "Zoë \U0001F980."}}}},
		{"several lines", nil, []Turn{{Pieces: []string{"one\n", "two\n\n", "data: three"}}}},
		{"empty answer", nil, []Turn{{}}},
		{"usage", []Feature{Usage}, []Turn{{Pieces: []string{"ok"}, Usage: task.Usage{Input: 120, Output: 7, CacheRead: 100}}}},
		{"length", []Feature{Finish}, []Turn{{Pieces: []string{"cut of"}, Finish: llm.FinishLength}}},
		{"one call", []Feature{Calls}, []Turn{
			{Calls: []task.ToolCall{call("call_a", "mcp__files__read_file", `{"path":"a.txt"}`)}}, done}},
		{"text and call", []Feature{Calls}, []Turn{
			{Pieces: []string{"I look ", "it up."}, Calls: []task.ToolCall{call("call_a", "mcp__web__get", `{"url":"http://x"}`)}}, done}},
		{"parallel calls", []Feature{Calls}, []Turn{
			{Calls: []task.ToolCall{
				call("call_a", "mcp__files__read_file", `{"path":"a"}`),
				call("call_b", "mcp__files__read_file", `{"path":"b"}`),
				call("call_c", "report", `{}`),
			}}, done}},
		{"several steps", []Feature{Calls}, []Turn{
			{Calls: []task.ToolCall{call("call_a", "mcp__files__list", `{}`)}},
			{Pieces: []string{"Now the second."}, Calls: []task.ToolCall{call("call_b", "mcp__files__read_file", `{"n":[1,2.50,1e3]}`)}},
			done}},
		{"exact argument bytes", []Feature{Calls, RawArguments}, []Turn{
			{Calls: []task.ToolCall{call("call_a", "mcp__files__write_file", `{ "b":1.0,  "a":"A\/é<", "a" : 12345678901234567890 }`)}}, done}},
		{"malformed arguments", []Feature{Calls, RawArguments}, []Turn{
			{Calls: []task.ToolCall{call("call_a", "mcp__files__write_file", `{"path": "a.txt", "text": "un`)}}, done}},
		{"arguments that are no object", []Feature{Calls, RawArguments}, []Turn{
			{Calls: []task.ToolCall{call("call_a", "x", `[1,2]`), call("call_b", "y", `"text"`)}}, done}},
		{"unknown tool", []Feature{Calls}, []Turn{
			{Calls: []task.ToolCall{call("call_a", "no_such_tool", `{"x":null}`)}}, done}},
		{"reasoning comes back", []Feature{Reasoning, Calls}, []Turn{
			{Think: "First I list.", Calls: []task.ToolCall{call("call_a", "mcp__files__list", `{}`)}},
			{Think: "Now \"I\" know.", Pieces: []string{"One moment."}, Calls: []task.ToolCall{call("call_b", "report", `{"outcome":"ok"}`)}},
			done}},
	}
}

// play asks for every turn of the script, answering calls as a loop would.
func play(t *testing.T, s Subject, script []Turn) {
	t.Helper()
	model := s.New(t, script)
	msgs := []task.Message{Opening()}
	for i, want := range script {
		var deltas []string
		req := request(s, msgs)
		req.OnText = func(d string) { deltas = append(deltas, d) }
		got, err := model.Next(t.Context(), req)
		if err != nil {
			t.Fatalf("turn %d: %v", i+1, err)
		}
		compare(t, s, want, got, deltas)
		if t.Failed() {
			t.FailNow()
		}
		msgs = append(msgs, Answered(got)...)
	}
}

func request(s Subject, msgs []task.Message) *llm.Request {
	req := &llm.Request{System: "You are a test.", Messages: msgs, MaxOutputTokens: 1000}
	if s.can(Calls) {
		req.Tools = Tools()
	}
	return req
}

// Opening is the user message that a conformance conversation begins with.
func Opening() task.Message {
	return task.Message{Role: task.RoleUser, Text: "Do your work."}
}

// Tools are the tools that a conformance request offers.
func Tools() []llm.Tool {
	schema := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)
	return []llm.Tool{
		{Name: "mcp__files__list", Description: "Lists files."},
		{Name: "mcp__files__read_file", Description: "Reads a file.", InputSchema: schema},
		{Name: "mcp__files__write_file", Description: "Writes a file.", InputSchema: schema},
		{Name: "mcp__web__get", Description: "Fetches a page.", InputSchema: schema},
		{Name: "report", Description: "States the outcome."},
	}
}

// Result is what the conversation answers to a call.
func Result(c task.ToolCall) string { return "result of " + c.Name }

// Answered turns a response into the messages that follow it: the assistant's
// and one tool message for each call.
func Answered(r *llm.Response) []task.Message {
	msgs := []task.Message{{
		Role: task.RoleAssistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque, Vendor: r.Vendor,
	}}
	for _, c := range r.Calls {
		msgs = append(msgs, task.Message{Role: task.RoleTool, CallID: c.ID, Text: Result(c)})
	}
	return msgs
}

func compare(t *testing.T, s Subject, want Turn, got *llm.Response, deltas []string) {
	t.Helper()
	if got.Text != want.Text() {
		t.Errorf("text %q, want %q", got.Text, want.Text())
	}
	// White space around the text may have streamed before it was known to be that.
	if joined := strings.Join(deltas, ""); strings.TrimSpace(joined) != strings.TrimSpace(got.Text) {
		t.Errorf("streamed %q, answered %q", joined, got.Text)
	}
	if len(want.Pieces) > 1 && s.can(Streaming) && len(deltas) < 2 {
		t.Errorf("text of %d pieces came in %d", len(want.Pieces), len(deltas))
	}
	if s.can(Finish) && got.Finish != want.Finished() {
		t.Errorf("finish %q, want %q", got.Finish, want.Finished())
	}
	if s.can(Usage) && got.Usage != want.Usage {
		t.Errorf("usage %+v, want %+v", got.Usage, want.Usage)
	}
	if s.can(Reasoning) && want.Think != "" && (len(got.Opaque) == 0 || got.Vendor == "") {
		t.Errorf("reasoning was dropped: opaque %q, vendor %q", got.Opaque, got.Vendor)
	}
	compareCalls(t, want.Calls, got.Calls)
}

func compareCalls(t *testing.T, want, got []task.ToolCall) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d calls, want %d: %+v", len(got), len(want), got)
		return
	}
	var ids []string
	for i, c := range got {
		if c.Name != want[i].Name || c.Arguments != want[i].Arguments {
			t.Errorf("call %d is %s(%s), want %s(%s)", i+1, c.Name, c.Arguments, want[i].Name, want[i].Arguments)
		}
		if c.ID == "" || slices.Contains(ids, c.ID) {
			t.Errorf("call %d has the id %q, want one of its own (before it: %q)", i+1, c.ID, ids)
		}
		ids = append(ids, c.ID)
	}
}

// prompt is how soon a model must let go of a cancelled request.
const prompt = 3 * time.Second

func cancels(t *testing.T, s Subject) {
	model := s.New(t, []Turn{{Hang: true}})
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(50*time.Millisecond, cancel)
	defer timer.Stop()
	begin := time.Now()
	_, err := model.Next(ctx, request(s, []task.Message{Opening()}))
	isCancelled(t, err)
	if d := time.Since(begin); d > prompt {
		t.Errorf("returned %s after the cancel, want at most %s", d, prompt)
	}
}

func cancelledBefore(t *testing.T, s Subject) {
	model := s.New(t, []Turn{{Pieces: []string{"too late"}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := model.Next(ctx, request(s, []task.Message{Opening()}))
	isCancelled(t, err)
}

// isCancelled wants the caller's own cancel told apart from what a vendor did.
func isCancelled(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled in it", err)
	}
	if kind := llm.ErrorKind(err); kind != "" {
		t.Errorf("a cancel by the caller was blamed on the vendor as %s", kind)
	}
}

func badHistory(t *testing.T, s Subject) {
	model := s.New(t, []Turn{{Pieces: []string{"never"}}})
	orphan := task.Message{Role: task.RoleTool, CallID: "call_gone", Text: "x"}
	for name, msgs := range map[string][]task.Message{
		"empty":  nil,
		"orphan": {Opening(), orphan},
	} {
		_, err := model.Next(t.Context(), request(s, msgs))
		if llm.ErrorKind(err) != llm.BadRequest {
			t.Errorf("%s history: error %v, want kind %s", name, err, llm.BadRequest)
		}
	}
}

func concurrent(t *testing.T, s Subject) {
	const n = 4
	model := s.New(t, []Turn{{Pieces: []string{"Hello ", "there."}}})
	errs := make(chan error, n)
	for range n {
		go func() {
			got, err := model.Next(t.Context(), request(s, []task.Message{Opening()}))
			if err == nil && got.Text != "Hello there." {
				err = fmt.Errorf("text %q", got.Text)
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
