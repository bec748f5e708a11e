package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type approvalRow struct {
	bun.BaseModel `bun:"table:approvals,alias:a"`

	ID         string `bun:"id,pk"`
	Run        string `bun:"run"`
	Task       string `bun:"task"`
	Step       int    `bun:"step"`
	CallID     string `bun:"call_id"`
	Connector  string `bun:"connector"`
	Tool       string `bun:"tool"`
	Class      string `bun:"class"`
	Definition string `bun:"definition"`
	Arguments  []byte `bun:"arguments"` // exact bytes
	ArgsHash   string `bun:"args_hash"`
	Preview    string `bun:"preview"`
	State      string `bun:"state"`
	DecidedBy  string `bun:"decided_by"`
	Reason     string `bun:"reason"`
	CreatedAt  stamp  `bun:"created_at"`
	ExpiresAt  stamp  `bun:"expires_at"`
	DecidedAt  stamp  `bun:"decided_at"`
}

func newApprovalRow(a *task.Approval) approvalRow {
	return approvalRow{
		ID: a.ID, Run: a.Run, Task: a.Task, Step: a.Step, CallID: clean(a.CallID), Connector: a.Connector, Tool: a.Tool,
		Class: a.Class, Definition: a.Definition, Arguments: append([]byte{}, a.Arguments...), ArgsHash: a.ArgsHash,
		Preview: clean(a.Preview), State: string(a.State), DecidedBy: clean(a.DecidedBy), Reason: clean(a.Reason),
		CreatedAt: at(a.CreatedAt), ExpiresAt: at(a.ExpiresAt), DecidedAt: at(a.DecidedAt),
	}
}

func (r *approvalRow) approval() task.Approval {
	return task.Approval{
		ID: r.ID, Run: r.Run, Task: r.Task, Step: r.Step, CallID: r.CallID, Connector: r.Connector, Tool: r.Tool,
		Class: r.Class, Definition: r.Definition, Arguments: string(r.Arguments), ArgsHash: r.ArgsHash, Preview: r.Preview,
		State: task.ApprovalState(r.State), DecidedBy: r.DecidedBy, Reason: r.Reason,
		CreatedAt: r.CreatedAt.t, ExpiresAt: r.ExpiresAt.t, DecidedAt: r.DecidedAt.t,
	}
}

func approvalEvent(a *task.Approval, when time.Time) eventRow {
	return eventRow{At: at(when), Kind: string(EventApproval), Task: a.Task, Run: a.Run, Ref: a.ID}
}

func insertApproval(ctx context.Context, tx bun.Tx, a *task.Approval) error {
	if a.ID == "" {
		return fmt.Errorf("an approval for run %s needs an id", a.Run)
	}
	if a.CreatedAt.IsZero() {
		a.CreatedAt = time.Now()
	}
	if a.State == "" {
		a.State = task.ApprovalPending
	}
	row := newApprovalRow(a)
	if _, err := tx.NewInsert().Model(&row).Exec(ctx); err != nil {
		return err
	}
	return emit(ctx, tx, approvalEvent(a, a.CreatedAt))
}

func selectApproval(ctx context.Context, q bun.IDB, id string) (task.Approval, error) {
	var row approvalRow
	if err := q.NewSelect().Model(&row).Where("a.id = ?", id).Scan(ctx); err != nil {
		return task.Approval{}, fmt.Errorf("approval %s: %w", id, notFound(err))
	}
	return row.approval(), nil
}

// approvalChange is one step in an approval's life.
type approvalChange struct {
	id     string
	to     task.ApprovalState
	by     string
	reason string
	at     time.Time
}

func (c approvalChange) apply(ctx context.Context, tx bun.Tx, run *task.Run) error {
	_, err := tx.NewUpdate().Table("approvals").Set("state = ?", c.to).Set("decided_by = ?", clean(c.by)).
		Set("reason = ?", clean(c.reason)).Set("decided_at = ?", at(c.at)).Where("id = ?", c.id).Exec(ctx)
	if err != nil {
		return err
	}
	return emit(ctx, tx, approvalEvent(&task.Approval{ID: c.id, Task: run.Task, Run: run.ID}, c.at))
}

// consume uses up the approval of exactly this call, in one conditional update.
func consume(ctx context.Context, tx bun.Tx, id string, row *receiptRow) error {
	res, err := tx.NewUpdate().Table("approvals").Set("state = ?", task.ApprovalConsumed).
		Where("id = ? AND state = ?", id, task.ApprovalApproved).Where("run = ?", row.Run).
		Where("connector = ? AND tool = ? AND args_hash = ?", row.Connector, row.Tool, row.ArgsHash).Exec(ctx)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("approval %s: %w", id, ErrConsumed)
	}
	return emit(ctx, tx, approvalEvent(&task.Approval{ID: id, Task: row.Task, Run: row.Run}, time.Now()))
}

