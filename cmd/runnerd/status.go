package main

import (
	"context"
	"errors"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/text"
)

type statusCmd struct {
	JSON bool `help:"Print JSON."`
}

func (c statusCmd) Run(ctx context.Context, a *app) error {
	v, err := c.view(ctx, a)
	if err != nil {
		return err
	}
	told := troubled{v, a.openTroubles(ctx)}
	if c.JSON {
		return writeJSON(a.out, told)
	}
	printStatus(a, v)
	told.print(a)
	return nil
}

// view asks the daemon, or looks at the files and databases itself if none runs.
func (c statusCmd) view(ctx context.Context, a *app) (control.StatusView, error) {
	p := a.Present(ctx)
	if p.Client != nil {
		v, err := p.Client.Status(ctx)
		return v, errors.Join(err, a.Gone(p))
	}
	if err := a.Gone(p); err != nil {
		return control.StatusView{}, err
	}
	i, err := a.Inspect(ctx)
	if err != nil {
		return control.StatusView{}, err
	}
	zone, from, err := a.FindZone()
	if err != nil {
		return control.StatusView{}, &exit{task.ExitUsage, err}
	}
	v := control.StatusView{
		Daemon: p.View(), Config: a.ConfigDir, State: a.StateDir, Zone: zone.String(), ZoneFrom: from, Problems: i.Problems(),
		Active: []control.RunRow{}, Trouble: []control.RunRow{},
	}
	if why := a.unasked(p); why != "" {
		v.Problems = append(v.Problems, why)
	}
	if i.Set.Away != nil {
		v.Problems = append(v.Problems, i.Set.Away.Error())
	}
	if err := a.Together(ctx, sqldb.Look); err != nil {
		v.Problems = append(v.Problems, err.Error())
	}
	v.Tasks, err = a.taskRows(ctx, i)
	if daemon.Apart(err) != nil {
		return v, nil // it is one of the problems
	}
	if err != nil {
		return v, err
	}
	return v, a.Reading(ctx, func(main *db.DB) error {
		active, err := main.Runs(ctx, db.RunFilter{Active: true})
		last, lerr := main.LastRuns(ctx)
		stats, serr := main.Stats(ctx)
		pauses, perr := main.Pauses(ctx)
		v.Paused = control.PausedAll(pauses)
		v.Active, v.PendingApprovals = control.NewRunRows(active), int(stats.PendingApprovals)
		for _, id := range i.Set.TaskIDs() {
			if r, ok := last[id]; ok && r.Execution.Finished() && r.Status() != task.StatusOK {
				v.Trouble = append(v.Trouble, control.NewRunRow(r))
			}
		}
		return errors.Join(err, lerr, serr, perr)
	})
}

func printStatus(a *app, v control.StatusView) {
	switch {
	case v.Daemon.Silent:
		text.Fprintf(a.out, "daemon    NOT answering: process %d holds the state directory, but does not answer at %s; it starts, hangs, has its socket elsewhere, or is a run in the foreground\n", v.Daemon.PID, a.Socket)
	case v.Daemon.Running:
		text.Fprintf(a.out, "daemon    running, pid %d\n", v.Daemon.PID)
	default:
		text.Fprintf(a.out, "daemon    NOT running; nothing fires until `runnerd serve` does\n")
	}
	text.Fprintf(a.out, "config    %s: %s, %s\nstate     %s\n", v.Config, count(len(v.Tasks), "task"), count(len(v.Problems), "problem"), v.State)
	text.Fprintf(a.out, "zone      %s (%s)\n", v.Zone, v.ZoneFrom)
	if v.Paused != "" {
		text.Fprintf(a.out, "paused    everything: %s; `runnerd resume --all` ends it\n", v.Paused)
	}
	for _, t := range v.Tasks {
		if t.Pause != "" {
			text.Fprintf(a.out, "paused    %s: %s; `runnerd resume %s` ends it\n", t.ID, t.Pause, t.ID)
		}
	}
	for _, p := range v.Problems {
		text.Fprintf(a.out, "problem   %s\n", p)
	}
	if v.PendingApprovals > 0 {
		text.Fprintf(a.out, "approvals %s for a person to decide; `runnerd approvals` shows them\n", count(v.PendingApprovals, "call"))
	}
	for _, r := range v.Active {
		left := ""
		if r.Status == task.StatusRunning && !v.Daemon.Running {
			left = " when its daemon ended; the next `runnerd serve` goes on with it"
		}
		text.Fprintf(a.out, "active    %s of %s: %s%s\n", r.ID, r.Task, r.Status, left)
	}
	for _, r := range v.Trouble {
		text.Fprintf(a.out, "attention %s: last run %s ended %s%s\n", r.Task, r.ID, r.Status, colonise(r.Reason))
	}
}
