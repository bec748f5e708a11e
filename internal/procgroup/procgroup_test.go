package procgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A child that the program left running is gone when Run returns.
func TestRunLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command("/bin/sh", "-c", "sleep 600 & echo $! > "+file)
	if err := Run(cmd); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	// It was killed, and the kernel needs a moment to end it.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		state := stateOf(pid)
		if state == "" || state == "Z" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left, in state %s", pid, state)
		}
	}
}

// stateOf is a process's state as the kernel writes it, "" if it is gone. A dead
// child of nobody may stay a zombie until init reaps it.
func stateOf(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

func TestRunTellsHowItEnded(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "kill -TERM $$")
	if err := Run(cmd); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended %v (%v), want by SIGTERM", cmd.ProcessState, err)
	}
	missing := exec.Command("/no/such/program")
	if err := Run(missing); err == nil || missing.ProcessState != nil {
		t.Errorf("a missing program: %v, state %v", err, missing.ProcessState)
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
