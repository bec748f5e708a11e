package db

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runnerd/task"
)

func parked(run string) *task.Receipt {
	r := intent(run)
	r.Decision, r.Outcome, r.FinishedAt = task.DecisionPark, task.ReceiptNone, noon
	return r
}

func approval(id, run string) *task.Approval {
	return &task.Approval{
		ID: id, Run: run, Task: "brief", Step: 1, CallID: "c1", Connector: "files", Tool: "write_file", Class: "write",
		Arguments: "{}\xff", ArgsHash: task.ArgsHash("{}"), Preview: "path: /x", State: task.ApprovalPending,
		CreatedAt: noon, ExpiresAt: noon.Add(time.Hour),
	}
}

// waiting is a run that is parked on the given approvals.
func waiting(t *testing.T, d *DB, ids ...string) task.Run {
	t.Helper()
	run := started(t, d, "brief", "r1")
	for _, id := range ids {
		ok(t, d.Refuse(ctx, parked("r1"), nil, approval(id, "r1")))
	}
	run.Execution = task.Waiting
	ok(t, d.Update(ctx, run))
	return run
}

func execution(t *testing.T, d *DB) task.Execution {
	t.Helper()
	return must[task.Run](t)(d.Run(ctx, "r1")).Execution
}

func TestApprovalResumesWhenTheLastIsSettled(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1", "a2")
	a := must[task.Approval](t)(d.DecideApproval(ctx, Verdict{ID: "a1", Task: "brief", State: task.ApprovalApproved, By: "ann"}, noon))
	if a.State != task.ApprovalApproved || a.DecidedBy != "ann" || a.Arguments != "{}\xff" {
		t.Errorf("decided %+v", a)
	}
	if e := execution(t, d); e != task.Waiting {
		t.Fatalf("run is %s with one approval pending", e)
	}
	must[task.Approval](t)(d.DecideApproval(ctx, Verdict{ID: "a2", State: task.ApprovalDenied, By: "bob", Reason: "no"}, noon))
	if e := execution(t, d); e != task.Queued {
		t.Fatalf("run is %s after the last decision", e)
	}
	run, got, err := d.Claim(ctx, noon)
	if err != nil || !got || run.Attempt != 1 {
		t.Errorf("claim after approval: %v, attempt %d, %v", got, run.Attempt, err)
	}
}

func TestApprovalFirstDecisionWins(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1")
	must[task.Approval](t)(d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalDenied, By: "ann"}, noon))
	a := must[task.Approval](t)(d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalApproved, By: "bob"}, noon))
	if a.State != task.ApprovalDenied || a.DecidedBy != "ann" {
		t.Errorf("second decision: %+v", a)
	}
}

func TestApprovalOfAnotherTask(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1")
	a, err := d.DecideApproval(ctx, Verdict{ID: "a1", Task: "other", State: task.ApprovalApproved}, noon)
	if !errors.Is(err, ErrNotFound) || a.ID != "" {
		t.Errorf("another task's: %+v, %v", a, err)
	}
	if _, err := d.DecideApproval(ctx, Verdict{ID: "a9", State: task.ApprovalApproved}, noon); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalConsumed}, noon); err == nil {
		t.Error("a verdict of consumed was taken")
	}
	if e := execution(t, d); e != task.Waiting {
		t.Errorf("run is %s", e)
	}
}

func TestApprovalAfterCancel(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1")
	if done, err := d.Cancel(ctx, "r1", "by hand", noon); err != nil || !done {
		t.Fatal(done, err)
	}
	a, err := d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalApproved}, noon)
	if !errors.Is(err, ErrConflict) || a.State != task.ApprovalCancelled {
		t.Errorf("approved a cancelled run: %s, %v", a.State, err)
	}
	if e := execution(t, d); e != task.Cancelled {
		t.Errorf("run is %s", e)
	}
}

