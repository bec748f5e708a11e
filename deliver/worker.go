package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// maxPending is how many undelivered runs one turn looks at.
const maxPending = 10_000

// Bounds of the worker's own writes and of its patience with the store.
const (
	finalWrite = 15 * time.Second
	storeHold  = 5 * time.Second
	longHold   = time.Minute
)

// defaultPauses add up to about ten hours.
var defaultPauses = []time.Duration{
	10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour,
}

// WorkerOptions are a Worker's settings. Deliverer and Store are required.
type WorkerOptions struct {
	Deliverer *Deliverer
	Store     Store
	// Parallel is how many attempts may be under way at once; 8.
	Parallel int
	// Pauses are between the attempts of one destination: one attempt more than
	// there are pauses. 10s, 1m, 5m, 15m, 1h, 3h and 6h unless set.
	Pauses []time.Duration
	// GiveUp is how long after its run's end, or after a person let a held result go, a
	// destination is still tried; 12 h.
	GiveUp time.Duration
	// Grace is how long attempts under way may go on after Run's context has
	// ended; 10 s.
	Grace time.Duration
	// Tried, if set, is told what became of each attempt, Settled of each run
	// whose delivery has come to an end. They must not block.
	Tried   func(run task.Run, rec task.DeliveryRecord)
	Settled func(run task.Run)
	Logger  *zap.Logger
}

// Worker delivers what finished runs owe, apart from their workers: a slow
// destination holds up nothing but later results of its own task. Each attempt
// is recorded before it is made and after it; what is pending survives a restart.
//
// A task's results reach one destination in the order in which they finished.
// What was delivered is not repeated. An attempt that a crash cut off is repeated
// for a file, which is the same afterwards; a command or a notification counts as
// failed, since it may have done its work.
type Worker struct {
	opts WorkerOptions
	log  *zap.Logger
	wake chan struct{} // capacity 1

	attempts sync.WaitGroup
	mu       sync.Mutex
	busy     map[place]bool
	unsaved  map[place]task.DeliveryRecord // attempts whose end the store did not take
	held     map[place]time.Time           // not before, since the store did not answer
	reached  map[string]time.Time          // destinations, when something arrived there last
	specs    map[string]task.Task          // by revision; only Run's goroutine
}

// place is one destination of one run.
type place struct {
	run   string
	index int
}

// NewWorker returns a Worker; it does no I/O.
func NewWorker(o WorkerOptions) *Worker {
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.GiveUp <= 0 {
		o.GiveUp = 12 * time.Hour
	}
	if o.Pauses == nil {
		o.Pauses = defaultPauses
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Tried == nil {
		o.Tried = func(task.Run, task.DeliveryRecord) {}
	}
	if o.Settled == nil {
		o.Settled = func(task.Run) {}
	}
	return &Worker{
		opts: o, log: o.Logger, wake: make(chan struct{}, 1),
		busy: map[place]bool{}, unsaved: map[place]task.DeliveryRecord{}, held: map[place]time.Time{}, reached: map[string]time.Time{}, specs: map[string]task.Task{},
	}
}

// Wake says that a run may have finished. It does not block.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends and returns when no attempt is under way. What is
// then pending is taken up by the next Run.
func (w *Worker) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for ctx.Err() == nil {
		next, err := w.turn(ctx, work)
		if err != nil && ctx.Err() == nil {
			w.log.Error("deliveries not read or written", zap.Error(err))
			next = time.Now().Add(storeHold)
		}
		w.rest(ctx, next)
	}
	grace := time.AfterFunc(w.opts.Grace, cancel)
	defer grace.Stop()
	w.attempts.Wait()
	return nil
}

// rest waits for a wake, for the next attempt's time if there is one, or for the
// end.
func (w *Worker) rest(ctx context.Context, next time.Time) {
	var due <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-w.wake:
	case <-due:
	case <-ctx.Done():
	}
}

