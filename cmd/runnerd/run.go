package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/db"
	"runnerd/llm/scripted"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/text"
)

type runCmd struct {
	Task   string `arg:"" help:"Task to run now."`
	Script string `help:"Rehearse: play this script instead of the task's model, in a session that is thrown away. Nothing is booked, delivered or told to anybody, but what it calls is really called, as policy allows." type:"existingfile" placeholder:"FILE"`
	JSON   bool   `help:"Print the run as JSON at the end instead of its progress."`
}

// Help lists the exit codes.
func (runCmd) Help() string {
	return "Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 run failed, 4 denied by policy, 5 budget, " +
		"6 waiting for approval, 7 outcome unknown, 8 cancelled or interrupted."
}

func (c runCmd) Run(ctx context.Context, a *app) error {
	c.Task = taskName(c.Task)
	script, err := c.script() // before a run is on record
	if err != nil {
		return &exit{task.ExitUsage, err}
	}
	if client := a.live(ctx); client != nil {
		return c.throughDaemon(ctx, a, client, script)
	}
	d, err := a.open(ctx)
	if err != nil {
		return a.held(ctx, err)
	}
	run, err := c.here(ctx, a, d, script)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	return ended(run)
}

// script reads the script that is to be played; the zero Script if there is none.
func (c runCmd) script() (task.Script, error) {
	if c.Script == "" {
		return task.Script{}, nil
	}
	text, err := scripted.Read(c.Script)
	if err == nil {
		_, err = scripted.Parse(c.Script, text)
	}
	return task.Script{Name: c.Script, Text: string(text)}, err
}

// taskName is the task that a person means who names its file.
func taskName(name string) string {
	for _, ext := range []string{".md", ".yaml"} {
		if id, ok := strings.CutSuffix(name, ext); ok {
			if _, below, found := strings.Cut("/"+id, "/tasks/"); found {
				return below
			}
			return id
		}
	}
	return name
}

// played says that the run is no real one.
func (c runCmd) played() string {
	if c.Script == "" {
		return ""
	}
	return ", a rehearsal with " + c.Script
}

// ended turns a run's status into the exit code.
func ended(run task.Run) error {
	if code := run.Status().ExitCode(); code != task.ExitOK {
		return &exit{code, errSilent}
	}
	return nil
}

// quiet is where logs go while a person watches a run: nowhere, unless the level
// was asked for.
func quiet(a *app) io.Writer {
	if a.Getenv("RUNNERD_LOG_LEVEL") == "" {
		return io.Discard
	}
	return a.err
}

// here runs the task in this process: the same loop, stores and policy as the
// daemon's.
func (c runCmd) here(ctx context.Context, a *app, d *daemon.Daemon, script task.Script) (task.Run, error) {
	var stored *sqldb.Error
	if err := d.Reload(ctx); errors.As(err, &stored) {
		return task.Run{}, err
	} else if err != nil {
		return task.Run{}, a.Unread(err)
	}
	if err := d.Recover(ctx); err != nil {
		return task.Run{}, err
	}
	run, err := d.NewManual(ctx, c.Task, script)
	if err != nil {
		return run, refused(err)
	}
	p := newPrinter(a.out, d.ZoneOf(c.Task))
	if c.JSON {
		p.w = io.Discard
	}
	text.Fprintf(p.w, "run %s of task %s%s\n", run.ID, run.Task, c.played())
	if run, err = d.Finish(ctx, run.ID, p); err != nil {
		return run, err
	}
	if run, err = d.DeliverNow(ctx, run); err != nil {
		return run, err
	}
	if c.JSON {
		return run, writeJSON(a.out, control.NewRunRow(run))
	}
	p.end(run)
	text.Fprintf(a.out, "whole run   %s show %s\n", a.again(), run.ID)
	return run, nil
}

// refused turns what a person can mend about starting a run into usage.
func refused(err error) error {
	var active *db.ActiveError
	if errors.As(err, &active) {
		r := active.Run
		if r.Execution == task.Waiting {
			return usage("task %s has an active run, %s, which waits for approval; `runnerd approvals` shows what for, `runnerd cancel %s` ends it", r.Task, r.ID, r.ID)
		}
		return usage("task %s has an active run, %s (%s); wait for it or end it with `runnerd cancel %s`", r.Task, r.ID, r.Status(), r.ID)
	}
	return remote(err)
}

func waitUntil(ctx context.Context, at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// follows is how often a run's transcript is looked at while a person watches.
const follows = 100 * time.Millisecond

// again is the command that people go on with: with the same directories.
func (a *app) again() string {
	return "runnerd" + a.flags
}
