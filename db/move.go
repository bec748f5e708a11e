package db

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// move is the one place where a stored run changes its execution: it asks
// task.Execution.CanMove (docs/run-states.md), keeps finished_at NULL exactly
// while the run is active, and closes what a run that no worker holds must not
// leave open. run is the stored row with the caller's changes, its execution still
// the old. What the marks owe to the receipts is put by saveRun.
func move(ctx context.Context, tx bun.Tx, run task.Run, to task.Execution) error {
	if !run.Execution.CanMove(to) {
		return &task.TransitionError{Run: run.ID, From: run.Execution, To: to}
	}
	now := time.Now()
	from := run.Execution
	run.Execution = to
	if !to.Finished() {
		run.FinishedAt = time.Time{}
	} else if run.FinishedAt.IsZero() {
		run.FinishedAt = now
	}
	if from == task.Running {
		if err := settleOpen(ctx, tx, &run, now); err != nil {
			return err
		}
	}
	if err := saveRun(ctx, tx, &run); err != nil {
		return err
	}
	switch {
	case to == task.Queued:
		noteQueued(ctx)
	case to.Finished():
		if err := closeRun(ctx, tx, &run); err != nil {
			return err
		}
	}
	return emit(ctx, tx, runEvent(run, now))
}

// saveRun is the one place where the fields of a stored run that change are
// written. It derives the marks from the receipts and the deliveries, so that no
// caller can forget one, and delivers nothing of a rehearsal. Usage is booked by Append alone, so that nothing is
// counted twice or lost.
func saveRun(ctx context.Context, tx bun.Tx, run *task.Run) error {
	if err := account(ctx, tx, run); err != nil {
		return err
	}
	if run.Script != (task.Script{}) {
		run.Mark(task.MarkRehearsal)
		run.Delivery = task.DeliveryNone
	}
	row, err := newRunRow(*run)
	if err != nil {
		return err
	}
	_, err = tx.NewUpdate().Model(&row).WherePK().Column("attempt", "not_before", "execution", "outcome", "delivery", "marks",
		"reason", "started_at", "finished_at", "wall", "steps", "calls", "output").Exec(ctx)
	return err
}

// account puts into the run's marks what is recorded of its calls and of its
// deliveries. A run that nobody has begun has neither.
func account(ctx context.Context, tx bun.Tx, run *task.Run) error {
	if run.StartedAt.IsZero() {
		return nil
	}
	var rows []receiptRow
	if err := tx.NewSelect().Model(&rows).Column("class", "decision", "code", "outcome").Where("rc.run = ?", run.ID).Scan(ctx); err != nil {
		return err
	}
	receipts := make([]task.Receipt, len(rows))
	for i := range rows {
		receipts[i] = rows[i].receipt()
	}
	run.Account(receipts)
	if !run.Execution.Finished() {
		return nil
	}
	return accountDeliveries(ctx, tx, run)
}

// settleOpen gives an intent without an outcome the outcome that is not known: the
// worker that sent it has left the run, by whatever way (DESIGN, section 8).
func settleOpen(ctx context.Context, tx bun.Tx, run *task.Run, now time.Time) error {
	var open []receiptRow
	if err := tx.NewSelect().Model(&open).Where("rc.run = ? AND rc.outcome = ?", run.ID, task.ReceiptPending).Order("rc.seq").Scan(ctx); err != nil {
		return err
	}
	for i := range open {
		open[i].Outcome, open[i].FinishedAt = string(task.ReceiptUnknown), at(now)
		if err := settleReceipt(ctx, tx, &open[i]); err != nil {
			return err
		}
	}
	return nil
}

// closeRun ends what a finished run leaves behind: an approval that was not used is
// cancelled, and a transcript without a last word gets a line that says how it
// ended.
func closeRun(ctx context.Context, tx bun.Tx, run *task.Run) error {
	var unused []string
	err := tx.NewSelect().Table("approvals").Column("id").Where("run = ?", run.ID).
		Where("state IN (?)", bun.List([]task.ApprovalState{task.ApprovalPending, task.ApprovalApproved})).Order("id").Scan(ctx, &unused)
	if err != nil {
		return err
	}
	for _, id := range unused {
		change := approvalChange{id: id, to: task.ApprovalCancelled, reason: "the run ended", at: run.FinishedAt}
		if err := change.apply(ctx, tx, run); err != nil {
			return err
		}
	}
	return closeTranscript(ctx, tx, run)
}

