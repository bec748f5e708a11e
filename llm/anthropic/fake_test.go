package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"runnerd/llm"
	"runnerd/llm/anthropic"
	"runnerd/llm/llmtest"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialect is how a server writes the same answer.
type dialect struct {
	name string
	// fragment is how many bytes of a text or of arguments go into one delta.
	fragment int
	// eager writes whole blocks at their start, as some compatible servers do.
	eager bool
	// plainJSON does not stream.
	plainJSON bool
	// v1 has the base URL end in /v1.
	v1 bool
}

var dialects = []dialect{
	{name: "anthropic", fragment: 5},
	{name: "one byte at a time", fragment: 1, v1: true},
	{name: "whole blocks", eager: true},
	{name: "not streaming", plainJSON: true},
}

func TestConformance(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			s := llmtest.Subject{New: func(t llmtest.TB, script []llmtest.Turn) llm.Model { return d.serve(t, script) }}
			if d.plainJSON {
				s.Lacks = append(s.Lacks, llmtest.Streaming)
			}
			if d.plainJSON || d.eager {
				s.Lacks = append(s.Lacks, llmtest.RawArguments) // input is an object there
			}
			llmtest.Conformance(t, s)
		})
	}
}

func (d dialect) serve(t llmtest.TB, script []llmtest.Turn) llm.Model {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard, err := hear(r)
		if err != nil {
			t.Errorf("request: %v", err)
			http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"bad test request"}}`, http.StatusBadRequest)
			return
		}
		turn, ok := llmtest.Hear(t, script, heard)
		switch {
		case !ok:
			http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"bad history"}}`, http.StatusBadRequest)
		case turn.Hang:
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case d.plainJSON:
			d.writeWhole(w, turn)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range d.events(turn) {
				writeEvent(w, e)
			}
		}
	}))
	t.Cleanup(srv.Close)
	base := srv.URL
	if d.v1 {
		base += "/v1/"
	}
	return open(t, anthropic.Options{Endpoint: llm.Endpoint{BaseURL: base, Model: "test-model",
		Key: func() (string, error) { return "sk-test\n", nil }}, Betas: []string{"a-1", "b-2"}})
}

func open(t llmtest.TB, opts anthropic.Options) *anthropic.Model {
	t.Helper()
	m, err := anthropic.New(opts)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func writeEvent(w http.ResponseWriter, data string) {
	var e struct{ Type string }
	_ = json.Unmarshal([]byte(data), &e)
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, data)
	w.(http.Flusher).Flush()
}

type wireRequest struct {
	Model     string
	Stream    bool
	MaxTokens int                    `json:"max_tokens"`
	Choice    *struct{ Type string } `json:"tool_choice"`
	System    []wireBlock
	Tools     []wireTool
	Messages  []struct {
		Role    string
		Content []wireBlock
	}
}

type wireTool struct {
	Name        string
	Description string
	InputSchema map[string]any  `json:"input_schema"`
	Cache       json.RawMessage `json:"cache_control"`
}

type wireBlock struct {
	Type, Text, ID, Name, Thinking, Signature string
	Input                                     json.RawMessage
	ToolUseID                                 string `json:"tool_use_id"`
	Content                                   string
	IsError                                   bool            `json:"is_error"`
	Cache                                     json.RawMessage `json:"cache_control"`
}

// hear reads a request as strictly as the vendor does.
func hear(r *http.Request) ([]task.Message, error) {
	if r.Method != "POST" || r.URL.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != "sk-test" ||
		r.Header.Get("Anthropic-Version") != "2023-06-01" || r.Header.Get("Anthropic-Beta") != "a-1,b-2" {
		return nil, fmt.Errorf("%s %s with %v", r.Method, r.URL.Path, r.Header)
	}
	var body wireRequest
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Model != "test-model" || !body.Stream || body.MaxTokens != 1000 || body.Choice != nil {
		return nil, fmt.Errorf("settings %+v", body)
	}
	if len(body.System) != 1 || body.System[0].Text != "You are a test." || body.System[0].Cache == nil {
		return nil, fmt.Errorf("system %+v", body.System)
	}
	for _, tool := range body.Tools {
		if tool.Name == "" || tool.InputSchema["type"] != "object" {
			return nil, fmt.Errorf("tool %+v", tool)
		}
	}
	return hearMessages(body)
}

