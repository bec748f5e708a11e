package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// maxReason bounds, in bytes, what a panic or an error may put into a run's
// reason.
const maxReason = 2000

// worker executes one claimed run.
type worker struct {
	run    task.Run
	cancel context.CancelCauseFunc
	// asked is the reason of the first cancellation; guarded by Pool.mu.
	asked *string
}

// start registers a claimed run and begins it. Pool.claim is held.
func (p *Pool) start(work context.Context, run task.Run) {
	ctx, cancel := context.WithCancelCause(work)
	w := &worker{run: run, cancel: cancel}
	p.mu.Lock()
	p.busy++
	p.active[run.ID] = w
	p.mu.Unlock()
	p.running.Go(func() { p.execute(ctx, work, w) })
}

// cancelWorker cancels the run if a worker has it.
func (p *Pool) cancelWorker(runID, reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.active[runID]
	if w == nil {
		return false
	}
	if w.asked == nil {
		w.asked = &reason
		p.log.Info("cancelling a run", zap.String(keyRun, runID), zap.String(keyReason, reason))
	}
	w.cancel(&task.CancelledError{Reason: *w.asked})
	return true
}

// execute takes the run to its next resting place and sees to what the runner
// could not.
func (p *Pool) execute(ctx, work context.Context, w *worker) {
	defer w.cancel(nil)
	log := p.log.With(zap.String(keyRun, w.run.ID), zap.String(keyTask, w.run.Task))
	log.Info("run started", zap.Int(keyAttempt, w.run.Attempt))
	begun := time.Now()
	err := p.attempt(ctx, w.run.ID, log)
	log.Info("run left its worker", zap.Duration(keyDuration, time.Since(begun)), zap.Error(err))
	if err != nil {
		p.settle(work, w.run.ID, err, log)
	}
	p.release(work, w, log)
}

// attempt calls the runner and turns a panic into an error.
func (p *Pool) attempt(ctx context.Context, runID string, log *zap.Logger) (err error) {
	defer func() {
		if v := recover(); v != nil {
			text := fmt.Sprint(v)
			log.Error("runner panicked", zap.String(keyPanic, text), zap.ByteString(keyStack, debug.Stack()))
			err = &panicError{text}
		}
	}()
	return p.runner.Run(ctx, runID)
}

// panicError is a runner's panic.
type panicError struct{ text string }

func (e *panicError) Error() string { return "internal error: " + e.text }

// settle fails a run whose runner gave up without recording an end, so that it
// does not hold its session for ever. A runner that was stopped by a shutdown is
// left alone: the next start recovers and resumes its run.
func (p *Pool) settle(work context.Context, runID string, cause error, log *zap.Logger) {
	var panicked *panicError
	if !errors.As(cause, &panicked) && work.Err() != nil {
		return
	}
	reason := p.redact(cause.Error())
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + " …"
	}
	p.insist(work, log, "fail the run", func() error { return p.fail(work, runID, reason) })
}

// insist repeats a write until the store takes it or the pool is stopped.
func (p *Pool) insist(work context.Context, log *zap.Logger, doing string, write func() error) {
	for failures := 1; ; failures++ {
		err := write()
		if err == nil {
			return
		}
		d := backoff(failures)
		log.Error(doing, zap.Error(err), zap.Duration(keyRetryIn, d))
		p.wait(work, d, nil)
		if p.stopping(work) {
			return
		}
	}
}

// fail ends the run in the store if it is still running there.
func (p *Pool) fail(work context.Context, runID, reason string) error {
	ctx, cancel := p.storeContext(work)
	defer cancel()
	err := p.store.Fail(ctx, runID, reason, time.Now())
	var moved *task.TransitionError
	if errors.As(err, &moved) {
		return nil // the runner did record an end
	}
	return err
}

// release frees the worker's place. A cancellation that came when the runner had
// already put its run to rest (queued for a retry, waiting, interrupted) reached
// nobody and is made good here.
func (p *Pool) release(work context.Context, w *worker, log *zap.Logger) {
	p.mu.Lock()
	p.busy--
	if p.active[w.run.ID] == w {
		delete(p.active, w.run.ID)
	}
	asked := w.asked
	p.mu.Unlock()
	p.Wake()
	if asked == nil {
		return
	}
	p.insist(work, log, "cancel the run", func() error {
		if err := p.Cancel(w.run.ID, *asked); !errors.Is(err, ErrNotActive) {
			return err
		}
		return nil
	})
}