// closeTranscript keeps the next run of the session from finding two prompts in a
// row, which a model takes for an order to do both. The line holds none of the
// run's reason: a server may have worded it.
func closeTranscript(ctx context.Context, tx bun.Tx, run *task.Run) error {
	if run.StartedAt.IsZero() {
		return nil
	}
	var rows []messageRow
	err := tx.NewSelect().Model(&rows).Where("m.run = ? AND m.role <> ?", run.ID, task.RoleSummary).Order("m.seq DESC").Limit(1).Scan(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	last, err := rows[0].message()
	if err != nil {
		return err
	}
	if last.LastWord() {
		return nil
	}
	return storeMessage(ctx, tx, &task.Message{
		Session: last.Session, Run: run.ID, Step: last.Step, Role: task.RoleAssistant, At: run.FinishedAt, Notice: run.Ending(),
	})
}

// Update stores what changed on a run that a worker holds, as agentloop.Store
// states it: ErrLost if the attempt differs, *task.TransitionError if the run
// cannot move so. Usage is not taken from r: Append books it. A run that is to
// wait although every approval has been settled meanwhile becomes queued at once.
// After a run has finished its execution, outcome and times stay as they are.
func (d *DB) Update(ctx context.Context, r task.Run) error {
	return wrap("update", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		stored, err := held(ctx, tx, r)
		if err != nil {
			return err
		}
		to := r.Execution
		if stored.Execution == task.Running && to == task.Queued {
			return &task.TransitionError{Run: r.ID, From: stored.Execution, To: to}
		}
		if to == task.Waiting {
			if to, err = waitOrGoOn(ctx, tx, &r); err != nil {
				return err
			}
		}
		next := merge(stored, r)
		if to == stored.Execution {
			if err := saveRun(ctx, tx, &next); err != nil || to != task.Running || next.Reason == stored.Reason {
				return err
			}
			return emit(ctx, tx, runEvent(next, time.Now())) // who watches is told what it is at
		}
		return move(ctx, tx, next, to)
	}))
}

// Retry is Update to queued with the attempt counted up: r carries the attempt
// that the worker holds, and NotBefore.
func (d *DB) Retry(ctx context.Context, r task.Run) error {
	return wrap("retry", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		stored, err := held(ctx, tx, r)
		if err != nil {
			return err
		}
		next := merge(stored, r)
		next.Attempt = stored.Attempt + 1
		return move(ctx, tx, next, task.Queued)
	}))
}

// held reads the run and tells whether the caller still holds it.
func held(ctx context.Context, tx bun.Tx, r task.Run) (task.Run, error) {
	stored, err := selectRun(ctx, tx, r.ID)
	if err == nil && stored.Attempt != r.Attempt {
		err = fmt.Errorf("run %s: %w: attempt %d, stored %d", r.ID, ErrLost, r.Attempt, stored.Attempt)
	}
	return stored, err
}

// merge lays a worker's changes over the stored run, its execution unchanged.
func merge(stored, r task.Run) task.Run {
	next := stored
	next.Marks, next.Reason, next.Delivery, next.Output = r.Marks, r.Reason, r.Delivery, r.Output
	if stored.Execution.Finished() {
		return next
	}
	next.Outcome, next.NotBefore, next.FinishedAt = r.Outcome, r.NotBefore, r.FinishedAt
	next.Wall, next.Steps, next.Calls = r.Wall, r.Steps, r.Calls
	if next.NotBefore.IsZero() {
		next.NotBefore = stored.NotBefore
	}
	return next
}

// waitOrGoOn looks whether there is anything to wait for. An approval that was
// decided just before the run began to wait found no waiting run to queue.
func waitOrGoOn(ctx context.Context, tx bun.Tx, r *task.Run) (task.Execution, error) {
	pending, err := pendingOf(ctx, tx, r.ID)
	if err != nil || pending > 0 {
		return task.Waiting, err
	}
	r.NotBefore, r.Reason = time.Now(), ""
	return task.Queued, nil
}
