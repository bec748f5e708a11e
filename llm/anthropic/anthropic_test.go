package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"runnerd/llm"
	"runnerd/llm/anthropic"
	"runnerd/llm/llmtest"
	"runnerd/task"
)

// serve answers every request with handler and returns a model that asks it.
func serve(t *testing.T, handler http.HandlerFunc, change ...func(*anthropic.Options)) *anthropic.Model {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	opts := anthropic.Options{Endpoint: llm.Endpoint{BaseURL: srv.URL, Model: "m"}}
	for _, c := range change {
		c(&opts)
	}
	return open(t, opts)
}

func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			writeEvent(w, e)
		}
	}
}

func ask(m *anthropic.Model, tools ...llm.Tool) (*llm.Response, error) {
	return m.Next(context.Background(), &llm.Request{Messages: []task.Message{llmtest.Opening()}, Tools: tools})
}

const (
	head    = `{"type":"message_start","message":{"content":[],"usage":{"input_tokens":3,"output_tokens":1}}}`
	textHi  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}`
	endTurn = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`
	over    = `{"type":"message_stop"}`
	// stop ends an answer well; it is two events.
	stop     = `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\ndata: " + over
	failWith = `{"type":"error","error":{"type":"%s","message":"%s"}}`
)

func fails(kind, message string) string { return fmt.Sprintf(failWith, kind, message) }

func TestRejections(t *testing.T) {
	tests := []struct {
		name       string
		status     int
		body       string
		want       llm.Kind
		words      string
		retryAfter string
		after      time.Duration
	}{
		{name: "overloaded", status: 529, body: fails("overloaded_error", "Overloaded"), want: llm.Overloaded, words: "Overloaded"},
		{name: "rate limit", status: 429, body: fails("rate_limit_error", "would exceed your rate limit"), want: llm.RateLimited, retryAfter: "12", after: 12 * time.Second},
		{name: "key", status: 401, body: fails("authentication_error", "invalid x-api-key"), want: llm.Auth, words: "invalid x-api-key"},
		{name: "permission", status: 403, body: fails("permission_error", "no"), want: llm.Auth},
		{name: "no such model", status: 404, body: fails("not_found_error", "model: claude-none"), want: llm.NotFound, words: "claude-none"},
		{name: "prompt too long", status: 400, body: fails("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), want: llm.ContextOverflow},
		{name: "no room for the answer", status: 400, body: fails("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"), want: llm.ContextOverflow},
		{name: "request too large", status: 413, body: fails("request_too_large", "Request exceeds the maximum size"), want: llm.ContextOverflow},
		{name: "bad request", status: 400, body: fails("invalid_request_error", "messages.1: roles must alternate"), want: llm.BadRequest, words: "roles must alternate"},
		{name: "no credit", status: 400, body: fails("invalid_request_error", "Your credit balance is too low"), want: llm.Quota},
		{name: "server", status: 500, body: fails("api_error", "Internal server error"), want: llm.ServerError},
		{name: "gateway", status: 504, body: `<html>timeout</html>`, want: llm.ServerError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			_, err := ask(m, llm.Tool{Name: "x"})
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.want || e.Status != tt.status || e.RetryAfter != tt.after {
				t.Fatalf("got %#v, want kind %s, status %d, retry after %s", err, tt.want, tt.status, tt.after)
			}
			if !strings.Contains(e.Message, tt.words) {
				t.Errorf("message %q, want %q in it", e.Message, tt.words)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	deltaAt := func(i int) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":"!"}}`, i)
	}
	tests := []struct {
		name   string
		events []string
		text   string
		want   llm.Kind
		words  string
	}{
		{"whole", []string{head, textHi, deltaAt(0), endTurn, stop}, "Hi!", "", ""},
		{"without head", []string{textHi, endTurn, stop}, "Hi", "", ""},
		{"unknown events", []string{head, `{"type":"new_thing","delta":{"x":1}}`, textHi, endTurn, stop, `not JSON`}, "Hi", "", ""},
		{"without reason", []string{head, textHi, over}, "", llm.CutStream, "without a stop_reason"},
		{"cut after the reason", []string{head, textHi, endTurn}, "", llm.CutStream, "after 2 bytes of text and 0 calls"},
		{"C7 whole but for its marker", []string{head, textHi, `{"type":"content_block_stop","index":0}`, endTurn}, "Hi", "", ""},
		{"cut", []string{head, textHi}, "", llm.CutStream, "before message_stop"},
		{"nothing", nil, "", llm.CutStream, "before message_stop"},
		{"no message", []string{stop}, "", llm.Malformed, "no message"},
		{"not JSON", []string{head, `{"type"`}, "", llm.Malformed, "read answer"},
		{"delta of nothing", []string{head, textHi, deltaAt(3), stop}, "", llm.Malformed, "block 3"},
		{"delta after the end of its block", []string{head, textHi, `{"type":"content_block_stop","index":0}`, deltaAt(0), stop}, "", llm.Malformed, "block 0"},
		{"block without type", []string{head, `{"type":"content_block_start","index":0}`, stop}, "", llm.Malformed, "no type"},
		{"overloaded in the stream", []string{head, textHi, fails("overloaded_error", "Overloaded")}, "", llm.Overloaded, "Overloaded"},
		{"rate limit in the stream", []string{head, fails("rate_limit_error", "slow down")}, "", llm.RateLimited, "slow down"},
		{"server error in the stream", []string{head, fails("api_error", "broken")}, "", llm.ServerError, "broken"},
		{"overflow in the stream", []string{head, fails("invalid_request_error", "prompt is too long")}, "", llm.ContextOverflow, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ask(serve(t, stream(tt.events...)))
			if llm.ErrorKind(err) != tt.want {
				t.Fatalf("error %v, want kind %q", err, tt.want)
			}
			if tt.want != "" {
				if !strings.Contains(err.Error(), tt.words) {
					t.Errorf("error %v, want %q in it", err, tt.words)
				}
				return
			}
			if r.Text != tt.text {
				t.Errorf("text %q, want %q", r.Text, tt.text)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	for reason, want := range map[string]llm.Finish{
		"end_turn": llm.FinishStop, "stop_sequence": llm.FinishStop,
		"max_tokens": llm.FinishLength, "model_context_window_exceeded": llm.FinishLength, "pause_turn": llm.FinishLength,
		"refusal": llm.FinishContentFilter,
	} {
		r, err := ask(serve(t, stream(head, textHi, `{"type":"message_delta","delta":{"stop_reason":"`+reason+`"}}`, over)))
		if err != nil || r.Finish != want {
			t.Errorf("%s: %+v, %v", reason, r, err)
		}
	}
}

// What was read from a cache or written to one is charged as input too.
func TestUsage(t *testing.T) {
	r, err := ask(serve(t, stream(
		`{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":1}}}`,
		textHi, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"output_tokens":42}}`, over)))
	if err != nil {
		t.Fatal(err)
	}
	if want := (task.Usage{Input: 3210, Output: 42, CacheRead: 3000, CacheWrite: 200}); r.Usage != want {
		t.Errorf("usage %+v, want %+v", r.Usage, want)
	}
	price := task.Price{Input: 1, Output: 0, CacheRead: new(float64), CacheWrite: new(float64)}
	if got := price.Cost(r.Usage); got != task.MoneyOf(10.0/1e6) {
		t.Errorf("the uncached part costs %v, want that of 10 tokens", got)
	}
}

func start(index int, block string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, block)
}

func delta(index int, fields string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{%s}}`, index, fields)
}

// Reasoning goes back in its place and with each of its bytes, to the vendor and
// model that it came from and to nobody else.
func TestOpaqueBlocks(t *testing.T) {
	var got []json.RawMessage
	handler := func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Content json.RawMessage }
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		got = nil
		for _, m := range body.Messages {
			got = append(got, m.Content)
		}
		stream(head,
			start(0, `{"type":"thinking","thinking":"","signature":""}`),
			delta(0, `"type":"thinking_delta","thinking":"a\u003cb \ud83e"`), delta(0, `"type":"thinking_delta","thinking":"\udd80\/"`),
			delta(0, `"type":"signature_delta","signature":"Eq+\/"`), delta(0, `"type":"signature_delta","signature":"=="`),
			start(1, `{"type":"redacted_thinking","data":"zz\/+"}`),
			start(2, `{"type":"text","text":"I look."}`),
			start(3, `{"type":"thinking","thinking":"again","signature":"s2"}`),
			start(4, `{"type":"tool_use","id":"toolu_1","name":"w","input":{},"caller":{"type":"direct"},"note":null}`),
			delta(4, `"type":"input_json_delta","partial_json":"{\"n\": 1.50,"`), delta(4, `"type":"input_json_delta","partial_json":" \"n\":2}"`),
			`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, over)(w, r)
	}
	m := serve(t, handler)
	r, err := ask(m)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Calls) != 1 || r.Calls[0].Arguments != `{"n": 1.50, "n":2}` || r.Text != "I look." {
		t.Fatalf("answer %+v", r)
	}
	history := append([]task.Message{llmtest.Opening()}, llmtest.Answered(r)...)
	if _, err := m.Next(t.Context(), &llm.Request{Messages: history}); err != nil {
		t.Fatal(err)
	}
	want := `[{"signature":"Eq+\/==","thinking":"a\u003cb \ud83e\udd80\/","type":"thinking"},{"data":"zz\/+","type":"redacted_thinking"},` +
		`{"type":"text","text":"I look."},{"signature":"s2","thinking":"again","type":"thinking"},` +
		`{"type":"tool_use","id":"toolu_1","name":"w","input":{"n":1.50,"n":2},"caller":{"type":"direct"}}]`
	if string(got[1]) != want {
		t.Errorf("sent back\n%s, want\n%s", got[1], want)
	}
	// Redaction changed the text: the reasoning still goes first.
	history[1].Text = "I [redacted]."
	if _, err := m.Next(t.Context(), &llm.Request{Messages: history}); err != nil {
		t.Fatal(err)
	}
	if s := string(got[1]); strings.Index(s, "s2") > strings.Index(s, "redacted].") || strings.Index(s, "redacted].") > strings.Index(s, "tool_use") {
		t.Errorf("after redaction %s", s)
	}
	if _, err := serve(t, handler).Next(t.Context(), &llm.Request{Messages: history}); err != nil {
		t.Fatal(err)
	}
	if want := `[{"type":"text","text":"I [redacted]."},{"type":"tool_use","id":"toolu_1","name":"w","input":{"n":1.50,"n":2}}]`; string(got[1]) != want {
		t.Errorf("another endpoint was sent %s, want %s", got[1], want)
	}
}

// Texts and calls go back in the order in which they came.
func TestOrderOfBlocks(t *testing.T) {
	var body wireRequest
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body)
		use := `{"type":"tool_use","id":"a%d","name":"w","input":{}}`
		stream(head, start(0, fmt.Sprintf(use, 1)), start(1, `{"type":"text","text":"Zoë: "}`), start(2, fmt.Sprintf(use, 2)), start(3, `{"type":"text","text":"end"}`), stop)(w, r)
	})
	r, err := ask(m)
	if err != nil || r.Text != "Zoë: end" || len(r.Calls) != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	history := append([]task.Message{llmtest.Opening()}, llmtest.Answered(r)...)
	if _, err := m.Next(t.Context(), &llm.Request{Messages: history}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range body.Messages[1].Content {
		got = append(got, b.ID+b.Text)
	}
	if s := fmt.Sprintf("%q", got); s != `["a1" "Zoë: " "a2" "end"]` {
		t.Errorf("sent back %s", s)
	}
}

// What is not text, call or reasoning is kept too.
func TestUnknownBlock(t *testing.T) {
	r, err := ask(serve(t, stream(head, start(0, `{"type":"server_tool_use","id":"s","name":"web","input":{}}`),
		delta(0, `"type":"input_json_delta","partial_json":"{\"q\":1}","name":null`), delta(0, `"type":"new_delta","name":null,"id":"2"`), textHi, stop)))
	if err != nil || !strings.Contains(string(r.Opaque), `{"id":"s2","input":{"q":1},"name":"web","type":"server_tool_use"}`) || r.Calls != nil {
		t.Fatalf("got %+v (opaque %s), %v", r, r.Opaque, err)
	}
}

func TestCallShapes(t *testing.T) {
	use := func(i int, id, input string) string {
		return start(i, fmt.Sprintf(`{"type":"tool_use","id":"%s","name":"w","input":%s}`, id, input))
	}
	tests := []struct {
		name   string
		events []string
		want   []task.ToolCall
	}{
		{"no arguments", []string{use(0, "a", `{}`), use(1, "b", `{}`), delta(1, `"type":"input_json_delta","partial_json":""`)},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{}`}, {ID: "b", Name: "w", Arguments: `{}`}}},
		{"input at once", []string{use(0, "a", `{"z": 1, "a":"\/"}`)}, []task.ToolCall{{ID: "a", Name: "w", Arguments: `{"z": 1, "a":"\/"}`}}},
		{"an id used twice", []string{use(0, "a", `{}`), use(1, "a", `{}`)},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{}`}, {ID: "call_2", Name: "w", Arguments: `{}`}}},
		{"cut at the limit", []string{use(0, "a", `{}`), delta(0, `"type":"input_json_delta","partial_json":"{\"x\": \"y"`)},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{"x": "y`}}},
		{"in turns", []string{use(0, "a", `{}`), use(1, "b", `{}`), delta(0, `"type":"input_json_delta","partial_json":"[0]"`), delta(1, `"type":"input_json_delta","partial_json":"[1]"`)},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `[0]`}, {ID: "b", Name: "w", Arguments: `[1]`}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ask(serve(t, stream(append(append([]string{head}, tt.events...), stop)...)))
			if err != nil || fmt.Sprint(r.Calls) != fmt.Sprint(tt.want) {
				t.Fatalf("got %+v, %v, want %+v", r, err, tt.want)
			}
		})
	}
}

