package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"runnerd/scheduler"
	"runnerd/task"
)

// TestClockBackGoesOnAtOnce (U2): a clock that was ahead and comes back holds
// nothing: what is due now runs, and only what has run already does not again.
func TestClockBackGoesOnAtOnce(t *testing.T) {
	for _, c := range []struct {
		name        string
		ahead, stay time.Duration
	}{
		{"U2 two hours", 2 * time.Hour, 5 * time.Minute},
		{"U2 two days", 48 * time.Hour, 5 * time.Minute},
		{"U2 years", 10 * 365 * 24 * time.Hour, 5 * time.Minute},
		{"U2 while down", 2 * time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				tasks := []scheduler.Entry{
					entry("cron", "* * * * *", catchUp(task.CatchUpSkip, 0)),
					entry("every", "every 5s", catchUp(task.CatchUpSkip, 0)),
				}
				r.start(tasks...)
				r.pass(10*time.Minute + 30*time.Second)
				r.jump(c.ahead)
				r.pass(c.stay + 31*time.Second)
				if c.stay == 0 {
					r.stop()
				}
				r.jump(-c.ahead)
				if c.stay == 0 {
					r.start(tasks...)
				}
				defer r.stop()
				r.pass(31 * time.Second) // the loop looks every 30 s
				back := r.now()
				for _, e := range tasks {
					for _, o := range r.store.Occurrences(e.Task.ID) {
						if o.End != task.EndRun && (o.Due.After(back) || o.Until.After(back)) {
							t.Errorf("%s: %s %s..%s lies ahead of %s", e.Task.ID, o.End, o.Due, o.Until, back)
						}
					}
				}
				r.pass(10 * time.Minute)
				for id, want := range map[string]int{"cron": 10, "every": 120} {
					n := 0
					for _, run := range r.store.Runs(id) {
						if run.Due.After(back) && !run.Due.After(r.now()) {
							n++
						}
					}
					if n != want {
						t.Errorf("%s: %d runs in the ten minutes after the step, want %d", id, n, want)
					}
					wantOneRowEach(t, r, id)
				}
			})
		})
	}
}

// TestClockBackOverRuns (U2): the instants that ran while the clock was ahead come
// again: none runs twice, none replaces or blocks anything, and none is counted as
// missed, however the task was edited meanwhile.
func TestClockBackOverRuns(t *testing.T) {
	bubble(t, func(r *rig) {
		cancelled := 0
		r.opts.Cancel = func(string, string) { cancelled++ }
		r.start(entry("a", "*/5 * * * *", overlap(task.OverlapReplace)))
		defer r.stop()
		r.pass(time.Minute)
		r.jump(time.Hour)
		r.pass(20 * time.Minute) // 01:05 to 01:20 run
		r.jump(-time.Hour)
		r.pass(31 * time.Second)
		ahead := len(r.store.Runs("a"))
		r.set(entry("a", "*/10 * * * *|*/5 * * * *", overlap(task.OverlapReplace))) // the same instants, another revision
		r.pass(37 * time.Minute)                                                    // to 00:58
		if n := len(r.store.Runs("a")) - ahead; n != 7 {
			t.Errorf("%d runs from 00:25 to 00:55, want 7", n)
		}
		r.busy = true
		r.pass(5 * time.Minute) // 01:03
		r.store.SetExecution("a", task.Running)
		before := len(r.store.Runs("a"))
		r.pass(20 * time.Minute) // 01:23, past what has run
		if n := len(r.store.Runs("a")) - before; n != 0 || cancelled != 0 {
			t.Errorf("%d more runs, %d runs replaced by instants that have run", n, cancelled)
		}
		r.busy = false
		r.store.Finish("a")
		r.pass(5 * time.Minute) // 01:25 is new
		if n := len(r.store.Runs("a")) - before; n != 1 {
			t.Errorf("%d runs past where the clock had been, want 1", n)
		}
		r.jump(48 * time.Hour)
		r.pass(time.Minute)
		wantOneRowEach(t, r, "a")
	})
}

