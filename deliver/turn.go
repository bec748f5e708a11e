package deliver

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// lane is one destination of one task: its results go through it one at a time,
// in order.
type lane struct{ task, to string }

func laneOf(taskID string, to task.Delivery) lane { return lane{taskID, destination(to)} }

// destination tells destinations apart, whosever they are.
func destination(to task.Delivery) string {
	return strings.Join(append([]string{to.To, to.Path, to.URL}, to.Command...), "\x00")
}

// turn is one look at everything that is owed.
type turn struct {
	*Worker
	now    time.Time
	busy   map[place]bool               // before the store was read: what it says of them is old
	taken  map[lane]task.DeliveryRecord // its head
	newest map[lane]time.Time           // when the last result came into the lane
	next   time.Time                    // of the earliest attempt that is not due yet
}

// turn starts every attempt that is due and finishes the runs that have nothing
// left. It answers when the next attempt is due, zero if none is known.
func (w *Worker) turn(ctx, work context.Context) (time.Time, error) {
	if err := w.saveLeft(ctx); err != nil {
		return time.Time{}, err
	}
	t := &turn{Worker: w, now: time.Now(), taken: map[lane]task.DeliveryRecord{}, newest: map[lane]time.Time{}}
	w.mu.Lock()
	t.busy = maps.Clone(w.busy)
	w.mu.Unlock()
	list, err := w.opts.Store.Undelivered(ctx, maxPending)
	if err != nil {
		return t.next, err
	}
	for _, u := range list {
		t.arrived(ctx, u.Run)
	}
	for _, u := range list {
		if err := t.run(ctx, work, u); err != nil {
			return t.next, err
		}
	}
	return t.next, nil
}

// saveLeft stores the ends of attempts that the store did not take before.
func (w *Worker) saveLeft(ctx context.Context) error {
	w.mu.Lock()
	left := maps.Clone(w.unsaved)
	w.mu.Unlock()
	for p, rec := range left {
		if err := w.opts.Store.SaveDelivery(ctx, rec); err != nil {
			return err
		}
		w.mu.Lock()
		delete(w.unsaved, p)
		w.mu.Unlock()
	}
	return nil
}

// run looks at one run's destinations.
func (t *turn) run(ctx, work context.Context, u task.Undelivered) error {
	spec, err := t.spec(ctx, u.Run.Revision)
	if err != nil {
		return t.unreadable(ctx, u.Run, err)
	}
	records := complete(u, spec)
	left := 0
	for i, to := range spec.Deliver {
		rec, err := t.afterCrash(ctx, u.Run, records[i])
		if err != nil {
			return err
		}
		if records[i] = rec; rec.State.Settled() {
			continue
		}
		left++
		if rec.State == task.DestinationHeld && t.waits(ctx, rec) {
			continue // it holds up nothing behind it
		}
		l := laneOf(u.Run.Task, to)
		if head, ok := t.taken[l]; ok {
			if err := t.behind(ctx, head, rec); err != nil {
				return err
			}
			continue
		}
		t.taken[l] = rec
		t.consider(work, u.Run, spec, rec, l)
	}
	if left > 0 {
		return nil
	}
	_, err = t.finish(ctx, u.Run, records)
	return err
}

// behind records of a result that it is not there because the head of its lane is
// not: it has no attempt of its own before that. While the head is being tried
// nothing is known yet.
func (t *turn) behind(ctx context.Context, head, rec task.DeliveryRecord) error {
	t.mu.Lock()
	trying := t.busy[place{head.Run, head.Index}] || t.Worker.busy[place{head.Run, head.Index}]
	t.mu.Unlock()
	if trying || !head.Missed() || rec.Missed() {
		return nil
	}
	return t.opts.Store.SaveDelivery(ctx, waitsBehind(head, rec, t.now))
}

func waitsBehind(head, rec task.DeliveryRecord, now time.Time) task.DeliveryRecord {
	rec.UpdatedAt, rec.Error = now, "it waits behind the result of run "+head.Run+": "+head.Error
	return rec
}

