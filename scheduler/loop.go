package scheduler

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

const (
	// maxSleep is the longest the loop sleeps without looking at the wall clock.
	maxSleep = 30 * time.Second
	// maxBatch is how many tasks one transaction fires, and maxBatchRows about how
	// many passed instants it records.
	maxBatch     = 500
	maxBatchRows = 20_000
	// maxTries bounds the transactions that one turn attempts after a failure.
	maxTries = 32
	// fireTimeout bounds one transaction, gateTimeout the questions before it.
	fireTimeout = 30 * time.Second
	gateTimeout = 5 * time.Second
	// minHold and maxHold are the first and the longest pause after an error.
	minHold = 250 * time.Millisecond
	maxHold = 30 * time.Second
	// announceAfter is how long runs are kept back from Enqueued at most while
	// others are fired, but for the transaction under way.
	announceAfter = time.Second
	// lateWarning is how late a firing is logged as a warning.
	lateWarning = 10 * time.Second
)

// Keys of log lines.
const (
	keyTask    = "task"
	keyTasks   = "tasks"
	keyRuns    = "runs"
	keySkipped = "skipped"
	keyMissed  = "missed"
	keyLate    = "late"
	keyBack    = "back"
	keyForward = "forward"
	keyHold    = "hold"
)

// Run fires tasks until ctx ends, and then returns nil. Errors of the store are
// logged and tried again; they lose nothing, because instants are computed from
// stored cursors.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.load(ctx) {
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.wake:
		}
		s.turn(ctx)
		s.begin.Do(func() { close(s.started) })
		timer.Reset(s.sleep())
	}
}

// load reads the cursors, however often it takes.
func (s *Scheduler) load(ctx context.Context) bool {
	s.turned.Store(time.Now().UnixNano())
	for hold := minHold; ; hold = min(2*hold, maxHold) {
		bounded, cancel := context.WithTimeout(ctx, fireTimeout)
		cursors, err := s.store.Cursors(bounded)
		cancel()
		if err == nil {
			s.take(cursors)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.log.Error("read cursors", zap.Error(err), zap.Duration(keyHold, hold))
		select {
		case <-ctx.Done():
			return false
		case <-time.After(hold):
		}
	}
}

// take starts from the stored cursors. It also serves a second Run.
func (s *Scheduler) take(cursors map[string]task.Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursors, s.loaded = cursors, true
	now := s.now()
	s.last, s.lasted, s.steps = now, s.lived(), nil
	for _, c := range cursors { // the clock may have gone back while nothing ran
		if c.Through.After(s.last) {
			s.last = c.Through
		}
	}
	for _, e := range s.entries {
		e.known, e.failures = false, 0
		s.adopt(e)
		s.place(e, now)
	}
	if s.configured {
		s.retireUnclaimed(now)
	}
}

// sleep is how long the loop may wait.
func (s *Scheduler) sleep() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		return 0
	}
	if len(s.heap) == 0 {
		return maxSleep
	}
	return max(0, min(maxSleep, s.heap[0].wake.Sub(s.now())))
}

// turn fires everything that is due, then one batch of entries whose cursors
// have to follow a change: those can wait, instants cannot.
func (s *Scheduler) turn(ctx context.Context) {
	began := time.Now()
	t := turn{Scheduler: s, now: s.now(), tries: maxTries}
	s.watchClock(t.now)
	for ctx.Err() == nil {
		jobs := s.due(t.now)
		if len(jobs) == 0 {
			break
		}
		t.fire(ctx, jobs)
		if time.Since(began) > announceAfter {
			t.enqueue()
		}
	}
	t.enqueue()
	if jobs := s.changed(); len(jobs) > 0 && ctx.Err() == nil {
		t.fire(ctx, jobs)
	} else {
		s.hold(jobs, t.now)
	}
	t.enqueue()
	if !t.stuck(ctx) {
		s.turned.Store(time.Now().UnixNano())
	}
	t.sum.At, t.sum.Took = t.now, time.Since(began)
	s.report(t.sum)
}

// stuck tells whether nothing can be fired: the last that was tried all failed. One
// task alone, whose rows the store refuses while it takes others, is not that.
func (t *turn) stuck(ctx context.Context) bool {
	switch {
	case t.sum.Tasks > 0:
		t.failing = false
	case t.sum.Failed > 0:
		t.failing = t.sum.Failed > 1 || errors.Is(t.err, context.DeadlineExceeded) || t.probe(ctx) != nil
	}
	return t.failing
}

// probe is a transaction over nothing.
func (t *turn) probe(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	_, err := t.store.Fire(bounded, nil, func(task.FireState) task.FirePlan { return task.FirePlan{} })
	return err
}

