package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"runnerd/db"
)

// Retention is applied each hour, a small step at a time with a rest after each,
// so that nobody who writes waits long.
const (
	retainEvery = time.Hour
	retainFirst = time.Minute
	retainStep  = 200
	retainRest  = 50 * time.Millisecond
)

// retain removes history that is older than `retention:` in runnerd.yaml allows,
// from both databases, and gives the room back to the disk.
func (h *house) retain(ctx context.Context) error {
	for pause := retainFirst; waitFor(ctx, pause); pause = retainEvery {
		removed, err := h.prune(ctx)
		if err != nil && ctx.Err() == nil {
			h.log.Error("history not pruned", zap.Error(err))
		}
		if removed > 0 {
			h.log.Info("history pruned", zap.Int("rows", removed))
		}
	}
	return nil
}

func waitFor(ctx context.Context, d time.Duration) bool {
	return waitUntil(ctx, time.Now().Add(d))
}

// prune removes everything that is too old by now.
func (h *house) prune(ctx context.Context) (removed int, err error) {
	keep := h.applied.Load().Daemon.Retention
	now := time.Now()
	for {
		n, more, err := h.main.Prune(ctx, db.Retention{Age: keep.Age, RunsPerTask: keep.Runs, SpoolBytes: keep.Results}, now, retainStep)
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
	n, err := h.rules.Prune(ctx, now.Add(-keep.Age))
	return removed + int(n), err
}
