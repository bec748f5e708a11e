package db

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type cursorRow struct {
	bun.BaseModel `bun:"table:cursors,alias:c"`

	Task             string `bun:"task,pk"`
	ScheduleRevision string `bun:"schedule_revision"`
	Through          stamp  `bun:"through"`
	LastFired        stamp  `bun:"last_fired"`
	Retired          bool   `bun:"retired"`
}

func (c cursorRow) cursor() task.Cursor {
	return task.Cursor{
		Task: c.Task, ScheduleRevision: c.ScheduleRevision, Through: c.Through.t,
		LastFired: c.LastFired.t, Retired: c.Retired,
	}
}

// Cursors reads every cursor by task id, retired ones included.
func (d *DB) Cursors(ctx context.Context) (map[string]task.Cursor, error) {
	cursors := map[string]task.Cursor{}
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []cursorRow
		if err := q.NewSelect().Model(&rows).Scan(ctx); err != nil {
			return err
		}
		for _, r := range rows {
			cursors[r.Task] = r.cursor()
		}
		return nil
	})
	return cursors, wrap("read cursors", err)
}

// Fire runs one transaction over the named tasks, as scheduler.Store states it.
// A name that comes twice is decided once. A plan whose cursor is the zero
// Cursor leaves the stored one alone. Interrupted runs in Cancel are ended like
// queued and waiting ones, since no worker holds them either. It is written ahead:
// instants that a power cut takes back are fired again, or caught up with.
func (d *DB) Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	var inserted []task.Run
	err := d.writingAhead(ctx, func(ctx context.Context, tx bun.Tx) error {
		inserted = nil
		pauses, err := pausesBy(ctx, tx)
		if err != nil {
			return err
		}
		seen := make(map[string]bool, len(tasks))
		return inChunks(tasks, func(names []string) error {
			states, err := fireStates(ctx, tx, unseen(names, seen), pauses)
			if err != nil {
				return err
			}
			runs, err := d.fireChunk(ctx, tx, states, decide)
			inserted = append(inserted, runs...)
			return err
		})
	})
	if err != nil {
		return nil, wrap("fire", err)
	}
	return inserted, nil
}

func unseen(names []string, seen map[string]bool) []string {
	fresh := make([]string, 0, len(names))
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			fresh = append(fresh, name)
		}
	}
	return fresh
}

