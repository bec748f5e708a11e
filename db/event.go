package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// Event says that something was stored, in the order in which it was: the row
// itself is read by its reference. It is written in the same transaction, so a
// reader that resumes after a Seq misses nothing.
type Event struct {
	Seq  int64     `json:"seq"`
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	Task string    `json:"task"`
	Run  string    `json:"run,omitempty"`
	// Ref is the execution of a run, the seq of a message in its session, the seq
	// of a receipt, or the id of an approval.
	Ref string `json:"ref,omitempty"`
}

// EventKind is what was stored.
type EventKind string

// The kinds of event.
const (
	EventRun      EventKind = "run"
	EventMessage  EventKind = "message"
	EventReceipt  EventKind = "receipt"
	EventApproval EventKind = "approval"
)

type eventRow struct {
	bun.BaseModel `bun:"table:events,alias:e"`

	Seq  int64  `bun:"seq,pk,autoincrement"`
	At   stamp  `bun:"at"`
	Kind string `bun:"kind"`
	Task string `bun:"task"`
	Run  string `bun:"run"`
	Ref  string `bun:"ref"`
}

func runEvent(r task.Run, when time.Time) eventRow {
	return eventRow{At: at(when), Kind: string(EventRun), Task: r.Task, Run: r.ID, Ref: string(r.Execution)}
}

func emit(ctx context.Context, tx bun.Tx, events ...eventRow) error {
	return inChunks(events, func(events []eventRow) error {
		_, err := tx.NewInsert().Model(&events).Returning("NULL").Exec(ctx)
		return err
	})
}

// EventFilter selects events.
type EventFilter struct {
	// After is the last seq that the reader has.
	After int64
	Run   string
	Task  string
	// Limit is 100 unless set.
	Limit int
}

// Events lists events, oldest first.
func (d *DB) Events(ctx context.Context, f EventFilter) (events []Event, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []eventRow
		sel := q.NewSelect().Model(&rows).Where("e.seq > ?", f.After).Order("e.seq").Limit(limitOr(f.Limit))
		if f.Run != "" {
			sel.Where("e.run = ?", f.Run)
		}
		if f.Task != "" {
			sel.Where("e.task = ?", f.Task)
		}
		if err := sel.Scan(ctx); err != nil {
			return err
		}
		for _, r := range rows {
			events = append(events, Event{Seq: r.Seq, At: r.At.t, Kind: EventKind(r.Kind), Task: r.Task, Run: r.Run, Ref: r.Ref})
		}
		return nil
	})
	return events, wrap("read events", err)
}

// LastEvent is the seq of the newest event, 0 if there is none: where a reader
// begins that wants only what comes.
func (d *DB) LastEvent(ctx context.Context) (seq int64, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return q.NewRaw("SELECT COALESCE(MAX(seq), 0) FROM events").Scan(ctx, &seq)
	})
	return seq, wrap("read last event", err)
}
