package db

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runnerd/task"
)

// TestNoEndHidesAnUnknownEffect (U7, issue 7 item 3) plays random lives of a task on
// a real database: whatever kills, cancels, replaces and retracts its runs, a run at
// rest has no intent without an outcome, and one whose write or exec may have
// happened says so.
func TestNoEndHidesAnUnknownEffect(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			l := &life{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), path: filepath.Join(t.TempDir(), "runnerd.db"), now: noon}
			l.open()
			for range 80 {
				l.step()
				l.check()
			}
		})
	}
}

// life is a task whose fate is drawn.
type life struct {
	t    *testing.T
	rnd  *rand.Rand
	path string
	d    *DB
	now  time.Time
	n    int
	held *task.Run // by a worker
	did  []string
}

func (l *life) open() {
	d, err := Open(ctx, Options{DSN: l.path})
	ok(l.t, err)
	l.d = d
	l.t.Cleanup(func() { _ = d.Close() })
}

func (l *life) id(kind string) string { l.n++; return fmt.Sprintf("%s%d", kind, l.n) }

func (l *life) step() {
	l.now = l.now.Add(time.Minute)
	acts := []struct {
		name string
		do   func() error
	}{
		{"fire", l.fire}, {"manual", l.manual}, {"claim", l.claim}, {"claim", l.claim}, {"intend", l.intend}, {"intend", l.intend},
		{"intend", l.intend}, {"settle", l.settle}, {"kill", l.kill}, {"kill", l.kill}, {"cancel", l.cancel}, {"park", l.park},
		{"decide", l.decide}, {"expire", l.expire}, {"retry", l.retry}, {"end", l.end}, {"fail", l.fail}, {"refuse", l.refuse}, {"report", l.report},
	}
	act := acts[l.rnd.IntN(len(acts))]
	l.did = append(l.did, act.name)
	var moved *task.TransitionError
	var active *ActiveError
	err := act.do()
	if err != nil && !errors.As(err, &moved) && !errors.As(err, &active) && !errors.Is(err, ErrLost) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrConsumed) {
		l.t.Fatalf("%v: %v", l.did, err)
	}
}

// fire fires an instant; some replace what is active.
func (l *life) fire() error {
	replace := l.rnd.IntN(2) == 0
	_, err := l.d.Fire(ctx, []string{"brief"}, func(s task.FireState) task.FirePlan {
		p := plan("brief", l.id("r"), l.now)
		for _, r := range s.Active {
			if replace {
				p.Cancel = append(p.Cancel, r.ID)
			}
		}
		return p
	})
	return err
}

func (l *life) manual() error {
	return l.d.InsertManual(ctx, task.Run{ID: l.id("m"), Task: "brief", CreatedAt: l.now, NotBefore: l.now})
}

func (l *life) claim() error {
	if l.held != nil {
		return nil
	}
	run, got, err := l.d.Claim(ctx, l.now)
	if err == nil && got {
		l.held = &run
		if msgs := must[[]task.Message](l.t)(l.d.RunMessages(ctx, run.ID)); len(msgs) == 0 {
			err = l.d.Append(ctx, task.Days{}, userMessage(run.ID))
		}
	}
	return err
}

func (l *life) intend() error {
	if l.held == nil {
		return nil
	}
	rc := intent(l.held.ID)
	rc.CallID, rc.Class = l.id("c"), []string{"read", "write", "exec", ""}[l.rnd.IntN(4)]
	approval := ""
	for _, a := range must[[]task.Approval](l.t)(l.d.RunApprovals(ctx, l.held.ID)) {
		if a.State == task.ApprovalApproved {
			approval, rc.ArgsHash, rc.Tool = a.ID, a.ArgsHash, a.Tool
		}
	}
	return l.d.Intend(ctx, rc, approval)
}

func (l *life) settle() error {
	if l.held == nil {
		return nil
	}
	for _, rc := range must[[]task.Receipt](l.t)(l.d.RunReceipts(ctx, l.held.ID)) {
		if rc.Outcome == task.ReceiptPending {
			rc.Outcome, rc.FinishedAt = []task.ReceiptOutcome{task.ReceiptOK, task.ReceiptError, task.ReceiptUnknown}[l.rnd.IntN(3)], l.now
			return l.d.Settle(ctx, &rc, nil, "")
		}
	}
	return nil
}

// kill ends the process and starts the next one.
func (l *life) kill() error {
	ok(l.t, l.d.Close())
	l.held = nil
	l.open()
	_, err := l.d.Recover(ctx, l.now)
	return err
}

