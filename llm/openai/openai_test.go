package openai_test

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
	"runnerd/llm/llmtest"
	"runnerd/llm/openai"
	"runnerd/task"
)

// serve answers every request with handler and returns a model that asks it.
func serve(t *testing.T, handler http.HandlerFunc, change ...func(*openai.Options)) *openai.Model {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	opts := openai.Options{Endpoint: llm.Endpoint{BaseURL: srv.URL, Model: "m"}}
	for _, c := range change {
		c(&opts)
	}
	return open(t, opts)
}

func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}
}

func ask(m *openai.Model, tools ...llm.Tool) (*llm.Response, error) {
	return m.Next(context.Background(), &llm.Request{
		Messages: []task.Message{llmtest.Opening()}, Tools: tools,
	})
}

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
		{name: "rate limit", status: 429, body: `{"error":{"message":"Rate limit reached for gpt","type":"tokens","code":"rate_limit_exceeded"}}`,
			want: llm.RateLimited, words: "Rate limit reached", retryAfter: "7", after: 7 * time.Second},
		{name: "quota", status: 429, body: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}`, want: llm.Quota},
		{name: "overloaded", status: 503, body: `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, want: llm.Overloaded, words: "Loading model", retryAfter: "1.5", after: 1500 * time.Millisecond},
		{name: "overloaded 529", status: 529, body: ``, want: llm.Overloaded},
		{name: "server error", status: 500, body: `{"error":{"code":500,"message":"Failed to parse input at pos 3","type":"server_error"}}`, want: llm.ServerError},
		{name: "gateway page", status: 502, body: "<html><head><title>502</title></head>\n<body>Bad  Gateway</body></html>", want: llm.ServerError, words: "502 Bad Gateway"},
		{name: "key", status: 401, body: `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, want: llm.Auth},
		{name: "forbidden", status: 403, body: `no`, want: llm.Auth, words: "no"},
		{name: "no such model", status: 404, body: `{"error":{"message":"model 'qwen' not found","type":"api_error"}}`, want: llm.NotFound, words: "model 'qwen' not found"},
		{name: "no such path", status: 404, body: "404 page not found", want: llm.NotFound},
		{name: "model id of a router", status: 400, body: `{"error":{"message":"foo is not a valid model ID","code":400}}`, want: llm.NotFound},
		{name: "context openai", status: 400, body: `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`, want: llm.ContextOverflow},
		{name: "context llama.cpp", status: 400, body: `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}`, want: llm.ContextOverflow},
		{name: "context vllm", status: 400, body: `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000","type":"BadRequestError","code":400}`, want: llm.ContextOverflow},
		{name: "too large", status: 413, body: ``, want: llm.ContextOverflow},
		{name: "tools ollama", status: 400, body: `{"error":{"message":"registry.ollama.ai/library/gemma:2b does not support tools","type":"api_error"}}`, want: llm.ToolsUnsupported},
		{name: "tools llama.cpp", status: 500, body: `{"error":{"code":500,"message":"tools param requires --jinja flag"}}`, want: llm.ToolsUnsupported},
		{name: "tools vllm", status: 400, body: `{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}`, want: llm.ToolsUnsupported},
		{name: "tools router", status: 404, body: `{"error":{"message":"No endpoints found that support tool use.","code":404}}`, want: llm.ToolsUnsupported},
		{name: "tools quoted", status: 400, body: "{\"error\":{\"message\":\"`tools` is not supported with this model\"}}", want: llm.ToolsUnsupported},
		{name: "tools detail", status: 422, body: `{"detail":"Function calling is not supported for this model"}`, want: llm.ToolsUnsupported},
		{name: "a bad tool is no missing support", status: 400, body: `{"error":{"message":"Invalid schema for function 'x': tools[0] is wrong"}}`, want: llm.BadRequest},
		{name: "filter", status: 400, body: `{"error":{"code":"content_filter","message":"The response was filtered"}}`, want: llm.ContentFilter},
		{name: "validation", status: 400, body: `{"error":"messages: too few"}`, want: llm.BadRequest, words: "messages: too few"},
		{name: "router's provider", status: 400, body: `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"temperature is bad"}}}`, want: llm.BadRequest, words: "temperature is bad"},
		{name: "payment", status: 402, body: `{"error":{"message":"Insufficient credits","code":402}}`, want: llm.Quota},
		{name: "request timeout", status: 408, body: ``, want: llm.Timeout, words: "Request Timeout"},
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

func TestToolsUnsupportedNeedsTools(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error":"x does not support tools"}`)
	})
	if _, err := ask(m); llm.ErrorKind(err) != llm.BadRequest {
		t.Errorf("without tools: %v", err)
	}
}

