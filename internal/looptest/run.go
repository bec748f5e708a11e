package looptest

import (
	"context"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// Result is what a run left in the store.
type Result struct {
	Run       task.Run
	Messages  []task.Message
	Receipts  []task.Receipt
	Approvals []task.Approval
}

// Start stores a queued run of a task and claims it.
func (w *World) Start(id string) string {
	w.T.Helper()
	run := w.Queue(id)
	w.Claim(run)
	return run
}

// Queue stores a queued run of a task, started by hand.
func (w *World) Queue(id string) string {
	w.T.Helper()
	return w.QueueBy(id, task.TriggerManual)
}

// QueueBy stores a queued run of a task.
func (w *World) QueueBy(id string, trigger task.Trigger) string {
	w.T.Helper()
	t := w.tasks[id]
	now := time.Now()
	run := task.Run{
		ID: w.NewID(), Task: id, Session: t.SessionID(), Revision: w.revision[id], Due: now, Trigger: trigger,
		Attempt: 1, NotBefore: now, Execution: task.Queued, Delivery: task.DeliveryNone, CreatedAt: now,
	}
	w.must(w.Main.InsertManual(context.Background(), run))
	return run.ID
}

// Claim makes a queued or interrupted run running, as dispatch would.
func (w *World) Claim(run string) {
	w.T.Helper()
	w.ClaimAt(run, time.Now())
}

// ClaimAt is Claim at another time, for a run whose pause is over by then.
func (w *World) ClaimAt(run string, now time.Time) {
	w.T.Helper()
	_, ok, err := w.Main.ClaimRun(context.Background(), run, now)
	w.must(err)
	if !ok {
		w.T.Fatalf("run %s cannot be claimed", run)
	}
}

// Go executes a claimed run and returns what it left.
func (w *World) Go(run string) Result {
	w.T.Helper()
	w.must(w.Runner.Run(context.Background(), run))
	return w.Result(run)
}

// Run runs a task once, whole, and returns what it left.
func (w *World) Run(id string) Result {
	w.T.Helper()
	run := w.Start(id)
	w.must(w.Runner.Run(context.Background(), run))
	return w.Result(run)
}

// Resume claims a run again and executes it.
func (w *World) Resume(run string) Result {
	w.T.Helper()
	w.Claim(run)
	w.must(w.Runner.Run(context.Background(), run))
	return w.Result(run)
}

// Result reads what a run left so far.
func (w *World) Result(run string) Result {
	w.T.Helper()
	ctx := context.Background()
	var r Result
	var err error
	r.Run, err = w.Main.Run(ctx, run)
	w.must(err)
	r.Messages, err = w.Main.RunMessages(ctx, run)
	w.must(err)
	r.Receipts, err = w.Main.RunReceipts(ctx, run)
	w.must(err)
	r.Approvals, err = w.Main.RunApprovals(ctx, run)
	w.must(err)
	return r
}

// Answers are the tool messages of a run, in order.
func (r Result) Answers() []task.Message {
	var list []task.Message
	for _, m := range r.Messages {
		if m.Role == task.RoleTool {
			list = append(list, m)
		}
	}
	return list
}

// Codes are the refusal codes of a run's receipts, in order; "" for an allowed
// call.
func (r Result) Codes() []policy.Code {
	var codes []policy.Code
	for _, rc := range r.Receipts {
		codes = append(codes, policy.Code(rc.Code))
	}
	return codes
}

// Ptr returns a pointer to v, for the optional fields of policy.
func Ptr[T any](v T) *T { return &v }