// TestRangeIsCut (U3): a range row ends where the clock went back to, and its
// instants have one row.
func TestRangeIsCut(t *testing.T) {
	for _, c := range []struct {
		name        string
		spec        string
		every       time.Duration
		ahead, back time.Duration
	}{
		{"U3 wholly ahead", "every 5s", 5 * time.Second, 72 * time.Hour, 72 * time.Hour},
		{"U3 in the midst", "every 5s", 5 * time.Second, 72 * time.Hour, 36 * time.Hour},
		{"U3 at its end", "* * * * *", time.Minute, 72 * time.Hour, 17 * time.Hour},
		{"U3 years", "* * * * *", time.Minute, 20 * 366 * 24 * time.Hour, 10 * 366 * 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.start(entry("a", c.spec, catchUp(task.CatchUpSkip, 0)), entry("off", c.spec, func(t *task.Task) { t.Enabled = false }))
				defer r.stop()
				r.pass(10 * time.Minute)
				born := r.store.Occurrences("a")[0].Due
				r.jump(c.ahead)
				r.pass(2*time.Minute + time.Second)
				r.jump(-c.back)
				r.pass(10*time.Minute + time.Second)
				r.jump(c.back + time.Hour)
				r.pass(time.Minute)
				for _, id := range []string{"a", "off"} {
					wantOneRowEach(t, r, id)
					n := 0
					for _, o := range r.store.Occurrences(id) {
						n += o.Count
					}
					cursors, _ := r.store.Cursors(t.Context())
					if want := int(cursors[id].Through.Sub(born)/c.every) + 1; n != want {
						t.Errorf("%s: rows for %d instants, want %d", id, n, want)
					}
				}
			})
		})
	}
}

// wantOneRowEach fails where rows of a task overlap.
func wantOneRowEach(t *testing.T, r *rig, id string) {
	t.Helper()
	var end time.Time
	for _, o := range r.store.Occurrences(id) {
		if !o.Due.After(end) {
			t.Errorf("%s: %s %s lies in the row before it, which ends at %s", id, o.End, o.Due, end)
		}
		if end = o.Due; o.Until.After(end) {
			end = o.Until
		}
	}
}

// TestStepIsToldOnce (U2): one step of the clock is told of once, whatever the
// number of tasks, also where it happened while the daemon was down.
func TestStepIsToldOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		var told []time.Duration
		r.opts.Stepped = func(_ time.Time, back time.Duration) { told = append(told, back) }
		var tasks []scheduler.Entry
		for i := range 20 {
			tasks = append(tasks, entry(fmt.Sprint("t", i), "* * * * *"))
		}
		r.start(tasks...)
		r.pass(5 * time.Minute)
		r.jump(2 * time.Hour)
		r.pass(5 * time.Minute)
		r.jump(-2 * time.Hour)
		r.pass(5 * time.Minute)
		if len(told) != 1 || told[0] < 2*time.Hour-31*time.Second || told[0] > 2*time.Hour {
			t.Errorf("told of %v, want the two hours once", told)
		}
		r.stop()
		r.jump(-time.Hour)
		r.start(tasks...)
		r.pass(5 * time.Minute)
		if len(told) != 2 || told[1] < time.Hour-2*time.Minute || told[1] > time.Hour {
			t.Errorf("told of %v, want the hour as well", told)
		}
		r.stop()
	})
}

// TestCatchUpBlocksNobody (U8) goes through all modes: a gap of two hours, a
// window of half an hour, runs that none has begun.
func TestCatchUpBlocksNobody(t *testing.T) {
	for _, over := range []task.Overlap{task.OverlapSkip, task.OverlapQueue, task.OverlapReplace} {
		for _, mode := range []task.CatchUp{task.CatchUpSkip, task.CatchUpOnce, task.CatchUpAll} {
			for _, busy := range []bool{false, true} {
				t.Run(fmt.Sprintf("U8 %s %s, fresh ones stay queued %v", over, mode, busy), func(t *testing.T) {
					bubble(t, func(r *rig) { catchUpUnder(t, r, over, mode, busy) })
				})
			}
		}
	}
}