func fireStates(ctx context.Context, tx bun.Tx, names []string, pauses map[string]string) ([]task.FireState, error) {
	var rows []cursorRow
	if err := tx.NewSelect().Model(&rows).Where("c.task IN (?)", bun.List(names)).Scan(ctx); err != nil {
		return nil, err
	}
	active, err := activeRuns(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	cursors := make(map[string]task.Cursor, len(rows))
	for _, r := range rows {
		cursors[r.Task] = r.cursor()
	}
	states := make([]task.FireState, 0, len(names))
	for _, name := range names {
		c, known := cursors[name]
		ran, err := ranAhead(ctx, tx, c)
		if err != nil {
			return nil, err
		}
		paused := pauses[everything]
		if paused == "" {
			paused = pauses[name]
		}
		states = append(states, task.FireState{Task: name, Cursor: c, Known: known, Active: active[name], Ran: ran, Paused: paused})
	}
	return states, nil
}

// ranAhead are the due instants past a cursor that became runs. There are some only
// where a clock that was ahead has fired them.
func ranAhead(ctx context.Context, tx bun.Tx, c task.Cursor) (ran []time.Time, err error) {
	if !c.LastFired.After(c.Through) {
		return nil, nil
	}
	var due []int64
	err = tx.NewSelect().Table("occurrences").ColumnExpr("DISTINCT due").
		Where("task = ? AND due > ? AND ending = ?", c.Task, micros(c.Through), task.EndRun).Order("due").Scan(ctx, &due)
	for _, at := range due {
		ran = append(ran, time.UnixMicro(at).UTC())
	}
	return ran, err
}

// activeRuns are the active runs of the tasks but rehearsals, oldest first, without
// Output.
func activeRuns(ctx context.Context, tx bun.Tx, tasks []string) (map[string][]task.Run, error) {
	var rows []runRow
	err := tx.NewSelect().Model(&rows).ExcludeColumn(unlisted...).
		Where("r.finished_at IS NULL").Where("r.task IN (?)", bun.List(tasks)).Where("r."+counted).
		Order("r.created_at", "r.due", "r.id").Scan(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := toRuns(rows)
	byTask := map[string][]task.Run{}
	for _, run := range runs {
		byTask[run.Task] = append(byTask[run.Task], run)
	}
	return byTask, err
}

// fireChunk decides and writes as many tasks as fit one statement. What is rare
// (cancel, withdraw) is written task by task, before the new rows.
func (d *DB) fireChunk(ctx context.Context, tx bun.Tx, states []task.FireState, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	var occurrences []occurrenceRow
	var cursors []cursorRow
	planned := map[string]task.Run{}
	for _, state := range states {
		plan := decide(state)
		if err := checkPlan(state.Task, plan, planned); err != nil {
			return nil, err
		}
		if err := retract(ctx, tx, state.Task, plan); err != nil {
			return nil, err
		}
		for _, o := range plan.Occurrences {
			occurrences = append(occurrences, newOccurrenceRow(o))
		}
		if plan.Cursor != (task.Cursor{}) {
			c := plan.Cursor
			cursors = append(cursors, cursorRow{
				Task: c.Task, ScheduleRevision: c.ScheduleRevision, Through: at(c.Through), LastFired: at(c.LastFired), Retired: c.Retired,
			})
		}
	}
	ids, err := insertOccurrences(ctx, tx, occurrences)
	if err != nil {
		return nil, err
	}
	runs := make([]task.Run, 0, len(ids))
	for _, id := range ids {
		if run, ok := planned[id]; ok {
			runs = append(runs, run)
		}
	}
	if err := d.insertRuns(ctx, tx, runs); err != nil {
		return nil, err
	}
	return runs, saveCursors(ctx, tx, cursors)
}

// checkPlan refuses a plan that would break the rule of one run per occurrence,
// and collects its runs.
func checkPlan(name string, plan task.FirePlan, planned map[string]task.Run) error {
	if plan.Cursor != (task.Cursor{}) && plan.Cursor.Task != name {
		return fmt.Errorf("plan for task %s has the cursor of %q", name, plan.Cursor.Task)
	}
	for _, run := range plan.Runs {
		if run.Task != name {
			return fmt.Errorf("plan for task %s has run %q of task %q", name, run.ID, run.Task)
		}
		if _, twice := planned[run.ID]; twice {
			return fmt.Errorf("plan for task %s has run %q twice", name, run.ID)
		}
		planned[run.ID] = run
	}
	named := map[string]bool{}
	for _, o := range plan.Occurrences {
		if o.Task != name || o.Due.IsZero() {
			return fmt.Errorf("plan for task %s has an occurrence of task %q due %v", name, o.Task, o.Due)
		}
		if (o.End == task.EndRun) != (o.RunID != "") {
			return fmt.Errorf("plan for task %s: occurrence due %v ends as %s with run %q", name, o.Due, o.End, o.RunID)
		}
		named[o.RunID] = o.RunID != ""
	}
	for _, run := range plan.Runs {
		if !named[run.ID] {
			return fmt.Errorf("plan for task %s has run %q without an occurrence", name, run.ID)
		}
	}
	return nil
}

// retract ends the runs and takes back the rows that a plan says.
func retract(ctx context.Context, tx bun.Tx, name string, plan task.FirePlan) error {
	for _, id := range plan.Cancel {
		run, err := selectRun(ctx, tx, id)
		if err != nil {
			return err
		}
		if run.Execution == task.Running || run.Execution.Finished() {
			continue
		}
		run.Reason, run.FinishedAt = task.ReasonReplaced, time.Now()
		if err := move(ctx, tx, run, task.Cancelled); err != nil {
			return err
		}
	}
	if plan.Withdraw.IsZero() {
		return nil
	}
	return withdraw(ctx, tx, name, plan)
}

// withdraw deletes what did not run and lies past a clock that went back, and cuts
// the range rows that reach beyond it.
func withdraw(ctx context.Context, tx bun.Tx, name string, plan task.FirePlan) error {
	after := micros(plan.Withdraw)
	_, err := tx.NewDelete().Table("occurrences").
		Where("task = ? AND due > ? AND ending <> ?", name, after, task.EndRun).Exec(ctx)
	if err != nil || plan.Cut == nil {
		return err
	}
	var rows []occurrenceRow
	err = tx.NewSelect().Model(&rows).Where("o.task = ? AND o.due <= ? AND o.until > ?", name, after, after).Scan(ctx)
	for i := 0; err == nil && i < len(rows); i++ {
		cut := newOccurrenceRow(plan.Cut(rows[i].occurrence()))
		_, err = tx.NewUpdate().Model(&cut).Column("until", "instants").WherePK().Exec(ctx)
	}
	return err
}

func saveCursors(ctx context.Context, tx bun.Tx, rows []cursorRow) error {
	return inChunks(rows, func(rows []cursorRow) error {
		_, err := tx.NewInsert().Model(&rows).On("CONFLICT (task) DO UPDATE").
			Set("schedule_revision = EXCLUDED.schedule_revision").Set("through = EXCLUDED.through").
			Set("last_fired = EXCLUDED.last_fired").Set("retired = EXCLUDED.retired").Exec(ctx)
		return err
	})
}
