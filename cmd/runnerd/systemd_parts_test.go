package main

import (
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uptrace/bun/driver/sqliteshim"
	"golang.org/x/sys/unix"

	"runnerd/internal/daemontest"
	"runnerd/sqldb"
	"runnerd/task"
)

const waitScript = "turns:\n  - call: [{tool: gated/TOOL, args: {}}]\n  - say: Done.\n"

// waiting are the files of a daemon whose task waits in a call for the gate.
func waiting(tool string) map[string]string {
	return map[string]string{
		"s.yaml":          strings.ReplaceAll(waitScript, "TOOL", tool),
		"connectors.yaml": "mcpServers:\n  gated: {GATED, classes: {wait: read, waitwrite: write, look: read}}\n",
		"tasks/slow.yaml": "schedule: every 1s\nsession: fresh\nallow: [gated/*]\nretry: {attempts: 5, backoff: 10ms}\nprompt: Wait.\n",
	}
}

// locked takes the write lock of a SQLite file, as another process would, until
// free is called.
func locked(t *testing.T, file string) (free func()) {
	t.Helper()
	pool, err := sql.Open(sqliteshim.ShimName, "file:"+file+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Conn(t.Context())
	if err == nil {
		_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		_, err := conn.ExecContext(context.Background(), "ROLLBACK")
		if err = errors.Join(err, conn.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestServiceManager plays systemd to the real daemon: ready, fed, reloaded and
// stopped, with the database out of reach in between.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	d, m := newDaemon(t, waiting("look")), newManager(t)
	const interval = 1500 * time.Millisecond
	p := d.start("NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC="+strconv.FormatInt(interval.Microseconds(), 10))

	if got := m.hears("READY=1"); got["STATUS"] != "1 tasks, 1 connectors, 0 problems in files" {
		t.Errorf("READY came with status %q", got["STATUS"])
	}
	for _, text := range m.past[:len(m.past)-1] {
		if strings.Contains(text, "RELOADING") || strings.Contains(text, "STOPPING") {
			t.Errorf("heard %q before READY", text)
		}
	}
	if !strings.Contains(p.text(), `"msg":"files in force"`) {
		t.Error("READY came before the files were in force")
	}
	m.hears("WATCHDOG=1")
	m.hears("WATCHDOG=1")

	free := locked(t, d.a.Database)
	daemontest.Until(t, "the daemon says that it is unhealthy", func() bool {
		select {
		case text := <-m.heard:
			return strings.HasPrefix(text, "STATUS=unhealthy: ")
		default:
			return false
		}
	})
	m.quiet("WATCHDOG=1", 2*interval) // that nothing comes can only be waited for
	free()
	if got := m.hears("WATCHDOG=1"); got["STATUS"] != "1 tasks, 1 connectors, 0 problems in files" {
		t.Errorf("with health came the status %q, want the former one", got["STATUS"])
	}

	d.write("tasks/new.yaml", "schedule: every 1s\nsession: fresh\nprompt: Look.\n")
	before := monotonic(t)
	p.signal(syscall.SIGHUP)
	got := m.hears("RELOADING=1")
	if usec, err := strconv.ParseInt(got["MONOTONIC_USEC"], 10, 64); err != nil || usec < before || usec > monotonic(t) {
		t.Errorf("RELOADING came with MONOTONIC_USEC=%q, want it between %d and now", got["MONOTONIC_USEC"], before)
	}
	if got := m.hears("READY=1"); got["STATUS"] != "2 tasks, 1 connectors, 0 problems in files" {
		t.Errorf("after the reload READY came with status %q", got["STATUS"])
	}
	daemontest.Until(t, "the new task runs", func() bool { return len(d.runs("new")) > 0 })

	p.signal(syscall.SIGTERM)
	m.hears("STOPPING=1")
	p.exits()
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

// TestNotReadyBeforeTheParts ends the daemon just before each thing that READY
// promises: the manager must not have heard it.
func TestNotReadyBeforeTheParts(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"before recover 1", "before cursors 1"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			d, m := newDaemon(t, waiting("look")), newManager(t)
			p := d.start("NOTIFY_SOCKET="+m.path, "RUNNERD_CRASH_AT="+step)
			<-p.ended
			var ended *exec.ExitError
			if !errors.As(p.err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the daemon ended with %v, want it killed %s", p.err, step)
			}
			m.quiet("READY=1", 100*time.Millisecond) // what it sent lies in the socket
		})
	}
}

// TestDrain sends SIGTERM while a call is under way.
func TestDrain(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, tool, grace string
		open, again       bool // the gate opens within the grace time; SIGTERM comes twice
		execution         task.Execution
		outcome           task.ReceiptOutcome
		status            task.Status // after the next start
		calls             int         // in the end
	}{
		{name: "finishes within grace", tool: "waitwrite", grace: "1m", open: true,
			execution: task.Completed, outcome: task.ReceiptOK, status: task.StatusOK, calls: 1},
		{name: "read beyond grace", tool: "wait", grace: "300ms",
			execution: task.Interrupted, outcome: task.ReceiptError, status: task.StatusOK, calls: 2},
		{name: "write beyond grace", tool: "waitwrite", grace: "300ms",
			execution: task.Interrupted, outcome: task.ReceiptUnknown, status: task.StatusUnknown, calls: 1},
		{name: "second signal", tool: "wait", grace: "1h", again: true,
			execution: task.Interrupted, outcome: task.ReceiptError, status: task.StatusOK, calls: 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, m := newDaemon(t, waiting(c.tool)), newManager(t)
			p := d.start("NOTIFY_SOCKET="+m.path, "RUNNERD_SHUTDOWN_GRACE="+c.grace)
			daemontest.Until(t, "a call is under way", func() bool { return len(d.calls(c.tool)) > 0 })
			p.signal(syscall.SIGTERM)
			m.hears("STOPPING=1")
			if c.open {
				d.open()
			}
			if c.again {
				p.signal(syscall.SIGTERM)
			}
			if took := p.exits(); took > 50*time.Second {
				t.Errorf("the end took %s", took)
			}
			runs := d.runs("slow")
			if len(runs) != 1 {
				t.Fatalf("%d runs, want one", len(runs))
			}
			first := runs[0]
			receipts := d.receipts(first.ID)
			if first.Execution != c.execution || len(receipts) != 1 || receipts[0].Outcome != c.outcome {
				t.Fatalf("run %s (%s), receipts %+v; want %s, one with outcome %s", first.Execution, first.Reason, receipts, c.execution, c.outcome)
			}
			for _, pid := range d.calls(c.tool) {
				if alive(pid) {
					t.Errorf("the connector's process %d outlived the daemon", pid)
				}
			}
			if c.open {
				return
			}
			resumes(t, d, first, c.status)
			if got := len(d.calls(c.tool)); c.calls == 1 && got != 1 {
				t.Errorf("the write was sent %d times, want once", got)
			}
		})
	}
}

