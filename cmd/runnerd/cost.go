package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"runnerd/db"
	"runnerd/text"
)

type costCmd struct {
	Task  string `help:"Of one task." placeholder:"TASK"`
	Since string `help:"From this day on; default: 30 days ago." placeholder:"YYYY-MM-DD"`
	JSON  bool   `help:"Print JSON."`
}

// Help says what a day is.
func (costCmd) Help() string {
	return "What was spent, per day and task. A day is the task's own, in its time zone. Where a model has no price in models.yaml the cost is not known, which is not 0. What a vendor did not count is estimated, and said to be."
}

// costRow is one line of `cost --json`. Cost is absent where no price was known.
type costRow struct {
	Day        string   `json:"day"`
	Task       string   `json:"task"`
	Tokens     int64    `json:"tokens"`
	Input      int64    `json:"input"`
	Output     int64    `json:"output"`
	CacheRead  int64    `json:"cache_read,omitempty"`
	CacheWrite int64    `json:"cache_write,omitempty"`
	Cost       *float64 `json:"cost,omitempty"`
	// Estimated is how many of the tokens no vendor counted; the cost is an estimate
	// then.
	Estimated int64 `json:"estimated,omitempty"`
}

// costDays is how far back `cost` looks unless told.
const costDays = 30

func (c costCmd) Run(ctx context.Context, a *app) error {
	from := c.Since
	if from == "" {
		from = time.Now().AddDate(0, 0, -costDays).Format(time.DateOnly)
	}
	if _, err := time.Parse(time.DateOnly, from); err != nil {
		return usage("--since is %q; expected a day such as 2026-05-04", c.Since)
	}
	rows := []costRow{}
	var sum db.Spend
	err := a.Reading(ctx, func(main *db.DB) error {
		// A zone may be a day ahead.
		list, err := main.Spending(ctx, c.Task, from, time.Now().AddDate(0, 0, 1).Format(time.DateOnly))
		for _, s := range list {
			if !s.OfTask() {
				continue // a project's or the daemon's sum would count twice
			}
			rows = append(rows, newCostRow(s))
			sum.Usage = sum.Usage.Add(s.Usage)
			sum.Estimated += s.Estimated
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, rows)
	}
	if len(rows) == 0 {
		text.Fprintf(a.out, "nothing was spent since %s\n", from)
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "DAY\tTASK\tTOKENS\tCOST\n")
	for _, r := range rows {
		text.Fprintf(w, "%s\t%s\t%d\t%s\n", r.Day, r.Task, r.Tokens, r.price())
	}
	total := newCostRow(sum)
	text.Fprintf(w, "total\t\t%d\t%s\n", total.Tokens, total.price())
	return w.Flush()
}

func newCostRow(s db.Spend) costRow {
	row := costRow{
		Day: s.Day, Task: s.Task, Tokens: s.Usage.Tokens(), Input: s.Usage.Input, Output: s.Usage.Output,
		CacheRead: s.Usage.CacheRead, CacheWrite: s.Usage.CacheWrite, Estimated: s.Estimated,
	}
	if s.Usage.Cost != nil {
		cost := s.Usage.Cost.Float()
		row.Cost = &cost
	}
	return row
}

// price is the cost as people read it, with what of it is an estimate.
func (r costRow) price() string {
	text := "unknown"
	if r.Cost != nil {
		text = fmt.Sprintf("%.4f", *r.Cost)
	}
	if r.Estimated > 0 {
		text += fmt.Sprintf(" (estimate: no vendor counted %d of the tokens)", r.Estimated)
	}
	return text
}
