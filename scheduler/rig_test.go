package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"runnerd/scheduler"
	"runnerd/scheduler/storetest"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a scheduler over a store in memory, in a synctest bubble. Its runs
// finish as soon as they are enqueued, unless a test says otherwise.
type rig struct {
	*scheduler.Scheduler
	t      *testing.T
	opts   scheduler.Options
	store  *storetest.Memory
	shift  atomic.Int64 // of the wall clock
	slept  atomic.Int64 // of the machine, in which time passed and its clocks stood still
	mu     sync.Mutex
	seen   []scheduler.Turn
	busy   bool // runs stay queued
	ids    atomic.Int64
	cancel context.CancelFunc
	done   chan error
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, store: &storetest.Memory{}}
	r.opts = scheduler.Options{
		Store: r.store,
		NewID: func() string { return fmt.Sprintf("run-%d", r.ids.Add(1)) },
		Now:   func() time.Time { return time.Now().Add(time.Duration(r.shift.Load())) },
		Slept: func() time.Duration { return time.Duration(r.slept.Load()) },
		Enqueued: func(runs []task.Run) {
			if !r.busy {
				for _, run := range runs {
					r.store.Finish(run.Task)
				}
			}
		},
		Observe: func(turn scheduler.Turn) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen = append(r.seen, turn)
		},
	}
	return r
}

func (r *rig) now() time.Time { return r.opts.Now().UTC() }

// turns returns the turns observed since it was last asked.
func (r *rig) turns() []scheduler.Turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	turns := r.seen
	r.seen = nil
	return turns
}

// start runs a new scheduler over what the store holds.
func (r *rig) start(entries ...scheduler.Entry) {
	r.t.Helper()
	r.Scheduler = scheduler.New(r.opts)
	if err := r.Set(entries); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.Run(ctx) }()
	synctest.Wait()
}

func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

func (r *rig) set(entries ...scheduler.Entry) {
	r.t.Helper()
	if err := r.Set(entries); err != nil {
		r.t.Error(err)
	}
	synctest.Wait()
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// jump moves the wall clock only.
func (r *rig) jump(d time.Duration) { r.shift.Add(int64(d)) }

// rows counts a task's rows by end and reason, the detail left out.
func (r *rig) rows(id string) string {
	counts := map[string]int{}
	for _, o := range r.store.Occurrences(id) {
		reason, _, _ := strings.Cut(o.Reason, ":")
		counts[strings.TrimSpace(string(o.End)+" "+reason)] += o.Count
	}
	var out []string
	for name, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (r *rig) wantRows(id, want string) {
	r.t.Helper()
	if got := r.rows(id); got != want {
		r.t.Errorf("%s at %s: rows %q, want %q", id, r.now().Format(time.DateTime), got, want)
	}
}

func entry(id, spec string, edits ...func(*task.Task)) scheduler.Entry {
	e := scheduler.Entry{Task: baseTask(), Revision: "spec-1"}
	e.Task.ID = id
	e.Task.Schedule = task.Schedule{Specs: strings.Split(spec, "|"), Zone: "UTC"}
	for _, edit := range edits {
		edit(&e.Task)
	}
	return e
}

// bubble runs a test with a fake clock that begins at 2000-01-01 00:00 UTC.
func bubble(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) { test(newRig(t)) })
}
