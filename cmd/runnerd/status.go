package main

import (
	"context"
	"errors"
	"fmt"

	"runnerd/db"
	"runnerd/task"
)

type statusCmd struct {
	JSON bool `help:"Print JSON."`
}

// statusView is `status --json`.
type statusView struct {
	Daemon   daemonView `json:"daemon"`
	Config   string     `json:"config"`
	State    string     `json:"state"`
	Problems []string   `json:"problems"`
	Tasks    []taskRow  `json:"tasks"`
	Active   []runRow   `json:"active"`
	Trouble  []runRow   `json:"trouble"`
}

type daemonView struct {
	Running bool `json:"running"`
	PID     int  `json:"pid,omitempty"`
}

func (c statusCmd) Run(ctx context.Context, a *app) error {
	i, err := a.inspect(ctx)
	if err != nil {
		return err
	}
	v := statusView{Daemon: a.daemon(), Config: a.ConfigDir, State: a.StateDir, Problems: []string{}, Active: []runRow{}, Trouble: []runRow{}}
	for _, p := range i.set.Problems {
		v.Problems = append(v.Problems, p.Error())
	}
	if v.Tasks, err = a.taskRows(ctx, i); err != nil {
		return err
	}
	err = a.reading(ctx, func(main *db.DB) error {
		active, err := main.Runs(ctx, db.RunFilter{Active: true})
		last, lerr := main.LastRuns(ctx)
		for _, r := range active {
			v.Active = append(v.Active, rowOf(r))
		}
		for _, id := range i.set.TaskIDs() {
			if r, ok := last[id]; ok && r.Execution.Finished() && r.Status() != task.StatusOK {
				v.Trouble = append(v.Trouble, rowOf(r))
			}
		}
		return errors.Join(err, lerr)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, v)
	}
	v.print(a)
	return nil
}

// daemon tells who holds the state directory.
func (a *app) daemon() daemonView {
	held, err := db.Holder(a.StateDir)
	if err != nil || held == nil {
		return daemonView{}
	}
	return daemonView{Running: true, PID: held.PID}
}

func (v statusView) print(a *app) {
	if v.Daemon.Running {
		fmt.Fprintf(a.out, "daemon    running, pid %d\n", v.Daemon.PID)
	} else {
		fmt.Fprintln(a.out, "daemon    NOT running; nothing fires until `runnerd serve` does")
	}
	fmt.Fprintf(a.out, "config    %s: %d tasks, %d problems\nstate     %s\n", v.Config, len(v.Tasks), len(v.Problems), v.State)
	for _, p := range v.Problems {
		fmt.Fprintln(a.out, "problem  ", p)
	}
	for _, r := range v.Active {
		fmt.Fprintf(a.out, "active    %s of %s: %s\n", r.ID, r.Task, r.Status)
	}
	for _, r := range v.Trouble {
		fmt.Fprintf(a.out, "attention %s: last run %s ended %s%s\n", r.Task, r.ID, r.Status, colonise(r.Reason))
	}
}
