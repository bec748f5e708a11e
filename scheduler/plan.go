package scheduler

import (
	"fmt"
	"time"

	"runnerd/task"
)

const (
	// onTime is how late the newest instant may be and still fire as usual.
	onTime = 60 * time.Second
	// CatchUpPace lies between the earliest starts of the runs that catch_up: all
	// makes of one task.
	CatchUpPace = 10 * time.Second
	// clockSlack is how far a cursor may lie ahead of the clock without a backward
	// jump being seen in it: clocks are slewed, and those of two nodes differ.
	clockSlack = time.Second
)

// Firing is what Plan needs to know of a task besides its stored state.
type Firing struct {
	Task task.Task
	// Revision of the task's spec, for its runs.
	Revision string
	Schedule *Schedule
	// Old is the schedule of the stored cursor's revision, needed where that is
	// another one or the task is retired; nil if nobody knows it any more.
	Old *Schedule
	// Retired says that the task's file is gone; Schedule is not read then.
	Retired bool
	// Refused is the reason not to run what would run; empty if there is none.
	Refused string
	// Allowances bound how many may run; Plan takes from them.
	Allowances []*Allowance
	Now        time.Time
	// Steps are where the clock was set forward over what nobody saw come due.
	Steps []Step
	// Host is part of the jitter.
	Host  string
	NewID func() string
}

// renamed tells whether the stored revision is another name of the same schedule.
func (f *Firing) renamed() bool { return f.Old != nil && f.Old.Revision() == f.Schedule.Revision() }

// Plan decides what becomes of a task's passed instants (DESIGN, section 8). It
// does no I/O, reads no clock and changes nothing but the allowances. For a task that has nothing to record it
// answers the cursor alone.
func Plan(f Firing, state task.FireState) task.FirePlan {
	f.Now = f.Now.Round(0).UTC()
	if f.Schedule == nil {
		f.Schedule = &Schedule{revision: Revision(task.Schedule{})}
	}
	p := planner{Firing: f, state: state}
	p.plan.Cursor = state.Cursor
	p.plan.Cursor.Task = f.Task.ID
	switch cursor := state.Cursor; {
	case !state.Known:
		p.begin()
		if !f.Retired {
			p.settle(passed{newest: p.Schedule.once(f.Now)}, task.ReasonPast)
		}
	case cursor.Retired && f.Retired:
		p.goBack()
	case cursor.Retired:
		p.goBack()
		p.begin()
	case f.Retired || !p.same():
		p.change()
	default:
		p.goOn()
	}
	return p.plan
}

// ahead tells whether the clock has gone back since the cursor was written.
func ahead(c task.Cursor, now time.Time) bool {
	return c.Through.After(now.Add(clockSlack))
}

type planner struct {
	Firing
	state task.FireState
	plan  task.FirePlan
}

// same tells whether the cursor is of the schedule that is in force, be it under a
// name that an earlier version gave it.
func (p *planner) same() bool {
	return p.state.Cursor.ScheduleRevision == p.Schedule.Revision() || p.renamed()
}

// goOn settles what has passed since the cursor.
func (p *planner) goOn() {
	from := p.state.Cursor.Through
	p.plan.Cursor.ScheduleRevision = p.Schedule.Revision()
	p.goBack()
	if p.Now.After(from) {
		p.plan.Cursor.Through = p.Now
		p.settle(p.Schedule.passed(from, p.Now, p.state.Ran), task.ReasonDown)
	}
}

// begin starts a task's cursor at now: at first sight, and when a retired task
// comes back. What passed before is not caught up.
func (p *planner) begin() {
	p.plan.Cursor.ScheduleRevision = p.Schedule.Revision()
	p.plan.Cursor.Through = p.Now
	p.plan.Cursor.Retired = p.Retired
}

