package taskpolicy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"runnerd/policy"
	"runnerd/task"
)

// manyTasks are the rows of n tasks that each declare two fields.
func manyTasks(n int) []Row {
	rows := make([]Row, n)
	ask := policy.OnAskPark
	for i := range rows {
		rows[i] = Row{policy.ScopeTask, fmt.Sprintf("task-%06d", i), policy.Fields{OnAsk: &ask, Connectors: task.ListOf("mail")}}
	}
	return rows
}

// Rows are written many at a time; history and its chain come out as if one by one.
func TestSyncManyFiles(t *testing.T) {
	s := open(t, dbPath(t))
	const n = batch + 7
	rows := manyTasks(n)
	sync := func(rows []Row) int {
		t.Helper()
		if err := s.SyncFiles(t.Context(), rows, policy.Fields{Limits: &policy.Limits{}}, "files"); err != nil {
			t.Fatal(err)
		}
		if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
			t.Fatal(bad, err)
		}
		h, err := s.History(t.Context(), HistoryFilter{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		return len(h)
	}
	// A task's row and two fields, its session's row; the daemon's row and limits.
	first := sync(rows)
	if want := 4*n + 2; first != want {
		t.Errorf("%d rows of history, want %d", first, want)
	}
	if again := sync(rows); again != first {
		t.Errorf("%d rows of history after nothing changed, want %d", again, first)
	}
	rows[n/2].Connectors = task.ListOf[string]()
	if edited := sync(rows[:n-1]); edited != first+2 {
		t.Errorf("%d rows of history after one edit and one file gone, want %d", edited, first+2)
	}
	e, err := s.Effective(t.Context(), rows[n/2].ID, rows[n/2].ID, "")
	if err != nil || !e.TaskConnectors.Declared() || e.TaskConnectors.Len() != 0 || e.OnAsk != policy.OnAskPark {
		t.Errorf("%+v %v", e, err)
	}
}

func TestDayLimits(t *testing.T) {
	s := open(t, dbPath(t))
	runs, steps := 3, 5
	perDay, perRun := &policy.Limits{RunsPerDay: &runs}, &policy.Limits{Steps: &steps}
	rows := []Row{
		{policy.ScopeTask, "daily", policy.Fields{Limits: perDay}}, {policy.ScopeTask, "other", policy.Fields{Limits: perDay}},
		{policy.ScopeTask, "plain", policy.Fields{Limits: perRun}}, {policy.ScopeTask, "edited", policy.Fields{}},
		{policy.ScopeProject, "ops", policy.Fields{Limits: perDay}}, {policy.ScopeProject, "free", policy.Fields{}},
	}
	asked := []string{"daily", "plain", "edited", "nobody"}
	look := func(day policy.Limits) DayLimits {
		t.Helper()
		if err := s.SyncFiles(t.Context(), rows, policy.Fields{Limits: &day}, "files"); err != nil {
			t.Fatal(err)
		}
		found, err := s.DayLimits(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	want := DayLimits{Tasks: map[string]bool{"daily": true}, Projects: map[string]bool{"ops": true}}
	if got := look(policy.Limits{}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := s.Set(t.Context(), Change{Scope: policy.ScopeTask, ID: "edited", By: "test", Patch: map[string]json.RawMessage{"limits": json.RawMessage(`{"cost_per_day":2}`)}}); err != nil {
		t.Fatal(err)
	}
	want.Daemon, want.Tasks["edited"] = true, true
	if got := look(*perDay); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func BenchmarkSyncFiles(b *testing.B) {
	rows := manyTasks(10_000)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if err := open(b, dbPath(b)).SyncFiles(b.Context(), rows, policy.Fields{}, "files"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		s := open(b, dbPath(b))
		for b.Loop() {
			if err := s.SyncFiles(b.Context(), rows, policy.Fields{}, "files"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
