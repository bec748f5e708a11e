package deliver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"runnerd/task"
)

const check = "/ping/01234567-89ab-cdef-0123-456789abcdef"

// switchboard is a dead man's switch on loopback.
type switchboard struct {
	mu   sync.Mutex
	got  []string
	came chan struct{}
}

func (s *switchboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.got = append(s.got, r.Method+" "+r.URL.Path)
	n := len(s.got)
	s.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/away"):
		http.Redirect(w, r, strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1)+"/stolen", http.StatusFound)
	case strings.HasPrefix(r.URL.Path, "/here"):
		http.Redirect(w, r, "/moved", http.StatusFound)
	case strings.HasPrefix(r.URL.Path, "/once") && n == 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.came <- struct{}{}
}

func TestPing(t *testing.T) {
	ok := task.Run{Task: "a", Execution: task.Completed}
	failed := task.Run{Task: "a", Execution: task.Failed}
	for _, c := range []struct {
		name, path string
		run        task.Run
		want       []string
		calls      int // after which nothing more is waited for
	}{
		{"ok", "/any?msg=up", ok, []string{"GET /any"}, 1},
		{"ok, of healthchecks", check, ok, []string{"GET " + check}, 1},
		{"failed, of healthchecks", check + "?rid=1", failed, []string{"GET " + check + "/fail"}, 1},
		{"failed, of another kind", "/any", failed, nil, 0},
		{"cancelled", check, task.Run{Task: "a", Execution: task.Cancelled}, nil, 0},
		{"not delivered", check, task.Run{Task: "a", Execution: task.Completed, Delivery: task.DeliveryFailed}, []string{"GET " + check + "/fail"}, 1},
		{"the second time", "/once", ok, []string{"GET /once", "GET /once"}, 1},
		{"redirect on the host", "/here", ok, []string{"GET /here", "GET /moved"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &switchboard{came: make(chan struct{}, 9)}
			srv := httptest.NewServer(s)
			defer srv.Close()
			p := NewPinger(PingerOptions{Backoff: time.Microsecond, Resolve: func(x string) (string, error) { return strings.Replace(x, "${env:S}", srv.URL, 1), nil }})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			p.Ended(task.Task{Ping: "${env:S}" + c.path}, c.run)
			p.Ended(task.Task{}, c.run)
			if c.calls == 0 { // one that is sent after it shows that it was passed over
				p.Ended(task.Task{Ping: srv.URL + "/last"}, ok)
				c.want, c.calls = append(c.want, "GET /last"), 1
			}
			for range c.calls {
				<-s.came
			}
			stop()
			must(t, <-done)
			if !slices.Equal(s.got, c.want) {
				t.Errorf("called %v, want %v", s.got, c.want)
			}
		})
	}
}

// TestPingGoesNowhereElse: a redirect to another host is refused, and neither log
// nor error shows the path, which is the secret of the switch.
func TestPingGoesNowhereElse(t *testing.T) {
	s := &switchboard{came: make(chan struct{}, 9)}
	srv := httptest.NewServer(s)
	defer srv.Close()
	core, logs := observer.New(zap.WarnLevel)
	p := NewPinger(PingerOptions{Backoff: time.Microsecond, Attempts: 2, Logger: zap.New(core)})
	p.send(t.Context(), ping{task: "a", url: srv.URL + "/away/path-secret"})
	p.client.CloseIdleConnections()
	if want := []string{"GET /away/path-secret", "GET /away/path-secret"}; !slices.Equal(s.got, want) {
		t.Errorf("called %v, want %v", s.got, want)
	}
	all := logs.All()
	if len(all) != 1 || !strings.Contains(all[0].ContextMap()["error"].(string), "redirect to another host, localhost") {
		t.Fatalf("logged %v", all)
	}
	if strings.Contains(all[0].ContextMap()["error"].(string), "path-secret") {
		t.Errorf("the log shows the URL: %v", all[0].ContextMap())
	}
	for _, bad := range []string{"ftp://h/x", "://", "/x", "${env:X}"} {
		if _, err := p.target(ping{url: bad}); err == nil {
			t.Errorf("%q is taken for a ping URL", bad)
		}
	}
}

// TestPingIsBounded: more pings than there is room for are dropped, not waited
// for.
func TestPingIsBounded(t *testing.T) {
	p := NewPinger(PingerOptions{})
	for range maxPings + 10 {
		p.Ended(task.Task{Ping: "http://127.0.0.1:1/x"}, task.Run{Execution: task.Completed})
	}
	if len(p.queue) != maxPings {
		t.Errorf("%d wait", len(p.queue))
	}
}
