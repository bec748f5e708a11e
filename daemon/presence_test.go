package daemon

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"runnerd/control"
	"runnerd/sqldb"
)

// Who is there is told by the socket, then by the lock, then by a socket without its
// file; one that takes connections and says nothing is none that can be asked.
func TestPresence(t *testing.T) {
	s := testApp(t, nil).Settings
	if err := os.MkdirAll(s.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	look := func() Presence {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		return s.Present(ctx)
	}
	if p := look(); p.Running || p.Client != nil || !errors.Is(p.Err, control.ErrNoDaemon) {
		t.Errorf("nobody: %+v", p)
	}
	l, err := control.Listen(s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // its file is removed below
	if p := look(); p.Running || p.Client != nil || !errors.Is(p.Err, context.DeadlineExceeded) {
		t.Errorf("one that says nothing: %+v", p)
	}
	lock, err := sqldb.LockState(s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	silent := control.DaemonView{Running: true, PID: os.Getpid(), Silent: true}
	if p := look(); p.View() != silent || p.Client != nil {
		t.Errorf("one that says nothing and holds the directory: %+v", p)
	}
	if err := errors.Join(lock.Close(), os.Remove(s.Socket)); err != nil {
		t.Fatal(err)
	}
	if p := look(); p.View() != silent {
		t.Errorf("a socket without its file: %+v", p)
	}
}