// finishApproval carries the outcome of a receipt over to the approval that it
// used. A timeout leaves the effect as unknown as a crash does.
func finishApproval(ctx context.Context, tx bun.Tx, row *receiptRow) error {
	to := task.ApprovalDone
	if o := task.ReceiptOutcome(row.Outcome); o == task.ReceiptUnknown || o == task.ReceiptTimeout {
		to = task.ApprovalUnknown
	}
	_, err := tx.NewUpdate().Table("approvals").Set("state = ?", to).
		Where("id = ? AND state = ?", row.ApprovalID, task.ApprovalConsumed).Exec(ctx)
	return err
}

// Supersede ends one approval and stores the next, for a call that must be asked
// anew. ErrConflict answers if the old one is neither pending nor approved.
func (d *DB) Supersede(ctx context.Context, old string, ask *task.Approval) error {
	return wrap("supersede", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		a, err := selectApproval(ctx, tx, old)
		if err != nil {
			return err
		}
		if a.State != task.ApprovalPending && a.State != task.ApprovalApproved {
			return fmt.Errorf("approval %s: %w: it is %s", old, ErrConflict, a.State)
		}
		_, err = tx.NewUpdate().Table("approvals").Set("state = ?", task.ApprovalSuperseded).Where("id = ?", old).Exec(ctx)
		if err != nil {
			return err
		}
		if err := emit(ctx, tx, approvalEvent(&a, time.Now())); err != nil {
			return err
		}
		return insertApproval(ctx, tx, ask)
	}))
}

// Verdict is a person's decision on an approval.
type Verdict struct {
	ID string
	// Task, if set, must be the approval's: another one looks like not found.
	Task string
	// State is ApprovalApproved or ApprovalDenied.
	State  task.ApprovalState
	By     string
	Reason string
}

// DecideApproval records a decision and answers the approval as it then stands.
// The first decision wins: a later one gets the first back, without an error.
// ErrConflict answers, with the approval, when it has expired, was superseded or
// cancelled, or its run has finished. When it was the last pending approval of a
// waiting run, that run is queued in the same transaction.
func (d *DB) DecideApproval(ctx context.Context, v Verdict, now time.Time) (a task.Approval, err error) {
	if v.State != task.ApprovalApproved && v.State != task.ApprovalDenied {
		return a, fmt.Errorf("decide approval %s: want approved or denied, have %q", v.ID, v.State)
	}
	conflict := ""
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		if a, err = selectApproval(ctx, tx, v.ID); err != nil {
			return err
		}
		if v.Task != "" && v.Task != a.Task {
			a = task.Approval{}
			return fmt.Errorf("approval %s: %w", v.ID, ErrNotFound)
		}
		conflict, err = decide(ctx, tx, &a, v, now)
		return err
	})
	if err == nil && conflict != "" {
		err = fmt.Errorf("approval %s: %w: %s", v.ID, ErrConflict, conflict)
	}
	return a, wrap("decide", err)
}

// decide answers in words why the decision has no effect, if so. An approval that
// is found past its time is stored as expired, which no later clock undoes.
func decide(ctx context.Context, tx bun.Tx, a *task.Approval, v Verdict, now time.Time) (string, error) {
	switch a.State {
	case task.ApprovalPending:
	case task.ApprovalExpired, task.ApprovalSuperseded, task.ApprovalCancelled:
		return "it is " + string(a.State), nil
	default:
		return "", nil // a duplicate
	}
	run, err := selectRun(ctx, tx, a.Run)
	if err != nil {
		return "", err
	}
	if run.Execution.Finished() && a.Class != task.ClassDelivery {
		return fmt.Sprintf("run %s is %s", run.ID, run.Execution), nil
	}
	if a.Class == task.ClassDelivery {
		noteQueued(ctx) // the delivery worker has something to do
	}
	change := approvalChange{id: a.ID, to: v.State, by: v.By, reason: v.Reason, at: now}
	conflict := ""
	if !a.ExpiresAt.IsZero() && !a.ExpiresAt.After(now) {
		change, conflict = expiry(a.ID, now), "it has expired"
	}
	if err := change.apply(ctx, tx, &run); err != nil {
		return "", err
	}
	a.State, a.DecidedBy, a.Reason, a.DecidedAt = change.to, change.by, change.reason, at(now).t
	return conflict, goOn(ctx, tx, run, now)
}

func expiry(id string, now time.Time) approvalChange {
	return approvalChange{id: id, to: task.ApprovalExpired, at: now}
}

// goOn queues a waiting run whose last approval has been settled.
func goOn(ctx context.Context, tx bun.Tx, run task.Run, now time.Time) error {
	if run.Execution != task.Waiting {
		return nil
	}
	pending, err := pendingOf(ctx, tx, run.ID)
	if err != nil || pending > 0 {
		return err
	}
	run.NotBefore, run.Reason = now, ""
	return move(ctx, tx, run, task.Queued)
}

