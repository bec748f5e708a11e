package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/db"
	"runnerd/scheduler"
	"runnerd/task"
	"runnerd/text"
)

type nextCmd struct {
	Task     string    `arg:"" optional:"" help:"Task; every task if left out."`
	Cron     string    `help:"A schedule instead of a task; needs no config." placeholder:"EXPR"`
	TZ       string    `name:"tz" help:"Zone of --cron; default: the daemon's." placeholder:"ZONE"`
	DayMatch string    `help:"any or all: what two restricted day fields mean." enum:",any,all" default:""`
	After    time.Time `help:"Strictly after this instant; default: now." placeholder:"RFC3339"`
	N        int       `short:"n" help:"How many." default:"5"`
	JSON     bool      `help:"Print JSON."`
}

func (c nextCmd) Run(ctx context.Context, a *app) error {
	if c.N < 1 || c.N > 10000 {
		return usage("-n %d: expected 1 to 10000", c.N)
	}
	if c.After.IsZero() {
		c.After = time.Now()
	}
	var list []daemon.Instant
	var err error
	if c.Cron != "" {
		list, err = c.ofCron(a)
	} else {
		list, err = c.ofTasks(ctx, a)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, list)
	}
	for _, i := range list {
		name := ""
		if i.Task != "" {
			name = fmt.Sprintf("%-24s ", i.Task)
		}
		text.Fprintf(a.out, "%s%s  %s%s%s\n", name, i.Local(), i.UTC, notBefore(i), hasRun(i))
	}
	return nil
}

func notBefore(i daemon.Instant) string {
	if i.NotBefore == "" {
		return ""
	}
	return "  starts " + i.NotBefore + " (jitter)"
}

func hasRun(i daemon.Instant) string {
	if i.Run == "" {
		return ""
	}
	return "  has run already (run " + i.Run + "), before the clock went back; it does not run again"
}

func (c nextCmd) ofCron(a *app) ([]daemon.Instant, error) {
	if c.Task != "" {
		return nil, usage("name a task or give --cron, not both")
	}
	zone := c.TZ
	if zone == "" {
		z, err := a.Zone()
		if err != nil {
			return nil, &exit{task.ExitUsage, err}
		}
		zone = z.String()
	}
	s, err := scheduler.Parse(task.Schedule{Specs: []string{c.Cron}, Zone: zone, DayMatch: c.DayMatch})
	if err != nil {
		return nil, &exit{task.ExitUsage, err}
	}
	return instants("", s, c.After, c.N, 0), nil
}

func (c nextCmd) ofTasks(ctx context.Context, a *app) ([]daemon.Instant, error) {
	i, err := a.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	ids := i.Set.TaskIDs()
	if c.Task != "" {
		if _, err := i.Task(c.Task); err != nil {
			return nil, err
		}
		ids = []string{c.Task}
	} else {
		i.TellKept("")
	}
	list := []daemon.Instant{}
	for _, id := range ids {
		t := i.Set.Tasks[id].Task
		if !t.Enabled || len(t.Schedule.Specs) == 0 {
			continue
		}
		s, err := scheduler.Parse(t.Schedule)
		if err != nil {
			return nil, &exit{task.ExitUsage, err}
		}
		list = append(list, instants(id, s, c.After, c.N, scheduler.Jitter(id, daemon.HostName(), t.Jitter))...)
	}
	if c.Task != "" {
		c.sayIdle(ctx, a, i.Set.Tasks[c.Task].Task, len(list))
	}
	slices.SortStableFunc(list, func(a, b daemon.Instant) int { return a.At.Compare(b.At) })
	_ = a.Reading(ctx, fillRuns(ctx, list)) // without a database nothing has run
	return list, nil
}

// sayIdle says on standard error why a task does not run at the n instants that
// are listed, or why there are none.
func (c nextCmd) sayIdle(ctx context.Context, a *app, t task.Task, n int) {
	if why := noNext(t, n); why != "" {
		text.Fprintf(a.err, "%s: %s\n", t.ID, why)
		return
	}
	if rows := []control.TaskRow{{ID: t.ID}}; a.Reading(ctx, fillPauses(ctx, rows)) == nil && rows[0].Paused {
		text.Fprintf(a.err, "%s is paused: these instants are recorded as skipped until `runnerd resume` ends that\n", t.ID)
	}
}

// fillRuns marks the instants ahead that have run already, under a clock that was
// ahead of what it is now.
func fillRuns(ctx context.Context, list []daemon.Instant) func(*db.DB) error {
	return func(main *db.DB) error {
		ran := map[string]map[int64]string{}
		for i, at := range list {
			if ran[at.Task] == nil {
				rows, err := main.Occurrences(ctx, db.OccurrenceFilter{Task: at.Task, Since: at.At, Ends: []task.End{task.EndRun}, Limit: 10000})
				if err != nil {
					return err
				}
				ran[at.Task] = map[int64]string{}
				for _, row := range rows {
					ran[at.Task][row.Due.UnixNano()] = row.RunID
				}
			}
			list[i].Run = ran[at.Task][at.At.UnixNano()]
		}
		return nil
	}
}

// fillPauses marks the tasks that are paused.
func fillPauses(ctx context.Context, rows []control.TaskRow) func(*db.DB) error {
	return func(main *db.DB) error {
		pauses, err := main.Pauses(ctx)
		control.FillTasks(rows, nil, pauses)
		return err
	}
}

func instants(id string, s *scheduler.Schedule, after time.Time, n int, jitter time.Duration) []daemon.Instant {
	list := []daemon.Instant{}
	for _, due := range s.List(after, n) {
		i := daemon.Instant{At: due, Task: id, Due: due.In(s.Zone()).Format(time.RFC3339Nano), UTC: due.UTC().Format(time.RFC3339Nano)}
		if jitter > 0 {
			i.NotBefore = due.Add(jitter).In(s.Zone()).Format(time.RFC3339)
		}
		list = append(list, i)
	}
	return list
}
