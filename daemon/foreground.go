package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"runnerd/control"
	"runnerd/task"
)

// Watcher is shown a run in the foreground as it goes. It gets the whole transcript
// each time and shows what is new in it.
type Watcher interface {
	Messages(msgs []task.Message, receipts []task.Receipt)
	Trying(e task.Execution, reason string)
	Retry(at time.Time, reason string)
}

// follows is how often a run's transcript is looked at while a person watches.
const follows = 100 * time.Millisecond

// NewManual stores a run that a person started, as queued. With a script it is a
// rehearsal.
func (d *Daemon) NewManual(ctx context.Context, id string, script task.Script) (task.Run, error) {
	if err := d.kept(ctx); err != nil {
		return task.Run{}, &control.Error{Status: http.StatusServiceUnavailable, Code: control.CodeUnavailable, Message: err.Error()}
	}
	set := d.applied.Load()
	t, ok := set.Tasks[id]
	if !ok {
		return task.Run{}, control.NotFound(NoTask(set, id), "")
	}
	if t.Stale {
		d.log.Warn("last good revision is run; the file is broken", zap.String("task", id))
	}
	revision, err := d.main.SaveRevision(ctx, t.Task)
	if err != nil {
		return task.Run{}, err
	}
	now := time.Now()
	run := task.Run{
		ID: newID(), Task: id, Session: t.Task.SessionID(), Revision: revision, Due: now, Trigger: task.TriggerManual,
		Attempt: 1, NotBefore: now, Execution: task.Queued, Delivery: task.DeliveryNone, CreatedAt: now, Script: script,
	}
	return run, d.main.InsertManual(ctx, run)
}

// Recover marks what a crash left behind, once, under the state lock.
func (d *Daemon) Recover(ctx context.Context) error {
	_, err := d.main.Recover(ctx, time.Now())
	return err
}

// Finish executes a stored run to its end, over its retries, and shows it as it goes.
// A context that ends cancels the run as a person would.
func (d *Daemon) Finish(ctx context.Context, id string, w Watcher) (task.Run, error) {
	work, stop := cancellable(ctx)
	defer stop()
	for {
		run, ok, err := d.main.ClaimRun(context.WithoutCancel(ctx), id, time.Now())
		if err != nil {
			return run, err
		}
		if ok {
			err = d.execute(work, id, w)
		}
		if run, rerr := d.main.Run(context.WithoutCancel(ctx), id); err != nil || rerr != nil || run.Execution != task.Queued {
			return run, errors.Join(err, rerr)
		} else if w.Retry(run.NotBefore, run.Reason); !waitUntil(work, run.NotBefore) {
			_, err := d.main.Cancel(context.WithoutCancel(ctx), id, "interrupted by a signal", time.Now())
			if err != nil {
				return run, err
			}
		}
	}
}

// cancellable is a context that a signal cancels as a person would a run.
func cancellable(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(&task.CancelledError{Reason: "interrupted by a signal"}) })
	return work, func() { stop(); cancel(nil) }
}

// execute runs one attempt and shows the transcript as it grows.
func (d *Daemon) execute(ctx context.Context, id string, w Watcher) error {
	done := make(chan error, 1)
	go func() { done <- d.runner.Run(ctx, id) }()
	tick := time.NewTicker(follows)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, d.show(id, w))
		case <-tick.C:
			if err := d.show(id, w); err != nil {
				d.log.Warn("transcript not read", zap.Error(err))
			}
		}
	}
}

// show gives a watcher what a run's transcript has by now.
func (d *Daemon) show(id string, w Watcher) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if run, err := d.main.Run(ctx, id); err == nil {
		w.Trying(run.Execution, run.Reason)
	}
	return d.Transcript(ctx, id, w)
}

// Transcript gives a watcher a run's messages and receipts. Receipts are read before
// messages are shown, so that no message is without its receipt.
func (d *Daemon) Transcript(ctx context.Context, id string, w Watcher) error {
	msgs, err := d.main.RunMessages(ctx, id)
	if err != nil {
		return err
	}
	receipts, err := d.main.RunReceipts(ctx, id)
	if err != nil {
		return err
	}
	w.Messages(msgs, receipts)
	return nil
}

// ZoneOf is the zone of a task, else the daemon's own.
func (d *Daemon) ZoneOf(id string) *time.Location {
	if set := d.applied.Load(); set != nil {
		if zone, err := time.LoadLocation(set.Tasks[id].Task.Schedule.Zone); err == nil {
			return zone
		}
	}
	return d.zone
}

func waitUntil(ctx context.Context, at time.Time) bool { return waitFor(ctx, time.Until(at)) }
