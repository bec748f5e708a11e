package deliver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"runnerd/task"
)

const (
	// keptOutput is how much of a failed command's output its error shows.
	keptOutput = 2000
	// pipeGrace is how long output is awaited after the command itself is gone.
	pipeGrace = time.Second
)

func checkCommand(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("command is empty; give program and arguments")
	}
	return nil
}

// toCommand feeds the text to a command's standard input. A command that cannot
// be started is not tried again, one that exits with an error said so itself and
// is, one that was ended by the deadline may have done its work and is not.
func (d *Deliverer) toCommand(to task.Delivery, m message) (send, error) {
	if err := checkCommand(to.Command); err != nil {
		return nil, err
	}
	argv := make([]string, len(to.Command))
	for i, arg := range to.Command {
		var err error
		if argv[i], err = d.opts.Resolve(arg); err != nil {
			return nil, fmt.Errorf("command argument %d: %w", i, err)
		}
	}
	env := slices.Concat(d.opts.Env, m.env)
	return func(ctx context.Context) error { return runCommand(ctx, argv, env, m.text) }, nil
}

func runCommand(ctx context.Context, argv, env []string, text string) error {
	begin := time.Now()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out tail
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &out
	cmd.Env, cmd.Dir = env, "/"
	err := runGroup(cmd)
	switch {
	case cmd.ProcessState == nil:
		return final{fmt.Errorf("command %s was not started: %w", argv[0], err)}
	case cmd.ProcessState.Success():
		// It ended well: that it read no more of the text, or that a child of it
		// kept the output open, is its own business.
		return nil
	case ctx.Err() != nil:
		return final{fmt.Errorf("command %s was ended after %s; what it did is not known%s", argv[0], time.Since(begin).Round(time.Second), out.shown())}
	}
	return fmt.Errorf("command %s: %s%s", argv[0], cmd.ProcessState, out.shown())
}

// runGroup runs cmd in a process group of its own and leaves nothing of it
// behind: the group is killed while its leader is dead but not yet reaped, so
// that its number cannot be another's.
func runGroup(cmd *exec.Cmd) error {
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

// tail keeps the end of what is written. Both streams of a command share one
// writer, which os/exec then writes to from one goroutine.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - keptOutput; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) shown() string {
	s := oneLine(strings.ToValidUTF8(string(t.b), "\uFFFD"))
	if s == "" {
		return ""
	}
	return ": " + s
}
