package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type receiptRow struct {
	bun.BaseModel `bun:"table:receipts,alias:rc"`

	Seq        int64  `bun:"seq,pk,autoincrement"`
	Run        string `bun:"run"`
	Task       string `bun:"task"`
	Step       int    `bun:"step"`
	CallID     string `bun:"call_id"`
	Connector  string `bun:"connector"`
	Tool       string `bun:"tool"`
	Class      string `bun:"class"`
	Definition string `bun:"definition"`
	Decision   string `bun:"decision"`
	Code       string `bun:"code"`
	Rule       string `bun:"rule"`
	ArgsHash   string `bun:"args_hash"`
	Outcome    string `bun:"outcome"`
	ApprovalID string `bun:"approval_id"`
	StartedAt  stamp  `bun:"started_at"`
	FinishedAt stamp  `bun:"finished_at"`
}

func newReceiptRow(r *task.Receipt) receiptRow {
	return receiptRow{
		Seq: r.Seq, Run: r.Run, Task: r.Task, Step: r.Step, CallID: clean(r.CallID), Connector: clean(r.Connector),
		Tool: clean(r.Tool), Class: r.Class, Definition: r.Definition, Decision: string(r.Decision), Code: r.Code,
		Rule: clean(r.Rule), ArgsHash: r.ArgsHash, Outcome: string(r.Outcome), ApprovalID: r.ApprovalID,
		StartedAt: at(r.StartedAt), FinishedAt: at(r.FinishedAt),
	}
}

func (r *receiptRow) receipt() task.Receipt {
	return task.Receipt{
		Seq: r.Seq, Run: r.Run, Task: r.Task, Step: r.Step, CallID: r.CallID, Connector: r.Connector, Tool: r.Tool,
		Class: r.Class, Definition: r.Definition, Decision: task.DecisionKind(r.Decision), Code: r.Code, Rule: r.Rule,
		ArgsHash: r.ArgsHash, Outcome: task.ReceiptOutcome(r.Outcome), ApprovalID: r.ApprovalID,
		StartedAt: r.StartedAt.t, FinishedAt: r.FinishedAt.t,
	}
}

// Intend stores the intent to dispatch and sets Seq, as agentloop.Store states
// it. With an approval it is used up in the same transaction, or ErrConsumed
// answers: also when it is of another run, connector, tool or argument hash, and
// then it is not burnt. ErrLost answers when the run is not running.
func (d *DB) Intend(ctx context.Context, r *task.Receipt, approval string) error {
	return wrap("store intent", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		if r.Decision != task.DecisionAllow || r.Outcome != task.ReceiptPending {
			return fmt.Errorf("an intent is allowed and has no outcome yet, not %q and %q", r.Decision, r.Outcome)
		}
		if err := mustRun(ctx, tx, r.Run); err != nil {
			return err
		}
		row := newReceiptRow(r)
		if approval != "" {
			row.ApprovalID = approval
			if err := consume(ctx, tx, approval, &row); err != nil {
				return err
			}
		}
		if err := insertReceipt(ctx, tx, &row, linkIntent); err != nil {
			return err
		}
		r.Seq, r.ApprovalID = row.Seq, row.ApprovalID
		return nil
	}))
}

// mustRun keeps a worker that lost its run from sending anything.
func mustRun(ctx context.Context, tx bun.Tx, id string) error {
	var execution string
	if err := tx.NewSelect().Table("runs").Column("execution").Where("id = ?", id).Scan(ctx, &execution); err != nil {
		return fmt.Errorf("run %s: %w", id, notFound(err))
	}
	if execution != string(task.Running) {
		return fmt.Errorf("run %s: %w: it is %s", id, ErrLost, execution)
	}
	return nil
}

func insertReceipt(ctx context.Context, tx bun.Tx, row *receiptRow, kind string) error {
	if _, err := tx.NewInsert().Model(row).Exec(ctx); err != nil {
		return err
	}
	if err := extendChain(ctx, tx, row, kind); err != nil {
		return err
	}
	return emit(ctx, tx, receiptEvent(row, row.StartedAt))
}

func receiptEvent(row *receiptRow, when stamp) eventRow {
	if when.t.IsZero() {
		when = at(time.Now())
	}
	return eventRow{At: when, Kind: string(EventReceipt), Task: row.Task, Run: row.Run, Ref: strconv.FormatInt(row.Seq, 10)}
}

