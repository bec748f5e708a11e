package db

import (
	"context"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// everything is the name under which the daemon's total and a pause of all tasks
// are kept; it and a project's name are that of the project's spend. No task can be
// called so.
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
	// Estimated is how many of the tokens no vendor counted.
	Estimated int64 `bun:"estimated"`
}

func newSpendRow(name, day string, u task.Usage) spendRow {
	row := spendRow{
		Task: name, Day: day, InputTokens: u.Input, OutputTokens: u.Output,
		CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Cost: costOf(u),
	}
	if u.Estimated {
		row.Estimated = u.Tokens()
	}
	return row
}

func (r spendRow) usage() task.Usage {
	u := usageOf(r.InputTokens, r.OutputTokens, r.CacheRead, r.CacheWrite, r.Cost)
	u.Estimated = r.Estimated > 0
	return u
}

// Book adds what a call cost that left no message to its run and to the days.
func (d *DB) Book(ctx context.Context, days task.Days, run string, u task.Usage) error {
	return wrap("book usage", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return book(ctx, tx, days, run, u)
	}))
}

// book adds a usage to its run and to the days of task, project and daemon. One
// that is an estimate marks the run in the same transaction.
func book(ctx context.Context, tx bun.Tx, days task.Days, run string, u task.Usage) error {
	if days.Task == "" || days.Total == "" {
		return fmt.Errorf("usage of run %s: no day to book it to", run)
	}
	var taskID, script string
	err := tx.NewRaw(`UPDATE runs SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
cache_read = cache_read + ?, cache_write = cache_write + ?,
cost = CASE WHEN CAST(? AS bigint) IS NULL THEN cost ELSE COALESCE(cost, 0) + ? END
WHERE id = ? RETURNING task, script`,
		u.Input, u.Output, u.CacheRead, u.CacheWrite, costOf(u), costOf(u), run).Scan(ctx, &taskID, &script)
	if err != nil {
		return fmt.Errorf("book usage to run %s: %w", run, notFound(err))
	}
	if u.Estimated {
		if err := markEstimated(ctx, tx, run); err != nil {
			return err
		}
	}
	if script != "" {
		return nil // a rehearsal's tokens are made up, and nobody pays them
	}
	rows := []spendRow{newSpendRow(taskID, days.Task, u), newSpendRow(everything, days.Total, u)}
	if days.Project != "" {
		rows = append(rows, newSpendRow(everything+days.Project, days.Total, u))
	}
	_, err = tx.NewInsert().Model(&rows).On("CONFLICT (task, day) DO UPDATE").
		Set("input_tokens = sp.input_tokens + EXCLUDED.input_tokens").
		Set("output_tokens = sp.output_tokens + EXCLUDED.output_tokens").
		Set("cache_read = sp.cache_read + EXCLUDED.cache_read").
		Set("cache_write = sp.cache_write + EXCLUDED.cache_write").
		Set("cost = CASE WHEN EXCLUDED.cost IS NULL THEN sp.cost ELSE COALESCE(sp.cost, 0) + EXCLUDED.cost END").
		Set("estimated = sp.estimated + EXCLUDED.estimated").
		Exec(ctx)
	return err
}

func markEstimated(ctx context.Context, tx bun.Tx, id string) error {
	run, err := selectRun(ctx, tx, id)
	if err != nil || run.HasMark(task.MarkUsageEstimated) {
		return err
	}
	run.Mark(task.MarkUsageEstimated)
	row, err := newRunRow(run)
	if err != nil {
		return err
	}
	_, err = tx.NewUpdate().Model(&row).WherePK().Column("marks").Exec(ctx)
	return err
}

// Spent is what was booked to the task on its day, and to its project and in all
// on the daemon's. What days or taskID do not name is zero.
func (d *DB) Spent(ctx context.Context, taskID string, days task.Days) (s task.DaySpend, err error) {
	project := everything + days.Project
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []spendRow
		err := q.NewSelect().Model(&rows).
			Where("(sp.task = ? AND sp.day = ?) OR (sp.task IN (?, ?) AND sp.day = ?)", taskID, days.Task, everything, project, days.Total).Scan(ctx)
		for _, r := range rows {
			switch r.Task {
			case everything:
				s.Total = r.usage()
			case project:
				s.Project = r.usage()
			default:
				s.Task = r.usage()
			}
		}
		return err
	})
	return s, wrap("read spend", err)
}

// Spend is what one task spent on one day; "*" stands for all, "*" and a name for
// a project.
type Spend struct {
	Task  string
	Day   string
	Usage task.Usage
	// Estimated is how many of the tokens no vendor counted.
	Estimated int64
}

// OfTask tells whether a task spent it, and no sum of several.
func (s Spend) OfTask() bool { return !strings.HasPrefix(s.Task, everything) }

// Spending lists what was booked from one day to another, both inclusive, by day
// and task. With a task it lists that one alone.
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
			list = append(list, Spend{Task: r.Task, Day: r.Day, Usage: r.usage(), Estimated: r.Estimated})
		}
		return nil
	})
	return list, wrap("list spend", err)
}
