package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/scheduler"
	"runnerd/scheduler/storetest"
	"runnerd/task"
)

func TestFiresInTime(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("a", "*/5 * * * *"), entry("b", "every 7s"), entry("hand", "at 1999-01-01T00:00", catchUp(task.CatchUpSkip, 0)))
		defer r.stop()
		r.pass(time.Hour)
		r.wantRows("a", "12 run")
		r.wantRows("hand", "1 missed already past")
		if n := len(r.store.Runs("b")); n != 515 {
			t.Errorf("%d runs in an hour every 7 s, want 515", n)
		}
		for _, turn := range r.turns() {
			if turn.Late > time.Millisecond {
				t.Errorf("turn %+v was late", turn)
			}
		}
		next, ok := r.Next("a")
		if want := r.now().Add(5 * time.Minute); !ok || !next.Equal(want) {
			t.Errorf("next %v, %v, want %v", next, ok, want)
		}
		if age := time.Since(r.Turned()); age > 30*time.Second {
			t.Errorf("last turn %v ago", age)
		}
	})
}

func TestIdleLoopTurns(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start()
		defer r.stop()
		r.pass(10*time.Minute - time.Second)
		if age := time.Since(r.Turned()); age > 30*time.Second {
			t.Errorf("last turn %v ago", age)
		}
	})
}

// TestRestart is fault case 2 as far as firing goes.
func TestRestart(t *testing.T) {
	bubble(t, func(r *rig) {
		daily := entry("daily", "0 9 * * *")
		r.start(daily)
		r.pass(9*time.Hour - time.Minute)
		r.stop()
		r.start(daily) // just before
		r.pass(2 * time.Minute)
		r.wantRows("daily", "1 run")
		r.stop()
		r.start(daily) // just after
		r.pass(time.Hour)
		r.wantRows("daily", "1 run")
		r.stop()
		r.pass(23*time.Hour + 30*time.Second)
		r.start(daily) // down at the instant, which is on time still or caught up
		r.wantRows("daily", "2 run")
		r.stop()
	})
}

// TestDown is fault case 4: down from 08:29 to 10:21.
func TestDown(t *testing.T) {
	for _, c := range []struct {
		mode   task.CatchUp
		window time.Duration
		want   string
	}{
		{task.CatchUpOnce, 24 * time.Hour, "1 run, 112 missed newer instant"},
		{task.CatchUpOnce, 10 * time.Minute, "1 run, 103 missed window passed, 9 missed newer instant"},
		{task.CatchUpSkip, 24 * time.Hour, "1 run, 112 missed down"},
		{task.CatchUpAll, 10 * time.Minute, "10 run, 103 missed window passed"},
	} {
		t.Run(fmt.Sprint(c.mode, c.window), func(t *testing.T) {
			bubble(t, func(r *rig) {
				minutely := entry("m", "* * * * *", catchUp(c.mode, c.window))
				r.pass(8*time.Hour + 28*time.Minute + 30*time.Second)
				r.start(minutely)
				r.stop()
				r.pass(113 * time.Minute) // 10:21:30
				r.start(minutely)
				r.wantRows("m", c.want)
				r.stop()
			})
		})
	}
}

func TestCatchUpAllIsPaced(t *testing.T) {
	bubble(t, func(r *rig) {
		r.busy = true
		hourly := entry("h", "@hourly", catchUp(task.CatchUpAll, 24*time.Hour))
		r.start(hourly)
		r.stop()
		r.pass(5*time.Hour + 30*time.Minute)
		r.start(hourly)
		defer r.stop()
		runs := r.store.Runs("h")
		if len(runs) != 5 {
			t.Fatalf("%d runs, want 5", len(runs))
		}
		for i, run := range runs {
			if want := r.now().Add(time.Duration(i) * scheduler.CatchUpPace); !run.NotBefore.Equal(want) || run.Trigger != task.TriggerCatchUp {
				t.Errorf("run due %v: %s not before %v, want %v", run.Due, run.Trigger, run.NotBefore, want)
			}
		}
	})
}