// Settle stores the outcome of a receipt, the message that answers the call and
// the whole result, together. A receipt is settled once: ErrConflict answers if
// it has an outcome. Its approval becomes done, or outcome_unknown.
func (d *DB) Settle(ctx context.Context, r *task.Receipt, msg *task.Message, raw string) error {
	return wrap("settle receipt", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		var row receiptRow
		if err := tx.NewSelect().Model(&row).Where("rc.seq = ?", r.Seq).Scan(ctx); err != nil {
			return fmt.Errorf("receipt %d: %w", r.Seq, notFound(err))
		}
		if row.Outcome != string(task.ReceiptPending) {
			return fmt.Errorf("receipt %d: %w: it ended as %s", r.Seq, ErrConflict, row.Outcome)
		}
		if r.Outcome == task.ReceiptPending {
			return fmt.Errorf("receipt %d: no outcome given", r.Seq)
		}
		row.Outcome, row.FinishedAt = string(r.Outcome), at(r.FinishedAt)
		if err := settleReceipt(ctx, tx, &row); err != nil {
			return err
		}
		if raw != "" {
			if err := d.spool(ctx, tx, &row, raw); err != nil {
				return err
			}
		}
		if msg == nil {
			return nil
		}
		return storeMessage(ctx, tx, msg)
	}))
}

// settleReceipt writes the outcome that row carries.
func settleReceipt(ctx context.Context, tx bun.Tx, row *receiptRow) error {
	if row.FinishedAt.t.IsZero() {
		row.FinishedAt = at(time.Now())
	}
	_, err := tx.NewUpdate().Model(row).WherePK().Column("outcome", "finished_at").Exec(ctx)
	if err != nil {
		return err
	}
	if err := extendChain(ctx, tx, row, linkOutcome); err != nil {
		return err
	}
	if row.ApprovalID != "" {
		if err := finishApproval(ctx, tx, row); err != nil {
			return err
		}
	}
	return emit(ctx, tx, receiptEvent(row, row.FinishedAt))
}

// Refuse stores a receipt that dispatches nothing, with the message that answers
// the call or, for a parked one, the approval that is asked for.
func (d *DB) Refuse(ctx context.Context, r *task.Receipt, msg *task.Message, ask *task.Approval) error {
	return wrap("store refusal", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		if r.Outcome == task.ReceiptPending {
			return errors.New("a refused call has the outcome none, not an open one")
		}
		row := newReceiptRow(r)
		if ask != nil {
			row.ApprovalID = ask.ID
		}
		if err := insertReceipt(ctx, tx, &row, linkRefusal); err != nil {
			return err
		}
		r.Seq, r.ApprovalID = row.Seq, row.ApprovalID
		if ask != nil {
			if err := insertApproval(ctx, tx, ask); err != nil {
				return err
			}
		}
		if msg == nil {
			return nil
		}
		return storeMessage(ctx, tx, msg)
	}))
}

// RunReceipts reads the receipts of a run, oldest first.
func (d *DB) RunReceipts(ctx context.Context, run string) ([]task.Receipt, error) {
	return d.receipts(ctx, func(sel *bun.SelectQuery) { sel.Where("rc.run = ?", run).Order("rc.seq") })
}

// ReceiptFilter selects receipts for the audit.
type ReceiptFilter struct {
	Task, Run string
	// Before is a seq: only older ones follow, for paging.
	Before int64
	// Limit is 100 unless set.
	Limit int
}

// Receipts lists receipts, newest first.
func (d *DB) Receipts(ctx context.Context, f ReceiptFilter) ([]task.Receipt, error) {
	return d.receipts(ctx, func(sel *bun.SelectQuery) { f.apply(sel) })
}

func (f ReceiptFilter) apply(sel *bun.SelectQuery) {
	sel.Order("rc.seq DESC").Limit(limitOr(f.Limit))
	if f.Task != "" {
		sel.Where("rc.task = ?", f.Task)
	}
	if f.Run != "" {
		sel.Where("rc.run = ?", f.Run)
	}
	if f.Before > 0 {
		sel.Where("rc.seq < ?", f.Before)
	}
}

// Receipt reads one receipt. It answers ErrNotFound.
func (d *DB) Receipt(ctx context.Context, seq int64) (task.Receipt, error) {
	list, err := d.receipts(ctx, func(sel *bun.SelectQuery) { sel.Where("rc.seq = ?", seq) })
	if err == nil && len(list) == 0 {
		return task.Receipt{}, fmt.Errorf("receipt %d: %w", seq, ErrNotFound)
	}
	if err != nil {
		return task.Receipt{}, err
	}
	return list[0], nil
}

func (d *DB) receipts(ctx context.Context, where func(*bun.SelectQuery)) (list []task.Receipt, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []receiptRow
		sel := q.NewSelect().Model(&rows)
		where(sel)
		if err := sel.Scan(ctx); err != nil {
			return err
		}
		for i := range rows {
			list = append(list, rows[i].receipt())
		}
		return nil
	})
	return list, wrap("read receipts", err)
}

// oneRow turns an update that met no row into ErrNotFound.
func oneRow(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(ErrNotFound, err)
	}
	return nil
}
