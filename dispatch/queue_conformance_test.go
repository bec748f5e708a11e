package dispatch_test

import (
	"testing"

	"runnerd/dispatch/storetest"
	"runnerd/task"
)

// TestQueue holds the queue that the other tests use to the contract that the
// real store keeps.
func TestQueue(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		q := newQueue()
		return storetest.Fixture{
			Store: q,
			Add:   func(_ *testing.T, r task.Run) { q.add(r) },
			Get:   func(_ *testing.T, id string) task.Run { return q.get(id) },
			Rest: func(t *testing.T, r task.Run, to task.Execution) {
				t.Helper()
				retry := func(r *task.Run) {
					if to == task.Queued {
						r.Attempt++
					}
				}
				if err := q.move(r.ID, to, retry); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
