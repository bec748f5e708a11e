package systemd_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runnerd/systemd"
)

func TestNotify(t *testing.T) {
	m := newManager(t)
	n := systemd.NewNotifier(environ("NOTIFY_SOCKET", m.path))
	for _, tc := range []struct {
		name string
		send func() error
		want string
	}{
		{"ready", func() error { return n.Ready("3 tasks") }, "READY=1\nSTATUS=3 tasks\n"},
		{"status", func() error { return n.Status("2 runs under way") }, "STATUS=2 runs under way\n"},
		{"stopping", func() error { return n.Stopping("waiting for 1 run") }, "STOPPING=1\nSTATUS=waiting for 1 run\n"},
		{"no second assignment", func() error { return n.Status("a\nMAINPID=1\r\x00b") }, "STATUS=a MAINPID=1 b\n"},
		{"bounded", func() error { return n.Status(strings.Repeat("ü", 4000)) }, "STATUS=" + strings.Repeat("ü", 500) + "\n"},
	} {
		if err := tc.send(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got := m.next(t); got != tc.want {
			t.Errorf("%s: sent %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestReloading shows that both assignments are in one datagram and that the
// time is the manager's: microseconds of CLOCK_MONOTONIC.
func TestReloading(t *testing.T) {
	m := newManager(t)
	before := monotonic(t)
	if err := systemd.NewNotifier(environ("NOTIFY_SOCKET", m.path)).Reloading(); err != nil {
		t.Fatal(err)
	}
	after := monotonic(t)
	usec, ok := strings.CutPrefix(strings.TrimSpace(m.next(t)), "RELOADING=1\nMONOTONIC_USEC=")
	got, err := strconv.ParseInt(usec, 10, 64)
	if !ok || err != nil || got < before || got > after {
		t.Errorf("time %q, want one from %d to %d", usec, before, after)
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano() / 1000
}

func TestNotifyWithoutManager(t *testing.T) {
	var zero systemd.Notifier
	for _, n := range []*systemd.Notifier{&zero, systemd.NewNotifier(environ())} {
		if err := errors.Join(n.Ready("x"), n.Status("x"), n.Reloading(), n.Stopping("x")); err != nil {
			t.Errorf("without a socket: %v", err)
		}
	}
	for _, socket := range []string{"vsock:2:1234", "relative", t.TempDir() + "/none"} {
		if err := systemd.NewNotifier(environ("NOTIFY_SOCKET", socket)).Ready("x"); err == nil || !strings.HasPrefix(err.Error(), "notify systemd: ") {
			t.Errorf("%s: error %v, want one", socket, err)
		}
	}
}

// TestNotifyDeaf fills the manager's socket: a send must give up.
func TestNotifyDeaf(t *testing.T) {
	m := newManager(t)
	n := systemd.NewNotifier(environ("NOTIFY_SOCKET", m.path))
	for range 100_000 {
		err := n.Status("x")
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the socket never filled")
}

func TestWatchdogInterval(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for _, tc := range []struct {
		usec, pid string
		want      time.Duration
		wantErr   bool
	}{
		{"", "", 0, false},
		{"30000000", "", 30 * time.Second, false},
		{"30000000", self, 30 * time.Second, false},
		{"30000000", "1", 0, false},
		{"0", self, 0, true},
		{"-1", self, 0, true},
		{"30s", self, 0, true},
		{"9223372036854775807", self, 0, true},
	} {
		got, err := systemd.WatchdogInterval(environ("WATCHDOG_USEC", tc.usec, "WATCHDOG_PID", tc.pid))
		if got != tc.want || (err != nil) != tc.wantErr {
			t.Errorf("WATCHDOG_USEC=%q WATCHDOG_PID=%q: %s, %v; want %s, error %t", tc.usec, tc.pid, got, err, tc.want, tc.wantErr)
		}
	}
}

// TestWatchdog makes the service sick for two turns. What is sent is read in
// step, so that the order is certain.
func TestWatchdog(t *testing.T) {
	m := newManager(t)
	n := systemd.NewNotifier(environ("NOTIFY_SOCKET", m.path))
	if err := n.Status("fine"); err != nil {
		t.Fatal(err)
	}
	turn := 0
	healthy := func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("healthy has no deadline")
		}
		turn++
		switch turn {
		case 2:
			return errors.New("database:\ndisk full")
		case 3:
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		n.Watchdog(ctx, 60*time.Millisecond, healthy, nil)
		close(done)
	}()
	for _, want := range []string{
		"STATUS=fine\n",
		"WATCHDOG=1\n",
		"STATUS=unhealthy: database: disk full\n",
		"WATCHDOG=1\nSTATUS=fine\n",
		"WATCHDOG=1\n",
	} {
		if got := m.next(t); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	cancel()
	<-done
	n.Watchdog(t.Context(), 0, func(context.Context) error { t.Error("asked without a watchdog"); return nil }, nil)
}
