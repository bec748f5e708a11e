package builtin

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRun(t *testing.T) {
	dir := tree(t, map[string]string{"sub/": "", "f": "content"})
	s := connect(t, Shell, "--dir", dir)
	for _, c := range []struct {
		in   args
		want string
	}{
		{args{"command": "echo a; echo b"}, "a\nb\n[exit code 0]"},
		{args{"argv": []string{"echo", "$HOME", "a b"}}, "$HOME a b\n[exit code 0]"},
		{args{"command": "printf x; printf y >&2"}, "x\n[standard error]\ny\n[exit code 0]"},
		{args{"command": "cat f"}, "content\n[exit code 0]"},
		{args{"command": "pwd", "dir": "sub"}, dir + "/sub\n[exit code 0]"},
		{args{"command": "pwd", "dir": "/"}, "/\n[exit code 0]"},
		{args{"command": "cat", "stdin": "in\n"}, "in\n[exit code 0]"},
		{args{"command": "cat"}, "[exit code 0]"},
		{args{"command": "true", "stdin": strings.Repeat("x", maxStdin)}, "[exit code 0]"},
		{args{"argv": []string{"printf", `\377`}}, "\uFFFD\n[exit code 0]"},
	} {
		if got := s.ok("run", c.in); got != c.want {
			t.Errorf("%v: %q, want %q", c.in, clip(got), c.want)
		}
	}
	for _, c := range []struct {
		in   args
		want string
	}{
		{args{}, "give either command or argv"},
		{args{"command": "true", "argv": []string{"true"}}, "give either command or argv"},
		{args{"argv": []string{""}}, "the program is empty"},
		{args{"command": "true", "dir": "none"}, "not a directory"},
		{args{"argv": []string{"no-such-program"}}, "no-such-program was not started"},
		{args{"command": "echo out; exit 7"}, "out\n[exit code 7]"},
		{args{"command": "kill -9 $$"}, "[signal: killed]"},
		{args{"command": "true", "stdin": strings.Repeat("x", maxStdin+1)}, "stdin has"},
		{args{"command": "true", "timeout_seconds": 121}, "timeout_seconds"},
	} {
		s.fails(c.want, "run", c.in)
	}
}

func TestRunCutsOutput(t *testing.T) {
	s := connect(t, Shell)
	got := s.ok("run", args{"command": "echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end"})
	if len(got) > keptOutput+200 || !strings.HasPrefix(got, "begin\n") || !strings.HasSuffix(got, "end\n[exit code 0]") || !strings.Contains(got, "bytes left out]") {
		t.Errorf("%d bytes: %q", len(got), clip(got))
	}
}

func TestHeadTail(t *testing.T) {
	var all strings.Builder
	var h headTail
	for i := range 50_000 {
		part := strconv.Itoa(i) + " "
		all.WriteString(part)
		h.Write([]byte(part))
		if i == 1000 && h.String() != all.String() {
			t.Fatal("a short output is not kept whole")
		}
	}
	got, want := h.String(), all.String()
	left := len(want) - keptOutput
	if w := want[:keptOutput/2] + "\n[" + strconv.Itoa(left) + " bytes left out]\n" + want[len(want)-keptOutput/2:]; got != w {
		t.Errorf("%d bytes, want %d", len(got), len(w))
	}
}

// TestRunEndsAll runs commands that leave processes behind; each writes its pid
// to a file first.
func TestRunEndsAll(t *testing.T) {
	dir := t.TempDir()
	s := connect(t, Shell, "--dir", dir)
	begin := time.Now()
	s.fails("it had not finished", "run", args{"command": "echo $$ >a; sh -c 'trap \"\" TERM; echo $$ >b; sleep 60' & wait", "timeout_seconds": 1})
	if got := s.ok("run", args{"command": "sleep 60 >/dev/null 2>&1 & echo $! >c; echo done"}); got != "done\n[exit code 0]" {
		t.Errorf("%q", got)
	}
	// A child that keeps the output open must not hold up the answer either.
	s.ok("run", args{"command": "sleep 60 & echo $! >d"})
	if took := time.Since(begin); took > 50*time.Second {
		t.Errorf("took %s", took)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		pid, err := strconv.Atoi(strings.TrimSpace(content(t, dir, name)))
		must(t, err)
		if err := gone(pid); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// gone waits until a process is dead: killed ones take a moment, and an orphan
// may stay a zombie until its new parent looks.
func gone(pid int) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return nil
		}
		if stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")); err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
	}
	return errors.New("still runs")
}
