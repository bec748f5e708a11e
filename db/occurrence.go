package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type occurrenceRow struct {
	bun.BaseModel `bun:"table:occurrences,alias:o"`

	Task             string  `bun:"task,pk"`
	Due              stamp   `bun:"due,pk"`
	ScheduleRevision string  `bun:"schedule_revision,pk"`
	Until            stamp   `bun:"until"`
	Instants         int     `bun:"instants"`
	Ending           string  `bun:"ending"`
	Reason           string  `bun:"reason"`
	RunID            *string `bun:"run_id"`
	RecordedAt       stamp   `bun:"recorded_at"`
}

func newOccurrenceRow(o task.Occurrence) occurrenceRow {
	if o.RecordedAt.IsZero() {
		o.RecordedAt = time.Now()
	}
	row := occurrenceRow{
		Task: o.Task, Due: at(o.Due), ScheduleRevision: o.ScheduleRevision, Until: at(o.Until), Instants: o.Count,
		Ending: string(o.End), Reason: clean(o.Reason), RecordedAt: at(o.RecordedAt),
	}
	if o.RunID != "" {
		row.RunID = &o.RunID
	}
	return row
}

func (r *occurrenceRow) occurrence() task.Occurrence {
	o := task.Occurrence{
		Task: r.Task, ScheduleRevision: r.ScheduleRevision, Due: r.Due.t, Until: r.Until.t, Count: r.Instants,
		End: task.End(r.Ending), Reason: r.Reason, RecordedAt: r.RecordedAt.t,
	}
	if r.RunID != nil {
		o.RunID = *r.RunID
	}
	return o
}

// insertOccurrences stores the rows that are new and answers the runs that they
// name, in the order given.
func insertOccurrences(ctx context.Context, tx bun.Tx, rows []occurrenceRow) ([]string, error) {
	inserted := map[string]bool{}
	err := inChunks(rows, func(rows []occurrenceRow) error {
		var ids []*string
		_, err := tx.NewInsert().Model(&rows).On("CONFLICT DO NOTHING").Returning("run_id").Exec(ctx, &ids)
		for _, id := range ids {
			if id != nil {
				inserted[*id] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range rows {
		if r.RunID != nil && inserted[*r.RunID] {
			ids = append(ids, *r.RunID)
		}
	}
	return ids, nil
}

// OccurrenceFilter selects occurrences of a task.
type OccurrenceFilter struct {
	// Task is required.
	Task string
	// Since and Until bound due: from, inclusive, and to, exclusive. A range row
	// is found by its first instant.
	Since, Until time.Time
	// Ends to keep.
	Ends []task.End
	// Limit is 100 unless set.
	Limit int
}

// Occurrences lists what became of a task's instants, newest first.
func (d *DB) Occurrences(ctx context.Context, f OccurrenceFilter) (list []task.Occurrence, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []occurrenceRow
		if err := occurrencesQuery(q, f, &rows).Scan(ctx); err != nil {
			return err
		}
		for i := range rows {
			list = append(list, rows[i].occurrence())
		}
		return nil
	})
	return list, wrap("list occurrences", err)
}

func occurrencesQuery(q bun.IDB, f OccurrenceFilter, rows *[]occurrenceRow) *bun.SelectQuery {
	sel := q.NewSelect().Model(rows).Where("o.task = ?", f.Task).
		Order("o.due DESC", "o.schedule_revision DESC").Limit(limitOr(f.Limit))
	if !f.Since.IsZero() {
		sel.Where("o.due >= ?", micros(f.Since))
	}
	if !f.Until.IsZero() {
		sel.Where("o.due < ?", micros(f.Until))
	}
	if len(f.Ends) > 0 {
		sel.Where("o.ending IN (?)", bun.List(f.Ends))
	}
	return sel
}

// OccurrenceAt finds the row that accounts for an instant of a task: the one due
// then, or the range that it falls into. It answers ErrNotFound.
func (d *DB) OccurrenceAt(ctx context.Context, taskID string, instant time.Time) (o task.Occurrence, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var row occurrenceRow
		err := q.NewSelect().Model(&row).Where("o.task = ? AND o.due <= ?", taskID, micros(instant)).
			Where("(o.due = ? OR o.until >= ?)", micros(instant), micros(instant)).
			Order("o.due DESC", "o.schedule_revision DESC").Limit(1).Scan(ctx)
		o = row.occurrence()
		return err
	})
	return o, wrap("find occurrence of "+taskID, err)
}
