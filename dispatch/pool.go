// Package dispatch hands queued runs to a bounded pool of workers. cmd/runnerd
// starts one [Pool] beside the scheduler, which wakes it after each fire.
//
// It promises that no more than Workers runs are under way at once; that a
// claimed run always gets to its runner, whatever happens around it; that a
// panic ends one run and not the daemon; that a store that fails is asked
// again, ever more slowly; and that Run returns only when every worker is gone.
// One run per session, and the order of runs, are the store's to keep.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// Defaults of Options.
const (
	DefaultWorkers = 4
	DefaultGrace   = 20 * time.Second
)

const (
	// storeTimeout bounds each call of the store.
	storeTimeout = 15 * time.Second
	// recheck is how long the pool sleeps at most: the wall clock may have been
	// set meanwhile, which a timer does not see.
	recheck = 30 * time.Second
	// idle is how long it sleeps when nothing is queued at all, where a clock that
	// is set changes nothing; whoever enqueues wakes it. Should a wake get lost, or
	// another process have queued a run, this is how long it waits.
	idle = 5 * time.Minute
	// A failing store is asked again after backoffMin, doubled up to backoffMax.
	backoffMin = 100 * time.Millisecond
	backoffMax = 30 * time.Second
	// stillWaiting is how often a shutdown names the runs that it waits for.
	stillWaiting = 10 * time.Second
)

// Log keys.
const (
	keyRun      = "run"
	keyTask     = "task"
	keyAttempt  = "attempt"
	keyDuration = "duration"
	keyActive   = "active"
	keyReason   = "reason"
	keyPanic    = "panic"
	keyStack    = "stack"
	keyRetryIn  = "retry_in"
	keyGrace    = "grace"
)

// ErrNotActive is returned by Cancel for a run that has finished.
var ErrNotActive = errors.New("it has finished")

// Options are what a Pool needs. Store and Runner are required.
type Options struct {
	Store  Store
	Runner Runner
	// Workers is how many runs may be under way at once; 0 means DefaultWorkers.
	Workers int
	// Grace is how long runs may go on after Run's context has ended, before
	// they are cancelled; 0 means DefaultGrace, less than 0 none.
	Grace time.Duration
	// Redact, if set, is applied to the text of a panic or an error before it is
	// stored as a run's reason.
	Redact func(string) string
	Logger *zap.Logger
}

// Pool claims runs and executes them. Its methods are safe for concurrent use,
// before, during and after Run.
type Pool struct {
	store   Store
	runner  Runner
	workers int
	grace   time.Duration
	redact  func(string) string
	log     *zap.Logger

	ran atomic.Bool
	// recovered is closed once Run has recovered what a crash left behind.
	recovered chan struct{}
	wake      chan struct{} // capacity 1: something may have become runnable, or a worker free
	kill      chan struct{} // closed by Kill
	end       sync.Once     // closes kill

	// claim is held over a claim and the registration of what was claimed, and
	// over a cancellation, so that no run is between the store and active when it
	// is looked for.
	claim sync.Mutex

	mu      sync.Mutex
	busy    int                // workers at work, also while they wind up
	active  map[string]*worker // by run id
	running sync.WaitGroup
}

// New returns a pool that does nothing until Run.
func New(o Options) *Pool {
	p := &Pool{
		store: o.Store, runner: o.Runner, workers: o.Workers, grace: o.Grace,
		redact: o.Redact, log: o.Logger,
		wake: make(chan struct{}, 1), kill: make(chan struct{}), recovered: make(chan struct{}),
		active: map[string]*worker{},
	}
	if p.workers <= 0 {
		p.workers = DefaultWorkers
	}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	if p.redact == nil {
		p.redact = func(s string) string { return s }
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	return p
}

// Run first recovers what a crash left behind, then claims and executes runs.
// When ctx ends, or Kill is called, it claims no more, lets what is under way go
// on for the grace time, cancels the rest with cause task.ErrShutdown, and
// returns when all are gone. It can be called once; its only error is a second
// call.
func (p *Pool) Run(ctx context.Context) error {
	if !p.ran.CompareAndSwap(false, true) {
		return errors.New("run the pool: it was run before")
	}
	work, cancelWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelWork(nil)
	p.recoverRuns(ctx)
	p.serve(ctx, work)
	p.drain(cancelWork)
	return nil
}

// Recovered is closed once Run has recovered what a crash left behind and begins
// to claim.
func (p *Pool) Recovered() <-chan struct{} { return p.recovered }

// Wake makes the pool look for runnable runs now. It never blocks.
func (p *Pool) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Kill ends the grace time, also one that has not begun: nothing more is claimed
// and everything under way is cancelled with cause task.ErrShutdown. It does not
// wait; Run does. It may be called any number of times.
func (p *Pool) Kill() { p.end.Do(func() { close(p.kill) }) }

// Active returns the ids of the runs under way, sorted.
func (p *Pool) Active() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.active))
	for id := range p.active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Cancel ends a run: one under way has its context cancelled with a
