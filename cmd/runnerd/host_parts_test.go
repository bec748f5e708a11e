package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runnerd/internal/daemontest"
	"runnerd/task"
)

// TestModelHosts is F8 for the host of a model: the error names the URL and what to
// try, this machine's refusal ends the run at once, and who watches hears of each try.
func TestModelHosts(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	daemontest.Must(t, err, closed.Close())
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`)
	})
	host := httptest.NewServer(mux)
	t.Cleanup(host.Close)
	model := func(base string) string {
		return "{provider: openai, base_url: " + base + ", model: m, api_key: none}\n"
	}
	d := newDaemon(t, map[string]string{
		"models.yaml":     "models:\n  bare: " + model(host.URL) + "  closed: " + model("http://"+closed.Addr().String()+"/v1") + "  busy: " + model(host.URL+"/v1"),
		"tasks/bare.yaml": "model: bare\ntools: []\nprompt: Hello.\n", "tasks/closed.yaml": "model: closed\ntools: []\nprompt: Hello.\n",
		"tasks/busy.yaml": "model: busy\ntools: []\nprompt: Hello.\n",
	})
	for _, way := range []string{"in the foreground", "through a daemon"} {
		if strings.Contains(way, "daemon") {
			d.start().ready()
		}
		for _, c := range []struct {
			name, task string
			code       int
			want       []string
		}{
			{"F8 base_url without /v1", "bare", task.ExitFailed, []string{"404", "asked for " + host.URL + "/chat/completions", "try " + host.URL + "/v1"}},
			{"F8 loopback refused", "closed", task.ExitFailed, []string{"refused"}},
			{"F8 try 2", "busy", task.ExitOK, []string{"model busy: try 2 of 4 in 2s: ", "Hello."}},
		} {
			begun := time.Now()
			out, errw, code := d.command("run", c.task)
			if code != c.code || time.Since(begun) > 50*time.Second || strings.Contains(out, "retry at") {
				t.Errorf("%s %s: exit code %d after %s\n%s%s", c.name, way, code, time.Since(begun), out, errw)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s %s: no %q in\n%s%s", c.name, way, want, out, errw)
				}
			}
		}
	}
}