func TestRetryAfterDate(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(429)
	})
	_, err := ask(m)
	var e *llm.Error
	if !errors.As(err, &e) || e.RetryAfter < 58*time.Minute || e.RetryAfter > time.Hour {
		t.Fatalf("got %#v", err)
	}
}

const (
	deltaHi = `{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`
	endStop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	done    = `[DONE]`
)

func TestStreams(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		text   string
		want   llm.Kind
		words  string
	}{
		{"whole", []string{deltaHi, endStop, done}, "Hi", "", ""},
		{"without DONE", []string{deltaHi, endStop}, "Hi", "", ""},
		{"without finish", []string{deltaHi, done}, "", llm.CutStream, "without a finish_reason"},
		{"cut", []string{deltaHi}, "", llm.CutStream, "after 2 characters of text"},
		{"nothing", nil, "", llm.CutStream, "before its end marker"},
		{"no choice", []string{done}, "", llm.Malformed, "no choice"},
		{"not JSON", []string{deltaHi, `{"choices`}, "", llm.Malformed, "read answer"},
		{"error with status", []string{deltaHi, `{"error":{"code":429,"message":"slow down"}}`}, "", llm.RateLimited, "slow down"},
		{"error by type", []string{deltaHi, `{"error":{"type":"overloaded_error","message":"busy"},"choices":[]}`}, "", llm.Overloaded, "busy"},
		{"error in words", []string{`{"error":"the runner crashed"}`, done}, "", llm.ServerError, "the runner crashed"},
		{"context in the stream", []string{`{"error":{"message":"prompt is too long"}}`}, "", llm.ContextOverflow, ""},
		{"finish error", []string{deltaHi, `{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`}, "", llm.ServerError, ""},
		{"other choices are left out", []string{deltaHi, `{"choices":[{"index":1,"delta":{"content":"no"}}]}`, endStop}, "Hi", "", ""},
		{"parts", []string{`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"Ho"}]}}]}`, endStop, done}, "Ho", "", ""},
		{"calls of the wrong type", []string{`{"choices":[{"delta":{"tool_calls":"x"}}]}`, done}, "", llm.Malformed, "tool_calls"},
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
		"stop": llm.FinishStop, "length": llm.FinishLength, "content_filter": llm.FinishContentFilter, "eos": llm.FinishStop, "STOP": llm.FinishStop,
	} {
		r, err := ask(serve(t, stream(deltaHi, `{"choices":[{"delta":{},"finish_reason":"`+reason+`"}]}`)))
		if err != nil || r.Finish != want {
			t.Errorf("%s: %+v, %v", reason, r, err)
		}
	}
	r, err := ask(serve(t, stream(`{"choices":[{"delta":{"refusal":"I will not."}}]}`, endStop)))
	if err != nil || r.Finish != llm.FinishContentFilter || r.Text != "I will not." {
		t.Errorf("refusal: %+v, %v", r, err)
	}
}

func TestCallShapes(t *testing.T) {
	tests := []struct {
		name   string
		deltas []string
		want   []task.ToolCall
	}{
		{"cut at the limit", []string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"{\"x\": \"y"}}]}`},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{"x": "y`}}},
		{"no ids, no index", []string{`{"tool_calls":[{"function":{"name":"w","arguments":"{}"}}]}`, `{"tool_calls":[{"function":{"name":"w","arguments":"{\"n\":2}"}}]}`},
			[]task.ToolCall{{ID: "call_1", Name: "w", Arguments: `{}`}, {ID: "call_2", Name: "w", Arguments: `{"n":2}`}}},
		{"an id used twice", []string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"v","arguments":"{}"}}]}`},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{}`}, {ID: "call_2", Name: "v", Arguments: `{}`}}},
		{"no arguments", []string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":""}}]}`, `{"tool_calls":[{"index":1,"id":"b","function":{"name":"w"}}]}`},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{}`}, {ID: "b", Name: "w", Arguments: `{}`}}},
		{"object arguments", []string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":{"b": 1, "a": 2}}}]}`},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{"b": 1, "a": 2}`}}},
		{"name repeated", []string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"{"}}]}`, `{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"}"}}]}`},
			[]task.ToolCall{{ID: "a", Name: "w", Arguments: `{}`}}},
		{"mixed order", []string{`{"tool_calls":[{"index":1,"id":"b","function":{"name":"v","arguments":"{"}},{"index":0,"id":"a","function":{"name":"w","arguments":"{"}}]}`,
			`{"tool_calls":[{"index":1,"function":{"arguments":"\"n\":1}"}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`},
			[]task.ToolCall{{ID: "b", Name: "v", Arguments: `{"n":1}`}, {ID: "a", Name: "w", Arguments: `{}`}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var events []string
			for _, d := range tt.deltas {
				events = append(events, `{"choices":[{"index":0,"delta":`+d+`}]}`)
			}
			r, err := ask(serve(t, stream(append(events, endStop, done)...)))
			if err != nil || fmt.Sprint(r.Calls) != fmt.Sprint(tt.want) {
				t.Fatalf("got %+v, %v, want %+v", r, err, tt.want)
			}
		})
	}
}

func TestTooManyCalls(t *testing.T) {
	var calls []string
	for i := range 300 {
		calls = append(calls, fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"w"}}`, i, i))
	}
	_, err := ask(serve(t, stream(`{"choices":[{"delta":{"tool_calls":[`+strings.Join(calls, ",")+`]}}]}`, done)))
	if llm.ErrorKind(err) != llm.Malformed {
		t.Fatalf("got %v", err)
	}
}

