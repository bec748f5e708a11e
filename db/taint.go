package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// taintRow is an entry of a builtin store that a run which had read untrusted text
// has written, and that no other run has replaced since.
type taintRow struct {
	bun.BaseModel `bun:"table:taints,alias:tt"`

	Entry string `bun:"entry,pk"`
	Run   string `bun:"run"`
	At    stamp  `bun:"at"`
}

// taintBatch is how many entries one statement names.
const taintBatch = 400

// Tainted returns the run that has tainted one of the entries, "" if none is.
func (d *DB) Tainted(ctx context.Context, entries []string) (run string, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		for from := 0; from < len(entries) && run == ""; from += taintBatch {
			var runs []string
			part := cleaned(entries[from:min(from+taintBatch, len(entries))])
			err := q.NewSelect().Model((*taintRow)(nil)).Column("run").Where("tt.entry IN (?)", bun.List(part)).Order("tt.entry").Limit(1).Scan(ctx, &runs)
			if err != nil {
				return err
			}
			if len(runs) > 0 {
				run = runs[0]
			}
		}
		return nil
	})
	return run, wrap("look for tainted entries", err)
}

// Touch keeps what a call of a run has changed: with tainted, what it wrote is
// tainted from now on, else what it wrote as a whole is not any more. What is moved
// takes its taint along, and what is gone has none.
func (d *DB) Touch(ctx context.Context, run string, tainted bool, t task.Touched) error {
	return wrap("store what a call has changed", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		for _, m := range t.Moved {
			if err := moveTaint(ctx, tx, clean(m.From), clean(m.To)); err != nil {
				return err
			}
			if tainted {
				t.Added = append(t.Added[:len(t.Added):len(t.Added)], m.To)
			}
		}
		for _, entry := range cleaned(t.Gone) {
			if err := dropTaint(ctx, tx, entry); err != nil {
				return err
			}
		}
		if tainted {
			return addTaint(ctx, tx, run, append(cleaned(t.Wrote), cleaned(t.Added)...))
		}
		for _, entry := range cleaned(t.Wrote) {
			if _, err := tx.NewDelete().Model((*taintRow)(nil)).Where("tt.entry = ?", entry).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
}

func cleaned(entries []string) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = clean(e)
	}
	return out
}

func addTaint(ctx context.Context, tx bun.Tx, run string, entries []string) error {
	for _, entry := range entries {
		row := &taintRow{Entry: entry, Run: run, At: at(time.Now())}
		if _, err := tx.NewInsert().Model(row).On("CONFLICT (entry) DO UPDATE").Set("run = EXCLUDED.run").Set("at = EXCLUDED.at").Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dropTaint forgets an entry and what lies below it.
func dropTaint(ctx context.Context, tx bun.Tx, entry string) error {
	_, err := tx.NewDelete().Model((*taintRow)(nil)).Where("tt.entry = ?", entry).
		WhereOr("substr(tt.entry, 1, length(?) + 1) = ? || '/'", entry, entry).Exec(ctx)
	return err
}

func moveTaint(ctx context.Context, tx bun.Tx, from, to string) error {
	if err := dropTaint(ctx, tx, to); err != nil { // nothing was there
		return err
	}
	_, err := tx.NewUpdate().Model((*taintRow)(nil)).Set("entry = ? || substr(tt.entry, length(?) + 1)", to, from).
		Where("tt.entry = ?", from).WhereOr("substr(tt.entry, 1, length(?) + 1) = ? || '/'", from, from).Exec(ctx)
	return err
}
