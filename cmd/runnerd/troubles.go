package main

import (
	"context"
	"time"

	"runnerd/control"
	"runnerd/db"
	"runnerd/task"
	"runnerd/text"
)

// troubled is `status --json`: what the daemon says of itself, and the troubles
// that are open, the oldest first.
type troubled struct {
	control.StatusView
	Troubles []task.Trouble `json:"troubles"`
}

// openTroubles reads them from the database; who may not read that is shown none.
func (a *app) openTroubles(ctx context.Context) []task.Trouble {
	list := []task.Trouble{}
	err := a.Reading(ctx, func(main *db.DB) error {
		open, err := main.OpenTroubles(ctx)
		list = append(list, open...)
		return err
	})
	if err != nil {
		return []task.Trouble{}
	}
	return list
}

func (v troubled) print(a *app) {
	for _, t := range v.Troubles {
		heard := "nobody was told; `notify:` in runnerd.yaml says whom to tell"
		if !t.ToldAt.IsZero() {
			heard = "told " + t.ToldAt.Local().Format(time.DateTime)
		}
		text.Fprintf(a.out, "trouble   %s, since %s (%s)\n", oneLine(t.Title, 120), t.OpenedAt.Local().Format(time.DateTime), heard)
	}
}

// printDeliveries shows what became of each destination of a run.
func printDeliveries(ctx context.Context, a *app, main *db.DB, run task.Run) error {
	list, err := main.Deliveries(ctx, run.ID)
	for _, d := range list {
		text.Fprintf(a.out, "delivery    %d (%s): %s after %d attempts%s", d.Index+1, d.To, d.State, d.Attempts, colonise(oneLine(d.Error, 300)))
		if !d.NextAt.IsZero() && !d.State.Settled() {
			text.Fprintf(a.out, "; again at %s", d.NextAt.Local().Format(time.DateTime))
		}
		text.Fprintf(a.out, "\n")
	}
	return err
}