func (l *life) cancel() error {
	for _, r := range l.active() {
		if l.rnd.IntN(2) == 0 {
			if _, err := l.d.Cancel(ctx, r.ID, "by a person", l.now); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *life) active() []task.Run {
	return must[[]task.Run](l.t)(l.d.Runs(ctx, RunFilter{Active: true}))
}

func (l *life) park() error {
	if l.held == nil {
		return nil
	}
	ask := &task.Approval{ID: l.id("a"), Run: l.held.ID, Task: "brief", Connector: "files", Tool: "write_file", ArgsHash: task.ArgsHash("{}"), CreatedAt: l.now, ExpiresAt: l.now.Add(5 * time.Minute)}
	err := l.d.Refuse(ctx, &task.Receipt{Run: l.held.ID, Task: "brief", Decision: task.DecisionPark, Code: "needs_approval", Outcome: task.ReceiptNone}, nil, ask)
	if err != nil {
		return err
	}
	return l.rest(task.Waiting)
}

// rest is a worker that puts its run down without a word on its marks.
func (l *life) rest(to task.Execution) error {
	run := *l.held
	l.held = nil
	run.Execution, run.Marks = to, nil
	return l.d.Update(ctx, run)
}

func (l *life) end() error {
	if l.held == nil {
		return nil
	}
	return l.rest([]task.Execution{task.Completed, task.Failed, task.Limited, task.Cancelled, task.Interrupted}[l.rnd.IntN(5)])
}

func (l *life) fail() error {
	if l.held == nil {
		return nil
	}
	id := l.held.ID
	l.held = nil
	return l.d.Fail(ctx, id, "panic", l.now)
}

func (l *life) retry() error {
	if l.held == nil {
		return nil
	}
	run := *l.held
	l.held = nil
	run.NotBefore, run.Marks = l.now.Add(time.Minute), nil
	return l.d.Retry(ctx, run)
}

func (l *life) report() error {
	if l.held == nil {
		return nil
	}
	run := *l.held
	run.Outcome, run.Marks = task.OutcomeOK, nil
	return l.d.Update(ctx, run)
}

func (l *life) refuse() error {
	if l.held == nil {
		return nil
	}
	code := []string{"denied", "unknown_tool", "not_offered", "invalid_arguments"}[l.rnd.IntN(4)]
	return l.d.Refuse(ctx, &task.Receipt{Run: l.held.ID, Task: "brief", CallID: l.id("c"), Decision: task.DecisionDeny, Code: code, Outcome: task.ReceiptNone}, nil, nil)
}

func (l *life) decide() error {
	for _, a := range must[[]task.Approval](l.t)(l.d.Approvals(ctx, ApprovalFilter{States: []task.ApprovalState{task.ApprovalPending}})) {
		v := Verdict{ID: a.ID, State: []task.ApprovalState{task.ApprovalApproved, task.ApprovalDenied}[l.rnd.IntN(2)], By: "ann"}
		_, err := l.d.DecideApproval(ctx, v, l.now)
		return err
	}
	return nil
}

func (l *life) expire() error {
	_, err := l.d.ExpireApprovals(ctx, l.now)
	return err
}

// check holds every run against its receipts, in words of its own.
func (l *life) check() {
	l.t.Helper()
	for _, run := range must[[]task.Run](l.t)(l.d.Runs(ctx, RunFilter{Limit: 5})) {
		if run.Execution == task.Running {
			continue // its call may be under way
		}
		refused := 0
		for _, rc := range must[[]task.Receipt](l.t)(l.d.RunReceipts(ctx, run.ID)) {
			if rc.Code == "denied" || rc.Code == "not_offered" {
				refused++
			}
			switch {
			case rc.Outcome == task.ReceiptPending:
				l.t.Fatalf("%v: run %s is %s with an intent without outcome", l.did, run.ID, run.Execution)
			case rc.Outcome == task.ReceiptUnknown && rc.Class != "read" && run.Execution != task.Queued && run.Status() != task.StatusUnknown,
				rc.Outcome == task.ReceiptUnknown && rc.Class != "read" && !run.HasMark(task.MarkUnknownEffect):
				l.t.Fatalf("%v: run %s is %s (%s) with marks %v; receipt %d may have had an effect", l.did, run.ID, run.Status(), run.Execution, run.Marks, rc.Seq)
			}
		}
		if run.Refused() != refused {
			l.t.Fatalf("%v: run %s has marks %v with %d refused receipts", l.did, run.ID, run.Marks, refused)
		}
		if run.Execution.Finished() {
			l.closed(run)
		}
	}
}

// closed: a run that ended without an answer says so in the session (U11).
func (l *life) closed(run task.Run) {
	msgs := must[[]task.Message](l.t)(l.d.RunMessages(ctx, run.ID))
	if len(msgs) == 0 {
		return
	}
	last := msgs[len(msgs)-1]
	if last.Role != task.RoleAssistant || !strings.Contains(last.Notice, "without an answer") {
		l.t.Fatalf("%v: run %s is %s and its transcript ends with %+v", l.did, run.ID, run.Execution, last)
	}
}
