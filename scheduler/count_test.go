package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"runnerd/scheduler"
	"runnerd/scheduler/storetest"
	"runnerd/task"
)

// TestRangeCounts (U14): what a range row counts is what walking through the
// instants counts, for lines of all kinds, in zones with gaps and folds.
func TestRangeCounts(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Africa/Monrovia"}
	specs := [][]string{
		{"* * * * *"}, {"*/7 * * * *"}, {"30 2 * * *"}, {"0,30 2,3 * * *"}, {"*/20 2 * * *"}, {"15 * * * mon"}, {"0 0 29 2 *"},
		{"*/5 1-3 * * sun", "10,20 2 * * sun"}, {"30 2 * * *", "* * * * *"}, {"0 9 * * *", "at 2011-06-05T09:00", "at 2011-06-05T09:30"},
		{"59 23 * * *", "0 0 * * *"}, {"every 7m"},
	}
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 14))
		zone, lines := zones[random.IntN(len(zones))], specs[random.IntN(len(specs))]
		from := time.Date(1968+random.IntN(60), 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(random.Int64N(366*86400)) * time.Second)
		t.Run(fmt.Sprintf("U14 %q %s %s", lines, zone, from.Format(time.DateOnly)), func(t *testing.T) {
			s := parse(t, zone, "", lines...)
			all := s.List(from, 1100+random.IntN(2500))
			to := all[len(all)-1]
			state := task.FireState{Task: "a", Known: true, Cursor: task.Cursor{Task: "a", ScheduleRevision: s.Revision(), Through: from}}
			plan := scheduler.Plan(scheduler.Firing{Task: task.Task{ID: "a"}, Schedule: s, Now: to, NewID: ids()}, state)
			n := 0
			for _, o := range plan.Occurrences {
				n += o.Count
			}
			if n != len(all) {
				t.Errorf("rows for %d instants, want %d", n, len(all))
			}
			if wide := plan.Occurrences; len(wide) > 1000 && !wide[0].Until.Equal(all[len(all)-1001]) {
				t.Errorf("the range ends at %s, want %s", wide[0].Until, all[len(all)-1001])
			}
		})
	}
}

// TestClockStepsFortyYears (U14): what a minutely task missed in forty years is
// counted to the last instant, which no walk through them does in time.
func TestClockStepsFortyYears(t *testing.T) {
	schedules := []*scheduler.Schedule{
		parse(t, "UTC", "", "* * * * *"), parse(t, "Europe/Berlin", "", "* * * * *"),
		parse(t, "UTC", "", "*/2 * * * *", "1-59/2 * * * *"), parse(t, "UTC", "", "* * * * *", "every 90s"),
	}
	from, to := time.Date(1986, 5, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for i, s := range schedules {
		state := task.FireState{Task: "a", Known: true, Cursor: task.Cursor{Task: "a", ScheduleRevision: s.Revision(), Through: from}}
		plan := scheduler.Plan(scheduler.Firing{Task: task.Task{ID: "a"}, Schedule: s, Now: to, NewID: ids()}, state)
		if want := int(to.Sub(from)/time.Minute) - 1000; i < 3 && plan.Occurrences[0].Count != want {
			t.Fatalf("%d instants in the range, want %d", plan.Occurrences[0].Count, want)
		}
	}
}

// slow takes so long for each task of a batch, and gives up at the deadline.
type slow struct {
	*storetest.Memory
	each time.Duration
}

func (s slow) Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	select {
	case <-time.After(s.each * time.Duration(len(tasks))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Memory.Fire(ctx, tasks, decide)
}

// TestDeadlineHalvesBatch (U14): tasks that do not fit a transaction's time together
// are written in parts.
func TestDeadlineHalvesBatch(t *testing.T) {
	bubble(t, func(r *rig) {
		r.opts.Store = slow{r.store, 250 * time.Millisecond}
		var tasks []scheduler.Entry
		for i := range 200 {
			tasks = append(tasks, entry(fmt.Sprintf("t%03d", i), "@hourly"))
		}
		r.start(tasks...)
		defer r.stop()
		r.pass(time.Hour + 10*time.Minute)
		for _, e := range tasks {
			if rows := r.rows(e.Task.ID); rows != "1 run" {
				t.Fatalf("%s: rows %q", e.Task.ID, rows)
			}
		}
	})
}

// TestNothingFiresIsNotWell (U14): a scheduler that goes round without firing
// anything is not one that turns; one with a single task that cannot be written is.
func TestNothingFiresIsNotWell(t *testing.T) {
	broken := errors.New("no space left on device")
	for _, c := range []struct {
		name  string
		store func(m *storetest.Memory) scheduler.Store
		well  bool
	}{
		{"U14 hanging", func(m *storetest.Memory) scheduler.Store { return hanging{m} }, false},
		{"U14 refusing everything", func(m *storetest.Memory) scheduler.Store { return refusing{m, broken} }, false},
		{"U14 one task takes too long", func(m *storetest.Memory) scheduler.Store { return slow{m, time.Hour} }, false},
		{"U14 one bad task", func(m *storetest.Memory) scheduler.Store { return poisoned{m, "a"} }, true},
		{"U14 all well", func(m *storetest.Memory) scheduler.Store { return m }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.start(entry("a", "@hourly"), entry("b", "@daily"))
				r.pass(time.Minute)
				r.stop()
				r.opts.Store = c.store(r.store)
				r.start(entry("a", "@hourly"), entry("b", "@daily"))
				defer r.stop()
				r.pass(time.Hour + 5*time.Minute)
				if age := time.Since(r.Turned()); age < 90*time.Second != c.well {
					t.Errorf("last turn %s ago, want it well: %v", age, c.well)
				}
			})
		})
	}
}

// refusing takes no write.
type refusing struct {
	*storetest.Memory
	err error
}

func (s refusing) Fire(context.Context, []string, func(task.FireState) task.FirePlan) ([]task.Run, error) {
	return nil, s.err
}