// arrived notes when results came into their lanes. A clock that went back may have
// let some end in the future: those are no news.
func (t *turn) arrived(ctx context.Context, run task.Run) {
	spec, err := t.spec(ctx, run.Revision)
	if err != nil || run.FinishedAt.After(t.now) {
		return // run says what is wrong with it
	}
	for _, to := range spec.Deliver {
		if l := laneOf(run.Task, to); run.FinishedAt.After(t.newest[l]) {
			t.newest[l] = run.FinishedAt
		}
	}
}

// hurried tells whether the head of a lane is tried ahead of its plan: a result has
// come in behind it since its last attempt, or another one reached the destination.
func (t *turn) hurried(l lane, rec task.DeliveryRecord) bool {
	return rec.Attempts > 0 && (t.newest[l].After(rec.UpdatedAt) || t.reached[l.to].After(rec.UpdatedAt))
}

// consider starts an attempt for the head of a lane if it is due and there is room.
func (t *turn) consider(work context.Context, run task.Run, spec task.Task, rec task.DeliveryRecord, l lane) {
	p := place{rec.Run, rec.Index}
	t.mu.Lock()
	defer t.mu.Unlock()
	early := rec.NextAt.After(t.now) && t.hurried(l, rec)
	planned := rec.NextAt
	if early {
		rec.NextAt = time.Time{}
	}
	if held, ok := t.held[p]; ok && held.After(rec.NextAt) {
		rec.NextAt = held
	}
	switch {
	case t.busy[p] || t.Worker.busy[p]:
		return // its end wakes the worker
	case rec.NextAt.After(t.now):
		t.soonest(rec.NextAt)
		return
	case len(t.Worker.busy) >= t.opts.Parallel:
		return // one that ends wakes the worker
	}
	delete(t.held, p)
	t.Worker.busy[p] = true
	if early {
		rec.NextAt = planned
	}
	t.attempts.Go(func() { t.attempt(work, run, spec, rec) })
}

func (t *turn) soonest(at time.Time) {
	if t.next.IsZero() || at.Before(t.next) {
		t.next = at
	}
}

// afterCrash decides about an attempt that was under way when the process ended.
func (t *turn) afterCrash(ctx context.Context, run task.Run, rec task.DeliveryRecord) (task.DeliveryRecord, error) {
	if rec.State != task.DestinationSending || t.busy[place{rec.Run, rec.Index}] {
		return rec, nil
	}
	rec.UpdatedAt = t.now
	if rec.To == ToFile {
		rec.State = task.DestinationPending
		return rec, nil
	}
	rec.State = task.DestinationFailed
	rec.Error = fmt.Sprintf("attempt %d was under way when the daemon ended; whether it arrived is not known, so it is not repeated", rec.Attempts)
	if err := t.opts.Store.SaveDelivery(ctx, rec); err != nil {
		return rec, err
	}
	t.tell(run, rec)
	t.opts.Tried(run, rec)
	return rec, nil
}

// spec is the task as it stood when the run was created.
func (w *Worker) spec(ctx context.Context, revision string) (task.Task, error) {
	if spec, ok := w.specs[revision]; ok {
		return spec, nil
	}
	spec, err := w.opts.Store.Revision(ctx, revision)
	if err != nil {
		return spec, err
	}
	const most = 1000
	if len(w.specs) >= most {
		clear(w.specs)
	}
	w.specs[revision] = spec
	return spec, nil
}

// unreadable gives a run up whose task cannot be read, once its time is over.
func (t *turn) unreadable(ctx context.Context, run task.Run, cause error) error {
	t.log.Error("nothing known of where to deliver", zap.String(keyRun, run.ID), zap.Error(cause))
	if t.now.Sub(run.FinishedAt) < t.opts.GiveUp {
		t.soonest(t.now.Add(longHold))
		return nil
	}
	run = run.BeforeDelivery()
	run.Delivery, run.Reason = task.DeliveryFailed, orText(run.Reason, "not delivered: "+cause.Error())
	err := t.opts.Store.FinishDelivery(ctx, run.ID, run.Delivery, run.Reason)
	if err == nil {
		t.opts.Settled(run)
	}
	return err
}