// change records what the old schedule left unfired and starts the cursor of
// the new one, or ends it where the task is gone.
func (p *planner) change() {
	old := p.state.Cursor
	if p.Old != nil {
		left := p.Old.passed(old.Through, p.Now, p.state.Ran)
		p.rows(left, task.EndMissed, task.ReasonScheduleChanged)
	}
	p.goBack()
	if p.Retired {
		p.plan.Cursor.Through = p.Now
		p.plan.Cursor.Retired = true
		return
	}
	p.begin()
	p.settle(passed{newest: p.newSingles()}, task.ReasonPast)
}

// newSingles are the new schedule's passed single instants that the old one did
// not have.
func (p *planner) newSingles() []time.Time {
	seen := map[time.Time]bool{}
	if p.Old != nil {
		for _, t := range p.Old.once(p.Now) {
			seen[t] = true
		}
	}
	var fresh []time.Time
	for _, t := range p.state.Ran {
		seen[t] = true
	}
	for _, t := range p.Schedule.once(p.Now) {
		if !seen[t] && (p.Old != nil || t.After(p.state.Cursor.Through)) {
			fresh = append(fresh, t)
		}
	}
	return fresh
}

// goBack follows a clock that went back, if it did: the cursor returns to now, and
// what did not run and lies ahead again gets its chance.
func (p *planner) goBack() {
	if !ahead(p.state.Cursor, p.Now) {
		return
	}
	p.plan.Cursor.Through, p.plan.Withdraw, p.plan.Cut = p.Now, p.Now, p.cut
}

// cut ends a range row where the clock went back to. Where the row is of a schedule
// that nobody knows any more, its instants count as evenly spread.
func (p *planner) cut(o task.Occurrence) task.Occurrence {
	for _, s := range []*Schedule{p.Schedule, p.Old} {
		if s == nil || s.Revision() != o.ScheduleRevision {
			continue
		}
		if last, ok := s.last(o.Due.Add(-1), p.Now); ok {
			o.Until, o.Count = last, s.count(o.Due.Add(-1), last)
			return o
		}
	}
	part := float64(p.Now.Sub(o.Due)) / float64(max(o.Until.Sub(o.Due), 1))
	o.Until, o.Count = p.Now, max(1, int(float64(o.Count)*part))
	return o
}

// settle gives each passed instant its row. down is the reason of those that
// nothing else explains.
func (p *planner) settle(in passed, down string) {
	if idle := p.idle(); idle != "" {
		p.rows(in, task.EndSkipped, idle)
		return
	}
	blocked, replaced := p.overlap()
	for _, older := range in.older {
		p.rows(passed{older: []stretch{older}}, task.EndMissed, p.unseen(older.first, down))
	}
	started := 0
	for i, due := range in.newest {
		trigger, missed := p.rule(due, i == len(in.newest)-1, down)
		switch {
		case missed != "":
			p.row(due, task.EndMissed, missed)
		case p.Refused != "":
			p.row(due, task.EndSkipped, p.Refused)
		case blocked != "":
			p.row(due, task.EndSkipped, blocked)
		case p.spent() != "":
			p.row(due, task.EndSkipped, p.spent())
		default:
			p.take()
			p.run(due, trigger, started)
			p.plan.Cancel = replaced
			started++
		}
	}
}

// idle is why the task runs nothing at all now; empty if it may run.
func (p *planner) idle() string {
	switch {
	case !p.Task.Enabled:
		return task.ReasonDisabled
	case p.state.Paused != "":
		return because(task.ReasonPaused, p.state.Paused)
	}
	return ""
}

// because joins a reason and its detail.
func because(reason, detail string) string {
	if detail == "" {
		return reason
	}
	return reason + ": " + detail
}

// rule tells whether an instant is to run, and else why it was missed. The
// newest fires as usual if it is on time; with catch_up: once it is the one
// that counts, on time or not.
func (p *planner) rule(due time.Time, newest bool, down string) (trigger task.Trigger, missed string) {
	late := p.Now.Sub(due)
	switch {
	case newest && late <= onTime:
		return task.TriggerSchedule, ""
	case p.Task.CatchUp == task.CatchUpSkip:
		return "", p.unseen(due, down)
	case late > p.Task.CatchUpWindow:
		return "", p.noticed(due, task.ReasonWindow)
	case p.Task.CatchUp == task.CatchUpAll, newest:
		return task.TriggerCatchUp, ""
	}
	return "", p.noticed(due, task.ReasonSuperseded)
}

