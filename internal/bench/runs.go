package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// runTasks is how many runs are queued at once, to be worked off.
const runTasks = 3000

// throughput measures how many runs a second are finished, each with two answers
// of the model and one call of a tool over stdio, everything synced to the disk,
// while a long queue is worked off.
func throughput(ctx context.Context, b *bench) (err error) {
	place, err := b.site()
	if err != nil {
		return err
	}
	defer b.remove(place)
	due := time.Now().Add(10 * time.Second).Truncate(time.Second).UTC()
	front := "schedule: at " + due.Format("2006-01-02T15:04:05Z07:00") + "\n"
	if err := place.tasks(runTasks, func(int) string { return front }); err != nil {
		return err
	}
	d, err := place.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	store, err := place.open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := workedOff(ctx, store, due.Add(5*time.Minute)); err != nil {
		return err
	}
	use, err := d.usage()
	if err != nil {
		return err
	}
	return b.addRuns(ctx, store, use.cpu-d.startCPU)
}

// workedOff waits until runs were queued and none is active any more.
func workedOff(ctx context.Context, store *db.DB, deadline time.Time) error {
	for begun := false; ; {
		stats, err := store.Stats(ctx)
		if err != nil {
			return err
		}
		active := stats.Active[task.Queued] + stats.Active[task.Running]
		begun = begun || active > 0
		if begun && active == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d runs were still active at the end", active)
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

func (b *bench) addRuns(ctx context.Context, store *db.DB, cpu time.Duration) error {
	runs, err := store.Runs(ctx, db.RunFilter{Limit: runTasks})
	if err != nil {
		return err
	}
	var walls []time.Duration
	var first, last time.Time
	odd := 0
	for _, r := range runs {
		if r.Execution != task.Completed || r.Calls != 1 {
			odd++
		}
		if first.IsZero() || r.StartedAt.Before(first) {
			first = r.StartedAt
		}
		if r.FinishedAt.After(last) {
			last = r.FinishedAt
		}
		walls = append(walls, r.FinishedAt.Sub(r.StartedAt))
	}
	if odd > len(runs)/100 {
		return fmt.Errorf("%d of %d runs did not go by the script", odd, len(runs))
	}
	took := last.Sub(first)
	b.add("runs per second, one tool call each, synced",
		fmt.Sprintf("%.0f (%d runs in %s; %s CPU a run; a run p50 %s, p99 %s)", float64(len(runs))/took.Seconds(), len(runs), seconds(took),
			millis(cpu/time.Duration(max(1, len(runs)))), millis(quantile(walls, 0.5)), millis(quantile(walls, 0.99))), "", unjudged)
	return nil
}
