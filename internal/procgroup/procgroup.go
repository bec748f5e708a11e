// Package procgroup runs a program in a process group of its own and leaves
// nothing of the group behind. The builtin shell, deliveries and models that are
// commands call it. A program that leaves its group (setsid) escapes it; the
// guard of a connector catches that, nothing else does.
package procgroup

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipeGrace is how long output is awaited after the program itself is gone.
const pipeGrace = time.Second

// Run starts cmd, waits for it and kills whatever else is in its group by then:
// while the leader is dead but not yet reaped, so that its number cannot be
// another's. The error is cmd's; cmd.ProcessState is nil if it did not start.
func Run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeGrace
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // no such process: nothing was left
	return cmd.Wait()
}

// keptTail is how many bytes a Tail keeps.
const keptTail = 2000

// Tail keeps the end of what is written, for the error of a program that failed.
type Tail struct{ b []byte }

// Write takes everything.
func (t *Tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - keptTail; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// Shown is the tail in one line, led in by a colon; "" if there is none.
func (t *Tail) Shown() string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.b), "\uFFFD")), " ")
	if s == "" {
		return ""
	}
	return ": " + s
}