func TestApprovalExpires(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1", "a2")
	if list := must[[]task.Approval](t)(d.ExpireApprovals(ctx, noon.Add(time.Hour-1))); len(list) != 0 {
		t.Fatalf("expired early: %v", list)
	}
	// One is found late by a decision, before any tick.
	a, err := d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalApproved}, noon.Add(time.Hour))
	if !errors.Is(err, ErrConflict) || a.State != task.ApprovalExpired {
		t.Errorf("late decision: %s, %v", a.State, err)
	}
	list := must[[]task.Approval](t)(d.ExpireApprovals(ctx, noon.Add(2*time.Hour)))
	if len(list) != 1 || list[0].ID != "a2" || list[0].State != task.ApprovalExpired {
		t.Errorf("expired %+v", list)
	}
	if e := execution(t, d); e != task.Queued {
		t.Errorf("run is %s", e)
	}
	// The clock goes back: still expired.
	a, err = d.DecideApproval(ctx, Verdict{ID: "a2", State: task.ApprovalApproved}, noon)
	if !errors.Is(err, ErrConflict) || a.State != task.ApprovalExpired {
		t.Errorf("after the clock went back: %s, %v", a.State, err)
	}
}

// TestApprovalSettledBeforeTheRunWaits: the decision came while the worker was
// still parking the run, which must not wait for ever.
func TestApprovalSettledBeforeTheRunWaits(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	ok(t, d.Refuse(ctx, parked("r1"), nil, approval("a1", "r1")))
	must[task.Approval](t)(d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalApproved}, noon))
	run.Execution = task.Waiting
	ok(t, d.Update(ctx, run))
	if e := execution(t, d); e != task.Queued {
		t.Errorf("run is %s", e)
	}
}

func TestConsume(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1")
	must[task.Approval](t)(d.DecideApproval(ctx, Verdict{ID: "a1", State: task.ApprovalApproved}, noon))
	if _, got, err := d.Claim(ctx, time.Now()); err != nil || !got {
		t.Fatal(got, err)
	}
	// Another argument does not fit the ticket and does not burn it.
	other := intent("r1")
	other.ArgsHash = task.ArgsHash("{ }")
	if err := d.Intend(ctx, other, "a1"); !errors.Is(err, ErrConsumed) {
		t.Fatalf("other arguments: %v", err)
	}
	if a := must[task.Approval](t)(d.Approval(ctx, "a1")); a.State != task.ApprovalApproved {
		t.Fatalf("burnt: %s", a.State)
	}
	// Eight at once: exactly one dispatch.
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch err := d.Intend(ctx, intent("r1"), "a1"); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, ErrConsumed):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		t.Errorf("won %d, lost %d", won.Load(), lost.Load())
	}
	receipts := must[[]task.Receipt](t)(d.RunReceipts(ctx, "r1"))
	rc := receipts[len(receipts)-1]
	if len(receipts) != 2 || rc.ApprovalID != "a1" {
		t.Fatalf("receipts %+v", receipts)
	}
	rc.Outcome = task.ReceiptUnknown
	ok(t, d.Settle(ctx, &rc, nil, ""))
	if a := must[task.Approval](t)(d.Approval(ctx, "a1")); a.State != task.ApprovalUnknown {
		t.Errorf("approval is %s", a.State)
	}
}

func TestSupersede(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1")
	next := approval("a2", "r1")
	ok(t, d.Supersede(ctx, "a1", next))
	if err := d.Supersede(ctx, "a1", approval("a3", "r1")); !errors.Is(err, ErrConflict) {
		t.Errorf("superseded twice: %v", err)
	}
	list := must[[]task.Approval](t)(d.RunApprovals(ctx, "r1"))
	if len(list) != 2 || list[0].State != task.ApprovalSuperseded || list[1].State != task.ApprovalPending {
		t.Errorf("approvals %+v", list)
	}
	pending := must[[]task.Approval](t)(d.Approvals(ctx, ApprovalFilter{Task: "brief", Run: "r1", States: []task.ApprovalState{task.ApprovalPending}}))
	if len(pending) != 1 || pending[0].ID != "a2" {
		t.Errorf("pending %+v", pending)
	}
	if a := must[task.Approval](t)(d.FindApproval(ctx, "a2")); a != *next {
		t.Errorf("got %+v, want %+v", a, *next)
	}
	if _, err := d.FindApproval(ctx, "a"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("prefix of two: %v", err)
	}
}