// overlap is what the runs that are active now mean for those to come: blocked
// says why there may be none, replaced which ones they end. The runs planned
// together do not stand in each other's way: those of catch_up: all are meant
// to follow one another. Nor does one that is to be caught up and has not begun
// stand in anybody's.
func (p *planner) overlap() (blocked string, replaced []string) {
	var active []task.Run
	for _, run := range p.state.Active {
		if !toCatchUp(run) {
			active = append(active, run)
		}
	}
	if len(active) == 0 {
		return "", nil
	}
	switch p.Task.Overlap {
	case task.OverlapQueue:
		for _, run := range active {
			if unbegun(run) {
				return because(task.ReasonQueueFull, "run "+run.ID), nil
			}
		}
		return "", nil
	case task.OverlapReplace:
		for _, run := range active {
			replaced = append(replaced, run.ID)
		}
		return "", replaced
	}
	oldest := active[0]
	return because(task.ReasonOverlap, fmt.Sprintf("run %s is %s", oldest.ID, oldest.Execution)), nil
}

// unbegun tells whether no worker has taken the run up yet.
func unbegun(run task.Run) bool { return run.Execution == task.Queued && run.StartedAt.IsZero() }

// toCatchUp tells whether the run is of an instant that is to be caught up, and has
// not begun.
func toCatchUp(run task.Run) bool { return run.Trigger == task.TriggerCatchUp && unbegun(run) }

// start is when a run may start, but for the task's jitter. The n-th of a batch to
// be caught up starts n paces from now, or from the last of those that wait already.
// A fresh run that comes after such ones is ready no earlier than they are, so that
// of what is ready the oldest goes first.
func (p *planner) start(due time.Time, trigger task.Trigger, n int) time.Time {
	base, waiting := p.Now, n > 0
	for _, run := range p.state.Active {
		if !toCatchUp(run) {
			continue
		}
		waiting = true
		if next := run.NotBefore.Add(CatchUpPace - p.jitter()); trigger == task.TriggerCatchUp && next.After(base) {
			base = next
		}
	}
	switch {
	case trigger == task.TriggerCatchUp:
		return base.Add(time.Duration(n) * CatchUpPace)
	case waiting:
		return p.Now
	}
	return due
}

func (p *planner) jitter() time.Duration { return Jitter(p.Task.ID, p.Host, p.Task.Jitter) }

// run plans a run, the n-th of the plan.
func (p *planner) run(due time.Time, trigger task.Trigger, n int) {
	id := p.NewID()
	p.plan.Runs = append(p.plan.Runs, task.Run{
		ID: id, Task: p.Task.ID, Session: p.Task.SessionID(), Revision: p.Revision, Due: due, Trigger: trigger,
		Attempt: 1, NotBefore: p.start(due, trigger, n).Add(p.jitter()),
		Execution: task.Queued, Delivery: task.DeliveryNone, CreatedAt: p.Now,
	})
	p.row(due, task.EndRun, "")
	p.plan.Occurrences[len(p.plan.Occurrences)-1].RunID = id
	if last := &p.plan.Cursor.LastFired; due.After(*last) {
		*last = due
	}
}

// rows records all of the passed instants alike, under the revision that the
// plan's cursor has at this moment.
func (p *planner) rows(in passed, end task.End, reason string) {
	for _, older := range in.older {
		p.row(older.first, end, reason)
		wide := &p.plan.Occurrences[len(p.plan.Occurrences)-1]
		wide.Until, wide.Count = older.last, older.count
	}
	for _, due := range in.newest {
		p.row(due, end, reason)
	}
}

func (p *planner) row(due time.Time, end task.End, reason string) {
	p.plan.Occurrences = append(p.plan.Occurrences, task.Occurrence{
		Task: p.Task.ID, ScheduleRevision: p.plan.Cursor.ScheduleRevision, Due: due, Count: 1,
		End: end, Reason: reason, RecordedAt: p.Now,
	})
}
