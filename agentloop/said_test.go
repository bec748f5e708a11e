package agentloop_test

import (
	"testing"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// TestSaidOnce (U20): what is odd about a task's offer is said once for the task and
// reason, not in every run, and again after it has changed.
func TestSaidOnce(t *testing.T) {
	w := world(t)
	logs := logged(w)
	w.Server("mystery", policy.Fields{}, looptest.Tool{Name: "do"}) // no read tool
	reader(w, "mail")
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Task(task.Task{ID: "other"}, policy.Fields{})
	w.Answers(looptest.Say("done"))
	said := func(what string, want int, tasks ...string) {
		t.Helper()
		for _, id := range tasks {
			w.Run(id)
		}
		if n := logs.FilterMessage("offer").Len(); n != want {
			t.Errorf("%s: said %d times, want %d", what, n, want)
		}
	}
	said("first run", 1, "brief")
	said("more runs", 1, "brief", "brief")
	said("another task", 2, "other", "other", "brief")
	w.Policy(policy.ScopeTask, "brief", policy.Fields{Tools: ids("mail")})
	said("no longer so", 2, "brief", "brief")
	w.Policy(policy.ScopeTask, "brief", policy.Fields{})
	said("so again", 3, "brief", "brief")
}