// attempt makes one attempt and records it. The record comes before the effect:
// without it nothing is sent. One ahead of its plan, whose next_at is still to come,
// does not count if it fails: the plan goes on. It returns where the destination
// stands then.
func (w *Worker) attempt(ctx context.Context, run task.Run, spec task.Task, rec task.DeliveryRecord) task.DeliveryRecord {
	defer w.Wake()
	defer w.free(place{run.ID, rec.Index})
	res, err := w.result(ctx, run.ID, spec)
	if err != nil {
		w.hold(rec, err)
		return rec
	}
	applies, err := w.opts.Deliverer.Applies(res, rec.Index)
	if err != nil || !applies {
		rec.State, rec.UpdatedAt = task.DestinationSkipped, time.Now()
		if err != nil {
			rec.State, rec.Error = task.DestinationFailed, err.Error()
		}
		w.save(ctx, rec)
		return rec
	}
	rec, since, ok := w.release(ctx, res, rec)
	if !ok {
		return rec
	}
	planned := rec
	early := planned.NextAt.After(time.Now())
	rec.State, rec.Attempts, rec.NextAt, rec.UpdatedAt = task.DestinationSending, rec.Attempts+1, time.Time{}, time.Now()
	if err := w.opts.Store.SaveDelivery(ctx, rec); err != nil {
		w.hold(rec, err)
		return rec
	}
	again, err := w.try(ctx, res, rec.Index)
	switch {
	case early && again:
		rec.State, rec.Attempts, rec.NextAt = task.DestinationPending, planned.Attempts, planned.NextAt
		rec.Error, rec.UpdatedAt = err.Error(), time.Now()
	default:
		rec = w.judge(rec, since, again, err)
	}
	if err == nil {
		w.arrivedAt(destination(spec.Deliver[rec.Index]), rec.UpdatedAt)
	}
	w.save(ctx, rec)
	w.tell(run, rec)
	w.opts.Tried(run, rec)
	return rec
}

// maxReached bounds the destinations that are remembered.
const maxReached = 10_000

// arrivedAt notes that something arrived at a destination.
func (w *Worker) arrivedAt(to string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.reached) >= maxReached {
		clear(w.reached) // then what waits is tried as planned
	}
	w.reached[to] = at
}

// result reads what there is to deliver.
func (w *Worker) result(ctx context.Context, runID string, spec task.Task) (res Result, err error) {
	res.Task = spec
	if res.Run, err = w.opts.Store.Run(ctx, runID); err != nil {
		return res, err
	}
	res.Text = res.Run.Output
	res.Previous, res.HasPrevious, err = w.opts.Store.PreviousOutput(ctx, res.Run)
	return res, err
}

// judge says what an attempt's end means for its destination, of a result that could go
// there since an instant.
func (w *Worker) judge(rec task.DeliveryRecord, since time.Time, again bool, err error) task.DeliveryRecord {
	rec.UpdatedAt, rec.Error = time.Now(), ""
	if err == nil {
		rec.State = task.DestinationDelivered
		return rec
	}
	rec.State, rec.Error = task.DestinationFailed, err.Error()
	if !again {
		return rec
	}
	if rec.Attempts <= len(w.opts.Pauses) {
		next := rec.UpdatedAt.Add(w.opts.Pauses[rec.Attempts-1])
		if next.Sub(since) <= w.opts.GiveUp {
			rec.State, rec.NextAt = task.DestinationPending, next
			return rec
		}
	}
	rec.Error = fmt.Sprintf("given up after %d attempts: %s", rec.Attempts, rec.Error)
	return rec
}

// save stores the end of an attempt, also while the worker is being stopped. What
// the store does not take is kept and stored by a later turn: it is not sent again.
func (w *Worker) save(ctx context.Context, rec task.DeliveryRecord) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalWrite)
	defer cancel()
	if err := w.opts.Store.SaveDelivery(ctx, rec); err != nil {
		w.log.Error("end of a delivery not stored", zap.String(keyRun, rec.Run), zap.Int(keyIndex, rec.Index), zap.Error(err))
		w.mu.Lock()
		w.unsaved[place{rec.Run, rec.Index}] = rec
		w.mu.Unlock()
	}
}

func (w *Worker) free(p place) {
	w.mu.Lock()
	delete(w.busy, p)
	w.mu.Unlock()
}

// hold leaves a destination alone for a while: the store did not answer, so
// nothing was sent.
func (w *Worker) hold(rec task.DeliveryRecord, err error) {
	w.log.Error("delivery put off", zap.String(keyRun, rec.Run), zap.Int(keyIndex, rec.Index), zap.Error(err))
	w.mu.Lock()
	w.held[place{rec.Run, rec.Index}] = time.Now().Add(storeHold)
	w.mu.Unlock()
}

func (w *Worker) tell(run task.Run, rec task.DeliveryRecord) {
	fields := []zap.Field{
		zap.String(keyTask, run.Task), zap.String(keyRun, run.ID), zap.String(keyTo, rec.To),
		zap.Int(keyIndex, rec.Index), zap.Int(keyAttempts, rec.Attempts),
	}
	switch rec.State {
	case task.DestinationDelivered:
		w.log.Info("delivered", fields...)
	case task.DestinationPending:
		w.log.Warn("delivery will be tried again", append(fields, zap.Time("next_at", rec.NextAt), zap.Error(errors.New(rec.Error)))...)
	case task.DestinationFailed:
		w.log.Warn("delivery failed", append(fields, zap.Error(errors.New(rec.Error)))...)
	}
}