// resumes starts the daemon again: the same run goes on, in the same attempt (A7: an
// orderly stop is none), to its end. Its task has no schedule any more, so that it is the only one.
func resumes(t *testing.T, d *instance, run task.Run, want task.Status) {
	t.Helper()
	d.open()
	edit(t, filepath.Join(d.a.ConfigDir, "tasks/slow.yaml"), "schedule: every 1s\n", "")
	p := d.start()
	daemontest.Until(t, "the run has ended", func() bool { return d.runs("slow")[0].Execution.Finished() })
	p.stop()
	runs := d.runs("slow")
	if len(runs) != 1 || runs[0].ID != run.ID || runs[0].Attempt != run.Attempt || runs[0].Status() != want {
		t.Errorf("after the restart %d runs, the first %s attempt %d %s (%s); want %s attempt %d %s",
			len(runs), runs[0].ID, runs[0].Attempt, runs[0].Status(), runs[0].Reason, run.ID, run.Attempt, want)
	}
}

// TestStopWhileStarting sends SIGTERM to a daemon that cannot get ready because
// its database is locked.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	d, m := newDaemon(t, waiting("look")), newManager(t)
	d.start().stopWhenReady()
	d.write("tasks/other.yaml", "prompt: A new revision must be stored.\n")
	free := locked(t, d.a.Database)
	p := d.start("NOTIFY_SOCKET=" + m.path)
	daemontest.Until(t, "the daemon holds the state directory", func() bool {
		held, err := sqldb.Holder(d.a.StateDir)
		return err == nil && held != nil && held.PID == p.cmd.Process.Pid
	})
	p.signal(syscall.SIGTERM)
	if took := p.exits(); took > 50*time.Second {
		t.Errorf("the end took %s", took)
	}
	m.quiet("READY=1", 0)
	if held, err := sqldb.Holder(d.a.StateDir); held != nil || err != nil {
		t.Errorf("the state directory is held by %v (%v)", held, err)
	}
	free()
	d.start().stopWhenReady()
}

func (p *process) stopWhenReady() {
	p.t.Helper()
	p.ready()
	p.stop()
}
