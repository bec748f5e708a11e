package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// Options are what a Scheduler needs. Store and NewID are required.
type Options struct {
	Store Store
	// NewID makes the id of a run.
	NewID func() string
	Log   *zap.Logger // nil: none
	// Host is part of the jitter: hosts with the same tasks spread out.
	Host string
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
	// Slept is for how long the machine has slept, by any zero: what tells a sleep from
	// a clock that was set forward. Nil: what the kernel says.
	Slept func() time.Duration
	// OldSchedule finds a schedule by its revision, for a task that was edited or
	// deleted while the daemon was down; nil: what was due under it then is not
	// recorded.
	OldSchedule func(revision string) (task.Schedule, bool)
	// Gate is asked before a task with a due instant is fired; a reason, one of
	// task.Reason*, makes its runs skipped, with the detail. It must be quick: its
	// context ends after 5 seconds for all the tasks of a batch together.
	Gate func(ctx context.Context, taskID string, now time.Time) (reason, detail string)
	// Allow is asked after Gate, in the same context, for the limits on how many runs
	// may start: those planned together, of one task or of many, have not happened
	// yet when Gate is asked. Nil, or none: no such limit.
	Allow func(ctx context.Context, taskID string, now time.Time) []*Allowance
	// Screen names those of a batch's tasks that Gate has to be asked about, as far
	// as that can be told for all of them at once; nil: all. It has Gate's context.
	Screen func(ctx context.Context, tasks []string) []string
	// Enqueued is told of runs that were inserted, once all that are due have been,
	// so that runs which start at once do not hold up the firing of the others; if
	// that takes long, in several parts. It must not block.
	Enqueued func(runs []task.Run)
	// Cancel is told of an active run that a worker may hold and that overlap:
	// replace ends. It must not block.
	Cancel func(runID, reason string)
	// Stepped is told once of a clock that went back, by how much at least, before
	// anything is fired by it.
	Stepped func(now time.Time, back time.Duration)
	// Observe is told of each turn that settled something. It must not block.
	Observe func(Turn)
}

// Turn is what one turn of the loop did, for metrics.
type Turn struct {
	At                           time.Time
	Tasks, Runs, Skipped, Missed int
	// Late is by how much the latest of the runs that fired as usual was behind
	// its due instant when the turn began to write it.
	Late time.Duration
	// Took is how long the turn was, the store included.
	Took time.Duration
	// Failed are tasks whose instants the store did not take; they are tried
	// again.
	Failed int
}

// Entry is a task for Set, with the revision of its spec for its runs.
type Entry struct {
	Task     task.Task
	Revision string
}

// Scheduler fires tasks. Set, Wake, Next and Turned may be called from any
// goroutine, before, during and after Run.
type Scheduler struct {
	store  Store
	opts   Options
	log    *zap.Logger
	wake   chan struct{}
	turned atomic.Int64 // Unix nanoseconds
	// started is closed after the first turn.
	started chan struct{}
	begin   sync.Once // closes started

	setting sync.Mutex // one Set at a time

	mu      sync.Mutex
	entries map[string]*entry
	heap    entryHeap // entries with an instant ahead, or held after an error
	pending []*entry  // entries whose cursor has to follow a change
	// cursors are those loaded at start that no entry has taken up; nil until
	// they are loaded.
	cursors    map[string]task.Cursor
	loaded     bool
	configured bool // Set was called
	// last is the clock at the last turn, lasted for how long the scheduler had lived
	// then.
	last   time.Time
	lasted time.Duration
	born   time.Time // with a monotonic part
	steps  []Step    // forward, the newest ones

	failing bool // of the loop alone: see stuck
}

// New returns a Scheduler without tasks.
func New(opts Options) *Scheduler {
	s := &Scheduler{
		store: opts.Store, opts: opts, log: opts.Log,
		wake: make(chan struct{}, 1), entries: map[string]*entry{}, started: make(chan struct{}), born: time.Now(),
	}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	if s.opts.Slept == nil {
		s.opts.Slept = slept
	}
	return s
}

// now is the wall clock without its monotonic part, so that a suspended machine
// and a changed clock show.
func (s *Scheduler) now() time.Time { return s.opts.Now().Round(0).UTC() }

// lived is for how long the scheduler has lived, sleep of the machine included, by
// clocks that nobody can set.
func (s *Scheduler) lived() time.Duration { return time.Since(s.born) + s.opts.Slept() }

// Wake makes the loop look again at once.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Started is closed once Run has read the cursors and turned for the first time:
// from then on what is due fires.
func (s *Scheduler) Started() <-chan struct{} { return s.started }