func TestTooManyCalls(t *testing.T) {
	events := []string{head}
	for i := range 300 {
		events = append(events, start(i, `{"type":"tool_use","id":"x","name":"w","input":{}}`))
	}
	if _, err := ask(serve(t, stream(append(events, stop)...))); llm.ErrorKind(err) != llm.Malformed {
		t.Fatalf("got %v", err)
	}
}

// sent is the body of the request that a history makes.
func sent(t *testing.T, req *llm.Request) (body wireRequest, raw map[string]json.RawMessage) {
	t.Helper()
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if json.Unmarshal(data, &body) != nil || json.Unmarshal(data, &raw) != nil {
			t.Errorf("sent %s", data)
		}
		stream(head, textHi, stop)(w, r)
	})
	if _, err := m.Next(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := hearMessages(body); err != nil {
		t.Errorf("the vendor would refuse it: %v", err)
	}
	return body, raw
}

func TestWhatIsSent(t *testing.T) {
	_, raw := sent(t, &llm.Request{System: "Be brief.", MaxOutputTokens: 77,
		Tools: []llm.Tool{{Name: "w", Description: "Writes.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)}, {Name: "x"}},
		Messages: []task.Message{
			{Role: task.RoleSummary, Text: "Before: nothing."},
			{Role: task.RoleUser, Text: "Go <on>."},
			{Role: task.RoleAssistant, Text: " \n", Calls: []task.ToolCall{{ID: "bad id!", Name: "w", Arguments: `{"cut":"of`}, {ID: "ok", Name: "w"}}},
			{Role: task.RoleTool, CallID: "ok", Text: " ", IsError: true},
			{Role: task.RoleTool, CallID: "bad id!", Text: "first"},
			{Role: task.RoleUser, Text: "And?"},
			{Role: task.RoleAssistant},
			{Role: task.RoleUser, Text: "Again."},
		}})
	want := `[{"role":"user","content":[{"type":"text","text":"Before: nothing.\n\nGo <on>."}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"call_r1","name":"w","input":{"unparsed_arguments":"{\"cut\":\"of"}},{"type":"tool_use","id":"ok","name":"w","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_r1","content":"first"},{"type":"tool_result","tool_use_id":"ok","content":"(error without words)","is_error":true},` +
		`{"type":"text","text":"And?"},{"type":"text","text":"Again.","cache_control":{"type":"ephemeral"}}]}]`
	if string(raw["messages"]) != want {
		t.Errorf("messages\n%s, want\n%s", raw["messages"], want)
	}
	if want := `[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}]`; string(raw["system"]) != want {
		t.Errorf("system %s, want %s", raw["system"], want)
	}
	if want := `[{"name":"w","description":"Writes.","input_schema":{"type":"object","properties":{}}},{"name":"x","input_schema":{"type":"object","properties":{}}}]`; string(raw["tools"]) != want {
		t.Errorf("tools %s, want %s", raw["tools"], want)
	}
	if string(raw["max_tokens"]) != "77" || raw["tool_choice"] != nil {
		t.Errorf("settings %s", raw)
	}
}

// Histories that other vendors take as they are.
func TestOddHistories(t *testing.T) {
	user := func(text string) task.Message { return task.Message{Role: task.RoleUser, Text: text} }
	says := func(text string) task.Message { return task.Message{Role: task.RoleAssistant, Text: text} }
	tests := []struct {
		name string
		msgs []task.Message
		want string // roles and number of blocks
	}{
		{"begins with the assistant", []task.Message{says("Hm."), user("Go.")}, "user 1 assistant 1 user 1"},
		{"two answers in a row", []task.Message{user("Go."), says("a"), says("b"), user("On.")}, "user 1 assistant 2 user 1"},
		{"blank texts", []task.Message{user(" "), says("a"), user("")}, "user 1 assistant 1 user 1"},
		{"an empty answer", []task.Message{user("Go."), says(""), user("On.")}, "user 2"},
		{"an empty answer first", []task.Message{says(""), user("On.")}, "user 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, _ := sent(t, &llm.Request{Messages: tt.msgs})
			var got []string
			for _, m := range body.Messages {
				got = append(got, fmt.Sprintf("%s %d", m.Role, len(m.Content)))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("sent %q, want %q", s, tt.want)
			}
			if body.MaxTokens != anthropic.DefaultMaxTokens {
				t.Errorf("max_tokens %d, want the default", body.MaxTokens)
			}
		})
	}
}

// An answer that was nothing but reasoning, cut at the limit, must not spoil the
// session.
func TestReasoningAlone(t *testing.T) {
	events := stream(head, start(0, `{"type":"thinking","thinking":"Hm","signature":""}`),
		`{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`, over)
	var body wireRequest
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body)
		events(w, r)
	})
	r, err := ask(m)
	if err != nil || r.Finish != llm.FinishLength || r.Opaque == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	history := append([]task.Message{llmtest.Opening()}, llmtest.Answered(r)...)
	if _, err := m.Next(t.Context(), &llm.Request{Messages: append(history, task.Message{Role: task.RoleUser, Text: "Go on."})}); err != nil {
		t.Fatal(err)
	}
	if len(body.Messages) != 1 || len(body.Messages[0].Content) != 2 {
		t.Errorf("sent %+v", body.Messages)
	}
}

