package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// raw makes one request and answers status, header and body.
func (r *rig) raw(method, path, body string) (int, http.Header, string) {
	r.t.Helper()
	c := r.as(*r.peer.Load())
	req := must[*http.Request](r.t)(http.NewRequest(method, "http://x"+path, strings.NewReader(body)))
	resp, err := c.http.Do(req)
	ok(r.t, err)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header, string(must[[]byte](r.t)(io.ReadAll(resp.Body)))
}

// Anything unknown or malformed is refused by name, in the one shape of errors.
func TestRequestsAreStrict(t *testing.T) {
	r := newRig(t)
	big := `{"note":"` + strings.Repeat("x", maxBody) + `"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		code, names        string
	}{
		{"GET", "/nothing", "", 404, CodeNotFound, "/nothing"},
		{"GET", "/api/tasks/nix", "", 404, CodeNotFound, "nix"},
		{"DELETE", "/api/tasks", "", 405, CodeMethod, "GET"},
		{"PUT", "/api/tasks/brief/policy", "{}", 405, CodeMethod, "GET, PATCH"},
		{"GET", "/api/tasks?limt=1", "", 400, CodeBadRequest, "limt"},
		{"GET", "/api/tasks", "{}", 400, CodeBadRequest, "GET"},
		{"GET", "/api/runs?limit=0", "", 400, CodeBadRequest, "limit"},
		{"GET", "/api/runs?limit=1001", "", 400, CodeBadRequest, "limit"},
		{"GET", "/api/runs?limit=1&limit=2", "", 400, CodeBadRequest, "limit"},
		{"GET", "/api/runs?before=nix", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/runs/nix", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/why", "", 400, CodeBadRequest, "task"},
		{"GET", "/api/why?task=brief&at=soon", "", 400, CodeBadRequest, "at"},
		{"GET", "/api/why?task=brief&at=2026-05-04T09:00:00Z&since=2026-05-04T09:00:00Z", "", 400, CodeBadRequest, "since"},
		{"GET", "/api/approvals?state=pendng", "", 400, CodeBadRequest, "pendng"},
		{"GET", "/api/events?after=x", "", 400, CodeBadRequest, "after"},
		{"GET", "/api/events?run=nix", "", 404, CodeNotFound, "nix"},
		{"GET", "/metrics", "", 404, CodeNotFound, "metrics"},
		{"POST", "/api/pause", `{"note":1}`, 400, CodeBadRequest, "note"},
		{"POST", "/api/pause", `{"note":null}`, 400, CodeBadRequest, "note"},
		{"POST", "/api/pause", `{"nope":1}`, 400, CodeBadRequest, "nope"},
		{"POST", "/api/pause", `{"note":"a","note":"b"}`, 400, CodeBadRequest, "note is given twice"},
		{"POST", "/api/pause", `{"note":"a"} x`, 400, CodeBadRequest, "follows"},
		{"POST", "/api/pause", `{"note":"` + strings.Repeat("x", maxText+1) + `"}`, 400, CodeBadRequest, "note"},
		{"POST", "/api/pause", `[1]`, 400, CodeBadRequest, "object"},
		{"POST", "/api/pause", `{"note":`, 400, CodeBadRequest, "JSON"},
		{"POST", "/api/pause", "{\"note\":\"\xff\"}", 400, CodeBadRequest, "UTF-8"},
		{"POST", "/api/pause", big, 413, CodeTooLarge, "bytes"},
		{"POST", "/api/tasks/nix/pause", "", 404, CodeNotFound, "nix"},
		{"POST", "/api/tasks/nix/run", "", 404, CodeNotFound, "nix"},
		{"POST", "/api/tasks/brief/run", `{"script":"x"}`, 400, CodeBadRequest, "script"},
		{"POST", "/api/runs/nix/cancel", "", 404, CodeNotFound, "nix"},
		{"POST", "/api/approvals/nix/approve", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/connectors/nix/tools", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/connectors/mail/diff", "", 503, CodeUnavailable, "mail is down"},
		{"GET", "/api/session/nix/connectors", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/session/nix/tool-support", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/projects/nix", "", 404, CodeNotFound, "nix"},
		{"GET", "/api/tasks/nix/policy", "", 404, CodeNotFound, "nix"},
		{"PATCH", "/api/tasks/brief/policy", "", 400, CodeBadRequest, "object"},
		{"PATCH", "/api/tasks/brief/policy", "null", 400, CodeBadRequest, "object"},
		{"PATCH", "/api/tasks/brief/policy", strings.Repeat(`{"allow":`, 70) + "1" + strings.Repeat("}", 70), 400, CodeBadRequest, "deep"},
	} {
		status, header, body := r.raw(c.method, c.path, c.body)
		var answer struct {
			Error Error `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: answer %q: %v", c.method, c.path, body, err)
			continue
		}
		e := answer.Error
		if status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.names) {
			t.Errorf("%s %s %.60s: %d %s %q, want %d %s naming %q", c.method, c.path, c.body, status, e.Code, e.Message, c.status, c.code, c.names)
		}
		if status == 405 && header.Get("Allow") != c.names {
			t.Errorf("%s %s: Allow %q", c.method, c.path, header.Get("Allow"))
		}
	}
	if p := must[[]TaskRow](t)(r.as(operator).Tasks(ctx)); p[0].Paused {
		t.Error("a refused request paused something")
	}
}

func TestHealthAndMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "runnerd_up"}))
	var sick atomic.Value // an error, while it is
	r := newRig(t, func(o *Options) {
		o.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
		o.Healthy = func(context.Context) error { err, _ := sick.Load().(error); return err }
	})
	ok(t, r.as(nobody).Health(ctx)) // needs no right
	sick.Store(errors.New("the scheduler has not turned"))
	e := refusedWith(t, r.as(nobody).Health(ctx), http.StatusServiceUnavailable, CodeUnavailable)
	if e.Message != "unhealthy" {
		t.Errorf("says %q to nobody", e.Message)
	}
	e = refusedWith(t, r.as(operator).Health(ctx), http.StatusServiceUnavailable, CodeUnavailable)
	if !strings.Contains(e.Message, "not turned") {
		t.Errorf("says %q", e.Message)
	}
	if text := must[string](t)(r.as(operator).Metrics(ctx)); !strings.Contains(text, "runnerd_up 0") {
		t.Errorf("metrics %q", text)
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Reload = func(context.Context, bool) (ReloadView, error) { panic("boom") }
	})
	_, err := r.as(operator).Reload(ctx, false)
	refusedWith(t, err, http.StatusInternalServerError, CodeInternal)
	if r.logs.FilterMessage("handler panicked").Len() != 1 {
		t.Error("not logged")
	}
	ok(t, r.as(operator).Health(ctx))
}

// A request under way is answered at shutdown; one that takes longer than the
// grace has its context cancelled; Serve returns when its handler is gone.
func TestShutdownWaits(t *testing.T) {
	for name, patient := range map[string]bool{"answered": true, "cancelled": false} {
		t.Run(name, func(t *testing.T) {
			begun, release := make(chan struct{}), make(chan struct{})
			var gone bool // read after Serve returned
			r := newRig(t, func(o *Options) {
				o.Grace = 400 * time.Millisecond
				if patient {
					o.Grace = time.Minute
				}
				o.Reload = func(ctx context.Context, _ bool) (ReloadView, error) {
					defer func() { gone = true }()
					close(begun)
					select {
					case <-release:
						return ReloadView{Tasks: 9}, nil
					case <-ctx.Done():
						<-time.After(20 * time.Millisecond) // a handler that is slow to end
						return ReloadView{}, ctx.Err()
					}
				}
			})
			answered := make(chan error, 1)
			c := r.as(operator)
			go func() { _, err := c.Reload(ctx, false); answered <- err }()
			<-begun
			served := make(chan error, 1)
			go func() { served <- r.stop() }()
			if patient {
				<-r.server.stop
				select {
				case err := <-served:
					t.Fatalf("Serve returned under a request: %v", err)
				default:
				}
				close(release)
			}
			ok(t, <-served)
			if !gone {
				t.Error("Serve returned before its handler")
			}
			if err := <-answered; (err == nil) != patient {
				t.Errorf("the request: %v", err)
			}
			if _, err := c.Tasks(ctx); !errors.Is(err, ErrNoDaemon) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestServeOnceAndComplete(t *testing.T) {
	r := newStores(t)
	r.build()
	life, end := context.WithCancel(ctx)
	end()
	ok(t, r.server.Serve(life, must[net.Listener](t)(Listen(r.socket))))
	if err := r.server.Serve(life, must[net.Listener](t)(Listen(r.socket))); err == nil || !strings.Contains(err.Error(), "before") {
		t.Errorf("a second time: %v", err)
	}
	r.build(func(o *Options) { o.Start = nil })
	if err := r.server.Serve(life, must[net.Listener](t)(Listen(r.socket))); err == nil || !strings.Contains(err.Error(), "Start is missing") {
		t.Errorf("incomplete: %v", err)
	}
	l := must[net.Listener](t)(Listen(r.socket)) // each of them closed its listener
	r.build()
	ok(t, l.Close())
	if err := r.server.Serve(ctx, l); err == nil {
		t.Error("a closed listener is no error")
	}
}

// I9: places are counted by uid, strangers share a few, and those of root and of a
// person are there whatever a crowd does. A place is free again after a connection.
func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Rights = func(p Peer) Rights { return Rights{Read: p.UID == 0 || p.UID < 100 && p.Token} }
		o.Ours = func(pid int) bool { return pid == 666 }
	})
	var open []net.Conn
	fill := func(p Peer, n int) (kept int) {
		for range n {
			r.peer.Store(&p)
			c := must[net.Conn](t)(net.Dial("unix", r.socket))
			_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp, rerr := http.ReadResponse(bufio.NewReader(c), nil); err != nil || rerr != nil || resp.StatusCode != http.StatusOK {
				ok(t, c.Close())
				continue
			}
			open = append(open, c)
			kept++
		}
		return kept
	}
	for _, c := range []struct {
		name string
		peer Peer
		want int
	}{
		{"started by the daemon", Peer{UID: 1, PID: 666}, 0},
		{"one uid", Peer{UID: 1}, maxConns / 4},
		{"the second", Peer{UID: 2}, maxConns / 4},
		{"a stranger", Peer{UID: 1001}, maxConns / 16},
		{"another stranger", Peer{UID: 1002}, 0},
		{"the third", Peer{UID: 3}, maxConns / 4},
		{"the fourth", Peer{UID: 4}, maxConns / 4},
		{"the fifth", Peer{UID: 5}, 0},
		{"root", Peer{UID: 0}, maxConns / 4},
	} {
		if kept := fill(c.peer, maxConns/4+3); kept != c.want {
			t.Errorf("I9 %s: %d places, want %d", c.name, kept, c.want)
		}
	}
	for _, c := range open {
		ok(t, c.Close())
	}
	for deadline := time.Now().Add(10 * time.Second); fill(Peer{UID: 5}, 1) != 1; {
		if time.Now().After(deadline) {
			t.Fatal("no place is free again")
		}
	}
	ok(t, open[len(open)-1].Close())
	if n := r.logs.FilterMessage("connection refused").Len(); n != 1 {
		t.Errorf("%d lines in the log for all of them", n)
	}
}