// job is an entry as it stood when its batch was put together.
type job struct {
	entry     *entry
	firing    Firing
	evaluated *Schedule
	stored    string // revision of the cursor
	retired   bool   // it is so in the cursor
	settled   bool   // it is here for an instant
}

// due takes the entries that are due out of the heap, one batch at most.
func (s *Scheduler) due(now time.Time) []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []*job
	for rows := 0; len(s.heap) > 0 && len(jobs) < maxBatch && rows < maxBatchRows && !s.heap[0].wake.After(now); {
		e := heap.Pop(&s.heap).(*entry)
		rows += e.backlog(now)
		jobs = append(jobs, e.job(!e.unsettled(now)))
	}
	return jobs
}

// changed takes a batch of the pending entries.
func (s *Scheduler) changed() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(maxBatch, len(s.pending))
	var jobs []*job
	for _, e := range s.pending[:n] {
		e.pending = false
		jobs = append(jobs, e.job(false))
	}
	if s.pending = s.pending[n:]; len(s.pending) == 0 {
		s.pending = nil
	}
	return jobs
}

func (e *entry) job(settled bool) *job {
	return &job{
		entry: e, evaluated: e.evaluated, stored: e.cursor.ScheduleRevision, retired: e.cursor.Retired, settled: settled,
		firing: Firing{Task: e.spec.task(e.id), Revision: e.revision, Schedule: e.schedule, Retired: e.gone},
	}
}

// turn is one turn of the loop.
type turn struct {
	*Scheduler
	now   time.Time
	tries int
	sum   Turn
	err   error // of the last transaction that failed
	// inserted are runs that Enqueued was not told of yet.
	inserted []task.Run
}

// fire writes a batch. Where the store refuses it, or does not get done with it in
// time, the halves are tried apart, so that one bad row does not hold up the others;
// whatever is left over is held for a while with its instants untouched.
func (t *turn) fire(ctx context.Context, jobs []*job) {
	t.prepare(ctx, jobs)
	t.write(ctx, jobs)
}

// prepare completes what Plan needs and the transaction must not wait for.
func (t *turn) prepare(ctx context.Context, jobs []*job) {
	bounded, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	var asked []*job
	steps := t.stepsNow()
	for _, j := range jobs {
		f := &j.firing
		f.Now, f.Host, f.NewID, f.Steps = t.now, t.opts.Host, t.opts.NewID, steps
		if j.stored != "" && !j.retired && (f.Retired || j.stored != f.Schedule.Revision()) {
			f.Old = t.old(j)
		}
		if t.opts.Gate == nil && t.opts.Allow == nil || f.Retired || !f.Task.Enabled || !j.settled && !f.renamed() && len(f.Schedule.once(t.now)) == 0 {
			continue
		}
		asked = append(asked, j)
	}
	for _, j := range t.screen(bounded, asked) {
		t.ask(bounded, &j.firing)
	}
}

// ask asks what a batch may not know by itself: whether the task may run at all,
// and how often.
func (t *turn) ask(ctx context.Context, f *Firing) {
	if t.opts.Gate != nil {
		if reason, detail := t.opts.Gate(ctx, f.Task.ID, t.now); reason != "" {
			f.Refused = because(reason, detail)
			return
		}
	}
	if t.opts.Allow != nil {
		f.Allowances = t.opts.Allow(ctx, f.Task.ID, t.now)
	}
}

// screen leaves out the jobs that Gate has nothing to say about.
func (t *turn) screen(ctx context.Context, jobs []*job) []*job {
	if t.opts.Screen == nil || len(jobs) == 0 {
		return jobs
	}
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.firing.Task.ID
	}
	named := make(map[string]bool, len(jobs))
	for _, id := range t.opts.Screen(ctx, ids) {
		named[id] = true
	}
	return slices.DeleteFunc(jobs, func(j *job) bool { return !named[j.firing.Task.ID] })
}

// old finds the schedule of a cursor's revision.
func (t *turn) old(j *job) *Schedule {
	for _, s := range []*Schedule{j.evaluated, j.firing.Schedule} {
		if s != nil && s.named(j.stored) {
			return s
		}
	}
	if t.opts.OldSchedule != nil {
		if source, ok := t.opts.OldSchedule(j.stored); ok {
			if schedule, err := Parse(source); err == nil && schedule.named(j.stored) {
				return schedule
			}
		}
	}
	t.log.Warn("the schedule before the edit is not known; what was due under it is not recorded",
		zap.String(keyTask, j.firing.Task.ID))
	return nil
}

