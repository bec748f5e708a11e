package ollama_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/ollama"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialect is how a server writes the same answer.
type dialect struct {
	name string
	// ids gives calls an id and wants it back, as newer servers do.
	ids bool
	// whole writes the answer as one line.
	whole bool
	// api has the base URL end in /api.
	api bool
	// think is the field that reasoning streams in.
	think string
}

var dialects = []dialect{
	{name: "ollama", think: "thinking"},
	{name: "with ids", think: "thinking", ids: true, api: true},
	{name: "one line", think: "reasoning_content", whole: true},
}

func TestConformance(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			s := llmtest.Subject{
				New:   func(t llmtest.TB, script []llmtest.Turn) llm.Model { return d.serve(t, script) },
				Lacks: []llmtest.Feature{llmtest.RawArguments, llmtest.Usage}, // no count of cached tokens
			}
			if d.whole {
				s.Lacks = append(s.Lacks, llmtest.Streaming)
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
			http.Error(w, `{"error":"bad test request"}`, http.StatusBadRequest)
			return
		}
		turn, ok := llmtest.Hear(t, script, heard)
		if !ok {
			http.Error(w, `{"error":"bad history"}`, http.StatusBadRequest)
			return
		}
		if turn.Hang {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, l := range d.lines(turn) {
			fmt.Fprintln(w, l)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(srv.Close)
	base := srv.URL
	if d.api {
		base += "/api/"
	}
	return open(t, ollama.Options{ContextTokens: 4096, Endpoint: llm.Endpoint{BaseURL: base, Model: "test-model",
		Key: func() (string, error) { return "sk-test\n", nil }}})
}

func open(t llmtest.TB, opts ollama.Options) *ollama.Model {
	t.Helper()
	m, err := ollama.New(opts)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

type wireRequest struct {
	Model    string
	Stream   *bool
	Truncate *bool
	Shift    *bool
	Think    json.RawMessage
	Options  map[string]json.RawMessage
	Messages []json.RawMessage
	Tools    []struct {
		Type     string
		Function struct {
			Name       string
			Parameters map[string]any
		}
	}
}

type wireMessage struct {
	Role       string
	Content    *string
	Thinking   string
	Reasoning  string `json:"reasoning_content"`
	ToolName   string `json:"tool_name"`
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string
		Function struct {
			Index     *int
			Name      string
			Arguments json.RawMessage
		}
	} `json:"tool_calls"`
}

// hear reads a request as strictly as the server does, and more so.
func (d dialect) hear(r *http.Request) ([]task.Message, error) {
	if r.Method != "POST" || r.URL.Path != "/api/chat" || r.Header.Get("Authorization") != "Bearer sk-test" {
		return nil, fmt.Errorf("%s %s with %v", r.Method, r.URL.Path, r.Header)
	}
	var body wireRequest
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Model != "test-model" || !*body.Stream || *body.Truncate || *body.Shift || body.Think != nil ||
		string(body.Options["num_ctx"]) != "4096" || string(body.Options["num_predict"]) != "1000" {
		return nil, fmt.Errorf("settings %+v", body)
	}
	for _, tool := range body.Tools {
		if tool.Type != "function" || tool.Function.Name == "" || tool.Function.Parameters["type"] != "object" {
			return nil, fmt.Errorf("tool %+v", tool)
		}
	}
	if len(body.Messages) == 0 || string(body.Messages[0]) != `{"role":"system","content":"You are a test."}` {
		return nil, fmt.Errorf("no system message first: %s", body.Messages)
	}
	return d.hearMessages(body.Messages[1:])
}

// hearMessages gives calls the ids by which the neutral form tells results apart;
// the wire itself does that by order and name.
func (d dialect) hearMessages(raws []json.RawMessage) ([]task.Message, error) {
	var heard []task.Message
	var open []task.ToolCall
	for i, raw := range raws {
		var w wireMessage
		if err := json.Unmarshal(raw, &w); err != nil || w.Content == nil {
			return nil, fmt.Errorf("message %s: %w", raw, err)
		}
		m := task.Message{Role: task.Role(w.Role), Text: *w.Content, Opaque: json.RawMessage(w.Thinking + w.Reasoning)}
		if w.Role == "tool" {
			if len(open) == 0 || open[0].Name != w.ToolName || d.ids && open[0].ID != w.ToolCallID || !d.ids && w.ToolCallID != "" {
				return nil, fmt.Errorf("result %s for calls %+v", raw, open)
			}
			m.CallID, open = open[0].ID, open[1:]
		}
		for n, c := range w.ToolCalls {
			var object map[string]any
			if json.Unmarshal(c.Function.Arguments, &object) != nil || (c.ID != "") != d.ids || d.ids && *c.Function.Index != n {
				return nil, fmt.Errorf("call %+v", c)
			}
			id := c.ID
			if id == "" {
				id = fmt.Sprintf("heard_%d_%d", i, n)
			}
			m.Calls = append(m.Calls, task.ToolCall{ID: id, Name: c.Function.Name, Arguments: string(c.Function.Arguments)})
		}
		if w.Role == "assistant" {
			open = m.Calls
		}
		heard = append(heard, m)
	}
	return heard, nil
}

func (d dialect) lines(turn llmtest.Turn) []string {
	if d.whole {
		return []string{d.line(map[string]any{"content": turn.Text(), d.think: turn.Think, "tool_calls": d.calls(turn)}, turn, true)}
	}
	var out []string
	for _, r := range strings.SplitAfter(turn.Think, " ") {
		out = append(out, d.line(map[string]any{"content": "", d.think: r}, turn, false))
	}
	for _, p := range turn.Pieces {
		out = append(out, d.line(map[string]any{"content": p}, turn, false))
	}
	if len(turn.Calls) > 0 {
		out = append(out, d.line(map[string]any{"content": "", "tool_calls": d.calls(turn)}, turn, false))
	}
	return append(out, d.line(map[string]any{"content": ""}, turn, true))
}

func (d dialect) calls(turn llmtest.Turn) []any {
	var calls []any
	for i, c := range turn.Calls {
		f := map[string]any{"name": c.Name, "arguments": json.RawMessage(c.Arguments)}
		call := map[string]any{"function": f}
		if d.ids {
			f["index"], call["id"] = i, c.ID
		}
		calls = append(calls, call)
	}
	return calls
}

func (d dialect) line(message map[string]any, turn llmtest.Turn, done bool) string {
	message["role"] = "assistant"
	l := map[string]any{"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done}
	if done {
		l["done_reason"] = "stop" // for calls too
		if turn.Finish == llm.FinishLength {
			l["done_reason"] = "length"
		}
		l["prompt_eval_count"], l["eval_count"] = turn.Usage.Input, turn.Usage.Output
	}
	data, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return string(data)
}
