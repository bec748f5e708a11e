package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/openai"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialect is how one family of servers writes the same stream.
type dialect struct {
	name string
	// fragment is how many bytes of arguments go into one chunk; 0: all.
	fragment int
	// firstNull begins with a delta of null content, as llama.cpp does.
	firstNull bool
	// wholeCall puts the call and an empty content into one chunk that repeats
	// the role, as Ollama does; the index is missing.
	wholeCall bool
	// zeroIndex numbers every call 0.
	zeroIndex bool
	// freshIDs gives each fragment an id of its own, as old vLLM does.
	freshIDs bool
	// think is the field that reasoning streams in.
	think             string
	noDone, plainJSON bool
}

var dialects = []dialect{
	{name: "openai", fragment: 5, think: "reasoning_content"},
	{name: "llama.cpp", fragment: 1, firstNull: true, think: "reasoning_content"},
	{name: "ollama", wholeCall: true, think: "reasoning"},
	{name: "gemini", zeroIndex: true, think: "thought"},
	{name: "old vllm", fragment: 7, freshIDs: true, think: "reasoning_content", noDone: true},
	{name: "openrouter", fragment: 3, think: "reasoning_details"},
	{name: "not streaming", plainJSON: true, think: "reasoning_content"},
}

func TestConformance(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			s := llmtest.Subject{New: func(t llmtest.TB, script []llmtest.Turn) llm.Model {
				return d.serve(t, script)
			}}
			if d.plainJSON {
				s.Lacks = []llmtest.Feature{llmtest.Streaming}
			}
			llmtest.Conformance(t, s)
		})
	}
}

func (d dialect) serve(t llmtest.TB, script []llmtest.Turn) llm.Model {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard, err := d.hear(r)
		if err != nil {
			t.Errorf("request: %v", err)
			http.Error(w, `{"error":{"message":"bad test request"}}`, http.StatusBadRequest)
			return
		}
		turn, ok := llmtest.Hear(t, script, heard)
		if !ok {
			http.Error(w, `{"error":{"message":"bad history"}}`, http.StatusBadRequest)
			return
		}
		if turn.Hang {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if d.plainJSON {
			d.writeWhole(w, turn)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, c := range d.chunks(turn) {
			fmt.Fprintf(w, ": keepalive\n\ndata: %s\n\n", c)
			w.(http.Flusher).Flush()
		}
		if !d.noDone {
			io.WriteString(w, "data: [DONE]\n\n")
		}
	}))
	t.Cleanup(srv.Close)
	return open(t, openai.Options{Endpoint: llm.Endpoint{BaseURL: srv.URL + "/v1/", Model: "test-model",
		Key: func() (string, error) { return "sk-test\n", nil }}})
}

