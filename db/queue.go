package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// Claim moves one runnable run to running, as dispatch.Store states it. A session
// belongs to one run from its first claim to its end: while such a run waits,
// backs off or is interrupted, its transcript may hold an unanswered call, so
// that no other run of the session is started. It is written ahead: the run's first
// message or end takes it to the disk before anything else comes of it.
func (d *DB) Claim(ctx context.Context, now time.Time) (run task.Run, ok bool, err error) {
	err = d.writingAhead(ctx, func(ctx context.Context, tx bun.Tx) error {
		var rows []runRow
		if err := interruptedQuery(tx, &rows).Scan(ctx); err != nil {
			return err
		}
		if len(rows) == 0 {
			if err := readyQuery(tx, now, &rows).Scan(ctx); err != nil {
				return err
			}
		}
		run, ok, err = begin(ctx, tx, rows, now)
		return err
	})
	if err != nil {
		return task.Run{}, false, wrap("claim run", err)
	}
	return run, ok, nil
}

// ClaimRun is Claim for one run by its id, for a person who runs a task in the
// foreground. ok is false if it is not runnable now.
func (d *DB) ClaimRun(ctx context.Context, id string, now time.Time) (run task.Run, ok bool, err error) {
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		var rows []runRow
		if err := interruptedQuery(tx, &rows).Where("r.id = ?", id).Scan(ctx); err != nil {
			return err
		}
		if len(rows) == 0 {
			if err := readyQuery(tx, now, &rows).Where("r.id = ?", id).Scan(ctx); err != nil {
				return err
			}
		}
		run, ok, err = begin(ctx, tx, rows, now)
		return err
	})
	if err != nil {
		return task.Run{}, false, wrap("claim run "+id, err)
	}
	return run, ok, nil
}

// begin moves the first of the rows, if there is one, to running. Why it was not is
// over.
func begin(ctx context.Context, tx bun.Tx, rows []runRow, now time.Time) (run task.Run, ok bool, err error) {
	if len(rows) == 0 {
		return run, false, nil
	}
	if run, err = rows[0].run(); err != nil {
		return run, false, err
	}
	if run.StartedAt.IsZero() {
		run.StartedAt = at(now).t
	}
	run.Reason = ""
	if err := move(ctx, tx, run, task.Running); err != nil {
		return run, false, err
	}
	run.Execution = task.Running
	return run, true, nil
}

func interruptedQuery(q bun.IDB, rows *[]runRow) *bun.SelectQuery {
	return q.NewSelect().Model(rows).
		Where("r.finished_at IS NULL AND r.execution = 'interrupted'").
		Where("NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.finished_at IS NULL AND o.session = r.session AND o.id <> r.id AND o.execution = 'running')").
		Order("r.not_before", "r.created_at", "r.id").Limit(1)
}

func readyQuery(q bun.IDB, now time.Time, rows *[]runRow) *bun.SelectQuery {
	return q.NewSelect().Model(rows).
		Where("r.finished_at IS NULL AND r.execution = 'queued'").Where("r.not_before <= ?", micros(now)).
		Where("NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.finished_at IS NULL AND o.session = r.session AND o.id <> r.id"+
			" AND (o.execution = 'running' OR (r.started_at IS NULL AND o.started_at IS NOT NULL)))").
		Order("r.not_before", "r.created_at", "r.id").Limit(1)
}

// NextReady is the earliest not_before after now among queued runs.
func (d *DB) NextReady(ctx context.Context, now time.Time) (next time.Time, ok bool, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var found []int64
		err := nextReadyQuery(q, now).Scan(ctx, &found)
		if len(found) > 0 {
			next, ok = time.UnixMicro(found[0]).UTC(), true
		}
		return err
	})
	return next, ok, wrap("read next ready run", err)
}

func nextReadyQuery(q bun.IDB, now time.Time) *bun.SelectQuery {
	return q.NewSelect().Table("runs").Column("not_before").
		Where("finished_at IS NULL AND execution = 'queued' AND not_before > ?", micros(now)).
		Order("not_before").Limit(1)
}

// Recover makes every running run interrupted, with its attempt counted up, and
// returns them, as dispatch.Store states it.
func (d *DB) Recover(ctx context.Context, _ time.Time) (runs []task.Run, err error) {
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		var rows []runRow
		err := tx.NewSelect().Model(&rows).Where("r.finished_at IS NULL AND r.execution = 'running'").
			Order("r.not_before", "r.created_at", "r.id").Scan(ctx)
		if err != nil {
			return err
		}
		if runs, err = toRuns(rows); err != nil {
			return err
		}
		for i := range runs {
			runs[i].Attempt++
			if err := move(ctx, tx, runs[i], task.Interrupted); err != nil {
				return err
			}
			runs[i].Execution = task.Interrupted
		}
		return nil
	})
	return runs, wrap("recover runs", err)
}

// Cancel ends a run that no worker holds, with its approvals. done is false if a
// worker holds it or it has finished; an unknown run is ErrNotFound.
func (d *DB) Cancel(ctx context.Context, runID, reason string, now time.Time) (done bool, err error) {
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		run, err := selectRun(ctx, tx, runID)
		if err != nil {
			return err
		}
		if done = run.Execution != task.Running && run.Execution.Active(); !done {
			return nil
		}
		run.Reason, run.FinishedAt = reason, now
		return move(ctx, tx, run, task.Cancelled)
	})
	return done && err == nil, wrap("cancel", err)
}

// Fail ends a running run as failed. What its task delivers is still owed: a
// failure is what some destinations are for.
func (d *DB) Fail(ctx context.Context, runID, reason string, now time.Time) error {
	return wrap("fail", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		run, err := selectRun(ctx, tx, runID)
		if err != nil {
			return err
		}
		if run.Execution != task.Running {
			return &task.TransitionError{Run: runID, From: run.Execution, To: task.Failed}
		}
		run.Reason, run.FinishedAt = reason, now
		if run.Delivery, err = owed(ctx, tx, run); err != nil {
			return err
		}
		return move(ctx, tx, run, task.Failed)
	}))
}
