package deliver

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

const (
	// heldFor is how long a held result waits for a person.
	heldFor = 7 * 24 * time.Hour
	// releaseLook is after how long the worker looks at held results again if nobody
	// wakes it.
	releaseLook = 15 * time.Minute
	// maxPreview is how much of a held result a list shows, in characters.
	maxPreview = 400
)

// release tells whether a result may go to its destination now, and since when. One
// with when_tainted: hold, of a run that has read untrusted text, waits for a person's
// approval, which shows the very text that will be sent. A refusal leaves the
// destination out; without a decision in time the delivery has failed.
func (w *Worker) release(ctx context.Context, res Result, rec task.DeliveryRecord) (_ task.DeliveryRecord, since time.Time, ok bool) {
	since = res.Run.FinishedAt
	to := res.Task.Deliver[rec.Index]
	if to.WhenTainted != task.HoldTainted || !res.Run.HasMark(task.MarkUntrusted) {
		return rec, since, true
	}
	ask, err := w.opts.Store.HoldDelivery(ctx, w.question(res, rec, to))
	if err != nil {
		w.hold(rec, err)
		return rec, since, false
	}
	before := rec.State
	rec.UpdatedAt = time.Now()
	switch {
	case ask.State == task.ApprovalApproved:
		if ask.DecidedAt.After(since) {
			since = ask.DecidedAt
		}
		return rec, since, true
	case ask.State == task.ApprovalPending && ask.ExpiresAt.After(rec.UpdatedAt):
		if rec.State = task.DestinationHeld; before == rec.State {
			return rec, since, false
		}
		w.log.Warn("delivery waits for a person", zap.String(keyRun, rec.Run), zap.String("approval", ask.ID))
	case ask.State == task.ApprovalDenied:
		rec.State, rec.Error = task.DestinationSkipped, "refused by "+ask.DecidedBy
	default:
		rec.State, rec.Error = task.DestinationFailed, fmt.Sprintf("approval %s: nobody let the result go in time", ask.ID)
	}
	w.save(ctx, rec)
	return rec, since, false
}

// waits tells whether nobody has decided about a held result yet. What cannot be
// read is looked at by an attempt, which asks again.
func (t *turn) waits(ctx context.Context, rec task.DeliveryRecord) bool {
	ask, err := t.opts.Store.Approval(ctx, questionID(rec))
	if err != nil || ask.State != task.ApprovalPending || !ask.ExpiresAt.After(t.now) {
		return false
	}
	t.soonest(t.now.Add(releaseLook))
	return true
}

func questionID(rec task.DeliveryRecord) string { return fmt.Sprintf("%s-%d", rec.Run, rec.Index) }

// question is what a person is asked about one destination: its id is the same
// every time, and its arguments are the text as it will be sent.
func (w *Worker) question(res Result, rec task.DeliveryRecord, to task.Delivery) task.Approval {
	body, now := w.opts.Deliverer.message(res).text, time.Now()
	preview := []rune(fmt.Sprintf("result for %s: %s", to.To, body))
	if len(preview) > maxPreview {
		preview = append(preview[:maxPreview], '…')
	}
	return task.Approval{
		ID: questionID(rec), Run: rec.Run, Task: res.Run.Task,
		Connector: "deliver", Tool: to.To, Class: task.ClassDelivery,
		Arguments: body, ArgsHash: task.ArgsHash(body), Preview: string(preview),
		State: task.ApprovalPending, CreatedAt: now, ExpiresAt: now.Add(heldFor),
	}
}

// try makes one attempt. A file that it writes may be read through a builtin store:
// that strangers' words may be in it is on record before they are, and that none are
// any more, after.
func (w *Worker) try(ctx context.Context, res Result, index int) (again bool, err error) {
	entry, tainted := w.opts.Deliverer.entry(res, index), res.Run.HasMark(task.MarkUntrusted)
	touched := task.Touched{Wrote: []string{entry}}
	if entry != "" && tainted {
		if err := w.opts.Store.Touch(ctx, res.Run.ID, true, touched); err != nil {
			return true, err
		}
	}
	again, err = w.opts.Deliverer.Try(ctx, res, index)
	if err != nil || entry == "" || tainted {
		return again, err
	}
	if err := w.opts.Store.Touch(ctx, res.Run.ID, false, touched); err != nil {
		w.log.Warn("a clean file still counts as tainted", zap.String(keyRun, res.Run.ID), zap.Error(err))
	}
	return false, nil
}
