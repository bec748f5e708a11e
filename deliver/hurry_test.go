package deliver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/task"
)

// TestHeadIsTriedAtOnce (U10): what waits for a destination does not wait for the
// pause after its last try, once there is a reason to believe that it works again, or
// a new result behind it.
func TestHeadIsTriedAtOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		news  func(d *desk, to task.Delivery) // what happens when the destination works again
		after time.Duration                   // by when all is delivered
	}{
		{"U10 a new result in the lane", func(d *desk, to task.Delivery) { d.ended("a", "new\n", to) }, 0},
		{"U10 a success of another task there", func(d *desk, to task.Delivery) { d.ended("b", "new\n", to) }, 0},
		{"U10 nothing", func(*desk, task.Delivery) {}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, dir+"/db")
				defer d.Close()
				to := toShell("echo try >>" + dir + "/tries; test -e " + dir + "/up && cat >>" + dir + "/out")
				var ids []string
				for i := range 3 {
					d.at = time.Now().Add(-time.Second)
					ids = append(ids, d.ended("a", fmt.Sprint(i, "\n"), to))
				}
				w := NewWorker(WorkerOptions{Deliverer: New(Options{}), Store: d})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				time.Sleep(10 * time.Minute) // the next planned try is in 11 minutes
				synctest.Wait()
				tries := d.records(ids[0])
				for range 20 { // results come in all the while: each is a try, none counts against the plan
					d.at = time.Now().Add(-time.Second)
					ids = append(ids, d.ended("a", "more\n", to))
					w.Wake()
					synctest.Wait()
					time.Sleep(5 * time.Second)
				}
				if got := d.records(ids[0]); !slices.Equal(got, tries) {
					t.Errorf("records %v after results came in, %v before", got, tries)
				}
				if n := len(strings.Fields(content(t, dir+"/tries"))); n < 20 {
					t.Errorf("%d tries, want one for each result at least", n)
				}
				must(t, os.WriteFile(dir+"/up", nil, 0o644))
				d.at = time.Now().Add(-time.Second)
				c.news(d, to)
				w.Wake()
				synctest.Wait()
				if c.after > 0 && d.run(ids[0]).Delivery != task.DeliveryPending {
					t.Error("delivered although nothing happened")
				}
				time.Sleep(c.after)
				synctest.Wait()
				for _, id := range ids {
					if run := d.run(id); run.Delivery != task.DeliveryDelivered {
						t.Errorf("%s: %s", id, run.Delivery)
					}
				}
				if got := strings.Fields(content(t, dir+"/out")); len(got) < 23 || !slices.Contains(got, "0") {
					t.Errorf("delivered %q", got)
				}
				stop()
				must(t, <-done)
			})
		})
	}
}
