// Package storetest holds what every dispatch.Store must do: a conformance test
// that each implementation runs. Only tests import it.
package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"runnerd/dispatch"
	"runnerd/task"
)

// Fixture is an empty store and the two things that a queue gets from elsewhere:
// runs from the scheduler, and what a runner writes.
type Fixture struct {
	Store dispatch.Store
	// Add inserts a queued run.
	Add func(t *testing.T, run task.Run)
	// Get reads a run.
	Get func(t *testing.T, id string) task.Run
	// Rest stores a running run as its runner leaves it: waiting on an approval,
	// interrupted, finished, or queued again for a retry.
	Rest func(t *testing.T, run task.Run, to task.Execution)
}

// Run checks the contract of dispatch.Store. open is called once for each
// subtest and answers an empty store, closed by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{
		{"empty", testEmpty},
		{"claim", testClaim},
		{"order", testOrder},
		{"not before", testNotBefore},
		{"one run per session", testSession},
		{"interrupted first", testInterruptedFirst},
		{"attempts", testAttempts},
		{"a waiting run keeps its session", testWaiting},
		{"next ready", testNextReady},
		{"recover", testRecover},
		{"cancel", testCancel},
		{"fail", testFail},
		{"claimed once", testConcurrent},
		{"concurrent sessions", testConcurrentSessions},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func queued(id, session string, notBefore time.Time) task.Run {
	return task.Run{
		ID: id, Task: session, Session: session, Revision: "spec", Due: notBefore, Trigger: task.TriggerSchedule,
		Attempt: 1, NotBefore: notBefore, Execution: task.Queued, CreatedAt: noon.Add(-time.Hour),
	}
}

func claim(t *testing.T, f Fixture, now time.Time) (task.Run, bool) {
	t.Helper()
	run, ok, err := f.Store.Claim(t.Context(), now)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return run, ok
}

// wantClaim claims one run, which must be the one named; "" means none.
func wantClaim(t *testing.T, f Fixture, now time.Time, want string) task.Run {
	t.Helper()
	run, ok := claim(t, f, now)
	if ok != (want != "") || run.ID != want {
		t.Fatalf("claimed %q (%v), want %q", run.ID, ok, want)
	}
	return run
}

func testEmpty(t *testing.T, f Fixture) {
	wantClaim(t, f, noon, "")
	if at, ok, err := f.Store.NextReady(t.Context(), noon); ok || err != nil {
		t.Errorf("next ready of an empty queue: %v %v %v", at, ok, err)
	}
	if runs, err := f.Store.Recover(t.Context(), noon); len(runs) != 0 || err != nil {
		t.Errorf("recovered from an empty queue: %v %v", runs, err)
	}
}

func testClaim(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	run := wantClaim(t, f, noon, "r1")
	if run.Execution != task.Running || run.Attempt != 1 || !run.StartedAt.Equal(noon) || run.Revision != "spec" {
		t.Errorf("claimed %+v", run)
	}
	if got := f.Get(t, "r1"); got.Execution != task.Running || !got.StartedAt.Equal(noon) {
		t.Errorf("stored %s, started %v", got.Execution, got.StartedAt)
	}
	wantClaim(t, f, noon, "")
}

func testOrder(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon.Add(2*time.Second)))
	f.Add(t, queued("r2", "b", noon))
	f.Add(t, queued("r3", "c", noon.Add(time.Second)))
	for _, want := range []string{"r2", "r3", "r1", ""} {
		wantClaim(t, f, noon.Add(time.Minute), want)
	}
}

func testNotBefore(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	wantClaim(t, f, noon.Add(-time.Microsecond), "")
	wantClaim(t, f, noon, "r1")
}

func testSession(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	f.Add(t, queued("r2", "a", noon.Add(time.Second)))
	f.Add(t, queued("r3", "b", noon.Add(2*time.Second)))
	now := noon.Add(time.Minute)
	first := wantClaim(t, f, now, "r1")
	wantClaim(t, f, now, "r3")
	wantClaim(t, f, now, "")
	f.Rest(t, first, task.Completed)
	wantClaim(t, f, now, "r2")
}

func testInterruptedFirst(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon.Add(time.Second)))
	run := wantClaim(t, f, noon.Add(time.Second), "r1")
	f.Add(t, queued("r2", "b", noon))
	f.Add(t, queued("r3", "a", noon))
	f.Rest(t, run, task.Interrupted)
	now := noon.Add(time.Minute)
	wantClaim(t, f, now, "r1")
	wantClaim(t, f, now, "r2")
	wantClaim(t, f, now, "")
}

func testAttempts(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	first := wantClaim(t, f, noon, "r1")
	f.Rest(t, first, task.Interrupted)
	second := wantClaim(t, f, noon.Add(time.Hour), "r1")
	if second.Attempt != 1 || !second.StartedAt.Equal(noon) {
		t.Errorf("A7: resumed after an orderly stop as attempt %d, started %v; want 1 and the first start", second.Attempt, second.StartedAt)
	}
	f.Rest(t, second, task.Queued)
	third := wantClaim(t, f, noon.Add(24*time.Hour), "r1")
	if third.Attempt != 2 || !third.StartedAt.Equal(noon) {
		t.Errorf("retried as attempt %d, started %v; want 2 and the first start", third.Attempt, third.StartedAt)
	}
}

// testWaiting: a run that waits holds no worker, but its transcript may end in a
// call without an answer, so that no other run may go on in its session.
func testWaiting(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	f.Add(t, queued("r2", "a", noon))
	f.Add(t, queued("r3", "b", noon))
	now := noon.Add(time.Minute)
	run, _ := claim(t, f, now)
	f.Rest(t, run, task.Waiting)
	wantClaim(t, f, now, "r3")
	wantClaim(t, f, now, "")
	if done, err := f.Store.Cancel(t.Context(), run.ID, "not needed", now); !done || err != nil {
		t.Fatalf("cancel a waiting run: %v %v", done, err)
	}
	if _, ok := claim(t, f, now); !ok {
		t.Error("the session stays closed after its waiting run was cancelled")
	}
}