// TestClock is fault case 5: three days of sleep, a clock three days ahead, then
// two hours back.
func TestClock(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("h", "0 * * * *", catchUp(task.CatchUpOnce, time.Hour)))
		defer r.stop()
		r.pass(90 * time.Minute)
		r.wantRows("h", "1 run")
		r.jump(72 * time.Hour)
		r.pass(31 * time.Second)
		r.wantRows("h", "2 run, 71 missed window passed")
		r.jump(-2 * time.Hour)
		r.pass(90 * time.Minute) // the hour that was missed lies ahead again, and runs
		r.wantRows("h", "3 run, 70 missed window passed")
		r.pass(time.Hour) // one that has run, and on from there
		r.wantRows("h", "4 run, 70 missed window passed")
		wantOncePerDue(t, r, "h")
	})
}

// TestClockBackWithdraws sees missed instants get their chance when they lie
// ahead again.
func TestClockBackWithdraws(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("h", "0 * * * *", catchUp(task.CatchUpSkip, 0)))
		defer r.stop()
		r.pass(30 * time.Minute)
		r.jump(10 * time.Hour)
		r.pass(time.Minute)
		r.wantRows("h", "10 missed clock stepped")
		r.jump(-10 * time.Hour)
		r.pass(31 * time.Second)
		r.wantRows("h", "")
		r.pass(10 * time.Hour)
		r.wantRows("h", "10 run")
	})
}

func wantOncePerDue(t *testing.T, r *rig, id string) {
	t.Helper()
	runs := r.store.Runs(id)
	for i := 1; i < len(runs); i++ {
		if runs[i].Due.Equal(runs[i-1].Due) {
			t.Errorf("two runs due %v", runs[i].Due)
		}
	}
}

// TestManyOverdue is fault case 6.
func TestManyOverdue(t *testing.T) {
	bubble(t, func(r *rig) {
		var weekly []scheduler.Entry
		for i := range 17 {
			weekly = append(weekly, entry(fmt.Sprintf("w%02d", i), "0 9 * * mon", catchUp(task.CatchUpOnce, 48*time.Hour),
				func(t *task.Task) { t.Jitter = 10 * time.Minute }))
		}
		r.start(weekly...)
		r.stop()
		r.pass(3 * 24 * time.Hour)
		r.start(weekly...)
		defer r.stop()
		starts := map[time.Time]bool{}
		for _, e := range weekly {
			r.wantRows(e.Task.ID, "1 run")
			starts[r.store.Runs(e.Task.ID)[0].NotBefore] = true
		}
		if len(starts) < 10 {
			t.Errorf("17 runs start at only %d times", len(starts))
		}
	})
}

// TestSingleInstant is fault case 7.
func TestSingleInstant(t *testing.T) {
	bubble(t, func(r *rig) {
		past := entry("past", "at 1999-12-31T23:00", catchUp(task.CatchUpOnce, 2*time.Hour))
		old := entry("old", "at 1999-12-31T23:00", catchUp(task.CatchUpOnce, time.Minute))
		coming := entry("coming", "at 2000-01-01T01:00")
		r.start(past, old, coming)
		r.pass(2 * time.Hour)
		r.stop()
		r.start(past, old, coming)
		r.pass(48 * time.Hour)
		r.wantRows("past", "1 run")
		r.wantRows("old", "1 missed window passed")
		r.wantRows("coming", "1 run")
		if _, ok := r.Next("coming"); ok {
			t.Error("a single instant is still to come")
		}
		r.stop()
	})
}

// TestEdit is fault case 8.
func TestEdit(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("a", "0 9 * * *"))
		defer r.stop()
		r.pass(8 * time.Hour)
		r.set(entry("a", "0 10 * * *"))
		next, _ := r.Next("a")
		if next.Hour() != 10 {
			t.Errorf("next after the edit: %v", next)
		}
		r.pass(90 * time.Minute)
		r.wantRows("a", "")
		r.pass(time.Hour)
		r.wantRows("a", "1 run")
		r.set(entry("a", "0 9,10 * * *")) // both hours have passed: neither is fired
		r.pass(time.Hour)
		r.wantRows("a", "1 run")
	})
}

func TestEditWhileDown(t *testing.T) {
	bubble(t, func(r *rig) {
		before := entry("a", "@hourly")
		r.opts.OldSchedule = func(revision string) (task.Schedule, bool) {
			return before.Task.Schedule, revision == scheduler.Revision(before.Task.Schedule)
		}
		r.start(before, entry("gone", "@hourly"))
		r.pass(90 * time.Minute)
		r.stop()
		r.pass(3 * time.Hour)
		r.start(entry("a", "30 9 * * *"))
		defer r.stop()
		r.wantRows("a", "1 run, 3 missed schedule changed")
		r.wantRows("gone", "1 run, 3 missed schedule changed")
	})
}

func TestEditTwiceAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("a", "@hourly"))
		defer r.stop()
		r.pass(30 * time.Minute)
		r.jump(2 * time.Hour) // two instants pass unseen
		for _, spec := range []string{"30 9 * * *", "30 10 * * *"} {
			if err := r.Set([]scheduler.Entry{entry("a", spec)}); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		r.wantRows("a", "2 missed schedule changed")
	})
}

func TestRetireAndReturn(t *testing.T) {
	bubble(t, func(r *rig) {
		a := entry("a", "@hourly")
		r.start(a, entry("b", "@hourly"))
		r.pass(90 * time.Minute)
		r.set(entry("b", "@hourly"))
		cursors, _ := r.store.Cursors(r.t.Context())
		if !cursors["a"].Retired || cursors["b"].Retired {
			t.Errorf("cursors %+v", cursors)
		}
		if _, ok := r.Next("a"); ok {
			t.Error("a retired task has a next instant")
		}
		r.pass(3 * time.Hour)
		r.set(a, entry("b", "@hourly"))
		r.wantRows("a", "1 run")
		r.pass(time.Hour)
		r.wantRows("a", "2 run")
		r.wantRows("b", "5 run")
		r.stop()
		r.start() // all files gone while down
		cursors, _ = r.store.Cursors(r.t.Context())
		if !cursors["a"].Retired || !cursors["b"].Retired {
			t.Errorf("cursors %+v", cursors)
		}
		r.stop()
	})
}

func TestSetKeepsWhatDoesNotParse(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("a", "@hourly"), entry("b", "@hourly"), entry("e", "@hourly"))
		r.pass(30 * time.Minute)
		bad := []scheduler.Entry{entry("e", "@daily"), entry("a", "0 99 * * *"), entry("c", "@hourly"), entry("c", "@daily"), entry("d", "nonsense")}
		err := r.Set(bad)
		synctest.Wait()
		if err == nil || !strings.Contains(err.Error(), "task a:") || !strings.Contains(err.Error(), "task c: set twice") ||
			!strings.Contains(err.Error(), "task d:") {
			t.Errorf("error %v", err)
		}
		var where *scheduler.SpecError
		if !errors.As(err, &where) {
			t.Error("the error does not say where")
		}
		r.pass(time.Hour)
		r.wantRows("a", "1 run")
		r.wantRows("b", "")
		r.wantRows("c", "1 run")
		r.stop()
		bad = bad[1:]
		r.Scheduler = scheduler.New(r.opts)
		ctx, cancel := context.WithCancel(r.t.Context())
		r.cancel, r.done = cancel, make(chan error, 1)
		go func() { r.done <- r.Run(ctx) }()
		synctest.Wait()
		_ = r.Set(bad)
		synctest.Wait()
		cursors, _ := r.store.Cursors(r.t.Context())
		if cursors["a"].Retired {
			t.Error("a task whose schedule does not parse was retired at start")
		}
		if !cursors["e"].Retired {
			t.Error("a task that is gone at start was not retired")
		}
		r.stop()
	})
}

func TestOverlapReplace(t *testing.T) {
	bubble(t, func(r *rig) {
		r.busy = true
		var cancelled []string
		r.opts.Cancel = func(id, reason string) { cancelled = append(cancelled, id+" "+reason) }
		r.start(entry("a", "@hourly", overlap(task.OverlapReplace)))
		defer r.stop()
		r.pass(time.Hour)
		r.store.SetExecution("a", task.Running)
		r.pass(time.Hour)
		if want := []string{"run-1 replaced"}; !slices.Equal(cancelled, want) {
			t.Errorf("cancelled %v, want %v", cancelled, want)
		}
		r.store.SetExecution("a", task.Cancelled) // dispatch has ended both
		r.pass(time.Hour)
		r.pass(time.Hour) // a queued one is ended by the store
		if len(cancelled) != 1 {
			t.Errorf("cancelled %v", cancelled)
		}
		r.wantRows("a", "4 run")
	})
}