func (t *turn) write(ctx context.Context, jobs []*job) {
	if t.tries == 0 || ctx.Err() != nil {
		t.sum.Failed += len(jobs)
		t.hold(jobs, t.now)
		return
	}
	plans, allowed := make(map[string]outcome, len(jobs)), allowancesOf(jobs)
	runs, err := t.transact(ctx, jobs, plans)
	if err == nil {
		t.accept(jobs, plans)
		t.announce(runs, plans)
		allowed.tell()
		return
	}
	allowed.restore()
	t.tries--
	t.err = err
	if ctx.Err() == nil {
		t.log.Error("fire tasks", zap.Error(err), zap.Int(keyTasks, len(jobs)))
	}
	if len(jobs) > 1 {
		t.write(ctx, jobs[:len(jobs)/2])
		t.write(ctx, jobs[len(jobs)/2:])
		return
	}
	t.sum.Failed += len(jobs)
	t.hold(jobs, t.now)
}

// outcome is a task's plan and those of the runs it ends that a worker may hold.
type outcome struct {
	plan task.FirePlan
	stop []string
}

func (t *turn) transact(ctx context.Context, jobs []*job, plans map[string]outcome) ([]task.Run, error) {
	byTask := make(map[string]*job, len(jobs))
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		byTask[j.entry.id] = j
		names = append(names, j.entry.id)
	}
	bounded, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	return t.store.Fire(bounded, names, func(state task.FireState) task.FirePlan {
		f := byTask[state.Task].firing
		if byTask[state.Task].stored != state.Cursor.ScheduleRevision {
			f.Old = nil // another node has moved the cursor meanwhile
		}
		plan := Plan(f, state)
		plans[state.Task] = outcome{plan: plan, stop: held(state.Active, plan.Cancel)}
		return plan
	})
}

// held are the cancelled runs that the transaction itself does not end.
func held(active []task.Run, cancelled []string) []string {
	if len(cancelled) == 0 {
		return nil
	}
	var stop []string
	for _, run := range active { // replace cancels all of these
		if run.Execution == task.Running || run.Execution == task.Interrupted {
			stop = append(stop, run.ID)
		}
	}
	return stop
}

// accept takes the written cursors over and finds each task's next instant.
func (t *turn) accept(jobs []*job, plans map[string]outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Tasks += len(jobs)
	t.turned.Store(time.Now().UnixNano())
	for _, j := range jobs {
		e := j.entry
		e.cursor, e.known, e.failures = plans[e.id].plan.Cursor, true, 0
		e.evaluated = j.firing.Schedule
		if j.firing.Retired {
			e.evaluated = nil
		}
		t.place(e, t.now)
	}
}

// announce tells the others what was written.
func (t *turn) announce(runs []task.Run, plans map[string]outcome) {
	for _, done := range plans {
		for _, o := range done.plan.Occurrences {
			switch o.End {
			case task.EndSkipped:
				t.sum.Skipped += max(1, o.Count)
			case task.EndMissed:
				t.sum.Missed += max(1, o.Count)
			}
		}
		for _, id := range done.stop {
			if t.opts.Cancel != nil {
				t.opts.Cancel(id, task.ReasonReplaced)
			}
		}
	}
	t.sum.Runs += len(runs)
	for _, run := range runs {
		if run.Trigger == task.TriggerSchedule {
			t.sum.Late = max(t.sum.Late, t.now.Sub(run.Due))
		}
	}
	t.inserted = append(t.inserted, runs...)
}

// enqueue tells of the runs that were inserted since it was last called.
func (t *turn) enqueue() {
	if len(t.inserted) > 0 && t.opts.Enqueued != nil {
		t.opts.Enqueued(t.inserted)
	}
	t.inserted = nil
}

// hold puts entries back with their instants untouched, to be tried again after
// a pause that doubles up to maxHold.
func (s *Scheduler) hold(jobs []*job, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		e := j.entry
		pause := min(maxHold, minHold<<min(e.failures, 10))
		e.failures++
		s.queue(e, now.Add(pause))
	}
}

// report logs a turn that settled something, and shows it to Observe.
func (s *Scheduler) report(sum Turn) {
	if sum.Tasks == 0 && sum.Failed == 0 {
		return
	}
	if sum.Runs+sum.Skipped+sum.Missed > 0 {
		fields := []zap.Field{
			zap.Int(keyRuns, sum.Runs), zap.Int(keySkipped, sum.Skipped),
			zap.Int(keyMissed, sum.Missed), zap.Duration(keyLate, sum.Late),
		}
		switch {
		case sum.Late > lateWarning:
			s.log.Warn("fired late", fields...)
		case sum.Skipped+sum.Missed > 0:
			s.log.Info("fired", fields...)
		default:
			s.log.Debug("fired", fields...)
		}
	}
	if s.opts.Observe != nil {
		s.opts.Observe(sum)
	}
}