func testNextReady(t *testing.T, f Fixture) {
	for i, session := range []string{"a", "b", "c"} {
		f.Add(t, queued(fmt.Sprintf("r%d", i), session, noon.Add(time.Duration(i)*time.Minute)))
	}
	for _, c := range []struct {
		now  time.Time
		want time.Time
		ok   bool
	}{
		{noon.Add(-time.Hour), noon, true},
		{noon, noon.Add(time.Minute), true},
		{noon.Add(90 * time.Second), noon.Add(2 * time.Minute), true},
		{noon.Add(2 * time.Minute), time.Time{}, false},
	} {
		at, ok, err := f.Store.NextReady(t.Context(), c.now)
		if err != nil || ok != c.ok || !at.Equal(c.want) {
			t.Errorf("next ready after %v: %v %v %v, want %v %v", c.now, at, ok, err, c.want, c.ok)
		}
	}
}

func testRecover(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	f.Add(t, queued("r2", "b", noon.Add(time.Second)))
	f.Add(t, queued("r3", "c", noon.Add(time.Hour)))
	now := noon.Add(time.Minute)
	wantClaim(t, f, now, "r1")
	wantClaim(t, f, now, "r2")
	runs, err := f.Store.Recover(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, r := range runs {
		ids = append(ids, r.ID)
		if r.Execution != task.Interrupted {
			t.Errorf("run %s was returned as %s", r.ID, r.Execution)
		}
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"r1", "r2"}) {
		t.Errorf("recovered %v, want r1 and r2", ids)
	}
	if got := f.Get(t, "r1").Execution; got != task.Interrupted {
		t.Errorf("r1 is %s", got)
	}
	if got := f.Get(t, "r3").Execution; got != task.Queued {
		t.Errorf("r3 is %s", got)
	}
	if again, err := f.Store.Recover(t.Context(), now); err != nil || len(again) != 0 {
		t.Errorf("recovered again: %v %v", again, err)
	}
	if run := wantClaim(t, f, now, "r1"); run.Attempt != 2 {
		t.Errorf("resumed as attempt %d", run.Attempt)
	}
}

func testCancel(t *testing.T, f Fixture) {
	for i, c := range []struct {
		as   task.Execution
		done bool
	}{{task.Queued, true}, {task.Running, false}, {task.Waiting, true}, {task.Interrupted, true}, {task.Completed, false}} {
		id := fmt.Sprintf("r%d", i)
		f.Add(t, queued(id, id, noon))
		if c.as != task.Queued {
			run := wantClaim(t, f, noon, id)
			if c.as != task.Running {
				f.Rest(t, run, c.as)
			}
		}
		later := noon.Add(time.Hour)
		done, err := f.Store.Cancel(t.Context(), id, "by hand", later)
		if err != nil || done != c.done {
			t.Errorf("cancel as %s: %v %v, want %v", c.as, done, err, c.done)
		}
		got := f.Get(t, id)
		if c.done && (got.Execution != task.Cancelled || got.Reason != "by hand" || !got.FinishedAt.Equal(later)) {
			t.Errorf("cancelled as %s: %s, %q, finished %v", c.as, got.Execution, got.Reason, got.FinishedAt)
		}
		if !c.done && got.Execution != c.as {
			t.Errorf("refused to cancel as %s, but it is now %s", c.as, got.Execution)
		}
	}
	if done, err := f.Store.Cancel(t.Context(), "nobody", "", noon); done || err == nil {
		t.Errorf("cancel an unknown run: %v %v", done, err)
	}
}

func testFail(t *testing.T, f Fixture) {
	f.Add(t, queued("r1", "a", noon))
	if err := f.Store.Fail(t.Context(), "r1", "panic", noon); err == nil {
		t.Error("a run that never ran was failed")
	}
	wantClaim(t, f, noon, "r1")
	if err := f.Store.Fail(t.Context(), "r1", "panic: boom", noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := f.Get(t, "r1")
	if got.Execution != task.Failed || got.Reason != "panic: boom" || !got.FinishedAt.Equal(noon.Add(time.Minute)) {
		t.Errorf("failed run: %s, %q, finished %v", got.Execution, got.Reason, got.FinishedAt)
	}
	if err := f.Store.Fail(t.Context(), "r1", "again", noon); err == nil {
		t.Error("a finished run was failed again")
	}
}

// claimAll claims with eight workers until there is nothing left.
func claimAll(t *testing.T, f Fixture) []string {
	var mu sync.Mutex
	var ids []string
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				run, ok, err := f.Store.Claim(t.Context(), noon)
				if err != nil {
					t.Error(err)
				}
				if !ok {
					return
				}
				mu.Lock()
				ids = append(ids, run.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(ids)
	return ids
}

func testConcurrent(t *testing.T, f Fixture) {
	var want []string
	for i := range 40 {
		id := fmt.Sprintf("r%02d", i)
		want = append(want, id)
		f.Add(t, queued(id, id, noon))
	}
	if got := claimAll(t, f); !slices.Equal(got, want) {
		t.Errorf("claimed %v, want each once", got)
	}
}

func testConcurrentSessions(t *testing.T, f Fixture) {
	for i := range 20 {
		f.Add(t, queued(fmt.Sprintf("r%02d", i), "one", noon))
	}
	if got := claimAll(t, f); len(got) != 1 {
		t.Errorf("%d runs of one session were claimed at once: %v", len(got), got)
	}
}