// A session that used tools can be asked without: the vendor still wants them
// defined.
func TestCallsWithoutTools(t *testing.T) {
	call := func(id, name string) task.ToolCall { return task.ToolCall{ID: id, Name: name, Arguments: "{}"} }
	body, raw := sent(t, &llm.Request{Messages: []task.Message{
		llmtest.Opening(), {Role: task.RoleAssistant, Calls: []task.ToolCall{call("a", "w"), call("b", "v"), call("c", "w")}},
		{Role: task.RoleTool, CallID: "a"}, {Role: task.RoleTool, CallID: "b"}, {Role: task.RoleTool, CallID: "c"}}})
	if len(body.Tools) != 2 || body.Tools[0].Name != "w" || body.Tools[1].Name != "v" || body.Tools[1].Cache == nil || string(raw["tool_choice"]) != `{"type":"none"}` {
		t.Errorf("tools %s, choice %s", raw["tools"], raw["tool_choice"])
	}
}

func TestSchemas(t *testing.T) {
	for in, want := range map[string]string{
		``:                                  `{"type":"object","properties":{}}`,
		`{"type":"object","x":[1.0]}`:       `{"type":"object","x":[1.0]}`,
		`{"properties":{}}`:                 `{"properties":{},"type":"object"}`,
		`{"type":["object"],"oneOf":[{}]}`:  `{"type":"object"}`,
		`{"type":"object","anyOf":[{}]}`:    `{"type":"object"}`,
		`{"type":"object","$defs":{"a":1}}`: `{"type":"object","$defs":{"a":1}}`,
	} {
		_, raw := sent(t, &llm.Request{Messages: []task.Message{llmtest.Opening()}, System: "s", Tools: []llm.Tool{{Name: "w", InputSchema: json.RawMessage(in)}}})
		if got := string(raw["tools"]); got != `[{"name":"w","input_schema":`+want+`}]` {
			t.Errorf("%s went out as %s, want %s", in, got, want)
		}
	}
}

