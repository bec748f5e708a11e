package db

import (
	"testing"
	"time"

	"runnerd/task"
)

// TestRewind (U2): what waits for a time that a clock which was ahead has set goes
// on after the pause that it had, and what is not waiting stays as it is.
func TestRewind(t *testing.T) {
	d := openTest(t, Options{})
	const ahead = 48 * time.Hour
	for id, at := range map[string]time.Time{"soon": noon.Add(ahead + time.Minute), "ready": noon.Add(ahead - time.Minute), "old": noon.Add(-time.Minute)} {
		ok(t, d.InsertManual(ctx, task.Run{ID: id, Task: id, Revision: "s", CreatedAt: noon, NotBefore: at}))
	}
	rec := task.DeliveryRecord{Run: "old", To: "file", State: task.DestinationPending, Attempts: 1, NextAt: noon.Add(ahead + time.Hour), UpdatedAt: noon}
	ok(t, d.SaveDelivery(ctx, rec))
	ok(t, d.Rewind(ctx, noon, ahead))
	for id, want := range map[string]time.Time{"soon": noon.Add(time.Minute), "ready": noon.Add(-time.Minute), "old": noon.Add(-time.Minute)} {
		if got := must[task.Run](t)(d.Run(ctx, id)).NotBefore; !got.Equal(want) {
			t.Errorf("%s: not before %s, want %s", id, got, want)
		}
	}
	if got := must[[]task.DeliveryRecord](t)(d.Deliveries(ctx, "old")); !got[0].NextAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("delivery again at %s", got[0].NextAt)
	}
}
