package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/control"
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
	h, err := a.openHouse(ctx, quiet(a))
	var held *sqldb.HeldError
	if errors.As(err, &held) || a.instead(ctx, err) != nil {
		return c.throughDaemon(ctx, a, script)
	}
	if err != nil {
		return err
	}
	run, err := c.here(ctx, a, h, script)
	if err = errors.Join(err, h.close()); err != nil {
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
	if a.getenv("RUNNERD_LOG_LEVEL") == "" {
		return io.Discard
	}
	return a.err
}

// here runs the task in this process: the same loop, stores and policy as the
// daemon's.
func (c runCmd) here(ctx context.Context, a *app, h *house, script task.Script) (task.Run, error) {
	var stored *sqldb.Error
	if err := h.reload(ctx); errors.As(err, &stored) {
		return task.Run{}, err
	} else if err != nil {
		return task.Run{}, a.unread(err)
	}
	if err := h.recoverRuns(ctx); err != nil {
		return task.Run{}, err
	}
	run, err := h.newManual(ctx, c.Task, script)
	if err != nil {
		return run, refused(err)
	}
	p := newPrinter(a.out, h.zoneOf(c.Task))
	if c.JSON {
		p.w = io.Discard
	}
	text.Fprintf(p.w, "run %s of task %s%s\n", run.ID, run.Task, c.played())
	if run, err = h.finish(ctx, run.ID, p); err != nil {
		return run, err
	}
	if run, err = h.deliverNow(ctx, run); err != nil {
		return run, err
	}
	if c.JSON {
		return run, writeJSON(a.out, control.NewRunRow(run))
	}
	p.end(run)
	text.Fprintf(a.out, "whole run   %s show %s\n", a.again(), run.ID)
	return run, nil
}

// newManual stores a run that a person started, as queued. With a script it is a
// rehearsal.
func (h *house) newManual(ctx context.Context, id string, script task.Script) (task.Run, error) {
	set := h.applied.Load()
	t, ok := set.Tasks[id]
	if !ok {
		return task.Run{}, control.NotFound(noTask(set, id), "")
	}
	if t.Stale {
		h.log.Warn("last good revision is run; the file is broken", zap.String("task", id))
	}
	revision, err := h.main.SaveRevision(ctx, t.Task)
	if err != nil {
		return task.Run{}, err
	}
	now := time.Now()
	run := task.Run{
		ID: newID(), Task: id, Session: t.Task.SessionID(), Revision: revision, Due: now, Trigger: task.TriggerManual,
		Attempt: 1, NotBefore: now, Execution: task.Queued, Delivery: task.DeliveryNone, CreatedAt: now, Script: script,
	}
	return run, h.main.InsertManual(ctx, run)
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

// recoverRuns marks what a crash left behind, once, under the state lock.
func (h *house) recoverRuns(ctx context.Context) error {
	_, err := h.main.Recover(ctx, time.Now())
	return err
}

// finish executes a stored run to its end, over its retries, and prints it as it
// goes.
func (h *house) finish(ctx context.Context, id string, p *printer) (task.Run, error) {
	work, stop := cancellable(ctx)
	defer stop()
	for {
		run, ok, err := h.main.ClaimRun(context.WithoutCancel(ctx), id, time.Now())
		if err != nil {
			return run, err
		}
		if ok {
			err = h.execute(work, id, p)
		}
		if run, rerr := h.main.Run(context.WithoutCancel(ctx), id); err != nil || rerr != nil || run.Execution != task.Queued {
			return run, errors.Join(err, rerr)
		} else if p.retry(run.NotBefore, run.Reason); !waitUntil(work, run.NotBefore) {
			_, err := h.main.Cancel(context.WithoutCancel(ctx), id, "interrupted by a signal", time.Now())
			if err != nil {
				return run, err
			}
		}
	}
}

// cancellable is a context that a signal cancels as a person would a run.
func cancellable(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(&task.CancelledError{Reason: "interrupted by a signal"}) })
	return work, func() { stop(); cancel(nil) }
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

// execute runs one attempt and prints the transcript as it grows.
func (h *house) execute(ctx context.Context, id string, p *printer) error {
	done := make(chan error, 1)
	go func() { done <- h.runner.Run(ctx, id) }()
	tick := time.NewTicker(follows)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, h.printNew(id, p))
		case <-tick.C:
			if err := h.printNew(id, p); err != nil {
				h.log.Warn("transcript not read", zap.Error(err))
			}
		}
	}
}

// printNew prints what a run's transcript has beyond what was printed.
func (h *house) printNew(id string, p *printer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if run, err := h.main.Run(ctx, id); err == nil {
		p.trying(run.Execution, run.Reason)
	}
	return printRun(ctx, h.main, id, p)
}

// printRun reads receipts before messages, so that no message is printed before
// its receipt is known.
func printRun(ctx context.Context, main *db.DB, id string, p *printer) error {
	msgs, err := main.RunMessages(ctx, id)
	if err != nil {
		return err
	}
	receipts, err := main.RunReceipts(ctx, id)
	if err != nil {
		return err
	}
	p.messages(msgs, receipts)
	return nil
}

func (h *house) zoneOf(id string) *time.Location {
	if set := h.applied.Load(); set != nil {
		if zone, err := time.LoadLocation(set.Tasks[id].Task.Schedule.Zone); err == nil {
			return zone
		}
	}
	return h.zone
}

// again is the command that people go on with: with the same directories.
func (a *app) again() string {
	return "runnerd" + a.flags
}
