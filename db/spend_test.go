package db

import (
	"testing"

	"runnerd/task"
)

// D3: what the tasks of a project spend is booked to the project too, on the
// daemon's day. D1: an estimate says so in the run, the day and the list, from the
// moment at which it is booked.
func TestBookToProjectAndAsEstimate(t *testing.T) {
	d := openTest(t, Options{})
	fire(t, d, "brief", "r1", noon)
	fire(t, d, "other", "r2", noon)
	here := task.Days{Task: "2026-05-04", Total: "2026-05-05", Project: "ops"}
	ok(t, d.Book(ctx, here, "r1", task.Usage{Input: 90, Output: 10}))
	ok(t, d.Book(ctx, here, "r2", task.Usage{Input: 6, Output: 1, Estimated: true}))
	ok(t, d.Book(ctx, days("2026-05-05"), "r2", task.Usage{Input: 1000}))

	spent := must[task.DaySpend](t)(d.Spent(ctx, "other", here))
	if spent.Task.Tokens() != 7 || spent.Project.Tokens() != 107 || spent.Total.Tokens() != 1107 {
		t.Errorf("spent %+v", spent)
	}
	if !spent.Task.Estimated || !spent.Project.Estimated {
		t.Errorf("an estimate is not said to be one: %+v", spent)
	}
	if first := must[task.DaySpend](t)(d.Spent(ctx, "brief", here)); first.Task.Estimated {
		t.Errorf("counted spend is said to be an estimate: %+v", first)
	}
	if run := must[task.Run](t)(d.Run(ctx, "r2")); !run.HasMark(task.MarkUsageEstimated) || run.Usage.Tokens() != 1007 {
		t.Errorf("run %+v", run)
	}
	if run := must[task.Run](t)(d.Run(ctx, "r1")); run.HasMark(task.MarkUsageEstimated) {
		t.Errorf("run %+v", run)
	}
	for _, s := range must[[]Spend](t)(d.Spending(ctx, "", "2026-05-04", "2026-05-05")) {
		if sum := s.Task == Everything || s.Task == "*ops"; s.OfTask() == sum {
			t.Errorf("%s is of a task: %v", s.Task, s.OfTask())
		}
		if want := map[string]int64{"other2026-05-04": 7, "*ops2026-05-05": 7, "*2026-05-05": 7}[s.Task+s.Day]; s.Estimated != want {
			t.Errorf("of %s %d tokens are estimated, want %d", s.Task, s.Estimated, want)
		}
	}
}
