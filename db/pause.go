package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"
)

type pauseRow struct {
	bun.BaseModel `bun:"table:pauses,alias:p"`

	Task     string `bun:"task,pk"`
	Note     string `bun:"note"`
	PausedBy string `bun:"paused_by"`
	At       stamp  `bun:"at"`
}

// Everything is the name that pauses all tasks, and under which the daemon's
// total spend is kept.
const Everything = everything

// Pause is a pause of one task, or of Everything.
type Pause struct {
	Task string    `json:"task"`
	Note string    `json:"note"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
}

// SetPause pauses a task, or Everything, until Resume. A second one replaces the
// note.
func (d *DB) SetPause(ctx context.Context, p Pause) error {
	row := &pauseRow{Task: p.Task, Note: clean(p.Note), PausedBy: clean(p.By), At: at(p.At)}
	return wrap("pause "+p.Task, d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(row).On("CONFLICT (task) DO UPDATE").
			Set("note = EXCLUDED.note").Set("paused_by = EXCLUDED.paused_by").Set("at = EXCLUDED.at").Exec(ctx)
		return err
	}))
}

// Resume ends a pause; was is false if there was none. Resuming one task does
// not touch a pause of Everything.
func (d *DB) Resume(ctx context.Context, name string) (was bool, err error) {
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.NewDelete().Table("pauses").Where("task = ?", name).Exec(ctx)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		was = n > 0
		return err
	})
	return was, wrap("resume "+name, err)
}

// Pauses lists the pauses in force.
func (d *DB) Pauses(ctx context.Context) (list []Pause, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		rows, err := selectPauses(ctx, q)
		for _, r := range rows {
			list = append(list, Pause{Task: r.Task, Note: r.Note, By: r.PausedBy, At: r.At.t})
		}
		return err
	})
	return list, wrap("read pauses", err)
}

func selectPauses(ctx context.Context, q bun.IDB) (rows []pauseRow, err error) {
	err = q.NewSelect().Model(&rows).Order("p.task").Scan(ctx)
	return rows, err
}

// pausesBy answers the notes by task. A note is never empty: it says that there
// is a pause.
func pausesBy(ctx context.Context, q bun.IDB) (map[string]string, error) {
	rows, err := selectPauses(ctx, q)
	notes := make(map[string]string, len(rows))
	for _, r := range rows {
		note := r.Note
		if note == "" {
			note = "paused"
			if r.PausedBy != "" {
				note = "paused by " + r.PausedBy
			}
		}
		notes[r.Task] = note
	}
	return notes, err
}
