package db

import (
	"testing"
	"time"

	"runnerd/task"
)

// rehearsed makes a rehearsal of a task and ends it so, with a delivery owed.
func rehearsed(t *testing.T, d *DB, name, id string, at time.Time) task.Run {
	t.Helper()
	ok(t, d.InsertManual(ctx, task.Run{ID: id, Task: name, Session: name, Due: at, NotBefore: at, CreatedAt: at, Script: task.Script{Name: "s.yaml", Text: "turns: []"}}))
	run, got, err := d.ClaimRun(ctx, id, at)
	if err != nil || !got {
		t.Fatalf("claim %s: %v %v", id, got, err)
	}
	ok(t, d.Append(ctx, days("2026-05-04"), &task.Message{Session: run.Session, Run: id, Role: task.RoleUser, Text: "Do it.", At: at},
		&task.Message{Session: run.Session, Run: id, Step: 1, Role: task.RoleAssistant, Text: "made up", Usage: &task.Usage{Input: 900, Output: 40}, At: at}))
	run.Execution, run.FinishedAt, run.Output, run.Delivery, run.Marks = task.Failed, at.Add(time.Second), "made up", task.DeliveryPending, nil
	ok(t, d.Update(ctx, run))
	return must[task.Run](t)(d.Run(ctx, id))
}

// TestRehearsalsCountForNothing holds F10 at the store: whatever is asked about how a
// task does, or what it may still do, is as if the rehearsal had not been.
func TestRehearsalsCountForNothing(t *testing.T) {
	d := openTest(t, Options{})
	real := ended(t, d, "a", "r1", noon, task.Completed, "one", task.DeliveryNone)
	run := rehearsed(t, d, "a", "r2", noon.Add(time.Minute))

	if !run.Rehearsal() || run.Session == "a" || run.Delivery != task.DeliveryNone || run.Script.Name != "s.yaml" || run.Usage.Input != 900 {
		t.Errorf("rehearsal: %+v", run)
	}
	if listed := must[[]task.Run](t)(d.Runs(ctx, RunFilter{Task: "a"})); len(listed) != 2 || !listed[0].Rehearsal() || listed[0].Script.Text != "" {
		t.Errorf("listed: %+v", listed)
	}
	if last := must[map[string]task.Run](t)(d.LastRuns(ctx)); last["a"].ID != real.ID {
		t.Errorf("last run is %s", last["a"].ID)
	}
	if last := must[map[string]task.Run](t)(d.LastFinished(ctx)); last["a"].ID != real.ID {
		t.Errorf("last finished run is %s", last["a"].ID)
	}
	if n := must[int64](t)(d.RunsBetween(ctx, noon.Add(-time.Hour), noon.Add(time.Hour), "a")); n != 1 {
		t.Errorf("%d runs of the day, want 1", n)
	}
	if spent := must[task.DaySpend](t)(d.Spent(ctx, "a", days("2026-05-04"))); spent.Task.Tokens() != 0 || spent.Total.Tokens() != 0 {
		t.Errorf("booked: %+v", spent)
	}
	if _, err := d.Session(ctx, "a"); err == nil {
		t.Error("the task's session has messages of a rehearsal")
	}
	later := ended(t, d, "a", "r3", noon.Add(2*time.Minute), task.Completed, "three", task.DeliveryNone)
	if text, found, err := d.PreviousOutput(ctx, later); text != "one" || !found || err != nil {
		t.Errorf("output before: %q %v %v", text, found, err)
	}
}

// TestRehearsalIsInNobodysWay: an active one blocks no start and no instant, and is
// blocked by none.
func TestRehearsalIsInNobodysWay(t *testing.T) {
	d := openTest(t, Options{})
	script := task.Script{Name: "s.yaml", Text: "turns: []"}
	ok(t, d.InsertManual(ctx, task.Run{ID: "r1", Task: "a", Script: script}))
	ok(t, d.InsertManual(ctx, task.Run{ID: "r2", Task: "a"}))
	ok(t, d.InsertManual(ctx, task.Run{ID: "r3", Task: "a", Script: script}))
	if err := d.InsertManual(ctx, task.Run{ID: "r4", Task: "a"}); err == nil {
		t.Error("a second run of the task was started")
	}
	_, err := d.Fire(ctx, []string{"a"}, func(s task.FireState) task.FirePlan {
		if len(s.Active) != 1 || s.Active[0].ID != "r2" {
			t.Errorf("active for the clock: %+v", s.Active)
		}
		return task.FirePlan{}
	})
	ok(t, err)
	for range 3 {
		if _, got, err := d.Claim(ctx, time.Now().Add(time.Second)); err != nil || !got {
			t.Errorf("claim: %v %v", got, err)
		}
	}
	ok(t, d.SetPause(ctx, Pause{Task: "a", By: "test", At: noon}))
}

// TestRehearsalsUnderRetention: they push no real run out, and go whole.
func TestRehearsalsUnderRetention(t *testing.T) {
	d := openTest(t, Options{})
	ended(t, d, "a", "r1", noon, task.Completed, "one", task.DeliveryNone)
	for i, id := range []string{"r2", "r3", "r4"} {
		rehearsed(t, d, "a", id, noon.Add(time.Duration(i+1)*time.Minute))
	}
	pruneAll(t, d, Retention{RunsPerTask: 1}, noon.Add(time.Hour))
	if runs := must[[]task.Run](t)(d.Runs(ctx, RunFilter{})); len(runs) != 4 {
		t.Errorf("%d runs are left, want the real one and three rehearsals", len(runs))
	}
	pruneAll(t, d, Retention{Age: time.Hour}, time.Now().Add(48*time.Hour))
	for _, table := range []string{"runs", "sessions", "messages"} {
		if n := count(t, d, table); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
}