func TestPausedDisabledBudget(t *testing.T) {
	bubble(t, func(r *rig) {
		var asked []string
		r.opts.Gate = func(_ context.Context, id string, _ time.Time) (string, string) {
			asked = append(asked, id)
			if id == "poor" {
				return task.ReasonBudget, "2.00 of 2.00 spent"
			}
			return "", ""
		}
		r.store.Pause("paused", "holiday")
		r.start(entry("paused", "@hourly"), entry("poor", "@hourly"), entry("rich", "@hourly"),
			entry("off", "@hourly", func(t *task.Task) { t.Enabled = false }))
		defer r.stop()
		r.pass(61 * time.Minute)
		r.wantRows("paused", "1 skipped paused")
		r.wantRows("poor", "1 skipped budget")
		r.wantRows("rich", "1 run")
		r.wantRows("off", "1 skipped disabled")
		if slices.Contains(asked, "off") {
			t.Error("the budget of a disabled task was asked for")
		}
		if _, ok := r.Next("off"); ok {
			t.Error("a disabled task has a next instant")
		}
		r.store.Pause("paused", "")
		r.pass(time.Hour)
		r.wantRows("paused", "1 run, 1 skipped paused")
	})
}

// Gate is asked about the tasks that Screen names, and about no others.
func TestScreen(t *testing.T) {
	bubble(t, func(r *rig) {
		var asked, screened []string
		r.opts.Gate = func(_ context.Context, id string, _ time.Time) (string, string) {
			asked = append(asked, id)
			return task.ReasonBudget, ""
		}
		r.opts.Screen = func(_ context.Context, tasks []string) []string {
			screened = append(screened, tasks...)
			return []string{"b", "nobody"}
		}
		r.start(entry("a", "@hourly"), entry("b", "@hourly"), entry("off", "@hourly", func(t *task.Task) { t.Enabled = false }))
		defer r.stop()
		r.pass(61 * time.Minute)
		r.wantRows("a", "1 run")
		r.wantRows("b", "1 skipped budget")
		slices.Sort(screened)
		if !slices.Equal(asked, []string{"b"}) || !slices.Equal(screened, []string{"a", "b"}) {
			t.Errorf("asked about %v of %v", asked, screened)
		}
	})
}

// TestManyAtOnce is fault case 12.
func TestManyAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		const n = 10000
		var told []int
		r.opts.Enqueued = func(runs []task.Run) { told = append(told, len(runs)) }
		var entries []scheduler.Entry
		for i := range n {
			entries = append(entries, entry(fmt.Sprintf("t%05d", i), "0 9 * * *"))
		}
		r.start(entries...)
		defer r.stop()
		r.turns()
		r.pass(9*time.Hour + time.Minute)
		turns := r.turns()
		if len(turns) != 1 || turns[0].Runs != n {
			t.Errorf("turns %+v, want one with %d runs", turns, n)
		}
		if !slices.Equal(told, []int{n}) {
			t.Errorf("told of runs in parts of %v, want all at once", told)
		}
	})
}

func TestStoreErrors(t *testing.T) {
	bubble(t, func(r *rig) {
		down := errors.New("disk full")
		r.store.FailNext(down, down) // the cursors
		r.start(entry("a", "*/10 * * * *"), entry("b", "*/10 * * * *"))
		defer r.stop()
		r.pass(9 * time.Minute)
		r.store.FailNext(slices.Repeat([]error{down}, 15)...)
		before := r.store.Fires()
		r.pass(time.Minute + 20*time.Second)
		if spent := r.store.Fires() - before; spent > 17 {
			t.Errorf("%d transactions after 15 failures", spent)
		}
		r.pass(5 * time.Minute)
		r.wantRows("a", "1 run")
		r.wantRows("b", "1 run")
		late := slices.MaxFunc(r.turns(), func(a, b scheduler.Turn) int { return int(a.Late - b.Late) }).Late
		if late < time.Second {
			t.Errorf("lateness %v does not show", late)
		}
		for _, run := range r.store.Runs("a") {
			if run.Due.Minute() != 10 {
				t.Errorf("run due %v", run.Due)
			}
		}
	})
}

// poisoned refuses every transaction that touches one task.
type poisoned struct {
	*storetest.Memory
	task string
}

func (p poisoned) Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	if slices.Contains(tasks, p.task) {
		return nil, errors.New("constraint failed")
	}
	return p.Memory.Fire(ctx, tasks, decide)
}

