package deliver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"runnerd/internal/procgroup"
	"runnerd/task"
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
	var out procgroup.Tail
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &out
	cmd.Env, cmd.Dir = env, "/"
	err := procgroup.Run(cmd)
	switch {
	case cmd.ProcessState == nil:
		return final{fmt.Errorf("command %s was not started: %w", argv[0], err)}
	case cmd.ProcessState.Success():
		// It ended well: that it read no more of the text, or that a child of it
		// kept the output open, is its own business.
		return nil
	case ctx.Err() != nil:
		return final{fmt.Errorf("command %s was ended after %s; what it did is not known%s", argv[0], time.Since(begin).Round(time.Second), out.Shown())}
	}
	return fmt.Errorf("command %s: %s%s", argv[0], cmd.ProcessState, out.Shown())
}