// *task.CancelledError as cause, and its runner records the end; any other
// active one is ended in the store. The first reason counts. It returns
// ErrNotActive if there is nothing to end, or the store's error, also for a run
// that it does not know, and does not wait for the runner.
func (p *Pool) Cancel(runID, reason string) error {
	p.claim.Lock()
	defer p.claim.Unlock()
	if p.cancelWorker(runID, reason) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	done, err := p.store.Cancel(ctx, runID, reason, time.Now())
	if err != nil {
		return fmt.Errorf("cancel run %s: %w", runID, err)
	}
	if !done {
		return fmt.Errorf("cancel run %s: %w", runID, ErrNotActive)
	}
	p.log.Info("run cancelled", zap.String(keyRun, runID), zap.String(keyReason, reason))
	p.Wake() // its session may have a next run
	return nil
}

// recoverRuns tells the store that no worker survived, until it has understood.
func (p *Pool) recoverRuns(ctx context.Context) {
	for failures := 1; !p.stopping(ctx); failures++ {
		call, cancel := p.storeContext(ctx)
		runs, err := p.store.Recover(call, time.Now())
		cancel()
		if err == nil {
			close(p.recovered)
			for _, r := range runs {
				p.log.Warn("run was interrupted by a crash", zap.String(keyRun, r.ID), zap.String(keyTask, r.Task), zap.Int(keyAttempt, r.Attempt))
			}
			return
		}
		p.pause(ctx, "recover runs", failures, err)
	}
}

// serve claims runs until it is told to stop.
func (p *Pool) serve(ctx, work context.Context) {
	failures := 0
	for !p.stopping(ctx) {
		if !p.free() {
			p.wait(ctx, recheck, p.wake)
			continue
		}
		now := time.Now()
		claimed, err := p.claimOne(work, now)
		if claimed {
			failures = 0
			continue
		}
		sleep := recheck
		if err == nil {
			sleep, err = p.untilReady(ctx, now)
		}
		if err != nil {
			failures++
			p.pause(ctx, "claim a run", failures, err)
			continue
		}
		failures = 0
		p.wait(ctx, sleep, p.wake)
	}
}

// claimOne claims one run and starts its worker. The claim itself cannot be
// cancelled: one that was committed but not heard of would leave a run that
// nobody executes.
func (p *Pool) claimOne(work context.Context, now time.Time) (bool, error) {
	p.claim.Lock()
	defer p.claim.Unlock()
	call, cancel := p.storeContext(work)
	defer cancel()
	run, ok, err := p.store.Claim(call, now)
	if err != nil || !ok {
		return false, err
	}
	p.start(work, run)
	return true, nil
}

// untilReady is how long there is nothing to claim, as far as the store knows.
// now is the time for which there was nothing.
func (p *Pool) untilReady(ctx context.Context, now time.Time) (time.Duration, error) {
	call, cancel := p.storeContext(ctx)
	defer cancel()
	at, ok, err := p.store.NextReady(call, now)
	if err != nil {
		return recheck, err
	}
	if !ok {
		return idle, nil
	}
	if !at.After(now) {
		// The store says both that it is ready and that it cannot be claimed.
		return time.Second, nil
	}
	return min(max(time.Until(at), 0), recheck), nil
}

// drain waits for the workers, at first patiently.
func (p *Pool) drain(cancelWork context.CancelCauseFunc) {
	gone := make(chan struct{})
	go func() {
		p.running.Wait()
		close(gone)
	}()
	if p.graceful(gone) {
		return
	}
	p.log.Info("cancelling the runs under way", zap.Strings(keyActive, p.Active()))
	cancelWork(task.ErrShutdown)
	tick := time.NewTicker(stillWaiting)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			p.log.Warn("waiting for cancelled runs", zap.Strings(keyActive, p.Active()))
		}
	}
}

// graceful tells whether all workers went by themselves in the grace time.
func (p *Pool) graceful(gone <-chan struct{}) bool {
	if active := p.Active(); len(active) > 0 {
		p.log.Info("waiting for the runs under way", zap.Strings(keyActive, active), zap.Duration(keyGrace, max(p.grace, 0)))
	}
	grace := time.NewTimer(max(p.grace, 0))
	defer grace.Stop()
	select {
	case <-gone:
		return true
	case <-grace.C:
	case <-p.kill:
	}
	return false
}

// storeContext bounds a call of the store and keeps a shutdown from cutting it.
func (p *Pool) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// pause logs a failure of the store and sleeps; no wake shortens it.
func (p *Pool) pause(ctx context.Context, doing string, failures int, err error) {
	d := backoff(failures)
	p.log.Error(doing, zap.Error(err), zap.Duration(keyRetryIn, d))
	p.wait(ctx, d, nil)
}

// backoff is the pause after so many failures in a row, from 1.
func backoff(failures int) time.Duration {
	d := backoffMin
	for i := 1; i < failures && d < backoffMax; i++ {
		d *= 2
	}
	return min(d, backoffMax)
}

// wait sleeps for d, until a wake, or until the pool is told to stop.
func (p *Pool) wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	case <-p.kill:
	}
}

func (p *Pool) stopping(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-p.kill:
		return true
	default:
		return false
	}
}

func (p *Pool) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy < p.workers
}