// Stored bytes that are damaged cost the reasoning, not the session.
func TestDamagedOpaque(t *testing.T) {
	vendor := ""
	m := serve(t, stream(head, textHi, stop))
	if r, err := ask(m); err == nil {
		vendor = r.Vendor
	}
	for _, opaque := range []string{`{`, `7`, `{"a":1}`, `[{"text":-5},{"text":8}]`, `[{"call":{}},{"call":{}}]`, `[{"text":1,"call":{}}]`} {
		_, err := m.Next(t.Context(), &llm.Request{Messages: []task.Message{llmtest.Opening(),
			{Role: task.RoleAssistant, Text: "abc", Opaque: json.RawMessage(opaque), Vendor: vendor}, llmtest.Opening()}})
		if err != nil {
			t.Errorf("%s: %v", opaque, err)
		}
	}
}

func TestNotStreaming(t *testing.T) {
	whole := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			io.WriteString(w, body)
		}
	}
	for body, want := range map[string]llm.Kind{
		`{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}`: "",
		`{"type":"message","content":[`:   llm.CutStream,
		`{}`:                              llm.CutStream,
		fails("overloaded_error", "busy"): llm.Overloaded,
		`{"type":"message","content":[{"t":"x"}]}`: llm.Malformed,
	} {
		r, err := ask(serve(t, whole(body)))
		if llm.ErrorKind(err) != want || (err == nil) != (want == "") || err == nil && r.Text != "Hi" {
			t.Errorf("%s: %+v, %v, want kind %q", body, r, err, want)
		}
	}
}

func TestKeyAndOptions(t *testing.T) {
	var got http.Header
	handler := func(w http.ResponseWriter, r *http.Request) { got = r.Header; stream(head, textHi, stop)(w, r) }
	if _, err := ask(serve(t, handler, func(o *anthropic.Options) { o.Version = "2030-01-01" })); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Api-Key") != "" || got.Get("Anthropic-Version") != "2030-01-01" || got.Get("Anthropic-Beta") != "" {
		t.Errorf("headers %v", got)
	}
	m := serve(t, handler, func(o *anthropic.Options) {
		o.Key = func() (string, error) { return "", errors.New("credential x: no such file") }
	})
	if _, err := ask(m); llm.ErrorKind(err) != llm.Auth || !strings.Contains(err.Error(), "credential x") {
		t.Errorf("got %v", err)
	}
	if _, err := anthropic.New(anthropic.Options{}); err == nil || !strings.Contains(err.Error(), "model: is missing") {
		t.Errorf("without a model: %v", err)
	}
}