// TestOneBadTask is fault case 11 for the store: what one task's rows do does
// not delay the others.
func TestOneBadTask(t *testing.T) {
	bubble(t, func(r *rig) {
		r.opts.Store = poisoned{r.store, "t042"}
		var entries []scheduler.Entry
		for i := range 100 {
			entries = append(entries, entry(fmt.Sprintf("t%03d", i), "@hourly"))
		}
		r.start(entries...)
		defer r.stop()
		r.turns()
		r.pass(3*time.Hour + time.Minute)
		for _, e := range entries {
			if e.Task.ID != "t042" {
				r.wantRows(e.Task.ID, "3 run")
			}
		}
		for _, turn := range r.turns() {
			if turn.Late > time.Second {
				t.Errorf("turn %+v was late", turn)
			}
		}
	})
}

// hanging never answers.
type hanging struct{ *storetest.Memory }

func (hanging) Fire(ctx context.Context, _ []string, _ func(task.FireState) task.FirePlan) ([]task.Run, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestHangingStoreAndGate(t *testing.T) {
	bubble(t, func(r *rig) {
		r.opts.Store = hanging{r.store}
		r.start(entry("a", "@hourly"))
		r.pass(10 * time.Minute)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		r.opts.Store = r.store
		r.opts.Gate = func(ctx context.Context, _ string, _ time.Time) (string, string) {
			<-ctx.Done()
			return "", ""
		}
		r.start(entry("a", "@hourly"), entry("b", "@hourly"), entry("c", "@hourly"))
		r.pass(51 * time.Minute)
		r.wantRows("c", "1 run")
		r.stop()
	})
}

// TestNothingIsLost throws restarts, store errors and clock jumps at a task and
// then looks for an instant without a row, and for one with two runs.
func TestNothingIsLost(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(r *rig) { shake(t, r, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func shake(t *testing.T, r *rig, random *rand.Rand) {
	mode := []task.CatchUp{task.CatchUpSkip, task.CatchUpOnce, task.CatchUpAll}[random.IntN(3)]
	e := entry("a", "*/7 * * * *", catchUp(mode, time.Duration(random.IntN(120))*time.Minute))
	r.start(e)
	born := r.now()
	between := func(low, high int) time.Duration {
		return time.Duration(low+random.IntN(high-low)) * time.Second
	}
	for range 60 {
		switch random.IntN(8) {
		case 0:
			r.stop()
			r.pass(between(0, 7200))
			r.start(e)
		case 1:
			r.jump(between(0, 20000))
		case 2:
			if back := between(0, 7200); r.now().Add(-back).After(born) {
				r.jump(-back)
			}
		case 3:
			r.store.FailNext(slices.Repeat([]error{errors.New("busy")}, 1+random.IntN(6))...)
		default:
			r.pass(between(1, 1200))
		}
	}
	r.pass(5 * time.Minute)
	r.stop()
	cursors, _ := r.store.Cursors(r.t.Context())
	has := map[time.Time]bool{}
	for _, o := range r.store.Occurrences("a") {
		has[o.Due] = true
	}
	s := parse(t, "UTC", "", "*/7 * * * *")
	for next, _ := s.Next(born); !next.After(cursors["a"].Through); next, _ = s.Next(next) {
		if !has[next] {
			t.Errorf("the instant %v has no row", next)
		}
	}
	wantOncePerDue(t, r, "a")
	if len(r.store.Runs("a")) == 0 {
		t.Error("nothing ran")
	}
}

// A batch that is not written takes nothing of what a limit has left.
func TestAllowanceOfRefusedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		told := 0
		allowed := &scheduler.Allowance{Left: 2, Reason: "budget: enough", Spent: func() { told++ }}
		r.opts.Allow = func(context.Context, string, time.Time) []*scheduler.Allowance {
			return []*scheduler.Allowance{allowed}
		}
		made := 0
		r.opts.NewID = func() string { // the first two are the same, which the store refuses
			made++
			return fmt.Sprintf("run-%d", max(made, 2))
		}
		r.start(entry("a", "every 1m"), entry("b", "every 1m"))
		defer r.stop()
		r.pass(150 * time.Second)
		r.wantRows("a", "1 run, 1 skipped budget")
		r.wantRows("b", "1 run, 1 skipped budget")
		if allowed.Left != 0 || told != 1 {
			t.Errorf("%d left, told %d times; want none left, told once", allowed.Left, told)
		}
	})
}
