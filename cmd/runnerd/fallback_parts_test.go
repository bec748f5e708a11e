package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"runnerd/internal/daemontest"
	"runnerd/task"
)

// TestFallbackOnTheRealBinary is D4: whatever words come with 401, 400 or 404, another
// model does not answer in the first one's place, and nothing is asked twice; what may
// pass is answered by the fallback, and the run says so.
func TestFallbackOnTheRealBinary(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		status int
		body   string
		passes bool
	}{
		"d401":    {http.StatusUnauthorized, `{"error":{"message":"key revoked, try again later"}}`, false},
		"d400":    {http.StatusBadRequest, `{"detail":"temporarily unsupported field"}`, false},
		"d404":    {http.StatusNotFound, `{"error":"server busy: no such model"}`, false},
		"d403":    {http.StatusForbidden, ``, false},
		"d402":    {http.StatusTooManyRequests, `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}`, false},
		"dwords":  {http.StatusOK, `{"detail":"this tenant was shut down"}`, false},
		"dpasses": {http.StatusOK, `{"message":"overloaded, retry later"}`, true},
	}
	var mu sync.Mutex
	asked := map[string]int{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{name}/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		mu.Lock()
		asked[name]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if c, ok := cases[name]; ok {
			w.Header().Set("Retry-After", "0.1")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
			return
		}
		fmt.Fprint(w, `{"choices":[{"finish_reason":"stop","message":{"content":"From the backup."}}]}`)
	})
	host := httptest.NewServer(mux)
	t.Cleanup(host.Close)
	models := "models:\n  backup: {provider: openai, base_url: " + host.URL + "/backup/v1, model: m, api_key: none}\n"
	files := map[string]string{}
	for name := range cases {
		models += "  " + name + ": {provider: openai, base_url: " + host.URL + "/" + name + "/v1, model: m, api_key: none, fallback: [backup]}\n"
		files["tasks/"+name+".yaml"] = "model: " + name + "\ntools: []\nretry: {attempts: 3, backoff: 1s}\nprompt: Hello.\n"
	}
	files["models.yaml"] = models
	d := newDaemon(t, files)
	for name, c := range cases {
		out, errw, code := d.command("run", name)
		want, times := task.ExitFailed, 1
		if c.passes {
			want, times = task.ExitOK, 4
		}
		mu.Lock()
		if code != want || asked[name] != times || strings.Contains(out, "From the backup.") != c.passes {
			t.Errorf("%s: exit code %d, want %d; asked %d times, want %d\n%s%s", name, code, want, asked[name], times, out, errw)
		}
		mu.Unlock()
		var shown struct{ Run struct{ Marks []string } }
		if show, _, code := d.command("show", name, "--json"); code == task.ExitOK {
			daemontest.Must(t, json.Unmarshal([]byte(show), &shown))
		}
		if got := strings.Contains(strings.Join(shown.Run.Marks, " "), "fallback_model:backup"); got != c.passes {
			t.Errorf("%s: marks %v", name, shown.Run.Marks)
		}
	}
}
