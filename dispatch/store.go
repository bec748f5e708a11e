package dispatch

import (
	"context"
	"time"

	"runnerd/task"
)

// Store is the queue of runs. The db package implements it.
type Store interface {
	// Claim moves one runnable run to running in one transaction and returns it,
	// started_at set on the first claim. Runnable: queued with not_before reached, or interrupted, and
	// no other run of its session is running. Interrupted runs come first, then
	// the oldest not_before. ok is false when there is none.
	Claim(ctx context.Context, now time.Time) (run task.Run, ok bool, err error)
	// NextReady is the earliest not_before after now among queued runs.
	NextReady(ctx context.Context, now time.Time) (at time.Time, ok bool, err error)
	// Recover is called once at start, before any claim: every run that is
	// running has no process behind it any more and becomes interrupted, its
	// attempt counted up. An orderly stop, after which a run is interrupted
	// already, is no attempt. It returns them.
	Recover(ctx context.Context, now time.Time) ([]task.Run, error)
	// Cancel ends a run that no worker holds (queued, waiting, interrupted) and
	// cancels its approvals; done is false if a worker holds it or it has
	// finished.
	Cancel(ctx context.Context, runID, reason string, now time.Time) (done bool, err error)
	// Fail ends a running run as failed, for a worker whose runner panicked.
	Fail(ctx context.Context, runID, reason string, now time.Time) error
}

// Runner executes one claimed run to its next resting place: finished, waiting,
// queued again for a retry, or interrupted. agentloop.Runner implements it. The
// error is for the log; the run's own record is the runner's job.
type Runner interface {
	Run(ctx context.Context, runID string) error
}