// complete answers one record for each destination of the task, in its order.
func complete(u task.Undelivered, spec task.Task) []task.DeliveryRecord {
	records := make([]task.DeliveryRecord, len(spec.Deliver))
	for i, to := range spec.Deliver {
		records[i] = task.DeliveryRecord{Run: u.Run.ID, Index: i, To: to.To, State: task.DestinationPending}
	}
	for _, rec := range u.Records {
		if rec.Index >= 0 && rec.Index < len(records) {
			records[rec.Index] = rec
		}
	}
	return records
}

// finish sets the run's delivery fact from what its destinations came to.
func (w *Worker) finish(ctx context.Context, run task.Run, records []task.DeliveryRecord) (task.Run, error) {
	run = run.BeforeDelivery()
	run.Delivery = task.DeliveryNone
	reason := ""
	for _, rec := range records {
		switch {
		case rec.State == task.DestinationFailed:
			run.Delivery, reason = task.DeliveryFailed, orText(reason, "not delivered: "+rec.Error)
		case rec.State == task.DestinationDelivered && run.Delivery == task.DeliveryNone:
			run.Delivery = task.DeliveryDelivered
		}
	}
	run.Reason = orText(run.Reason, reason)
	if err := w.opts.Store.FinishDelivery(ctx, run.ID, run.Delivery, reason); err != nil {
		return run, err
	}
	w.opts.Settled(run)
	return run, nil
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Now makes the first attempt of each destination of a finished run while the caller
// waits, and returns the run as it stands then. Earlier results of its task come
// first, as everywhere. It is for a run in the foreground, in a process where Run does
// not run: what is not there by then is pending, and the next worker's.
func (w *Worker) Now(ctx context.Context, runID string) (task.Run, error) {
	run, err := w.opts.Store.Run(ctx, runID)
	if err != nil || run.Delivery != task.DeliveryPending || !run.Execution.Finished() {
		return run, err
	}
	list, err := w.opts.Store.Undelivered(ctx, maxPending)
	if err != nil {
		return run, err
	}
	final, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stuck := map[lane]task.DeliveryRecord{}
	for _, u := range list {
		if u.Run.Task != run.Task {
			continue
		}
		if err := w.now(ctx, final, u, stuck); err != nil {
			return run, err
		}
	}
	return w.opts.Store.Run(final, runID)
}

// now tries every destination of one run that is not settled, side by side, but those
// whose lane is stuck at an earlier result, and finishes a run with nothing left.
func (w *Worker) now(ctx, final context.Context, u task.Undelivered, stuck map[lane]task.DeliveryRecord) error {
	t := &turn{Worker: w, now: time.Now()}
	spec, err := t.spec(final, u.Run.Revision)
	if err != nil {
		return t.unreadable(final, u.Run, err)
	}
	records := complete(u, spec)
	for i := range records {
		if records[i], err = t.afterCrash(final, u.Run, records[i]); err != nil {
			return err
		}
		if head, ok := stuck[laneOf(u.Run.Task, spec.Deliver[i])]; ok && !records[i].State.Settled() {
			records[i] = waitsBehind(head, records[i], t.now)
			if err := w.opts.Store.SaveDelivery(final, records[i]); err != nil {
				return err
			}
		} else if !records[i].State.Settled() {
			w.attempts.Go(func() { records[i] = w.attempt(ctx, u.Run, spec, records[i]) })
		}
	}
	w.attempts.Wait()
	if err := w.saveLeft(final); err != nil {
		return err
	}
	left := 0
	for i, rec := range records {
		if rec.State.Settled() {
			continue
		}
		left++
		if rec.State != task.DestinationHeld { // which holds up nothing behind it
			stuck[laneOf(u.Run.Task, spec.Deliver[i])] = rec
		}
	}
	if left > 0 {
		return nil
	}
	_, err = w.finish(final, u.Run, records)
	return err
}