func pendingOf(ctx context.Context, tx bun.Tx, run string) (int64, error) {
	return tx.NewSelect().Table("approvals").Where("run = ? AND state = ?", run, task.ApprovalPending).Count(ctx)
}

// ExpireApprovals stores every pending approval whose time has come as expired,
// queues the runs that waited for the last of theirs, and returns the expired.
func (d *DB) ExpireApprovals(ctx context.Context, now time.Time) (expired []task.Approval, err error) {
	if ids, err := d.overdue(ctx, now); err != nil || len(ids) == 0 {
		return nil, wrap("expire approvals", err) // no write lock for nothing
	}
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		expired = nil
		var rows []approvalRow
		if err := overdueQuery(tx, now, &rows).Scan(ctx); err != nil {
			return err
		}
		for i := range rows {
			a := rows[i].approval()
			run, err := selectRun(ctx, tx, a.Run)
			if err != nil {
				return err
			}
			if err := expiry(a.ID, now).apply(ctx, tx, &run); err != nil {
				return err
			}
			if err := goOn(ctx, tx, run, now); err != nil {
				return err
			}
			a.State, a.DecidedAt = task.ApprovalExpired, at(now).t
			expired = append(expired, a)
		}
		return nil
	})
	return expired, wrap("expire approvals", err)
}

func (d *DB) overdue(ctx context.Context, now time.Time) (rows []approvalRow, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error { return overdueQuery(q, now, &rows).Scan(ctx) })
	return rows, err
}

func overdueQuery(q bun.IDB, now time.Time, rows *[]approvalRow) *bun.SelectQuery {
	return q.NewSelect().Model(rows).Where("a.state = 'pending' AND a.expires_at <= ?", micros(now)).
		Order("a.expires_at").Limit(chunk)
}

// HoldDelivery asks a person, once, whether a result may go to a destination, and
// returns the approval as it stands.
func (d *DB) HoldDelivery(ctx context.Context, ask task.Approval) (a task.Approval, err error) {
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		a, err = selectApproval(ctx, tx, ask.ID)
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		a = ask
		return insertApproval(ctx, tx, &a)
	})
	return a, wrap("hold delivery", err)
}

// Approval reads one approval. It answers ErrNotFound.
func (d *DB) Approval(ctx context.Context, id string) (a task.Approval, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		a, err = selectApproval(ctx, q, id)
		return err
	})
	return a, wrap("read", err)
}

// FindApproval reads the approval whose id is, or alone begins with, the text.
// It answers ErrNotFound or ErrAmbiguous.
func (d *DB) FindApproval(ctx context.Context, prefix string) (a task.Approval, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		id, err := findID(ctx, q, "approvals", prefix)
		if err != nil {
			return fmt.Errorf("approval %s: %w", prefix, err)
		}
		a, err = selectApproval(ctx, q, id)
		return err
	})
	return a, wrap("find", err)
}

// ApprovalFilter selects approvals.
type ApprovalFilter struct {
	Task, Run string
	States    []task.ApprovalState
	// Counted leaves those of rehearsals out.
	Counted bool
	// Limit is 100 unless set.
	Limit int
}

// Approvals lists approvals, newest first.
func (d *DB) Approvals(ctx context.Context, f ApprovalFilter) ([]task.Approval, error) {
	return d.approvals(ctx, func(sel *bun.SelectQuery) {
		sel.Order("a.created_at DESC", "a.id DESC").Limit(limitOr(f.Limit))
		if f.Task != "" {
			sel.Where("a.task = ?", f.Task)
		}
		if f.Run != "" {
			sel.Where("a.run = ?", f.Run)
		}
		if len(f.States) > 0 {
			sel.Where("a.state IN (?)", bun.List(f.States))
		}
		if f.Counted {
			sel.Where("EXISTS (SELECT 1 FROM runs AS r WHERE r.id = a.run AND r." + counted + ")")
		}
	})
}

// RunApprovals reads every approval that was asked for in a run, oldest first.
func (d *DB) RunApprovals(ctx context.Context, run string) ([]task.Approval, error) {
	return d.approvals(ctx, func(sel *bun.SelectQuery) { sel.Where("a.run = ?", run).Order("a.created_at", "a.id") })
}

func (d *DB) approvals(ctx context.Context, where func(*bun.SelectQuery)) (list []task.Approval, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []approvalRow
		sel := q.NewSelect().Model(&rows)
		where(sel)
		if err := sel.Scan(ctx); err != nil {
			return err
		}
		for i := range rows {
			list = append(list, rows[i].approval())
		}
		return nil
	})
	return list, wrap("read approvals", err)
}
