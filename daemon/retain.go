package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"runnerd/db"
)

// Retention is applied as often as there is need, a small step at a time with a rest
// after each, so that nobody who writes waits long.
const (
	retainFirst = time.Minute
	retainStep  = 200
	retainRest  = 50 * time.Millisecond
	// retainOften and retainSeldom are the shortest and the longest pause; what is
	// kept for a short time only is looked at retainShare times within it.
	retainOften  = 10 * time.Second
	retainSeldom = time.Hour
	retainShare  = 10
	// retainMuch is how many rows at once are a sign that the pause was too long.
	retainMuch = 5000
)

// retainLongest is the longest pause that an age allows.
func retainLongest(age time.Duration) time.Duration {
	if age <= 0 {
		return retainSeldom
	}
	return min(max(age/retainShare, retainOften), retainSeldom)
}

// retainPause is the pause after one in which so many rows came together.
func retainPause(pause time.Duration, removed int) time.Duration {
	switch {
	case removed >= retainMuch:
		return max(pause/2, retainOften)
	case removed < retainMuch/4:
		return min(2*pause, retainSeldom)
	}
	return pause
}

// retain removes history that is older than `retention:` in runnerd.yaml allows,
// from both databases, and gives the room back to the disk.
func (d *Daemon) retain(ctx context.Context) error {
	pause, last := retainFirst, time.Now()
	for {
		pause = min(pause, retainLongest(d.applied.Load().Daemon.Retention.Age)) // which may have been edited
		if rest := time.Until(last.Add(pause)); rest > 0 {
			if !waitFor(ctx, min(rest, d.every)) {
				return nil
			}
			continue
		}
		removed, err := d.prune(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.Error("history not pruned", zap.Error(err))
		}
		if removed > 0 {
			d.log.Info("history pruned", zap.Int("rows", removed))
		}
		last, pause = time.Now(), retainPause(pause, removed)
	}
}

// waitFor tells whether the time passed before ctx ended.
func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// prune removes everything that is too old by now.
func (d *Daemon) prune(ctx context.Context) (removed int, err error) {
	keep := d.applied.Load().Daemon.Retention
	now := time.Now()
	for {
		n, more, err := d.main.Prune(ctx, db.Retention{Age: keep.Age, RunsPerTask: keep.Runs, SpoolBytes: keep.Results}, now, retainStep)
		removed += n
		if err != nil {
			return removed, err
		}
		if !more {
			break
		}
		if !waitFor(ctx, retainRest) {
			return removed, nil
		}
	}
	if keep.Age <= 0 {
		return removed, nil
	}
	n, err := d.rules.Prune(ctx, now.Add(-keep.Age))
	return removed + int(n), err
}
