package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"runnerd/task"
)

// TestOddServersOnTheRealBinary is E1 to E4 over HTTP: a server that loses its session,
// answers discovery and calls in its own way and lists a schema that does not compile.
func TestOddServersOnTheRealBinary(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls, lost := 0, false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		answer := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`)
		case "tools/list":
			answer(`{"tools":[{"name":"look","inputSchema":{"type":"object"}},` +
				`{"name":"broken","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"required":["a"]}}}]}`)
		case "tools/call":
			if calls++; !lost {
				lost = true
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
				return
			}
			answer(`{"content":[{"type":"video","data":"AAAA"},{"type":"text","text":"Seen."}]}`)
		case "server/discover":
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what"}}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(srv.Close)
	d := newDaemon(t, map[string]string{
		"s.yaml":          "turns:\n  - call: [{tool: odd/look, args: {}}]\n  - say: Looked.\n",
		"connectors.yaml": "mcpServers:\n  odd: {url: \"" + srv.URL + "\", classes: {look: write}, flags: []}\n",
		"tasks/t.md":      "---\nconnectors: [odd]\ntools: [odd]\nallow: [odd/look]\n---\nLook.\n",
	})
	out, errw, code := d.command("run", "t")
	show, _, _ := d.command("show", "t", "--json")
	mu.Lock()
	defer mu.Unlock()
	if code != task.ExitOK || calls != 2 || !strings.Contains(show, `[video, not shown]\nSeen.`) {
		t.Errorf("exit code %d, %d calls sent, want the second on a new session\n%s%s\n%s", code, calls, out, errw, show)
	}
}