func catchUpUnder(t *testing.T, r *rig, over task.Overlap, mode task.CatchUp, busy bool) {
	e := entry("a", "every 1m", catchUp(mode, 30*time.Minute), overlap(over))
	r.start(e)
	r.stop()
	r.pass(2*time.Hour + 30*time.Second)
	r.opts.Enqueued = func(runs []task.Run) {
		for _, run := range runs {
			if !busy && run.Trigger == task.TriggerSchedule {
				r.store.End(run.ID)
			}
		}
	}
	r.start(e)
	defer r.stop()
	r.pass(3 * time.Minute) // three fresh instants, while no worker begins what is to be caught up
	var caught, fresh, cancelled int
	for _, run := range r.store.Runs("a") {
		switch {
		case run.Execution == task.Cancelled && run.Trigger == task.TriggerCatchUp:
			t.Errorf("the run due %s, to be caught up, was replaced", run.Due)
		case run.Execution == task.Cancelled:
			cancelled++
		case run.Trigger == task.TriggerCatchUp:
			caught++
		default:
			fresh++
		}
	}
	// The newest of the gap is on time; with it there are four fresh ones. Of those
	// that wait each stands in the next one's way, as overlap says.
	want := [2]int{4, 0}
	if busy {
		want = map[task.Overlap][2]int{task.OverlapSkip: {1, 0}, task.OverlapQueue: {1, 0}, task.OverlapReplace: {1, 3}}[over]
	}
	wantCaught := map[task.CatchUp]int{task.CatchUpAll: 29}[mode]
	if caught != wantCaught || fresh != want[0] || cancelled != want[1] {
		t.Errorf("%d to be caught up, %d fresh, %d replaced; want %d, %d, %d", caught, fresh, cancelled, wantCaught, want[0], want[1])
	}
}

// TestCatchUpOldestFirst (U8): over random gaps, runs that wait become ready in the
// order of their due instants, and a fresh instant with no fresh run before it is
// never skipped.
func TestCatchUpOldestFirst(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("U8 ", seed), func(t *testing.T) {
			bubble(t, func(r *rig) { randomGaps(t, r, rand.New(rand.NewPCG(seed, 8))) })
		})
	}
}

func randomGaps(t *testing.T, r *rig, random *rand.Rand) {
	over := []task.Overlap{task.OverlapSkip, task.OverlapQueue, task.OverlapReplace}[random.IntN(3)]
	e := entry("a", "every 1m", catchUp(task.CatchUpAll, time.Duration(5+random.IntN(60))*time.Minute), overlap(over),
		func(t *task.Task) { t.Jitter = time.Duration(random.IntN(2)) * 20 * time.Second })
	r.busy = true
	r.start(e)
	for range 6 {
		r.stop()
		r.pass(time.Duration(30+random.IntN(5400)) * time.Second)
		r.start(e)
		r.pass(time.Duration(random.IntN(240)) * time.Second)
	}
	r.stop()
	var before task.Run
	for _, run := range r.store.Runs("a") { // oldest due first
		if run.Trigger == task.TriggerCatchUp && run.Execution != task.Queued {
			t.Errorf("the run due %s, to be caught up, is %s", run.Due, run.Execution)
		}
		if run.Execution != task.Queued {
			continue
		}
		if before.ID != "" && (run.NotBefore.Before(before.NotBefore) || run.NotBefore.Equal(before.NotBefore) && run.CreatedAt.Before(before.CreatedAt)) &&
			run.Trigger == before.Trigger {
			t.Errorf("%s, due %s, may start at %s; %s, due %s, not before %s", run.ID, run.Due, run.NotBefore, before.ID, before.Due, before.NotBefore)
		}
		before = run
	}
	for _, fresh := range r.store.Runs("a") {
		for _, run := range r.store.Runs("a") {
			if fresh.Trigger == task.TriggerSchedule && run.Trigger == task.TriggerCatchUp && run.Due.Before(fresh.Due) &&
				run.CreatedAt.Before(fresh.CreatedAt) && !run.NotBefore.After(fresh.CreatedAt) && fresh.NotBefore.Before(run.NotBefore) {
				t.Errorf("the fresh run due %s goes before the one due %s, which is ready as well", fresh.Due, run.Due)
			}
		}
	}
	for _, o := range r.store.Occurrences("a") {
		if o.End == task.EndSkipped && over == task.OverlapReplace {
			t.Errorf("%s was skipped: %s", o.Due, o.Reason)
		}
	}
}