// What a server adds to a message or a call comes back to it, and to nobody else.
func TestUnknownFields(t *testing.T) {
	var got []json.RawMessage
	handler := func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&body)
		got = body.Messages
		stream(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"{}"},"extra_content":{"sig":"s1"}}],"x_trace":{"n":1.50},"reasoning":"Let "}}]}`,
			`{"choices":[{"delta":{"reasoning":"me see.","x_none":null}}]}`, endStop, done)(w, r)
	}
	m := serve(t, handler)
	r, err := ask(m)
	if err != nil {
		t.Fatal(err)
	}
	next := append([]task.Message{llmtest.Opening()}, llmtest.Answered(r)...)
	if _, err := m.Next(t.Context(), &llm.Request{Messages: next}); err != nil {
		t.Fatal(err)
	}
	want := `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"w","arguments":"{}"},"extra_content":{"sig":"s1"}}],"reasoning":"Let me see.","x_trace":{"n":1.50}}`
	if string(got[1]) != want {
		t.Errorf("sent back\n%s, want\n%s", got[1], want)
	}
	if _, err := serve(t, handler).Next(t.Context(), &llm.Request{Messages: next}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(got[1]), "reasoning") || strings.Contains(string(got[1]), "extra_content") {
		t.Errorf("another endpoint was sent the opaque part: %s", got[1])
	}
}

func TestWhatIsSent(t *testing.T) {
	var body map[string]json.RawMessage
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body = nil
		_ = json.NewDecoder(r.Body).Decode(&body)
		stream(deltaHi, endStop)(w, r)
	}, func(o *openai.Options) { o.TokenParam = openai.MaxCompletionTokens; o.MaxOutputTokens = 77 })
	long := strings.Repeat("x", 70)
	_, err := m.Next(t.Context(), &llm.Request{Messages: []task.Message{
		{Role: task.RoleSummary, Text: "Before: nothing."},
		{Role: task.RoleUser, Text: "Go <on>."},
		{Role: task.RoleAssistant, Text: "Hm.", Calls: []task.ToolCall{
			{ID: "bad id!", Name: "a tool/" + long, Arguments: `{"cut":"of`}, {ID: "ok", Name: "", Arguments: ""}}},
		{Role: task.RoleTool, CallID: "ok", Text: "second"},
		{Role: task.RoleTool, CallID: "bad id!", Text: "first"},
		{Role: task.RoleAssistant},
		{Role: task.RoleUser, Text: "Again."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	name := "a_tool_" + long[:57]
	want := `[{"role":"user","content":"Before: nothing.\n\nGo <on>."},` +
		`{"role":"assistant","content":"Hm.","tool_calls":[` +
		`{"id":"call_r1","type":"function","function":{"name":"` + name + `","arguments":"{\"unparsed_arguments\":\"{\\\"cut\\\":\\\"of\"}"}},` +
		`{"id":"ok","type":"function","function":{"name":"unnamed","arguments":"{}"}}]},` +
		`{"role":"tool","content":"first","tool_call_id":"call_r1"},{"role":"tool","content":"second","tool_call_id":"ok"},` +
		`{"role":"assistant","content":""},{"role":"user","content":"Again."}]`
	if string(body["messages"]) != want {
		t.Errorf("messages\n%s, want\n%s", body["messages"], want)
	}
	if string(body["max_completion_tokens"]) != "77" || body["max_tokens"] != nil || body["tools"] != nil {
		t.Errorf("settings %s", body)
	}
}

func TestBounds(t *testing.T) {
	forever := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", deltaHi); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	silent := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "data: %s\n\n", deltaHi)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		change  func(*openai.Options)
		want    llm.Kind
		words   string
	}{
		{"bytes", forever, func(o *openai.Options) { o.MaxBytes = 5000 }, llm.Malformed, "longer than 5000 bytes"},
		{"timeout", forever, func(o *openai.Options) { o.Timeout = 100 * time.Millisecond }, llm.Timeout, "(100ms)"},
		{"idle", silent, func(o *openai.Options) { o.IdleTimeout = 50 * time.Millisecond }, llm.Timeout, "idle timeout (50ms)"},
		{"no answer", func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() },
			func(o *openai.Options) { o.Timeout = 50 * time.Millisecond }, llm.Timeout, "longer than its timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask(serve(t, tt.handler, tt.change))
			if llm.ErrorKind(err) != tt.want || !strings.Contains(err.Error(), tt.words) {
				t.Fatalf("got %v, want %s with %q", err, tt.want, tt.words)
			}
		})
	}
}

