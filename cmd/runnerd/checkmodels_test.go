package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// C8: check --models says what a model answers and what its endpoint does not take.
func TestCheckModels(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("Authorization") != "":
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"message":"Incorrect API key provided"}}`)
		case bytes.Contains(body, []byte("stream_options")):
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"choices":[{"delta":{"content":"ready"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		}
	}))
	defer srv.Close()
	model := func(more string) string {
		return "{provider: openai, base_url: " + srv.URL + ", model: m" + more + "}\n"
	}
	a := testApp(t, map[string]string{"models.yaml": "models:\n  default: " + model("")})
	out := new(bytes.Buffer)
	a.out = out
	if err := (checkCmd{Models: true, Offline: true}).Run(t.Context(), a); err != nil {
		t.Errorf("check: %v", err)
	}
	for _, want := range []string{`model default  answered "ready" in `, "stream_options is refused and left out", "it counts no tokens"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("check said\n%s\nwant %q in it", out, want)
		}
	}
	a = testApp(t, map[string]string{"models.yaml": "models:\n  default: " + model(", api_key: sk-nobody-knows-it")})
	out = new(bytes.Buffer)
	a.out = out
	if err := (checkCmd{Models: true, Offline: true}).Run(t.Context(), a); err == nil {
		t.Error("a model that refuses the key is no error")
	}
	if !strings.Contains(out.String(), "models.default: asked for one word: auth (HTTP 401): Incorrect API key provided") {
		t.Errorf("check said\n%s", out)
	}
}
