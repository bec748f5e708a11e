package db

import (
	"testing"

	"runnerd/dispatch/storetest"
	"runnerd/scheduler"
	schedulertest "runnerd/scheduler/storetest"
	"runnerd/task"
)

func TestSchedulerStore(t *testing.T) {
	schedulertest.Run(t, func(t *testing.T) scheduler.Store { return openTest(t, Options{}) })
}

func TestDispatchStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture { return fixture(t, openTest(t, Options{})) })
}

// fixture feeds a queue as the scheduler and the loop do.
func fixture(t *testing.T, d *DB) storetest.Fixture {
	return storetest.Fixture{
		Store: d,
		Add: func(t *testing.T, run task.Run) {
			t.Helper()
			p := plan(run.Task, run.ID, run.Due)
			// Two runs of one task that are due at once stand for two revisions.
			p.Occurrences[0].ScheduleRevision = run.ID
			p.Runs[0] = run
			runs, err := d.Fire(ctx, []string{run.Task}, func(task.FireState) task.FirePlan { return p })
			if err != nil || len(runs) != 1 {
				t.Fatalf("add %s: %d runs, %v", run.ID, len(runs), err)
			}
		},
		Get: func(t *testing.T, id string) task.Run {
			t.Helper()
			return must[task.Run](t)(d.Run(ctx, id))
		},
		Rest: func(t *testing.T, run task.Run, to task.Execution) {
			t.Helper()
			run.Execution = to
			if to == task.Queued {
				ok(t, d.Retry(ctx, run))
				return
			}
			if to == task.Waiting {
				ask := &task.Approval{ID: "ask-" + run.ID, Run: run.ID, Task: run.Task, CreatedAt: noon}
				ok(t, d.Refuse(ctx, &task.Receipt{Run: run.ID, Task: run.Task, Decision: task.DecisionPark, Outcome: task.ReceiptNone}, nil, ask))
			}
			ok(t, d.Update(ctx, run))
		},
	}
}
