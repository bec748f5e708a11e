package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"runnerd/dispatch"
	"runnerd/task"
)

// queue is a Store in memory with the semantics that Store's comments demand. It
// records what breaks them.
type queue struct {
	mu        sync.Mutex
	runs      map[string]*task.Run
	recovered bool
	faults    []string
	calls     map[string]int
	// fail, if set, is asked before each call and may refuse it.
	fail func(call string) error
}

var _ dispatch.Store = (*queue)(nil)

var errUnknown = errors.New("no such run")

func newQueue(runs ...task.Run) *queue {
	q := &queue{runs: map[string]*task.Run{}, calls: map[string]int{}}
	for _, r := range runs {
		q.add(r)
	}
	return q
}

// run is a queued run of a session, due at a time.
func run(id, session string, at time.Time) task.Run {
	return task.Run{ID: id, Task: session, Session: session, Execution: task.Queued, NotBefore: at, Attempt: 1}
}

func (q *queue) add(r task.Run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs[r.ID] = &r
}

func (q *queue) get(id string) task.Run {
	q.mu.Lock()
	defer q.mu.Unlock()
	return *q.runs[id]
}

// move is what a runner does to its run.
func (q *queue) move(id string, to task.Execution, change ...func(*task.Run)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runs[id]
	if !r.Execution.CanMove(to) {
		return &task.TransitionError{Run: id, From: r.Execution, To: to}
	}
	r.Execution = to
	for _, c := range change {
		c(r)
	}
	return nil
}

func (q *queue) faultsSeen() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.faults)
}

func (q *queue) called(call string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.calls[call]
}

func (q *queue) enter(ctx context.Context, call string) error {
	q.mu.Lock()
	q.calls[call]++
	fail := q.fail
	q.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok {
		q.fault(call + " without a deadline")
	}
	if fail != nil {
		return fail(call)
	}
	return ctx.Err()
}

func (q *queue) fault(what string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.faults = append(q.faults, what)
}

func (q *queue) Claim(ctx context.Context, now time.Time) (task.Run, bool, error) {
	if err := q.enter(ctx, "Claim"); err != nil {
		return task.Run{}, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.recovered {
		q.faults = append(q.faults, "claim before recover")
	}
	var best *task.Run
	for _, r := range q.runs {
		if q.runnable(r, now) && (best == nil || before(r, best)) {
			best = r
		}
	}
	if best == nil {
		return task.Run{}, false, nil
	}
	best.Execution = task.Running
	if best.StartedAt.IsZero() {
		best.StartedAt = now
	}
	return *best, true, nil
}

func (q *queue) runnable(r *task.Run, now time.Time) bool {
	if r.Execution != task.Interrupted && (r.Execution != task.Queued || r.NotBefore.After(now)) {
		return false
	}
	for _, other := range q.runs {
		if other.Session == r.Session && (other.Execution == task.Running || other.Execution == task.Waiting) {
			return false
		}
	}
	return true
}

func before(a, b *task.Run) bool {
	if (a.Execution == task.Interrupted) != (b.Execution == task.Interrupted) {
		return a.Execution == task.Interrupted
	}
	if !a.NotBefore.Equal(b.NotBefore) {
		return a.NotBefore.Before(b.NotBefore)
	}
	return a.ID < b.ID
}

func (q *queue) NextReady(ctx context.Context, now time.Time) (at time.Time, ok bool, err error) {
	if err := q.enter(ctx, "NextReady"); err != nil {
		return at, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.runs {
		if r.Execution == task.Queued && r.NotBefore.After(now) && (!ok || r.NotBefore.Before(at)) {
			at, ok = r.NotBefore, true
		}
	}
	return at, ok, nil
}

func (q *queue) Recover(ctx context.Context, _ time.Time) ([]task.Run, error) {
	if err := q.enter(ctx, "Recover"); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.recovered {
		q.faults = append(q.faults, "recovered twice")
	}
	q.recovered = true
	var found []task.Run
	for _, r := range q.runs {
		if r.Execution == task.Running {
			r.Execution = task.Interrupted
			r.Attempt++
			found = append(found, *r)
		}
	}
	return found, nil
}

func (q *queue) Cancel(ctx context.Context, runID, reason string, now time.Time) (bool, error) {
	if err := q.enter(ctx, "Cancel"); err != nil {
		return false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runs[runID]
	if r == nil {
		return false, errUnknown
	}
	if r.Execution == task.Running || !r.Execution.CanMove(task.Cancelled) {
		return false, nil
	}
	r.Execution, r.Reason, r.FinishedAt = task.Cancelled, reason, now
	return true, nil
}

func (q *queue) Fail(ctx context.Context, runID, reason string, now time.Time) error {
	if err := q.enter(ctx, "Fail"); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runs[runID]
	if r.Execution != task.Running {
		return &task.TransitionError{Run: runID, From: r.Execution, To: task.Failed}
	}
	r.Execution, r.Reason, r.FinishedAt = task.Failed, reason, now
	return nil
}

// runnerFunc is a Runner.
type runnerFunc func(ctx context.Context, runID string) error

func (f runnerFunc) Run(ctx context.Context, runID string) error { return f(ctx, runID) }
