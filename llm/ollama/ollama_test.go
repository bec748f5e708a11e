package ollama_test

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

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/ollama"
	"runnerd/task"
)

// serve answers every request with handler and returns a model that asks it.
func serve(t *testing.T, handler http.HandlerFunc, change ...func(*ollama.Options)) *ollama.Model {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	opts := ollama.Options{Endpoint: llm.Endpoint{BaseURL: srv.URL, Model: "qwen3:8b"}}
	for _, c := range change {
		c(&opts)
	}
	return open(t, opts)
}

func stream(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		io.WriteString(w, strings.Join(lines, "\n"))
	}
}

func ask(m *ollama.Model, tools ...llm.Tool) (*llm.Response, error) {
	return m.Next(context.Background(), &llm.Request{Messages: []task.Message{llmtest.Opening()}, Tools: tools})
}

const (
	sayHi = `{"message":{"role":"assistant","content":"Hi"},"done":false}`
	done  = `{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":9}`
)

func TestRejections(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   llm.Kind
		words  string
	}{
		{"missing model", 404, `{"error":"model 'qwen3:8b' not found"}`, llm.NotFound, "run: ollama pull qwen3:8b"},
		{"missing model, older words", 404, `{"error":"model \"qwen3:8b\" not found, try pulling it first"}`, llm.NotFound, "ollama pull qwen3:8b"},
		{"no such path", 404, `404 page not found`, llm.NotFound, "404 page not found"},
		{"no tools", 400, `{"error":"registry.ollama.ai/library/gemma:2b does not support tools"}`, llm.ToolsUnsupported, "does not support tools"},
		{"too long, new", 400, `{"error":"the prompt is longer than the context length currently available to the model (5000 > 4096)"}`, llm.ContextOverflow, "4096"},
		{"too long, runner", 500, `{"error":"prompt too long; exceeded max context length by 7 tokens"}`, llm.ContextOverflow, ""},
		{"too long, input", 400, `{"error":"the input length exceeds the context length"}`, llm.ContextOverflow, ""},
		{"busy", 503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, llm.Overloaded, "server busy"},
		{"crash", 500, `{"error":"llama runner process has terminated: exit status 2"}`, llm.ServerError, "terminated"},
		{"bad options", 400, `{"error":"option \"num_ctx\" must be of type integer"}`, llm.BadRequest, "num_ctx"},
		{"cloud key", 401, `{"error":"unauthorized"}`, llm.Auth, ""},
		{"cloud limit", 429, `{"error":"you have reached your hourly usage limit"}`, llm.RateLimited, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			_, err := ask(m, llm.Tool{Name: "x"})
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.want || e.Status != tt.status || !strings.Contains(e.Message, tt.words) {
				t.Fatalf("got %#v, want kind %s, status %d, words %q", err, tt.want, tt.status, tt.words)
			}
			if pulls := strings.Contains(e.Message, "ollama pull"); pulls != strings.Contains(tt.words, "ollama pull") {
				t.Errorf("hint in %q", e.Message)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		text  string
		want  llm.Kind
		words string
	}{
		{"whole", []string{sayHi, sayHi, done, "after it"}, "HiHi", "", ""},
		{"text in the last line", []string{`{"message":{"content":"Ho"},"done":true,"done_reason":"stop"}`}, "Ho", "", ""},
		{"no message", []string{`{"done":true,"done_reason":"load"}`}, "", llm.UnknownEnd, "load"},
		{"without reason", []string{sayHi, `{"done":true}`}, "", llm.CutStream, "without a done_reason"},
		{"cut between lines", []string{sayHi}, "", llm.CutStream, "after 2 bytes of text and 0 calls"},
		{"cut in a line", []string{sayHi, done[:30]}, "", llm.CutStream, "broke off"},
		{"nothing", nil, "", llm.CutStream, "before its done line"},
		{"not JSON", []string{sayHi, "<html>"}, "", llm.Malformed, "read answer"},
		{"another type", []string{`1`}, "", llm.Malformed, "read answer"},
		{"error in the stream", []string{sayHi, `{"error":"an error was encountered while running the model: CUDA error"}`}, "", llm.ServerError, "CUDA error"},
		{"overflow in the stream", []string{`{"error":"context length exceeded: the prompt exceeds the context window"}`}, "", llm.ContextOverflow, ""},
		{"calls of the wrong type", []string{`{"message":{"tool_calls":"x"},"done":true}`}, "", llm.Malformed, "tool_calls"},
		{"call without function", []string{`{"message":{"tool_calls":[{"id":"x"}]},"done":true}`}, "", llm.Malformed, "call 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ask(serve(t, stream(tt.lines...)))
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

func TestUsageAndFinish(t *testing.T) {
	r, err := ask(serve(t, stream(sayHi, done)))
	if err != nil || r.Usage != (task.Usage{Input: 26, Output: 9}) || r.Finish != llm.FinishStop {
		t.Errorf("got %+v, %v", r, err)
	}
	calls := `{"message":{"content":"","tool_calls":[{"function":{"name":"w","arguments":{}}}]},"done":false}`
	if r, err := ask(serve(t, stream(calls, done))); err != nil || r.Finish != llm.FinishToolCalls {
		t.Errorf("calls that end with stop: %+v, %v", r, err)
	}
}

func TestCallShapes(t *testing.T) {
	tests := []struct {
		name, calls string
		want        []task.ToolCall
	}{
		{"exact bytes", `[{"function":{"name":"w","arguments":{ "b":1.0,  "a":"A\/é<", "a" : 12345678901234567890 }}}]`,
			[]task.ToolCall{{ID: "call_1", Name: "w", Arguments: `{ "b":1.0,  "a":"A\/é<", "a" : 12345678901234567890 }`}}},
		{"parallel", `[{"function":{"name":"w","arguments":{}}},{"function":{"index":1,"name":"v","arguments":{"n":2}}}]`,
			[]task.ToolCall{{ID: "call_1", Name: "w", Arguments: `{}`}, {ID: "call_2", Name: "v", Arguments: `{"n":2}`}}},
		{"no arguments", `[{"function":{"name":"w"}},{"function":{"name":"w","arguments":null}}]`,
			[]task.ToolCall{{ID: "call_1", Name: "w", Arguments: `{}`}, {ID: "call_2", Name: "w", Arguments: `{}`}}},
		{"a string", `[{"id":"x","function":{"name":"w","arguments":"{\"n\": 1"}}]`,
			[]task.ToolCall{{ID: "x", Name: "w", Arguments: `{"n": 1`}}},
		{"none", `null`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ask(serve(t, stream(`{"message":{"content":"","tool_calls":`+tt.calls+`},"done":false}`, done)))
			if err != nil || fmt.Sprint(r.Calls) != fmt.Sprint(tt.want) {
				t.Fatalf("got %+v, %v, want %+v", r, err, tt.want)
			}
		})
	}
}

func TestTooManyCalls(t *testing.T) {
	one := `{"function":{"name":"w","arguments":{}}}`
	_, err := ask(serve(t, stream(`{"message":{"tool_calls":[`+strings.Repeat(one+",", 299)+one+`]},"done":true}`)))
	if llm.ErrorKind(err) != llm.Malformed {
		t.Fatalf("got %v", err)
	}
}

// What a server adds to a message or a call comes back to it, byte for byte, and
// to nobody else.
func TestUnknownFields(t *testing.T) {
	var got []json.RawMessage
	handler := func(w http.ResponseWriter, r *http.Request) {
		var body wireRequest
		_ = json.NewDecoder(r.Body).Decode(&body)
		got = body.Messages
		stream(`{"message":{"content":"","thinking":"Let \ud83e","images":null},"done":false}`, `{"message":{"content":"","thinking":"\udd80\/","x_n":{"v":1.50}},"done":false}`,
			`{"message":{"content":"","tool_calls":[{"function":{"name":"w","arguments":{"a": 1}}},{"id":"c9","sig":"s","function":{"index":1,"name":"w","arguments":{}}}]},"done":false}`, done)(w, r)
	}
	m := serve(t, handler)
	r, err := ask(m)
	if err != nil {
		t.Fatal(err)
	}
	history := append([]task.Message{llmtest.Opening()}, llmtest.Answered(r)...)
	if _, err := m.Next(t.Context(), &llm.Request{Messages: history}); err != nil {
		t.Fatal(err)
	}
	want := `{"role":"assistant","content":"","tool_calls":[{"function":{"name":"w","arguments":{"a":1}}},` +
		`{"function":{"name":"w","arguments":{},"index":1},"id":"c9","sig":"s"}],"thinking":"Let \ud83e\udd80\/","x_n":{"v":1.50}}`
	if string(got[1]) != want {
		t.Errorf("sent back\n%s, want\n%s", got[1], want)
	}
	if want := `{"role":"tool","content":"result of w","tool_name":"w","tool_call_id":"c9"}`; string(got[3]) != want {
		t.Errorf("result %s, want %s", got[3], want)
	}
	if _, err := serve(t, handler).Next(t.Context(), &llm.Request{Messages: history}); err != nil {
		t.Fatal(err)
	}
	if s := string(got[1]); strings.Contains(s, "thinking") || strings.Contains(s, "sig") {
		t.Errorf("another server was sent the opaque part: %s", s)
	}
}

func TestWhatIsSent(t *testing.T) {
	var body map[string]json.RawMessage
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body = nil
		_ = json.NewDecoder(r.Body).Decode(&body)
		stream(sayHi, done)(w, r)
	}, func(o *ollama.Options) { o.ContextTokens = 32768; o.MaxOutputTokens = 77 })
	_, err := m.Next(t.Context(), &llm.Request{Messages: []task.Message{
		{Role: task.RoleSummary, Text: "Before: nothing."},
		{Role: task.RoleUser, Text: "Go <on>."},
		{Role: task.RoleAssistant, Text: "Hm.", Calls: []task.ToolCall{{ID: "a", Name: "w", Arguments: `{"cut":"of`}, {ID: "b", Name: "v"}}},
		{Role: task.RoleTool, CallID: "b", Text: "second"},
		{Role: task.RoleTool, CallID: "a", Text: "first"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"role":"user","content":"Before: nothing.\n\nGo <on>."},` +
		`{"role":"assistant","content":"Hm.","tool_calls":[{"function":{"name":"w","arguments":{"unparsed_arguments":"{\"cut\":\"of"}}},{"function":{"name":"v","arguments":{}}}]},` +
		`{"role":"tool","content":"first","tool_name":"w"},{"role":"tool","content":"second","tool_name":"v"}]`
	if string(body["messages"]) != want {
		t.Errorf("messages\n%s, want\n%s", body["messages"], want)
	}
	if string(body["options"]) != `{"num_ctx":32768,"num_predict":77}` || body["think"] != nil || body["tools"] != nil {
		t.Errorf("settings %s", body)
	}
	// Without a word on either, the server decides.
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body)
		stream(sayHi, done)(w, r)
	})
	if _, err := ask(plain); err != nil || string(body["options"]) != `{}` {
		t.Errorf("options %s, %v", body["options"], err)
	}
}

func TestBadOptions(t *testing.T) {
	for base, want := range map[string]string{"http://127.0.0.1:11434/v1": "leave off /v1", "ollama:11434": "absolute http"} {
		_, err := ollama.New(ollama.Options{Endpoint: llm.Endpoint{BaseURL: base, Model: "m"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", base, err, want)
		}
	}
	if _, err := ollama.New(ollama.Options{}); err == nil || !strings.Contains(err.Error(), "model: is missing") {
		t.Errorf("without a model: %v", err)
	}
	m := serve(t, stream(done), func(o *ollama.Options) {
		o.Key = func() (string, error) { return "", errors.New("credential x: no such file") }
	})
	if _, err := ask(m); llm.ErrorKind(err) != llm.Auth {
		t.Errorf("a key that cannot be read: %v", err)
	}
}

func TestBounds(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := fmt.Fprintln(w, sayHi); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}, func(o *ollama.Options) { o.MaxBytes = 5000 })
	if _, err := ask(m); llm.ErrorKind(err) != llm.Malformed || !strings.Contains(err.Error(), "longer than 5000 bytes") {
		t.Errorf("got %v", err)
	}
}
