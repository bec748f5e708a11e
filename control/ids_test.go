package control

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Whatever stands where an id belongs, the answer is that there is no such thing,
// in a sentence, and never an error of ours.
func TestOddIDs(t *testing.T) {
	r := newRig(t)
	r.as(operator)
	client := &http.Client{Transport: &http.Transport{Dial: func(string, string) (net.Conn, error) { return net.Dial("unix", r.socket) }}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	ask := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://runnerd"+path, strings.NewReader(body))
		if err != nil {
			return // no client can send it
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		data, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch code := res.StatusCode; {
		case code >= 500, code == 200 || code == 201, code >= 400 && (code == 401 || code == 403 || !strings.Contains(string(data), `"message"`)):
			t.Errorf("I16 %s %.60s: %d %s", method, path, code, data)
		}
		if strings.ContainsAny(string(data), "\x00\x1b\x7f") || strings.Contains(string(data), "SQL") {
			t.Errorf("I16 %s %.60s says %q", method, path, data)
		}
	}
	odd := []string{
		"%00", "x%00", "%00%00%00", "a%00b", "..", "%2e%2e", "%2F", "..%2F..%2Fetc%2Fpasswd", "a%2Fb", "%ff", "%c0%af", "%ed%a0%80", "%1b%5b2J", "%0a", "%7f", "%c2%9b",
		"%e2%80%ae", "%e2%80%a8", "*", "%25", "%25%30%30", "_", "'%20OR%201=1--", "%22", "%5C", strings.Repeat("a", 5000), strings.Repeat("%00", 1000), "%20", ".", "%E2%80%8B", "nil", "-1",
	}
	for _, rt := range (&Server{}).table() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		if !strings.Contains(path, "{id}") {
			continue
		}
		for _, id := range odd {
			ask(method, strings.Replace(path, "{id}", id, 1), map[bool]string{true: `{"connector_ids":["mail"]}`, false: ""}[method == http.MethodPatch && !strings.HasSuffix(path, "policy")])
		}
	}
	for _, path := range []string{"/api/runs?task=", "/api/runs?before=", "/api/why?task=", "/api/approvals?task=", "/api/approvals?state=", "/api/events?run=", "/api/runs?limit=", "/api/why?at="} {
		for _, value := range []string{"%00", "a%00b", "%ff", "%1b"} {
			ask(http.MethodGet, path+value, "")
		}
	}
	for _, body := range []string{`{"note":"a\u0000b"}`, `{"note":"\ud800"}`} {
		ask(http.MethodPost, "/api/tasks/nix/pause", body)
	}
	ask(http.MethodPost, "/api/pause", `{"note":"a\u0000b"}`)
}