// hearMessages holds the messages against the rules of the wire and gives them
// back in neutral form.
func hearMessages(body wireRequest) ([]task.Message, error) {
	var heard []task.Message
	for i, m := range body.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return nil, fmt.Errorf("message %d is the %s's, want %s", i+1, m.Role, want)
		}
		if len(m.Content) == 0 {
			return nil, fmt.Errorf("message %d is empty", i+1)
		}
		for j, b := range m.Content {
			if last := i == len(body.Messages)-1 && j == len(m.Content)-1; (b.Cache != nil) != last {
				return nil, fmt.Errorf("cache_control at block %d of message %d", j+1, i+1)
			}
		}
		var err error
		if m.Role == "assistant" {
			heard, err = hearAssistant(heard, m.Content)
		} else {
			heard, err = hearUser(heard, m.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	return heard, nil
}

func hearUser(heard []task.Message, content []wireBlock) ([]task.Message, error) {
	texts := false
	for _, b := range content {
		switch {
		case b.Type == "tool_result" && texts:
			return nil, errors.New("a result after a text")
		case b.Type == "tool_result":
			heard = append(heard, task.Message{Role: task.RoleTool, CallID: b.ToolUseID, Text: b.Content, IsError: b.IsError})
		case b.Type == "text" && strings.TrimSpace(b.Text) != "":
			texts = true
			heard = append(heard, task.Message{Role: task.RoleUser, Text: b.Text})
		default:
			return nil, fmt.Errorf("block %+v", b)
		}
	}
	return heard, nil
}

func hearAssistant(heard []task.Message, content []wireBlock) ([]task.Message, error) {
	m := task.Message{Role: task.RoleAssistant}
	for _, b := range content {
		switch b.Type {
		case "thinking":
			if b.Signature != signature(b.Thinking) {
				return nil, fmt.Errorf("signature %q of %q", b.Signature, b.Thinking)
			}
			if m.Text != "" || len(m.Calls) > 0 {
				return nil, errors.New("reasoning is not in its place")
			}
			m.Opaque = append(m.Opaque, b.Thinking...)
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return nil, errors.New("a blank text")
			}
			m.Text += b.Text
		case "tool_use":
			var input map[string]any
			if json.Unmarshal(b.Input, &input) != nil {
				return nil, fmt.Errorf("input %s", b.Input)
			}
			m.Calls = append(m.Calls, task.ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		default:
			return nil, fmt.Errorf("block %+v", b)
		}
	}
	if last := content[len(content)-1]; last.Type == "thinking" {
		return nil, errors.New("the final block cannot be thinking")
	}
	return append(heard, m), nil
}

func signature(thinking string) string { return "sig/+=<" + thinking + ">" }

// contents are the blocks of a turn, whole.
func contents(turn llmtest.Turn) []map[string]any {
	var blocks []map[string]any
	if turn.Think != "" {
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": turn.Think, "signature": signature(turn.Think)})
	}
	if turn.Text() != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": turn.Text()})
	}
	for _, c := range turn.Calls {
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Arguments)})
	}
	return blocks
}

func (d dialect) writeWhole(w io.Writer, turn llmtest.Turn) {
	if w, ok := w.(http.ResponseWriter); ok {
		w.Header().Set("Content-Type", "application/json")
	}
	io.WriteString(w, encode(map[string]any{"type": "message", "role": "assistant", "content": append([]map[string]any{}, contents(turn)...),
		"stop_reason": stopReason(turn), "usage": usage(turn)}))
}

func (d dialect) events(turn llmtest.Turn) []string {
	out := []string{
		encode(map[string]any{"type": "message_start", "message": map[string]any{"role": "assistant", "content": []any{}, "stop_reason": nil, "usage": headUsage(turn)}}),
		`{"type":"ping"}`,
	}
	for i, b := range contents(turn) {
		out = append(out, d.block(i, b, turn)...)
	}
	return append(out,
		encode(map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": stopReason(turn), "stop_sequence": nil},
			"usage": map[string]any{"output_tokens": turn.Usage.Output}}),
		`{"type":"message_stop"}`)
}

func (d dialect) block(i int, b map[string]any, turn llmtest.Turn) []string {
	start := func(b map[string]any) string {
		return encode(map[string]any{"type": "content_block_start", "index": i, "content_block": b})
	}
	stop := encode(map[string]any{"type": "content_block_stop", "index": i})
	if d.eager && b["type"] != "text" {
		return []string{start(b), stop}
	}
	var out []string
	delta := func(kind, field string, pieces []string) {
		for _, p := range pieces {
			out = append(out, encode(map[string]any{"type": "content_block_delta", "index": i, "delta": map[string]any{"type": kind, field: p}}))
		}
	}
	switch b["type"] {
	case "text":
		out = append(out, start(map[string]any{"type": "text", "text": ""}))
		delta("text_delta", "text", turn.Pieces)
	case "thinking":
		out = append(out, start(map[string]any{"type": "thinking", "thinking": "", "signature": ""}))
		delta("thinking_delta", "thinking", split(turn.Think, d.fragment))
		delta("signature_delta", "signature", []string{b["signature"].(string)})
	case "tool_use":
		out = append(out, start(map[string]any{"type": "tool_use", "id": b["id"], "name": b["name"], "input": map[string]any{}}))
		if args := string(b["input"].(json.RawMessage)); args != "{}" {
			delta("input_json_delta", "partial_json", append([]string{""}, split(args, d.fragment)...))
		}
	}
	return append(out, stop)
}

func stopReason(turn llmtest.Turn) string {
	return map[llm.Finish]string{llm.FinishStop: "end_turn", llm.FinishToolCalls: "tool_use", llm.FinishLength: "max_tokens"}[turn.Finished()]
}

// headUsage is what a stream begins with: the input whole, of the output a first
// guess.
func headUsage(turn llmtest.Turn) map[string]any {
	u := usage(turn)
	u["output_tokens"] = min(turn.Usage.Output, 1)
	return u
}

func usage(turn llmtest.Turn) map[string]any {
	return map[string]any{"input_tokens": turn.Usage.Input - turn.Usage.CacheRead - turn.Usage.CacheWrite, "output_tokens": turn.Usage.Output,
		"cache_read_input_tokens": turn.Usage.CacheRead, "cache_creation_input_tokens": turn.Usage.CacheWrite}
}

// encode leaves the bytes of a raw message as they are, white space included,
// but for what json.Compact takes out.
func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// split cuts s into parts of n bytes, keeping runes whole.
func split(s string, n int) []string {
	var parts []string
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
		if b.Len() >= max(n, 1) {
			parts = append(parts, b.String())
			b.Reset()
		}
	}
	if b.Len() > 0 {
		parts = append(parts, b.String())
	}
	return parts
}
