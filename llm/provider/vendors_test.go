package provider_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"runnerd/llm/provider"
	"runnerd/task"
)

func resolve(s string) (string, error) {
	return strings.ReplaceAll(s, "${credential:key}", "sk-1"), nil
}

// Each vendor is asked over its own wire, with its own name for the key.
func TestVendors(t *testing.T) {
	for vendor, tt := range map[string]struct{ path, header, key, answer string }{
		provider.OpenAI:    {"/chat/completions", "Authorization", "Bearer sk-1", "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"},
		provider.Anthropic: {"/v1/messages", "X-Api-Key", "sk-1", "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"},
		provider.Ollama:    {"/api/chat", "Authorization", "Bearer sk-1", `{"message":{"content":"Hi"},"done":true,"done_reason":"stop"}`},
	} {
		t.Run(vendor, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.URL.Path != tt.path || r.Header.Get(tt.header) != tt.key || !strings.Contains(string(body), `"model":"m1"`) || !strings.Contains(string(body), ":77") {
					t.Errorf("%s %s with %v: %s", r.Method, r.URL, r.Header, body)
				}
				if num := strings.Contains(string(body), `"num_ctx":4096`); num != (vendor == provider.Ollama) {
					t.Errorf("context window in %s", body)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, tt.answer)
			}))
			defer srv.Close()
			m, err := provider.Open(task.ModelSpec{Name: "default", Provider: vendor, BaseURL: srv.URL, Model: "m1", APIKey: "${credential:key}",
				MaxOutputTokens: 77, ContextTokens: 4096, Timeout: time.Minute}, resolve)
			if err != nil {
				t.Fatal(err)
			}
			r, err := next(m, t)
			if err != nil || r.Text != "Hi" {
				t.Fatalf("got %+v, %v", r, err)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	spec := task.ModelSpec{Name: "cmd", Provider: provider.Command, Command: []string{"/bin/sh", "-c", `echo "$1 $A"`, "x", "${credential:key}"}, Timeout: time.Minute}
	m, err := provider.Options{Resolve: resolve, Env: []string{"A=b"}}.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := next(m, t); err != nil || r.Text != "sk-1 b" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestVendorRefusals(t *testing.T) {
	for _, tt := range []struct {
		spec task.ModelSpec
		want string
	}{
		{task.ModelSpec{Name: "x", Provider: provider.Anthropic}, "open model x: model: is missing"},
		{task.ModelSpec{Name: "x", Provider: provider.Ollama, Model: "m", BaseURL: "http://h/v1"}, "leave off /v1"},
		{task.ModelSpec{Name: "x", Provider: provider.Command}, "open model x: command: is empty"},
	} {
		m, err := provider.Open(tt.spec, resolve)
		if err == nil || !strings.Contains(err.Error(), tt.want) || m != nil {
			t.Errorf("%+v: %v, %v, want %q", tt.spec, m, err, tt.want)
		}
	}
}