func open(t llmtest.TB, opts openai.Options) *openai.Model {
	t.Helper()
	m, err := openai.New(opts)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

type wireMessage struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// hear reads a request as strictly as the strictest of the servers.
func (d dialect) hear(r *http.Request) ([]task.Message, error) {
	if r.Method != "POST" || r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer sk-test" {
		return nil, fmt.Errorf("%s %s with %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
	}
	var body struct {
		Model         string
		Stream        bool
		MaxTokens     int                          `json:"max_tokens"`
		StreamOptions struct{ Include_usage bool } `json:"stream_options"`
		Messages      []json.RawMessage
		Tools         []struct {
			Type     string
			Function struct {
				Name       string
				Parameters map[string]any
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Model != "test-model" || !body.Stream || !body.StreamOptions.Include_usage || body.MaxTokens != 1000 {
		return nil, fmt.Errorf("settings %+v", body)
	}
	for _, tool := range body.Tools {
		if tool.Type != "function" || tool.Function.Name == "" || tool.Function.Parameters["type"] != "object" {
			return nil, fmt.Errorf("tool %+v", tool)
		}
	}
	var system wireMessage
	if len(body.Messages) == 0 || json.Unmarshal(body.Messages[0], &system) != nil || system.Role != "system" || *system.Content != "You are a test." {
		return nil, fmt.Errorf("no system message first: %s", body.Messages)
	}
	var heard []task.Message
	for _, raw := range body.Messages[1:] {
		m, err := d.hearMessage(raw)
		if err != nil {
			return nil, err
		}
		heard = append(heard, m)
	}
	return heard, nil
}

func (d dialect) hearMessage(raw json.RawMessage) (task.Message, error) {
	var w wireMessage
	if err := json.Unmarshal(raw, &w); err != nil {
		return task.Message{}, err
	}
	m := task.Message{Role: task.Role(w.Role), CallID: w.ToolCallID}
	if w.Content == nil && (w.Role != "assistant" || len(w.ToolCalls) == 0) {
		return m, fmt.Errorf("null content: %s", raw)
	}
	if w.Content != nil {
		m.Text = *w.Content
	}
	for _, c := range w.ToolCalls {
		var object map[string]any
		if c.Type != "function" || json.Unmarshal([]byte(c.Function.Arguments), &object) != nil {
			return m, fmt.Errorf("call that a server cannot read: %s", raw)
		}
		m.Calls = append(m.Calls, task.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	m.Opaque = json.RawMessage(d.thought(raw))
	return m, nil
}

// thought is the reasoning in a message that came back.
func (d dialect) thought(raw json.RawMessage) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields)
	var s string
	if json.Unmarshal(fields[d.think], &s) == nil {
		return s
	}
	var details []struct{ Type, Text, Signature string }
	_ = json.Unmarshal(fields[d.think], &details)
	if len(details) != 1 || details[0].Type != "reasoning.text" || details[0].Signature != "sig" {
		return string(fields[d.think])
	}
	return details[0].Text
}

func (d dialect) chunks(turn llmtest.Turn) []string {
	var out []string
	delta := func(v map[string]any) {
		out = append(out, encode(map[string]any{"id": "x", "object": "chat.completion.chunk",
			"choices": []any{map[string]any{"index": 0, "delta": v, "finish_reason": nil}}}))
	}
	first := map[string]any{"role": "assistant", "content": ""}
	if d.firstNull {
		first["content"] = nil
	}
	delta(first)
	for i, part := range split(turn.Think, 4) {
		delta(map[string]any{d.think: d.thinking(part, i, len(split(turn.Think, 4)))})
	}
	for _, p := range turn.Pieces {
		delta(map[string]any{"content": p})
	}
	for i, c := range turn.Calls {
		for _, fragment := range d.callDeltas(i, c) {
			v := map[string]any{"tool_calls": []any{fragment}}
			if d.wholeCall {
				v["role"], v["content"] = "assistant", ""
			}
			delta(v)
		}
	}
	finish := string(turn.Finished())
	out = append(out, encode(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": finish}}}))
	return append(out, encode(map[string]any{"choices": []any{}, "usage": usage(turn), "timings": map[string]any{"n": 1}}))
}

// thinking is one fragment of reasoning, as a string or as a router's entry,
// whose last fragment brings the signature.
func (d dialect) thinking(part string, i, n int) any {
	if d.think != "reasoning_details" {
		return part
	}
	entry := map[string]any{"type": "reasoning.text", "index": 0, "text": part, "signature": nil}
	if i == n-1 {
		entry["signature"] = "sig"
	}
	return []any{entry}
}

func (d dialect) callDeltas(i int, c task.ToolCall) []map[string]any {
	var out []map[string]any
	parts := []string{c.Arguments}
	if d.fragment > 0 {
		parts = append([]string{""}, split(c.Arguments, d.fragment)...)
	}
	for n, part := range parts {
		f := map[string]any{"arguments": part}
		m := map[string]any{"function": f, "index": i}
		if n == 0 {
			f["name"], m["id"], m["type"] = c.Name, c.ID, "function"
		} else if d.freshIDs {
			m["id"] = fmt.Sprintf("fresh-%d-%d", i, n)
		}
		if d.zeroIndex {
			m["index"] = 0
		}
		if d.wholeCall {
			delete(m, "index")
		}
		out = append(out, m)
	}
	return out
}

func (d dialect) writeWhole(w http.ResponseWriter, turn llmtest.Turn) {
	msg := map[string]any{"role": "assistant", "content": turn.Text()}
	if turn.Think != "" {
		msg[d.think] = turn.Think
	}
	var calls []any
	for i, c := range turn.Calls {
		calls = append(calls, d.callDeltas(i, c)[0])
	}
	msg["tool_calls"] = calls
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	io.WriteString(w, encode(map[string]any{"usage": usage(turn),
		"choices": []any{map[string]any{"index": 0, "message": msg, "finish_reason": string(turn.Finished())}}}))
}

func usage(turn llmtest.Turn) map[string]any {
	return map[string]any{"prompt_tokens": turn.Usage.Input, "completion_tokens": turn.Usage.Output,
		"prompt_tokens_details": map[string]any{"cached_tokens": turn.Usage.CacheRead}}
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// split cuts s into parts of n bytes, keeping runes whole.
func split(s string, n int) []string {
	var parts []string
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
		if b.Len() >= n {
			parts = append(parts, b.String())
			b.Reset()
		}
	}
	if b.Len() > 0 {
		parts = append(parts, b.String())
	}
	return parts
}
