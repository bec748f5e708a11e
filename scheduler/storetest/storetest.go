// Package storetest holds what every scheduler.Store must do: a conformance
// test that each implementation runs, and Memory, the deterministic fake that
// the scheduler's own tests use. Only tests import it.
package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"runnerd/scheduler"
	"runnerd/task"
)

// Run checks the contract of scheduler.Store. open is called once for each
// subtest and answers an empty store, closed by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) scheduler.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, scheduler.Store)
	}{
		{"first sight", testFirstSight},
		{"nothing to do", testNothing},
		{"order", testOrder},
		{"occurrence, run and cursor", testFire},
		{"existing occurrence", testExisting},
		{"existing occurrence keeps its skip", testExistingSkip},
		{"revisions apart", testRevisions},
		{"all or nothing", testAtomic},
		{"cancelled context", testCancelledContext},
		{"cancel", testCancel},
		{"withdraw", testWithdraw},
		{"withdraw before insert", testWithdrawThenInsert},
		{"range row", testRange},
		{"U3 range row cut", testCut},
		{"U2 what ran ahead", testRan},
		{"retired", testRetired},
		{"many tasks", testMany},
		{"concurrent", testConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func run(id, taskID string, due time.Time) task.Run {
	return task.Run{
		ID: id, Task: taskID, Session: taskID, Revision: "spec", Due: due, Trigger: task.TriggerSchedule,
		Attempt: 1, NotBefore: due.Add(time.Minute), Execution: task.Queued, Delivery: task.DeliveryNone, CreatedAt: due,
	}
}

func cursor(taskID string, through time.Time) task.Cursor {
	return task.Cursor{Task: taskID, ScheduleRevision: "r1", Through: through}
}

func row(taskID string, due time.Time, end task.End, reason string) task.Occurrence {
	return task.Occurrence{
		Task: taskID, ScheduleRevision: "r1", Due: due, Count: 1, End: end, Reason: reason, RecordedAt: due,
	}
}

func runPlan(taskID, runID string, due time.Time) task.FirePlan {
	o := row(taskID, due, task.EndRun, "")
	o.RunID = runID
	c := cursor(taskID, due)
	c.LastFired = due
	return task.FirePlan{Cursor: c, Occurrences: []task.Occurrence{o}, Runs: []task.Run{run(runID, taskID, due)}}
}

func rowPlan(rows ...task.Occurrence) task.FirePlan {
	last := rows[len(rows)-1]
	return task.FirePlan{Cursor: cursor(last.Task, last.Due), Occurrences: rows}
}

// fire writes one plan for one task and returns the runs and the state seen.
func fire(t *testing.T, store scheduler.Store, id string, plan task.FirePlan) ([]task.Run, task.FireState) {
	t.Helper()
	var seen task.FireState
	runs, err := store.Fire(t.Context(), []string{id}, func(state task.FireState) task.FirePlan {
		seen = state
		return plan
	})
	if err != nil {
		t.Fatalf("Fire %s: %v", id, err)
	}
	return runs, seen
}

// look reads a task's state by a plan that changes nothing but the cursor.
func look(t *testing.T, store scheduler.Store, id string) task.FireState {
	t.Helper()
	var seen task.FireState
	_, err := store.Fire(t.Context(), []string{id}, func(state task.FireState) task.FirePlan {
		seen = state
		return task.FirePlan{Cursor: cursor(id, noon)}
	})
	if err != nil {
		t.Fatalf("Fire %s: %v", id, err)
	}
	return seen
}

func ids(runs []task.Run) []string {
	out := []string{}
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return out
}

func wantIDs(t *testing.T, what string, runs []task.Run, want ...string) {
	t.Helper()
	if got := ids(runs); !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("%s: runs %v, want %v", what, got, want)
	}
}

func wantCursor(t *testing.T, got, want task.Cursor) {
	t.Helper()
	if got.Task != want.Task || got.ScheduleRevision != want.ScheduleRevision || got.Retired != want.Retired ||
		!got.Through.Equal(want.Through) || !got.LastFired.Equal(want.LastFired) ||
		got.LastFired.IsZero() != want.LastFired.IsZero() {
		t.Errorf("cursor %+v, want %+v", got, want)
	}
}

func testFirstSight(t *testing.T, store scheduler.Store) {
	cursors, err := store.Cursors(t.Context())
	if err != nil || len(cursors) != 0 {
		t.Fatalf("an empty store has cursors %v, error %v", cursors, err)
	}
	runs, state := fire(t, store, "a", task.FirePlan{Cursor: cursor("a", noon)})
	wantIDs(t, "first sight", runs)
	if state.Task != "a" || state.Known || len(state.Active) != 0 || state.Paused != "" {
		t.Errorf("first sight: state %+v, want an unknown task without runs", state)
	}
	cursors, err = store.Cursors(t.Context())
	if err != nil || len(cursors) != 1 {
		t.Fatalf("after first sight: cursors %v, error %v", cursors, err)
	}
	wantCursor(t, cursors["a"], cursor("a", noon))
}

func testNothing(t *testing.T, store scheduler.Store) {
	runs, err := store.Fire(t.Context(), nil, func(task.FireState) task.FirePlan {
		t.Error("decide was called without a task")
		return task.FirePlan{}
	})
	if err != nil || len(runs) != 0 {
		t.Errorf("Fire of nothing: %v, %v", runs, err)
	}
}

func testOrder(t *testing.T, store scheduler.Store) {
	want := []string{"c", "a", "b"}
	var got []string
	runs, err := store.Fire(t.Context(), want, func(state task.FireState) task.FirePlan {
		got = append(got, state.Task)
		return runPlan(state.Task, "run-"+state.Task, noon)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("decide was called for %v, want %v", got, want)
	}
	wantIDs(t, "order", runs, "run-c", "run-a", "run-b")
}

func testFire(t *testing.T, store scheduler.Store) {
	plan := runPlan("a", "r-1", noon)
	runs, _ := fire(t, store, "a", plan)
	wantIDs(t, "fire", runs, "r-1")
	_, state := fire(t, store, "a", runPlan("a", "r-2", noon.Add(time.Hour)))
	if !state.Known {
		t.Error("a fired task is not known")
	}
	wantCursor(t, state.Cursor, plan.Cursor)
	wantIDs(t, "active", state.Active, "r-1")
	if len(state.Active) == 1 {
		wantRun(t, state.Active[0], plan.Runs[0])
	}
	wantIDs(t, "active, oldest first", look(t, store, "a").Active, "r-1", "r-2")
	wantIDs(t, "active of another task", look(t, store, "b").Active)
}

func wantRun(t *testing.T, got, want task.Run) {
	t.Helper()
	if got.ID != want.ID || got.Task != want.Task || got.Session != want.Session || got.Revision != want.Revision ||
		got.Trigger != want.Trigger || got.Attempt != want.Attempt || got.Execution != want.Execution ||
		!got.Due.Equal(want.Due) || !got.NotBefore.Equal(want.NotBefore) || !got.CreatedAt.Equal(want.CreatedAt) ||
		!got.StartedAt.IsZero() || !got.FinishedAt.IsZero() {
		t.Errorf("stored run %+v, want %+v", got, want)
	}
}

func testExisting(t *testing.T, store scheduler.Store) {
	fire(t, store, "a", runPlan("a", "r-1", noon))
	later := noon.Add(time.Hour)
	second := runPlan("a", "r-2", noon)
	third := runPlan("a", "r-3", later)
	second.Occurrences = append(second.Occurrences, third.Occurrences...)
	second.Runs = append(second.Runs, third.Runs...)
	second.Cursor = third.Cursor
	runs, _ := fire(t, store, "a", second)
	wantIDs(t, "only the new occurrence has a run", runs, "r-3")
	state := look(t, store, "a")
	wantIDs(t, "active", state.Active, "r-1", "r-3")
	wantCursor(t, state.Cursor, third.Cursor)
}

func testExistingSkip(t *testing.T, store scheduler.Store) {
	fire(t, store, "a", rowPlan(row("a", noon, task.EndSkipped, task.ReasonPaused)))
	runs, _ := fire(t, store, "a", runPlan("a", "r-1", noon))
	wantIDs(t, "a skipped occurrence", runs)
	wantIDs(t, "active", look(t, store, "a").Active)
}

func testRevisions(t *testing.T, store scheduler.Store) {
	fire(t, store, "a", runPlan("a", "r-1", noon))
	plan := runPlan("a", "r-2", noon)
	plan.Occurrences[0].ScheduleRevision = "r2"
	plan.Cursor.ScheduleRevision = "r2"
	runs, _ := fire(t, store, "a", plan)
	wantIDs(t, "the same due in another revision", runs, "r-2")
	runs, _ = fire(t, store, "b", runPlan("b", "r-3", noon))
	wantIDs(t, "the same due of another task", runs, "r-3")
}

func testAtomic(t *testing.T, store scheduler.Store) {
	fire(t, store, "a", runPlan("a", "taken", noon))
	later := noon.Add(time.Hour)
	plans := map[string]task.FirePlan{
		"a": runPlan("a", "new", later),
		"b": runPlan("b", "taken", later), // the id is in use: the transaction must fail
	}
	runs, err := store.Fire(t.Context(), []string{"a", "b"}, func(state task.FireState) task.FirePlan {
		return plans[state.Task]
	})
	if err == nil {
		t.Fatalf("a run id that is taken was accepted: %v", runs)
	}
	cursors, err := store.Cursors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, known := cursors["b"]; known {
		t.Error("the failed task has a cursor")
	}
	wantCursor(t, cursors["a"], runPlan("a", "taken", noon).Cursor)
	runs, state := fire(t, store, "a", runPlan("a", "again", later))
	wantIDs(t, "active after the rollback", state.Active, "taken")
	wantIDs(t, "the same occurrence again", runs, "again")
}

func testCancelledContext(t *testing.T, store scheduler.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Fire(ctx, []string{"a"}, func(task.FireState) task.FirePlan { return runPlan("a", "r-1", noon) })
	if err == nil {
		t.Error("Fire under a cancelled context: no error")
	}
	if state := look(t, store, "a"); state.Known || len(state.Active) != 0 {
		t.Errorf("Fire under a cancelled context wrote %+v", state)
	}
}

func testCancel(t *testing.T, store scheduler.Store) {
	fire(t, store, "a", runPlan("a", "r-1", noon))
	plan := runPlan("a", "r-2", noon.Add(time.Hour))
	plan.Cancel = []string{"r-1"}
	runs, _ := fire(t, store, "a", plan)
	wantIDs(t, "replace", runs, "r-2")
	wantIDs(t, "a cancelled run is not active", look(t, store, "a").Active, "r-2")
}

func testWithdraw(t *testing.T, store scheduler.Store) {
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	fire(t, store, "a", rowPlan(
		row("a", at(1), task.EndMissed, task.ReasonDown),
		row("a", at(2), task.EndMissed, task.ReasonDown),
		row("a", at(3), task.EndSkipped, task.ReasonOverlap),
	))
	fire(t, store, "a", runPlan("a", "r-4", at(4)))
	fire(t, store, "b", rowPlan(row("b", at(2), task.EndMissed, task.ReasonDown)))
	runs, _ := fire(t, store, "a", task.FirePlan{Cursor: cursor("a", at(1)), Withdraw: at(1)})
	wantIDs(t, "withdraw", runs)
	for _, c := range []struct {
		task  string
		hours int
		free  bool
	}{{"a", 1, false}, {"a", 2, true}, {"a", 3, true}, {"a", 4, false}, {"b", 2, false}} {
		id := fmt.Sprintf("again-%s-%d", c.task, c.hours)
		runs, _ := fire(t, store, c.task, runPlan(c.task, id, at(c.hours)))
		if got := len(runs) == 1; got != c.free {
			t.Errorf("task %s, +%d h: free again is %v, want %v", c.task, c.hours, got, c.free)
		}
	}
}

func testWithdrawThenInsert(t *testing.T, store scheduler.Store) {
	due := noon.Add(time.Hour)
	fire(t, store, "a", rowPlan(row("a", due, task.EndMissed, task.ReasonDown)))
	plan := runPlan("a", "r-1", due)
	plan.Withdraw = noon
	runs, _ := fire(t, store, "a", plan)
	wantIDs(t, "a plan's own rows come after its withdrawal", runs, "r-1")
}

func testRange(t *testing.T, store scheduler.Store) {
	wide := row("a", noon, task.EndMissed, task.ReasonDown)
	wide.Until, wide.Count = noon.Add(48*time.Hour), 2880
	fire(t, store, "a", rowPlan(wide))
	runs, _ := fire(t, store, "a", runPlan("a", "r-1", noon))
	wantIDs(t, "a range row holds its first due", runs)
	fire(t, store, "a", task.FirePlan{Cursor: cursor("a", noon), Withdraw: noon.Add(-time.Minute)})
	runs, _ = fire(t, store, "a", runPlan("a", "r-2", noon))
	wantIDs(t, "a range row ahead is withdrawn", runs, "r-2")
}

// testCut: a range row that reaches past the withdrawal becomes what Cut makes of it.
func testCut(t *testing.T, store scheduler.Store) {
	wide := row("a", noon, task.EndMissed, task.ReasonDown)
	wide.Until, wide.Count = noon.Add(48*time.Hour), 2880
	fire(t, store, "a", rowPlan(wide))
	var seen []task.Occurrence
	plan := task.FirePlan{Cursor: cursor("a", noon), Withdraw: noon.Add(time.Hour), Cut: func(o task.Occurrence) task.Occurrence {
		seen = append(seen, o)
		o.Until, o.Count = noon.Add(time.Hour), 61
		return o
	}}
	fire(t, store, "a", plan)
	if len(seen) != 1 || seen[0].Count != 2880 || !seen[0].Due.Equal(noon) || seen[0].Reason != task.ReasonDown {
		t.Fatalf("Cut was called for %+v", seen)
	}
	plan.Withdraw = noon.Add(30 * time.Minute)
	fire(t, store, "a", plan)
	if len(seen) != 2 || seen[1].Count != 61 || !seen[1].Until.Equal(noon.Add(time.Hour)) {
		t.Errorf("then for %+v", seen[1:])
	}
	plan.Withdraw = noon.Add(time.Hour)
	if fire(t, store, "a", plan); len(seen) != 2 {
		t.Error("and for one that ends in time")
	}
}

// testRan: the state names the runs past a cursor that went back, of any revision,
// and nothing else.
func testRan(t *testing.T, store scheduler.Store) {
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	fire(t, store, "a", runPlan("a", "r-1", at(1)))
	other := runPlan("a", "r-3", at(3))
	other.Occurrences[0].ScheduleRevision, other.Cursor.ScheduleRevision = "r0", "r0"
	fire(t, store, "a", other)
	fire(t, store, "a", runPlan("a", "r-2", at(2)))
	skipped := rowPlan(row("a", at(4), task.EndSkipped, task.ReasonOverlap))
	skipped.Cursor.LastFired = at(3)
	if _, state := fire(t, store, "a", skipped); len(state.Ran) != 0 {
		t.Errorf("ran %v past a cursor that is past all of them", state.Ran)
	}
	back := task.FirePlan{Cursor: cursor("a", at(1))}
	back.Cursor.LastFired = at(3)
	fire(t, store, "a", back)
	_, state := fire(t, store, "a", back)
	if len(state.Ran) != 2 || !state.Ran[0].Equal(at(2)) || !state.Ran[1].Equal(at(3)) {
		t.Errorf("ran %v, want those of +2 h and +3 h", state.Ran)
	}
}

func testRetired(t *testing.T, store scheduler.Store) {
	c := cursor("a", noon)
	c.Retired = true
	fire(t, store, "a", task.FirePlan{Cursor: c})
	cursors, err := store.Cursors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantCursor(t, cursors["a"], c)
	if state := look(t, store, "a"); !state.Known || !state.Cursor.Retired {
		t.Errorf("state of a retired task: %+v", state)
	}
	cursors, err = store.Cursors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantCursor(t, cursors["a"], cursor("a", noon))
}

func testMany(t *testing.T, store scheduler.Store) {
	const n = 1200
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("task-%04d", i)
	}
	runs, err := store.Fire(t.Context(), names, func(state task.FireState) task.FirePlan {
		return runPlan(state.Task, "run-"+state.Task, noon)
	})
	if err != nil || len(runs) != n {
		t.Fatalf("%d runs, error %v, want %d", len(runs), err, n)
	}
	cursors, err := store.Cursors(t.Context())
	if err != nil || len(cursors) != n {
		t.Fatalf("%d cursors, error %v, want %d", len(cursors), err, n)
	}
}

func testConcurrent(t *testing.T, store scheduler.Store) {
	const n = 8
	var wg sync.WaitGroup
	inserted := make([][]task.Run, n)
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			inserted[i], errs[i] = store.Fire(t.Context(), []string{"a"}, func(state task.FireState) task.FirePlan {
				return runPlan("a", fmt.Sprintf("r-%d", i), noon)
			})
		})
	}
	wg.Wait()
	total := 0
	for i := range n {
		if errs[i] != nil {
			t.Errorf("fire %d: %v", i, errs[i])
		}
		total += len(inserted[i])
	}
	if total != 1 {
		t.Errorf("%d runs for one occurrence fired by %d at once, want 1", total, n)
	}
}
