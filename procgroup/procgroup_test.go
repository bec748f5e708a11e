package procgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const daemonVerb = "test-daemon"

// TestMain lets the test binary be a daemon that runs the lines of its
// arguments.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == daemonVerb {
		for _, line := range os.Args[3:] {
			exit, err := (&Starter{Mark: os.Args[2]}).Run(context.Background(), shell(line))
			fmt.Println(exit, err)
		}
		syscall.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func shell(line string) Program {
	return Program{Name: "test", Path: "/bin/sh", Args: []string{"sh", "-c", line}, Stdout: os.Stdout, Stderr: os.Stderr}
}

// family leaves a child in its group and one in a session of its own, both deaf to
// TERM, and says when they are there.
const family = `trap '' TERM HUP; sleep 600 & setsid sh -c 'trap "" TERM; echo away; exec sleep 600' & `

func mark(t *testing.T) string { return MarkOf(t.TempDir()) }

// waitGone waits for the kernel.
func waitGone(t *testing.T, mark string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(marked(mark)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", marked(mark))
		}
	}
}

// A program's children are gone when Run returns, those of another session too.
func TestRunLeavesNothing(t *testing.T) {
	s := &Starter{Mark: mark(t)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := shell(family + "read line")
	p.Stdout, p.Stdin = w, readerFunc(func([]byte) (int, error) {
		_, err := bufio.NewReader(r).ReadString('\n') // the family is there
		return 0, errors.Join(err, errors.New("end"))
	})
	exit, err := s.Run(t.Context(), p)
	_ = w.Close()
	if err != nil || exit.Code != 1 {
		t.Fatalf("%v, %v", exit, err)
	}
	if left := marked(s.Mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// U12: nothing that a daemon started outlives it, however it dies.
func TestDaemonIsKilled(t *testing.T) {
	m := mark(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(self, daemonVerb, m, family+"wait")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "away\n" {
		t.Errorf("it said %q, %v", line, err)
	}
	if len(marked(m)) < 3 {
		t.Errorf("only %v are there", marked(m))
	}
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	waitGone(t, m)
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := &Starter{Mark: mark(t)}
	ctx, cancel := context.WithCancel(t.Context())
	p := shell(family + "wait")
	p.Stdout = writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
	exit, err := s.Run(ctx, p)
	if err != nil || exit.Signal != "killed" || exit.String() != "signal: killed" || exit.Success() {
		t.Errorf("%+v, %v", exit, err)
	}
	if left := marked(s.Mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRunTellsHowItEnded(t *testing.T) {
	s := &Starter{}
	for line, want := range map[string]Exit{
		"true": {}, "exit 7": {Code: 7}, "kill -TERM $$": {Code: -1, Signal: "terminated"},
		"kill -KILL $PPID; sleep 600": {Lost: true}, // its guard
	} {
		m := &Starter{Mark: mark(t)}
		got, err := m.Run(t.Context(), shell(line))
		if want.Lost && errors.Is(err, ErrNoGuard) {
			got, err = want, nil // it was killed before it could report the start
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", line, got, err, want)
		}
		if left := marked(m.Mark); len(left) > 0 {
			t.Errorf("%s left %v", line, left)
		}
	}
	for _, p := range []Program{{Path: "/no/such/program"}, {Path: "/bin/true", Args: []string{"true"}, Dir: "/no/such/dir"}} {
		if exit, err := s.Run(t.Context(), p); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%+v: %+v, %v", p, exit, err)
		}
	}
}

// I5: what was put in the binary's place is not run.
func TestRenamedBinaryIsNeverRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copied, proof := filepath.Join(dir, "runnerd"), filepath.Join(dir, "proof")
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	trap := filepath.Join(dir, "trap")
	if err := os.WriteFile(trap, []byte("#!/bin/sh\ntouch "+proof+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(copied, daemonVerb, mark(t), "mv "+trap+" "+copied, "echo second").CombinedOutput()
	if string(out) != "exit status 0 <nil>\nsecond\nexit status 0 <nil>\n" {
		t.Errorf("%s %v", out, err)
	}
	if exists(proof) {
		t.Error("the file in the binary's place was run")
	}
	if _ = exec.Command(copied).Run(); !exists(proof) {
		t.Error("the trap does not work, so this test shows nothing")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestEnvironment(t *testing.T) {
	var out strings.Builder
	p := Program{Path: "/usr/bin/env", Args: []string{"env"}, Env: []string{"A=b"}, Stdout: &out}
	if _, err := (&Starter{Mark: "m."}).Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(strings.Lines(out.String()))
	if want := MarkVar + "=m.." + strconv.Itoa(os.Getpid()); len(got) != 2 || got[0] != "A=b\n" || !strings.HasPrefix(got[1], want) {
		t.Errorf("%q", got)
	}
}

func TestTail(t *testing.T) {
	var tail Tail
	if tail.Shown() != "" {
		t.Errorf("nothing written shows %q", tail.Shown())
	}
	for range 1000 {
		if _, err := tail.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tail.Write([]byte("the end\xff\n")); err != nil {
		t.Fatal(err)
	}
	if got := tail.Shown(); len(got) > keptTail+8 || !strings.HasSuffix(got, "line the end\uFFFD") {
		t.Errorf("shown %q", got)
	}
}
