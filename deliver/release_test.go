package deliver

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// I21: a held result goes when a person lets it, waits for a week at most, and holds
// up nothing behind it.
func TestHeldResults(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, dir+"/db")
		defer d.Close()
		hold := toFile(dir + "/{{.Run}}")
		hold.WhenTainted = task.HoldTainted
		d.marks = []string{task.MarkUntrusted + ":web/get"}
		late, never := d.ended("a", "late\n", hold), d.ended("a", "never\n", hold)
		d.marks = nil
		clean := d.ended("a", "clean\n", hold)
		ctx, stop := context.WithCancel(t.Context())
		w, done := NewWorker(WorkerOptions{Deliverer: New(Options{}), Store: d}), make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		wait := func(long time.Duration) { time.Sleep(long); synctest.Wait() }
		there := func(run string) bool { _, err := os.Stat(dir + "/" + run); return err == nil }

		wait(time.Minute)
		if there(late) || there(never) || !there(clean) || d.run(late).Status() != task.StatusWaiting {
			t.Errorf("late %t, never %t, clean %t; late is %s", there(late), there(never), there(clean), d.run(late).Status())
		}
		wait(2 * 24 * time.Hour)
		_, err := d.DecideApproval(ctx, db.Verdict{ID: late + "-0", State: task.ApprovalApproved, By: "alice"}, time.Now())
		must(t, err)
		w.Wake()
		wait(time.Minute)
		if run := d.run(late); !there(late) || run.Delivery != task.DeliveryDelivered || run.Status() != task.StatusOK {
			t.Errorf("approved: there %t, delivery %s, %s", there(late), run.Delivery, run.Status())
		}
		wait(6 * 24 * time.Hour)
		if run := d.run(never); there(never) || run.Delivery != task.DeliveryFailed || run.Status() != task.StatusFailed {
			t.Errorf("never decided: there %t, delivery %s, %s", there(never), run.Delivery, run.Status())
		}
		stop()
		must(t, <-done)
	})
}

// A result that was let go late is tried as often as any other, counted from then: over
// a restart too.
func TestHeldResultIsTriedAsOften(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, dir+"/db")
		defer d.Close()
		must(t, os.WriteFile(dir+"/no-dir", nil, 0o644))
		hold := toFile(dir + "/no-dir/x")
		hold.WhenTainted = task.HoldTainted
		d.marks = []string{task.MarkUntrusted + ":web/get"}
		id := d.ended("a", "late\n", hold)
		var tried []task.DeliveryRecord
		play := func(long time.Duration) {
			ctx, stop := context.WithCancel(t.Context())
			w := NewWorker(WorkerOptions{
				Deliverer: New(Options{}), Store: d,
				Tried: func(_ task.Run, rec task.DeliveryRecord) { tried = append(tried, rec) },
			})
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			time.Sleep(long)
			synctest.Wait()
			stop()
			must(t, <-done)
		}
		play(2 * 24 * time.Hour)
		decided := time.Now()
		_, err := d.DecideApproval(t.Context(), db.Verdict{ID: id + "-0", State: task.ApprovalApproved, By: "alice"}, decided)
		must(t, err)
		play(time.Hour)
		if run := d.run(id); run.Delivery != task.DeliveryPending {
			t.Errorf("an hour after it was let go: %s, %s", run.Delivery, run.Reason)
		}
		play(12 * time.Hour)
		if run := d.run(id); run.Delivery != task.DeliveryFailed || !strings.Contains(run.Reason, "given up after 8 attempts") {
			t.Errorf("in the end: %s, %s", run.Delivery, run.Reason)
		}
		if n := len(tried); n != 8 || tried[7].UpdatedAt.Sub(decided) > 12*time.Hour {
			t.Errorf("%d attempts: %+v", n, tried)
		}
	})
}
