package db

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// everything is the name under which the daemon's total and a pause of all tasks
// are kept. No task can be called so.
const everything = "*"

type spendRow struct {
	bun.BaseModel `bun:"table:spend,alias:sp"`

	Task         string `bun:"task,pk"`
	Day          string `bun:"day,pk"`
	InputTokens  int64  `bun:"input_tokens"`
	OutputTokens int64  `bun:"output_tokens"`
	CacheRead    int64  `bun:"cache_read"`
	CacheWrite   int64  `bun:"cache_write"`
	Cost         *int64 `bun:"cost"` // NULL while no price was known
}

func newSpendRow(name, day string, u *task.Usage) spendRow {
	return spendRow{
		Task: name, Day: day, InputTokens: u.Input, OutputTokens: u.Output,
		CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Cost: costOf(*u),
	}
}

// book adds a message's usage to its run and to both days.
func book(ctx context.Context, tx bun.Tx, days task.Days, m *task.Message) error {
	if days.Task == "" || days.Total == "" {
		return fmt.Errorf("usage of run %s: no day to book it to", m.Run)
	}
	var taskID string
	u := m.Usage
	err := tx.NewRaw(`UPDATE runs SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
cache_read = cache_read + ?, cache_write = cache_write + ?,
cost = CASE WHEN CAST(? AS bigint) IS NULL THEN cost ELSE COALESCE(cost, 0) + ? END
WHERE id = ? RETURNING task`,
		u.Input, u.Output, u.CacheRead, u.CacheWrite, costOf(*u), costOf(*u), m.Run).Scan(ctx, &taskID)
	if err != nil {
		return fmt.Errorf("book usage to run %s: %w", m.Run, notFound(err))
	}
	rows := []spendRow{newSpendRow(taskID, days.Task, u), newSpendRow(everything, days.Total, u)}
	_, err = tx.NewInsert().Model(&rows).On("CONFLICT (task, day) DO UPDATE").
		Set("input_tokens = sp.input_tokens + EXCLUDED.input_tokens").
		Set("output_tokens = sp.output_tokens + EXCLUDED.output_tokens").
		Set("cache_read = sp.cache_read + EXCLUDED.cache_read").
		Set("cache_write = sp.cache_write + EXCLUDED.cache_write").
		Set("cost = CASE WHEN EXCLUDED.cost IS NULL THEN sp.cost ELSE COALESCE(sp.cost, 0) + EXCLUDED.cost END").
		Exec(ctx)
	return err
}

// Spent is what was booked to the task on its day and in all on the daemon's.
// With an empty taskID own is zero.
func (d *DB) Spent(ctx context.Context, taskID string, days task.Days) (own, total task.Usage, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []spendRow
		err := q.NewSelect().Model(&rows).
			Where("(sp.task = ? AND sp.day = ?) OR (sp.task = ? AND sp.day = ?)", taskID, days.Task, everything, days.Total).Scan(ctx)
		for _, r := range rows {
			u := usageOf(r.InputTokens, r.OutputTokens, r.CacheRead, r.CacheWrite, r.Cost)
			if r.Task == everything {
				total = u
			} else {
				own = u
			}
		}
		return err
	})
	return own, total, wrap("read spend", err)
}

// Spend is what one task, or "*" for all, spent on one day.
type Spend struct {
	Task  string
	Day   string
	Usage task.Usage
}

// Spending lists what was booked from one day to another, both inclusive, by day
// and task. With a task it lists that one alone; the daemon's total is "*".
func (d *DB) Spending(ctx context.Context, taskID, from, to string) (list []Spend, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []spendRow
		sel := q.NewSelect().Model(&rows).Where("sp.day >= ? AND sp.day <= ?", from, to).Order("sp.day", "sp.task")
		if taskID != "" {
			sel.Where("sp.task = ?", taskID)
		}
		if err := sel.Scan(ctx); err != nil {
			return err
		}
		for _, r := range rows {
			u := usageOf(r.InputTokens, r.OutputTokens, r.CacheRead, r.CacheWrite, r.Cost)
			list = append(list, Spend{Task: r.Task, Day: r.Day, Usage: u})
		}
		return nil
	})
	return list, wrap("list spend", err)
}
