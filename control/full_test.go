package control

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// A socket on which every place is taken says so, and by whom, to whoever comes next.
func TestFullSocketSaysSo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Ours = func(pid int) bool { return pid == 666 } })
	var open []net.Conn
	for range maxConns / 4 {
		open = append(open, must[net.Conn](t)(net.Dial("unix", r.socket)))
	}
	c := r.as(operator) // connections are taken in their order
	for range 3 {
		_, err := c.Pause(ctx, "", "")
		e := refusedWith(t, err, http.StatusServiceUnavailable, CodeUnavailable)
		for _, want := range []string{"uid 0 has 64 connections open", "64 of process 1", "try again"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("says %q, want %q", err, want)
			}
		}
		if e == nil {
			break
		}
	}
	for _, o := range open {
		ok(t, o.Close())
	}
	refusedWith(t, r.as(Peer{UID: 4242, PID: 666}).Health(ctx), http.StatusForbidden, CodeForbidden)
}

// A daemon that takes a connection and ends it without a word is said to have done so.
func TestNoAnswerAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must[net.Listener](t)(net.Listen("unix", path))
	t.Cleanup(func() { ok(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_ = c.Close() // whatever was accepted
		}
	}()
	c := NewClient(path, nil)
	defer c.Close()
	_, err := c.Pause(ctx, "", "")
	for _, want := range []string{path, "took the connection and ended it without an answer", "runnerd status"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("says %v, want %q", err, want)
		}
	}
	if errors.Is(err, ErrNoDaemon) || errors.Is(err, fs.ErrPermission) {
		t.Errorf("counts as no daemon: %v", err)
	}
}
