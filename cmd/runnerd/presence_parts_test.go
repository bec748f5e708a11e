package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// at moves the socket to where it is given, below a directory whose name is short.
func (d *instance) at(socket string) {
	d.a.Socket = socket
	d.env = append(d.env, "RUNNERD_SOCKET="+socket)
}

// says runs a verb and expects what it prints and how it ends.
func (d *instance) says(code int, want string, args ...string) {
	d.t.Helper()
	out, errw, got := d.command(args...)
	if got != code || !strings.Contains(out+errw, want) {
		d.t.Errorf("%v: exit code %d, want %d and %q\n%s%s", args, got, code, want, out, errw)
	}
}

// U16: a daemon whose lock files were removed is one that lives, to every verb.
func TestDaemonWithoutItsLockFiles(t *testing.T) {
	t.Parallel()
	d := ran(t, 1)
	p := d.start()
	p.ready()
	for _, name := range []string{"runnerd.lock", "runnerd.db.lock", "task_policies.db.lock"} {
		if err := os.Remove(d.state(name)); err != nil {
			t.Fatal(err)
		}
	}
	running := fmt.Sprintf("running, pid %d", p.cmd.Process.Pid)
	d.says(0, "daemon    "+running, "status")
	if out, _, _ := d.command("doctor"); !strings.Contains(out, running) {
		t.Errorf("doctor:\n%s", out)
	}
	d.says(0, `"status": "ok"`, "run", "t", "--json")
	d.says(0, "in force", "reload")
	d.says(0, "task t paused", "pause", "t")
	d.says(0, "task t resumed", "resume", "t")
	d.set(`deny=["gated/other"]`)
	d.says(2, "there is no run x", "cancel", "x")
	d.says(2, "there is no run x", "tail", "x")
	if out, _, _ := d.command("approve", "x"); strings.Contains(out, "No daemon runs") {
		t.Errorf("approve:\n%s", out)
	}
	if n := strings.Count(p.text(), `"msg":"request done"`); n < 4 {
		t.Errorf("%d requests reached the daemon\n%s", n, p.text())
	}
	p.stop()
	d.says(0, "NOT running", "status")
}

// A daemon whose state directory was removed is reported as one that lives, also where
// its socket went with it, and no verb makes a new directory beside it.
func TestDaemonWithoutItsStateDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"socket elsewhere", "socket gone too"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := ran(t, 1)
			if name == "socket elsewhere" {
				d.at(filepath.Join(d.dir, "s"))
			}
			p := d.start()
			p.ready()
			if err := os.RemoveAll(d.a.StateDir); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("process %d works with %s, which is gone", p.cmd.Process.Pid, d.a.StateDir)
			d.says(1, want, "status")
			d.says(2, "fault    state            "+want, "doctor")
			for _, verb := range [][]string{{"run", "t"}, {"pause", "t"}, {"policy", "set", "t", `on_ask="park"`}, {"tail"}, {"approve", "x"}, {"runs"}, {"show"}} {
				if out, errw, code := d.command(verb...); code == 0 || name == "socket gone too" && !strings.Contains(errw, want) {
					t.Errorf("%v: exit code %d\n%s%s", verb, code, out, errw)
				}
			}
			if _, err := os.Stat(d.a.StateDir); err == nil {
				t.Error("a new state directory was made")
			}
		})
	}
}

// The socket of another daemon is not asked, and nothing is done there.
func TestSocketOfAnotherDaemon(t *testing.T) {
	t.Parallel()
	other, d := ran(t, 1), ran(t, 1)
	p := other.start()
	p.ready()
	d.at(other.a.Socket)
	foreign := fmt.Sprintf("the daemon that listens there works with %s, not with %s", other.a.StateDir, d.a.StateDir)
	d.says(0, "daemon    NOT running", "status")
	d.says(0, foreign, "status")
	if out, _, _ := d.command("doctor"); !strings.Contains(out, foreign) {
		t.Errorf("doctor:\n%s", out)
	}
	d.says(0, foreign, "pause", "t")
	d.says(0, "paused", "status")
	d.says(0, "note: nobody is asked at "+d.a.Socket, "run", "t")
	d.says(2, foreign, "tail")
	d.says(2, "no daemon runs", "reload")
	if n := len(other.runs("t")); n != 1 {
		t.Errorf("the other daemon has %d runs, want its own 1", n)
	}
	if out, _, _ := other.command("status"); strings.Contains(out, "paused") || !strings.Contains(out, "running, pid") {
		t.Errorf("the other daemon's status:\n%s", out)
	}
	if text := p.text(); strings.Contains(text, `"msg":"request`) {
		t.Errorf("the other daemon was asked:\n%s", text)
	}

	// With a daemon of its own, which listens elsewhere.
	own := d.start("RUNNERD_SOCKET=" + filepath.Join(d.dir, "s"))
	own.ready()
	says := fmt.Sprintf("process %d holds %s, but", own.cmd.Process.Pid, d.a.StateDir)
	for _, verb := range [][]string{{"run", "t"}, {"tail"}, {"cancel", "x"}, {"policy", "set", "t", `on_ask="park"`}} {
		d.says(2, says, verb...)
	}
	d.says(0, "NOT answering", "status")
	own.stop()
	p.stop()
}
