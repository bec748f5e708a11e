package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// The daemon calls its own ping while it is well, and keeps silent when a
// database does not answer.
func TestDaemonPings(t *testing.T) {
	called := make(chan string, 8)
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.Method + " " + r.URL.Path }))
	defer sink.Close()
	a := testApp(t, map[string]string{
		"models.yaml":  "models:\n  default: {provider: scripted, script: s.yaml}\n",
		"s.yaml":       "turns:\n  - say: Hello.\n",
		"runnerd.yaml": "ping: {url: " + sink.URL + "/alive, every: 10s}\n",
	})
	h, err := New(t.Context(), *a)
	if err != nil {
		t.Fatal(err)
	}
	// Closing cannot note anything in the database that the test has closed.
	t.Cleanup(func() { _ = h.Close() })
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- h.care.pings.Run(ctx) }()
	go func() { done <- h.alive(ctx) }()
	select {
	case got := <-called:
		if got != "GET /alive" {
			t.Errorf("called %s", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("no ping came")
	}
	end()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := h.rules.Close(); err != nil {
		t.Fatal(err)
	}
	sick, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := h.alive(sick); err != nil {
		t.Error(err)
	}
	select {
	case got := <-called:
		t.Errorf("called %s although the policy database is closed", got)
	default:
	}
}
