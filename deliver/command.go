package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"runnerd/procgroup"
	"runnerd/task"
)

func checkCommand(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("command is empty; give program and arguments")
	}
	return nil
}

// Startable tells whether the program of a command is there now. Of other kinds, and
// of a program whose name is a reference, it says nothing.
func (d *Deliverer) Startable(to task.Delivery) error {
	if to.To != ToCommand || len(to.Command) == 0 || strings.Contains(to.Command[0], "${") {
		return nil
	}
	_, err := procgroup.Find(to.Command[0], "/", d.opts.Env)
	return err
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
	return func(ctx context.Context) error { return d.runCommand(ctx, argv, env, m.text) }, nil
}

func (d *Deliverer) runCommand(ctx context.Context, argv, env []string, text string) error {
	path, err := procgroup.Find(argv[0], "/", env)
	if err != nil {
		return final{err}
	}
	begin := time.Now()
	var out procgroup.Tail
	exit, err := d.opts.Starter.Run(ctx, procgroup.Program{
		Name: "deliver", Path: path, Args: argv, Env: env, Stdin: strings.NewReader(text), Stdout: &out, Stderr: &out,
	})
	switch {
	case err != nil:
		return final{fmt.Errorf("command %s was not started: %w", argv[0], err)}
	case exit.Success():
		// It ended well: that it read no more of the text is its own business.
		return nil
	case ctx.Err() != nil, exit.Lost:
		return final{fmt.Errorf("command %s was ended after %s; what it did is not known%s", argv[0], time.Since(begin).Round(time.Second), out.Shown())}
	}
	return fmt.Errorf("command %s: %s%s", argv[0], exit, out.Shown())
}