// Turned is when the loop last turned and could fire, by the daemon's own clock; zero
// before Run. While Run works it is never older than 30 seconds and the time of one
// transaction; it grows older while everything that is due fails.
func (s *Scheduler) Turned() time.Time {
	if at := s.turned.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Next is the next instant of a task; ok is false if it has none, is disabled
// or is not known.
func (s *Scheduler) Next(taskID string) (next time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[taskID]
	if e == nil || e.gone || e.schedule == nil || !e.spec.enabled {
		return time.Time{}, false
	}
	after := s.now()
	if e.known && e.cursor.ScheduleRevision == e.schedule.Revision() && !ahead(e.cursor, after) && e.cursor.Through.After(after) {
		after = e.cursor.Through
	}
	return e.schedule.Next(after)
}

// Set replaces all tasks, live. A task that is new starts now, an edited one
// goes on under its new schedule, one that is no longer there is retired. A task
// whose schedule does not parse, or whose id comes twice, is named in the error
// and keeps what it had; the others are taken.
func (s *Scheduler) Set(entries []Entry) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	incoming, faults := s.parseAll(entries)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.configured = true
	for id, in := range incoming {
		e := s.entries[id]
		if e == nil {
			e = &entry{id: id, index: -1}
			s.entries[id] = e
			s.adopt(e)
		}
		if in.schedule == nil && e.schedule != nil && !e.gone {
			continue // it does not parse: what it had stays
		}
		e.spec, e.revision, e.schedule, e.gone = specOf(in.Task), in.Revision, in.schedule, false
		s.place(e, now)
	}
	s.retire(incoming, now)
	s.Wake()
	return errors.Join(faults...)
}

// parsed is an Entry with its schedule, nil if that does not parse.
type parsed struct {
	*Entry
	schedule *Schedule
}

// parseAll parses outside the lock; schedules that did not change are kept, and
// those that say the same are parsed once.
func (s *Scheduler) parseAll(entries []Entry) (map[string]parsed, []error) {
	incoming, faults := s.known(entries)
	same := map[string]*Schedule{}
	for i := range entries {
		in := &entries[i]
		id := in.Task.ID
		if p := incoming[id]; p.Entry != in || p.schedule != nil {
			continue
		}
		key := written(in.Task.Schedule)
		schedule := same[key]
		if schedule == nil {
			var err error
			if schedule, err = Parse(in.Task.Schedule); err != nil {
				faults = append(faults, fmt.Errorf("task %s: %w", id, err))
				continue
			}
			same[key] = schedule
		}
		incoming[id] = parsed{in, schedule}
	}
	return incoming, faults
}

// known lists the entries by id, with the schedules that have been parsed before.
func (s *Scheduler) known(entries []Entry) (map[string]parsed, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	incoming := make(map[string]parsed, len(entries))
	var faults []error
	for i := range entries {
		in := &entries[i]
		id := in.Task.ID
		if _, twice := incoming[id]; twice {
			faults = append(faults, fmt.Errorf("task %s: set twice; the first is kept", id))
			continue
		}
		p := parsed{Entry: in}
		if e := s.entries[id]; e != nil && sameSchedule(e.spec.schedule, in.Task.Schedule) {
			p.schedule = e.schedule
		}
		incoming[id] = p
	}
	return incoming, faults
}

// written is a schedule as one text, to find those that say the same.
func written(s task.Schedule) string {
	return strings.Join(append([]string{s.Zone, s.DayMatch}, s.Specs...), "\x00")
}

// sameSchedule compares schedules as written.
func sameSchedule(a, b task.Schedule) bool {
	return a.Zone == b.Zone && a.DayMatch == b.DayMatch && slices.Equal(a.Specs, b.Specs)
}

// adopt gives an entry its stored cursor, once those are loaded.
func (s *Scheduler) adopt(e *entry) {
	if cursor, ok := s.cursors[e.id]; ok {
		e.cursor, e.known = cursor, true
		delete(s.cursors, e.id)
	}
}

// retire marks the entries that are not among the new ones, and makes entries
// of stored cursors whose tasks are gone.
func (s *Scheduler) retire(keep map[string]parsed, now time.Time) {
	for id, e := range s.entries {
		if _, kept := keep[id]; !kept && !e.gone {
			e.gone = true
			s.place(e, now)
		}
	}
	s.retireUnclaimed(now)
}

// retireUnclaimed turns cursors that no task claimed into entries of tasks that
// are gone.
func (s *Scheduler) retireUnclaimed(now time.Time) {
	for id := range s.cursors {
		e := &entry{id: id, index: -1, gone: true}
		s.entries[id] = e
		s.adopt(e)
		s.place(e, now)
	}
}
