package scheduler

import (
	"container/heap"
	"time"

	"runnerd/task"
)

// entry is one task as the loop knows it. The Scheduler's mutex guards it.
type entry struct {
	id       string
	spec     spec
	revision string
	schedule *Schedule // nil if it never parsed
	gone     bool      // the task's file is gone

	cursor task.Cursor // as last read or written
	known  bool        // the cursor is stored
	// evaluated is the schedule of the cursor's revision, if it is at hand.
	evaluated *Schedule

	// wake is when the loop has to look at the entry: its next instant, or the
	// end of a pause after an error.
	wake     time.Time
	failures int
	index    int // in the heap; -1 if not there
	pending  bool
}

// spec is what the loop needs of a task. A whole task.Task is large, and there may
// be a hundred thousand of them.
type spec struct {
	enabled  bool
	schedule task.Schedule
	catchUp  task.CatchUp
	window   time.Duration
	overlap  task.Overlap
	jitter   time.Duration
}

func specOf(t task.Task) spec {
	return spec{t.Enabled, t.Schedule, t.CatchUp, t.CatchUpWindow, t.Overlap, t.Jitter}
}

// task is the task as far as Plan reads it.
func (s *spec) task(id string) task.Task {
	return task.Task{
		ID: id, Enabled: s.enabled, Schedule: s.schedule,
		CatchUp: s.catchUp, CatchUpWindow: s.window, Overlap: s.overlap, Jitter: s.jitter,
	}
}

// unsettled tells whether the cursor has to follow a change before anything
// can be due: first sight, an edit, a task gone or back, a clock gone back.
func (e *entry) unsettled(now time.Time) bool {
	switch {
	case e.gone:
		return e.known && (!e.cursor.Retired || ahead(e.cursor, now))
	case e.schedule == nil:
		return false
	}
	return !e.known || e.cursor.Retired || e.cursor.ScheduleRevision != e.schedule.Revision() || ahead(e.cursor, now)
}

// backlog is about how many rows the entry's passed instants will take, as far apart
// as the first two of them are.
func (e *entry) backlog(now time.Time) int {
	late := now.Sub(e.wake)
	if late < time.Minute || e.schedule == nil {
		return 1
	}
	second, ok := e.schedule.Next(e.wake)
	if !ok {
		return 1
	}
	return 1 + int(min(late/second.Sub(e.wake), maxRows))
}

// place puts an entry where its state belongs. Before the cursors are loaded
// nothing is placed.
func (s *Scheduler) place(e *entry, now time.Time) {
	if !s.loaded {
		return
	}
	if e.known && e.schedule != nil && e.cursor.ScheduleRevision == e.schedule.Revision() {
		e.evaluated = e.schedule
	}
	switch {
	case e.unsettled(now):
		s.unqueue(e)
		if !e.pending {
			e.pending = true
			s.pending = append(s.pending, e)
		}
	case e.gone || e.schedule == nil:
		s.unqueue(e)
	default:
		if next, ok := e.schedule.Next(e.cursor.Through); ok {
			s.queue(e, next)
		} else {
			s.unqueue(e)
		}
	}
}

func (s *Scheduler) queue(e *entry, wake time.Time) {
	e.wake = wake
	if e.index >= 0 {
		heap.Fix(&s.heap, e.index)
		return
	}
	heap.Push(&s.heap, e)
}

func (s *Scheduler) unqueue(e *entry) {
	if e.index >= 0 {
		heap.Remove(&s.heap, e.index)
	}
}

// entryHeap is a heap.Interface, earliest wake first, ids breaking ties.
type entryHeap []*entry

func (h entryHeap) Len() int { return len(h) }

func (h entryHeap) Less(i, j int) bool {
	if order := h[i].wake.Compare(h[j].wake); order != 0 {
		return order < 0
	}
	return h[i].id < h[j].id
}

func (h entryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for package heap.
func (h *entryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