// A caller's deadline is the caller's, not the vendor's.
func TestCallersDeadline(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Next(ctx, &llm.Request{Messages: []task.Message{llmtest.Opening()}})
	if !errors.Is(err, context.DeadlineExceeded) || llm.ErrorKind(err) != "" {
		t.Fatalf("got %v", err)
	}
}

func TestBrokenConnection(t *testing.T) {
	hijack := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			conn, buf, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			buf.WriteString(text)
			buf.Flush()
		}
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"
	if _, err := ask(serve(t, hijack(head+"data: "+deltaHi+"\n\n"))); llm.ErrorKind(err) != llm.CutStream {
		t.Errorf("cut in the body: %v", err)
	}
	r, err := ask(serve(t, hijack(head+"data: "+deltaHi+"\n\ndata: "+endStop+"\n\n")))
	if err != nil || r.Text != "Hi" {
		t.Errorf("cut after the finish: %+v, %v", r, err)
	}
	if _, err := ask(serve(t, hijack(""))); llm.ErrorKind(err) != llm.Unreachable {
		t.Errorf("closed before the head: %v", err)
	}
	m := open(t, openai.Options{Endpoint: llm.Endpoint{BaseURL: "http://127.0.0.1:1/v1", Model: "m"}})
	if _, err := ask(m); llm.ErrorKind(err) != llm.Unreachable || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestRedirects(t *testing.T) {
	var seen []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, "other got "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/v1", http.StatusTemporaryRedirect)
	})
	_, err := ask(m)
	if llm.ErrorKind(err) != llm.BadRequest || !strings.Contains(err.Error(), "redirects to \""+other.URL) || seen != nil {
		t.Errorf("to another host: %v, %v", err, seen)
	}
	within := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/new" {
			http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
			return
		}
		stream(deltaHi, endStop)(w, r)
	})
	if r, err := ask(within); err != nil || r.Text != "Hi" {
		t.Errorf("within the host: %+v, %v", r, err)
	}
}

func TestProxy(t *testing.T) {
	proxied := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied++
		stream(deltaHi, endStop)(w, r)
	}))
	t.Cleanup(proxy.Close)
	m := open(t, openai.Options{Endpoint: llm.Endpoint{BaseURL: "http://runnerd.invalid/v1", Model: "m", Proxy: proxy.URL}})
	if r, err := ask(m); err != nil || r.Text != "Hi" || proxied != 1 {
		t.Errorf("through a proxy: %+v, %v, %d", r, err, proxied)
	}
}

func TestKeyError(t *testing.T) {
	m := serve(t, stream(endStop), func(o *openai.Options) {
		o.Key = func() (string, error) { return "", errors.New("credential openai: no such file") }
	})
	if _, err := ask(m); llm.ErrorKind(err) != llm.Auth || !strings.Contains(err.Error(), "credential openai") {
		t.Fatalf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	for base, want := range map[string]string{
		"":                  "",
		"ftp://x":           "absolute http",
		"localhost:1234/v1": "absolute http",
		"http://":           "absolute http",
		"http://a b/":       "is no URL",
	} {
		_, err := openai.New(openai.Options{Endpoint: llm.Endpoint{BaseURL: base, Model: "m"}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", base, err, want)
		}
	}
	if _, err := openai.New(openai.Options{}); err == nil || !strings.Contains(err.Error(), "model: is missing") {
		t.Errorf("no model: %v", err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: " + deltaHi + "\n\ndata: " + endStop + "\n\n"))
	f.Add([]byte(`data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":[1]}}],"reasoning_details":[{"index":0,"text":"a"},{"index":0,"text":1}]}}]}` + "\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Write(data)
		})
		r, err := ask(m)
		if err != nil && llm.ErrorKind(err) == "" {
			t.Fatalf("an error that is not the model's: %v", err)
		}
		if err == nil && len(r.Opaque) > 0 && !json.Valid(r.Opaque) {
			t.Fatalf("opaque is no JSON: %q", r.Opaque)
		}
	})
}
