package deliver

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runnerd/task"
)

func toShell(line string) task.Delivery {
	return task.Delivery{To: ToCommand, Command: []string{"/bin/sh", "-c", line}}
}

func TestCommandGetsTheResult(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RUNNERD_TEST_LEAK", "leak")
	d := quick(Options{})
	if r := one(t, d, result(toShell("cat >"+dir+"/in; env >"+dir+"/env; pwd >>"+dir+"/env"))); r.Err != nil || r.Attempts != 1 {
		t.Fatalf("%+v", r)
	}
	if got := content(t, dir+"/in"); got != "All is well.\n" {
		t.Errorf("standard input %q", got)
	}
	env := content(t, dir+"/env")
	for _, want := range []string{"RUNNERD_TASK=brief\n", "RUNNERD_RUN=r1\n", "RUNNERD_STATUS=ok\n", "RUNNERD_DUE=2026-03-02T00:30:00+01:00\n",
		"RUNNERD_TITLE=runnerd: brief: ok\n", "RUNNERD_TRIGGER=schedule\n", "PATH=/usr/local/sbin:", "\n/\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("environment has no %q:\n%s", want, env)
		}
	}
	if strings.Contains(env, "LEAK") {
		t.Error("the daemon's own environment is passed on")
	}
	if r := one(t, quick(Options{Env: []string{"X=y"}}), result(toShell(`test "$X" = y`))); r.Err != nil {
		t.Error(r.Err)
	}
	// A command need not read what it gets.
	res := result(toShell("true"))
	res.Text = strings.Repeat("x", 1<<20)
	if r := one(t, d, res); r.Err != nil {
		t.Error(r.Err)
	}
}

func TestCommandIsTriedAgain(t *testing.T) {
	log := t.TempDir() + "/log"
	d := quick(Options{})
	r := one(t, d, result(toShell("cat >>"+log+"; echo not yet >&2; test $(wc -l <"+log+") -ge 3")))
	if r.Err != nil || r.Attempts != 3 || content(t, log) != strings.Repeat("All is well.\n", 3) {
		t.Errorf("%+v, log %q", r, content(t, log))
	}
	r = one(t, d, result(toShell("echo why; echo because >&2; exit 9")))
	if r.Attempts != 3 || r.Err == nil || !strings.Contains(r.Err.Error(), "exit status 9: why because") {
		t.Errorf("%+v", r)
	}
	r = one(t, d, result(toShell("head -c 100000 /dev/zero | tr '\\0' x; echo end; exit 1")))
	if r.Err == nil || len(r.Err.Error()) > 2200 || !strings.HasSuffix(r.Err.Error(), "xend") {
		t.Errorf("%d bytes of error", len(r.Err.Error()))
	}
	r = one(t, d, result(task.Delivery{To: ToCommand, Command: []string{"/no/such/program"}}))
	if r.Attempts != 1 || r.Err == nil || !strings.Contains(r.Err.Error(), "/no/such/program not found") {
		t.Errorf("%+v", r)
	}
}

func TestCommandEndsWithItsDeadline(t *testing.T) {
	dir := t.TempDir()
	to := toShell("echo x >>" + dir + "/log; trap '' TERM; sleep 60 & echo $! >" + dir + "/child; echo $$ >" + dir + "/self; wait")
	to.Timeout = 3 * time.Second
	r := one(t, quick(Options{}), result(to))
	if r.Attempts != 1 || r.Err == nil || !strings.Contains(r.Err.Error(), "what it did is not known") {
		t.Errorf("%+v", r)
	}
	if got := content(t, dir+"/log"); got != "x\n" {
		t.Errorf("it ran again: %q", got)
	}
	for _, who := range []string{"self", "child"} {
		pid, err := strconv.Atoi(strings.TrimSpace(content(t, dir+"/"+who)))
		must(t, err)
		if err := gone(pid); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// gone waits until a process is dead: a killed one takes a moment, and an orphan
// may stay a zombie until its new parent looks.
func gone(pid int) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return nil
		}
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
	}
	return errors.New("still runs")
}
