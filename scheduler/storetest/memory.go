package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"runnerd/task"
)

// Memory is a scheduler.Store in memory: the deterministic fake. Its zero value
// is empty and ready. Its methods may be called from several goroutines.
type Memory struct {
	mu          sync.Mutex
	cursors     map[string]task.Cursor
	occurrences map[occurrenceKey]task.Occurrence
	runs        map[string]task.Run
	byTask      map[string][]string // run ids, in order of insertion
	paused      map[string]string
	failures    []error
	fires       int
	undo        []func() // what takes back the open transaction
}

type occurrenceKey struct {
	task, revision string
	due            int64
}

func keyOf(o task.Occurrence) occurrenceKey {
	return occurrenceKey{o.Task, o.ScheduleRevision, o.Due.UnixNano()}
}

// Cursors returns a copy of the stored cursors.
func (m *Memory) Cursors(ctx context.Context) (map[string]task.Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail(ctx); err != nil {
		return nil, err
	}
	cursors := map[string]task.Cursor{}
	maps.Copy(cursors, m.cursors)
	return cursors, nil
}

// Fire writes plan after plan and takes everything back if one cannot be
// written.
func (m *Memory) Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fires++
	if err := m.fail(ctx); err != nil {
		return nil, err
	}
	m.init()
	m.undo = nil
	var inserted []task.Run
	for _, id := range tasks {
		cursor, known := m.cursors[id]
		plan := decide(task.FireState{
			Task: id, Cursor: cursor, Known: known, Active: m.active(id), Ran: m.ran(id, cursor), Paused: m.pauseOf(id),
		})
		runs, err := m.write(id, plan)
		if err != nil {
			m.rollback()
			return nil, err
		}
		inserted = append(inserted, runs...)
	}
	return inserted, nil
}

func (m *Memory) init() {
	if m.cursors == nil {
		m.cursors = map[string]task.Cursor{}
		m.occurrences = map[occurrenceKey]task.Occurrence{}
		m.runs = map[string]task.Run{}
		m.byTask = map[string][]string{}
	}
}

func (m *Memory) rollback() {
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
}

// put sets a key, and remembers how to take that back.
func put[K comparable, V any](m *Memory, in map[K]V, key K, value V) {
	old, had := in[key]
	in[key] = value
	m.undo = append(m.undo, func() {
		delete(in, key)
		if had {
			in[key] = old
		}
	})
}

// fail answers the next failure that FailNext ordered.
func (m *Memory) fail(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(m.failures) == 0 {
		return nil
	}
	err := m.failures[0]
	m.failures = m.failures[1:]
	return err
}

func (m *Memory) pauseOf(id string) string {
	if note, ok := m.paused[id]; ok {
		return note
	}
	return m.paused[""]
}

// active are a task's runs that count for overlap, oldest first.
func (m *Memory) active(id string) []task.Run {
	var active []task.Run
	for _, runID := range m.byTask[id] {
		if run := m.runs[runID]; run.Execution.Active() {
			active = append(active, run)
		}
	}
	slices.SortStableFunc(active, func(a, b task.Run) int { return a.Due.Compare(b.Due) })
	return active
}

// ran are the due instants after the cursor that became runs, where a clock was
// ahead.
func (m *Memory) ran(id string, c task.Cursor) (ran []time.Time) {
	if !c.LastFired.After(c.Through) {
		return nil
	}
	for _, o := range m.occurrences {
		if o.Task == id && o.End == task.EndRun && o.Due.After(c.Through) {
			ran = append(ran, o.Due)
		}
	}
	slices.SortFunc(ran, time.Time.Compare)
	return slices.CompactFunc(ran, time.Time.Equal)
}

func (m *Memory) write(id string, plan task.FirePlan) ([]task.Run, error) {
	m.withdraw(id, plan)
	for _, runID := range plan.Cancel {
		run, ok := m.runs[runID]
		if ok && (run.Execution == task.Queued || run.Execution == task.Waiting) {
			run.Execution = task.Cancelled
			put(m, m.runs, runID, run)
		}
	}
	dropped := map[string]bool{}
	for _, o := range plan.Occurrences {
		if _, exists := m.occurrences[keyOf(o)]; exists {
			dropped[o.RunID] = true
			continue
		}
		put(m, m.occurrences, keyOf(o), o)
	}
	var inserted []task.Run
	for _, run := range plan.Runs {
		if dropped[run.ID] {
			continue
		}
		if _, exists := m.runs[run.ID]; exists {
			return nil, fmt.Errorf("insert run %s: the id is taken", run.ID)
		}
		put(m, m.runs, run.ID, run)
		put(m, m.byTask, id, append(slices.Clip(m.byTask[id]), run.ID))
		inserted = append(inserted, run)
	}
	put(m, m.cursors, id, plan.Cursor)
	return inserted, nil
}

func (m *Memory) withdraw(id string, plan task.FirePlan) {
	after := plan.Withdraw
	if after.IsZero() {
		return
	}
	for key, o := range m.occurrences {
		switch {
		case o.Task != id || o.End == task.EndRun:
		case o.Due.After(after):
			delete(m.occurrences, key)
			m.undo = append(m.undo, func() { m.occurrences[key] = o })
		case o.Until.After(after) && plan.Cut != nil:
			put(m, m.occurrences, key, plan.Cut(o))
		}
	}
}

// Occurrences returns a task's rows, oldest due first.
func (m *Memory) Occurrences(id string) []task.Occurrence {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rows []task.Occurrence
	for _, o := range m.occurrences {
		if o.Task == id {
			rows = append(rows, o)
		}
	}
	slices.SortFunc(rows, func(a, b task.Occurrence) int { return a.Due.Compare(b.Due) })
	return rows
}

// Runs returns a task's runs, oldest due first.
func (m *Memory) Runs(id string) []task.Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	var runs []task.Run
	for _, runID := range m.byTask[id] {
		runs = append(runs, m.runs[runID])
	}
	slices.SortStableFunc(runs, func(a, b task.Run) int { return a.Due.Compare(b.Due) })
	return runs
}

// Finish ends every active run of a task as completed, as a worker would.
func (m *Memory) Finish(id string) {
	m.SetExecution(id, task.Completed)
}

// End ends one run as completed.
func (m *Memory) End(runID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := m.runs[runID]
	run.Execution = task.Completed
	m.runs[runID] = run
}

// SetExecution moves every active run of a task.
func (m *Memory) SetExecution(id string, to task.Execution) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, runID := range m.byTask[id] {
		if run := m.runs[runID]; run.Execution.Active() {
			run.Execution = to
			m.runs[runID] = run
		}
	}
}

// Pause sets the note of a pause of one task, or of everything for the empty
// id. An empty note ends it.
func (m *Memory) Pause(id, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused == nil {
		m.paused = map[string]string{}
	}
	delete(m.paused, id)
	if note != "" {
		m.paused[id] = note
	}
}

// FailNext makes the next calls fail, one error each, nil standing for a call
// that works.
func (m *Memory) FailNext(errs ...error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failures = append(m.failures, errs...); len(errs) == 0 {
		m.failures = nil
	}
}

// Fires is the number of Fire calls so far, the failed ones included.
func (m *Memory) Fires() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fires
}
