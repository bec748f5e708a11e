package scheduler_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/scheduler"
	"runnerd/task"
)

// reasons counts a task's rows by end and whole reason.
func (r *rig) reasons(id string) string {
	counts := map[string]int{}
	for _, o := range r.store.Occurrences(id) {
		counts[strings.TrimSpace(string(o.End)+" "+o.Reason)] += o.Count
	}
	var out []string
	for name, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TestClockForwardIsNotDown (U2, U3): what a step of the clock passed over while the
// daemon ran says so, under every catch_up; what passed while it was down, or the
// machine slept, does not.
func TestClockForwardIsNotDown(t *testing.T) {
	skip, once := catchUp(task.CatchUpSkip, 0), catchUp(task.CatchUpOnce, 2*time.Hour)
	passes := map[string]func(r *rig, e scheduler.Entry, d time.Duration){
		"step": func(r *rig, _ scheduler.Entry, d time.Duration) { r.jump(d) },
		"down": func(r *rig, e scheduler.Entry, d time.Duration) {
			r.stop()
			r.jump(d)
			r.start(e)
		},
		"sleep": func(r *rig, _ scheduler.Entry, d time.Duration) {
			r.jump(d)
			r.slept.Add(int64(d))
		},
	}
	for _, c := range []struct {
		how  string
		by   time.Duration
		edit func(*task.Task)
		want string
	}{
		{"step", 3 * time.Hour, skip, "3 missed clock stepped"},
		{"step", 3 * time.Hour, once, "1 missed newer instant: the clock was set forward, 1 missed window passed: the clock was set forward, 1 run"},
		{"step", 2000 * time.Hour, skip, "2000 missed clock stepped"},
		{"step", 2000 * time.Hour, once, "1 missed newer instant: the clock was set forward, 1 run, 1000 missed clock stepped, 998 missed window passed: the clock was set forward"},
		{"step", 10*time.Minute + 20*time.Second, skip, "1 run"}, // at most a minute late is on time
		{"down", 3 * time.Hour, skip, "3 missed down"},
		{"down", 3 * time.Hour, once, "1 missed newer instant, 1 missed window passed, 1 run"},
		{"sleep", 3 * time.Hour, skip, "3 missed down"},
		{"sleep", 2000 * time.Hour, skip, "2000 missed down"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.how, c.by, c.want), func(t *testing.T) {
			bubble(t, func(r *rig) {
				e := entry("a", "20 * * * *", c.edit)
				r.start(e)
				defer r.stop()
				r.pass(10 * time.Minute)
				passes[c.how](r, e, c.by)
				r.pass(31 * time.Second)
				if got := r.reasons("a"); got != c.want {
					t.Errorf("rows %q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestStepBehindAnOutage (U2): instants that wait already when the clock is set
// forward, since the store took none, were not passed over by it. After a clock went
// back the stretch is forgotten.
func TestStepBehindAnOutage(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start(entry("a", "*/5 * * * *", catchUp(task.CatchUpSkip, 0)))
		defer r.stop()
		r.pass(4 * time.Minute)
		r.store.FailNext(slices.Repeat([]error{errors.New("busy")}, 10000)...)
		r.pass(10 * time.Minute) // 00:05 and 00:10 wait
		r.jump(20 * time.Minute) // over 00:15 to 00:30
		r.pass(time.Minute)
		r.store.FailNext()
		r.pass(time.Minute)
		if got, want := r.reasons("a"), "1 run, 2 missed down, 4 missed clock stepped"; got != want {
			t.Errorf("rows %q, want %q", got, want)
		}
	})
	bubble(t, func(r *rig) {
		e := entry("a", "*/5 * * * *", catchUp(task.CatchUpSkip, 0))
		r.start(e)
		defer r.stop()
		r.jump(time.Hour)
		r.pass(31 * time.Second)
		r.jump(-time.Hour)
		r.pass(31 * time.Second)
		r.store.FailNext(slices.Repeat([]error{errors.New("busy")}, 10000)...)
		r.pass(13 * time.Minute)
		r.store.FailNext()
		r.pass(time.Minute)
		synctest.Wait()
		if got := r.reasons("a"); strings.Contains(got, "stepped") {
			t.Errorf("rows %q: nothing was passed over after the clock went back", got)
		}
	})
}
