package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type troubleRow struct {
	bun.BaseModel `bun:"table:troubles,alias:tr"`

	Name      string `bun:"name,pk"`
	Event     string `bun:"event"`
	Title     string `bun:"title"`
	Body      string `bun:"body"`
	OpenedAt  stamp  `bun:"opened_at"`
	ToldAt    stamp  `bun:"told_at"`
	ClearedAt stamp  `bun:"cleared_at"` // NULL exactly while it is open
	Ending    string `bun:"ending"`
	EndToldAt stamp  `bun:"end_told_at"`
}

// Troubles lists the troubles that are open, or that are over and whose end
// nobody was told of yet; the oldest first.
func (d *DB) Troubles(ctx context.Context) ([]task.Trouble, error) {
	return d.troubles(ctx, "tr.cleared_at IS NULL OR (tr.told_at IS NOT NULL AND tr.end_told_at IS NULL)")
}

// OpenTroubles lists the troubles that are open, the oldest first.
func (d *DB) OpenTroubles(ctx context.Context) ([]task.Trouble, error) {
	return d.troubles(ctx, "tr.cleared_at IS NULL")
}

func (d *DB) troubles(ctx context.Context, where string) (list []task.Trouble, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []troubleRow
		err := q.NewSelect().Model(&rows).Where(where).Order("tr.opened_at", "tr.name").Scan(ctx)
		for _, r := range rows {
			list = append(list, task.Trouble{
				Key: r.Name, Event: r.Event, Title: r.Title, Text: r.Body, OpenedAt: r.OpenedAt.t,
				ToldAt: r.ToldAt.t, ClearedAt: r.ClearedAt.t, Ending: r.Ending, EndToldAt: r.EndToldAt.t,
			})
		}
		return err
	})
	return list, wrap("read troubles", err)
}

// SaveTrouble stores a trouble as it stands; a new one takes the place of an
// older one of its key.
func (d *DB) SaveTrouble(ctx context.Context, t task.Trouble) error {
	row := &troubleRow{
		Name: t.Key, Event: t.Event, Title: clean(t.Title), Body: clean(t.Text), OpenedAt: at(t.OpenedAt),
		ToldAt: at(t.ToldAt), ClearedAt: at(t.ClearedAt), Ending: clean(t.Ending), EndToldAt: at(t.EndToldAt),
	}
	return wrap("store trouble "+t.Key, d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(row).On("CONFLICT (name) DO UPDATE").
			Set("event = EXCLUDED.event").Set("title = EXCLUDED.title").Set("body = EXCLUDED.body").
			Set("opened_at = EXCLUDED.opened_at").Set("told_at = EXCLUDED.told_at").
			Set("cleared_at = EXCLUDED.cleared_at").Set("ending = EXCLUDED.ending").Set("end_told_at = EXCLUDED.end_told_at").Exec(ctx)
		return err
	}))
}

func (d *DB) pruneTroubles(ctx context.Context, cutoff time.Time, limit int) (int, error) {
	names, err := find[string](ctx, d, func(q bun.IDB) *bun.SelectQuery {
		return q.NewSelect().Table("troubles").Column("name").Where("cleared_at < ?", micros(cutoff)).Order("cleared_at").Limit(int64(limit))
	})
	if err != nil || len(names) == 0 {
		return 0, err
	}
	return len(names), d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewDelete().Table("troubles").Where("name IN (?) AND cleared_at < ?", bun.List(names), micros(cutoff)).Exec(ctx)
		return err
	})
}
