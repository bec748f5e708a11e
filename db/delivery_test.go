package db

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"runnerd/task"
)

// ended fires a run of a task and ends it so, with an output and a delivery state.
func ended(t *testing.T, d *DB, name, id string, due time.Time, e task.Execution, output string, state task.DeliveryState) task.Run {
	t.Helper()
	fire(t, d, name, id, due)
	run, got, err := d.ClaimRun(ctx, id, due)
	if err != nil || !got {
		t.Fatalf("claim %s: %v %v", id, got, err)
	}
	run.Execution, run.FinishedAt, run.Output, run.Delivery = e, due.Add(time.Second), output, state
	ok(t, d.Update(ctx, run))
	return must[task.Run](t)(d.Run(ctx, id))
}

func TestDeliveryHasALifeOfItsOwn(t *testing.T) {
	d := openTest(t, Options{})
	second := ended(t, d, "b", "r2", noon.Add(time.Minute), task.Completed, "two", task.DeliveryPending)
	ended(t, d, "a", "r1", noon, task.Failed, "", task.DeliveryPending)
	ended(t, d, "a", "r0", noon.Add(-time.Hour), task.Completed, "zero", task.DeliveryNone)
	rec := task.DeliveryRecord{Run: "r2", Index: 1, To: "notify", State: task.DestinationSending, Attempts: 1, NextAt: noon, UpdatedAt: noon}
	ok(t, d.SaveDelivery(ctx, rec))
	rec.State, rec.Attempts, rec.Error, rec.NextAt = task.DestinationPending, 2, "refused", noon.Add(time.Hour)
	ok(t, d.SaveDelivery(ctx, rec))
	if err := d.SaveDelivery(ctx, task.DeliveryRecord{Run: "nobody"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a record without a run: %v", err)
	}
	list := must[[]task.Undelivered](t)(d.Undelivered(ctx, 10))
	if len(list) != 2 || list[0].Run.ID != "r1" || list[1].Run.ID != "r2" || len(list[0].Records) != 0 ||
		len(list[1].Records) != 1 || list[1].Records[0] != rec {
		t.Fatalf("undelivered: %+v", list)
	}
	if one := must[[]task.Undelivered](t)(d.Undelivered(ctx, 1)); len(one) != 1 || one[0].Run.ID != "r1" {
		t.Errorf("the first undelivered: %+v", one)
	}

	ok(t, d.FinishDelivery(ctx, "r2", task.DeliveryFailed, "not delivered"))
	after := must[task.Run](t)(d.Run(ctx, "r2"))
	if after.Delivery != task.DeliveryFailed || after.Reason != "not delivered" || after.Status() != task.StatusFailed ||
		after.Execution != second.Execution || !after.FinishedAt.Equal(second.FinishedAt) || after.Output != "two" {
		t.Errorf("after delivery: %+v", after)
	}
	if err := d.FinishDelivery(ctx, "r2", task.DeliveryDelivered, ""); !errors.Is(err, ErrConflict) {
		t.Errorf("finished twice: %v", err)
	}
	if list := must[[]task.Undelivered](t)(d.Undelivered(ctx, 10)); len(list) != 1 {
		t.Errorf("%d are left, want 1", len(list))
	}
	// Retention takes the records along.
	pruneAll(t, d, Retention{Age: time.Hour}, time.Now().Add(48*time.Hour))
	if n := count(t, d, "deliveries"); n != 0 {
		t.Errorf("%d records outlived their run", n)
	}
}

func TestPreviousOutputIsOfACompletedRun(t *testing.T) {
	d := openTest(t, Options{})
	first := ended(t, d, "a", "r1", noon, task.Completed, "one", task.DeliveryNone)
	ended(t, d, "a", "r2", noon.Add(time.Minute), task.Failed, "", task.DeliveryNone)
	ended(t, d, "b", "r3", noon.Add(2*time.Minute), task.Completed, "other", task.DeliveryNone)
	last := ended(t, d, "a", "r4", noon.Add(3*time.Minute), task.Completed, "four", task.DeliveryNone)
	if text, found, err := d.PreviousOutput(ctx, last); text != "one" || !found || err != nil {
		t.Errorf("before the last: %q %v %v", text, found, err)
	}
	if _, found, err := d.PreviousOutput(ctx, first); found || err != nil {
		t.Errorf("before the first: %v %v", found, err)
	}
	runs := must[map[string]task.Run](t)(d.LastFinished(ctx))
	if len(runs) != 2 || runs["a"].ID != "r4" || runs["b"].ID != "r3" {
		t.Errorf("last finished: %v", runs)
	}
	ended(t, d, "a", "r5", noon.Add(4*time.Minute), task.Cancelled, "", task.DeliveryNone)
	fire(t, d, "a", "r6", noon.Add(5*time.Minute))
	if runs := must[map[string]task.Run](t)(d.LastFinished(ctx)); runs["a"].ID != "r4" {
		t.Errorf("last finished beside a cancelled and a queued run: %s", runs["a"].ID)
	}
}

// TestFailedRunOwesItsDelivery: a run whose runner panicked has nobody else to
// say that its task delivers.
func TestFailedRunOwesItsDelivery(t *testing.T) {
	d := openTest(t, Options{})
	for i, deliver := range [][]task.Delivery{nil, {{To: "file", Path: "/x", When: "failure"}}} {
		id := fmt.Sprint("r", i)
		hash := must[string](t)(d.SaveRevision(ctx, task.Task{ID: "a", Prompt: id, Deliver: deliver}))
		ok(t, d.InsertManual(ctx, task.Run{ID: id, Task: "a", Revision: hash, CreatedAt: noon, NotBefore: noon}))
		_, got, err := d.ClaimRun(ctx, id, noon)
		if err != nil || !got {
			t.Fatal(got, err)
		}
		ok(t, d.Fail(ctx, id, "panic", noon))
		want := task.DeliveryNone
		if deliver != nil {
			want = task.DeliveryPending
		}
		if run := must[task.Run](t)(d.Run(ctx, id)); run.Delivery != want || run.Execution != task.Failed {
			t.Errorf("%d destinations: delivery %s, want %s", len(deliver), run.Delivery, want)
		}
	}
}

// TestUntried: whoever waits for a result's first attempts waits until the run itself
// says what came of them.
func TestUntried(t *testing.T) {
	d := openTest(t, Options{})
	hash := must[string](t)(d.SaveRevision(ctx, task.Task{ID: "a", Prompt: "p", Deliver: []task.Delivery{{To: "file", Path: "/x", When: "failure"}}}))
	ok(t, d.InsertManual(ctx, task.Run{ID: "r", Task: "a", Revision: hash, CreatedAt: noon, NotBefore: noon}))
	if _, got, err := d.ClaimRun(ctx, "r", noon); err != nil || !got {
		t.Fatal(got, err)
	}
	ok(t, d.Fail(ctx, "r", "panic", noon))
	untried := func(want int, when string) {
		t.Helper()
		if n := must[int](t)(d.Untried(ctx, must[task.Run](t)(d.Run(ctx, "r")))); n != want {
			t.Errorf("%s: %d, want %d", when, n, want)
		}
	}
	untried(1, "before the first attempt")
	rec := task.DeliveryRecord{Run: "r", To: "file", State: task.DestinationPending, Attempts: 1, Error: "refused", NextAt: noon.Add(time.Hour), UpdatedAt: noon}
	ok(t, d.SaveDelivery(ctx, rec))
	untried(0, "while it is tried again")
	rec.State, rec.NextAt = task.DestinationFailed, time.Time{}
	ok(t, d.SaveDelivery(ctx, rec))
	untried(1, "given up, but the run does not say so yet")
	ok(t, d.FinishDelivery(ctx, "r", task.DeliveryFailed, "not delivered"))
	untried(0, "at the end")
}

func TestTroubles(t *testing.T) {
	d := openTest(t, Options{})
	a := task.Trouble{Key: "task/a/failed", Event: "failure", Title: "t\x00", Text: "x", OpenedAt: noon}
	b := task.Trouble{Key: "task/b/failed", Event: "failure", Title: "t", Text: "x", OpenedAt: noon.Add(-time.Hour), ToldAt: noon}
	ok(t, d.SaveTrouble(ctx, a))
	ok(t, d.SaveTrouble(ctx, b))
	a.ToldAt, a.Title = noon.Add(time.Second), "t"
	ok(t, d.SaveTrouble(ctx, a))
	list := must[[]task.Trouble](t)(d.OpenTroubles(ctx))
	if len(list) != 2 || list[0] != b || list[1] != a {
		t.Errorf("open: %+v", list)
	}
	b.ClearedAt, b.Ending = noon.Add(time.Minute), "works again"
	ok(t, d.SaveTrouble(ctx, b))
	if list := must[[]task.Trouble](t)(d.OpenTroubles(ctx)); len(list) != 1 || list[0] != a {
		t.Errorf("open after one is over: %+v", list)
	}
	if list := must[[]task.Trouble](t)(d.Troubles(ctx)); len(list) != 2 || list[0] != b {
		t.Errorf("an end that nobody was told of is forgotten: %+v", list)
	}
	b.EndToldAt = noon.Add(time.Hour)
	ok(t, d.SaveTrouble(ctx, b))
	if list := must[[]task.Trouble](t)(d.Troubles(ctx)); len(list) != 1 {
		t.Errorf("left to tell: %+v", list)
	}
	pruneAll(t, d, Retention{Age: time.Hour}, noon.Add(48*time.Hour))
	if n := count(t, d, "troubles"); n != 1 {
		t.Errorf("%d troubles are kept, want the open one", n)
	}
}
