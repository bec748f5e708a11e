package looptest

import (
	"context"
	"errors"
	"time"

	"runnerd/policy"
	"runnerd/taskpolicy"
)

// killed is what a simulated SIGKILL throws: nothing of the run's worker happens
// after it.
type killed struct{}

// Kill executes a claimed run and kills its worker at the nth time (from 1) that
// op has just happened, or with before, is about to. It tells whether that came.
func (w *World) Kill(run, op string, n int, before bool) (hit bool) {
	w.T.Helper()
	seen := 0
	hook := func(got string) error {
		if got == op {
			if seen++; seen == n {
				panic(killed{})
			}
		}
		return nil
	}
	oldBefore, oldAfter := w.Before, w.After
	if before {
		w.Before = hook
	} else {
		w.After = hook
	}
	defer func() {
		w.Before, w.After = oldBefore, oldAfter
		v := recover()
		if _, hit = v.(killed); v != nil && !hit {
			panic(v)
		}
	}()
	if err := w.Runner.Run(context.Background(), run); err != nil {
		w.T.Errorf("run: %v", err)
	}
	return false
}

// Restart closes and opens everything, and recovers what was running, as a daemon
// does at its start.
func (w *World) Restart() {
	w.T.Helper()
	w.Close()
	w.Open()
	_, err := w.Main.Recover(context.Background(), time.Now())
	w.must(err)
}

// ErrDisk is what a test's hook answers for a store that fails.
var ErrDisk = errors.New("disk is full")

// Override edits the override layer, as `runnerd policy set` does. Values are JSON.
func (w *World) Override(scope policy.Scope, id string, patch map[string]string) {
	w.T.Helper()
	ch := taskpolicy.Change{Scope: scope, ID: id, By: "test", Patch: rawPatch(patch)}
	_, err := w.Rules.Set(context.Background(), ch)
	w.must(err)
}
