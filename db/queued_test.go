package db

import (
	"errors"
	"testing"
	"time"

	"runnerd/task"
)

// TestQueuedIsTold (I15): whatever puts a run into the queue tells the pool that
// sleeps, an approval that is found expired by who wants to approve it too.
func TestQueuedIsTold(t *testing.T) {
	ask := func(run string) *task.Approval {
		return &task.Approval{ID: "a-" + run, Run: run, Task: "brief", CreatedAt: noon, ExpiresAt: noon.Add(time.Hour)}
	}
	late := noon.Add(2 * time.Hour)
	for name, free := range map[string]func(d *DB) error{
		"I15 approve an expired one": func(d *DB) error {
			_, err := d.DecideApproval(ctx, Verdict{ID: "a-r1", State: task.ApprovalApproved, By: "ann"}, late)
			if !errors.Is(err, ErrConflict) {
				t.Errorf("approved: %v", err)
			}
			return nil
		},
		"deny an expired one": func(d *DB) error {
			_, _ = d.DecideApproval(ctx, Verdict{ID: "a-r1", State: task.ApprovalDenied, By: "ann"}, late)
			return nil
		},
		"approve": func(d *DB) error {
			_, err := d.DecideApproval(ctx, Verdict{ID: "a-r1", State: task.ApprovalApproved, By: "ann"}, noon)
			return err
		},
		"expire": func(d *DB) error { _, err := d.ExpireApprovals(ctx, late); return err },
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			d := openTest(t, Options{OnQueued: func() { told++ }})
			run := started(t, d, "brief", "r1")
			ok(t, d.Refuse(ctx, &task.Receipt{Run: "r1", Task: "brief", Decision: task.DecisionPark, Outcome: task.ReceiptNone}, nil, ask("r1")))
			run.Execution = task.Waiting
			ok(t, d.Update(ctx, run))
			if told != 0 {
				t.Fatal("told of a run that waits")
			}
			ok(t, free(d))
			if got := must[task.Run](t)(d.Run(ctx, "r1")); got.Execution != task.Queued || told != 1 {
				t.Errorf("run %s, told %d times", got.Execution, told)
			}
		})
	}
}
