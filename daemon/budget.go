package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/alert"
	"runnerd/policy"
	"runnerd/scheduler"
	"runnerd/task"
)

// budget remembers which tasks were stopped by a daily limit and under which: for
// the rest of that day they do not start again only to be stopped once more. An
// edited limit, or a new day, forgets it.
type budget struct {
	mu      sync.Mutex
	stopped map[string]string // by task
}

func (b *budget) stop(taskID, under string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped == nil {
		b.stopped = map[string]string{}
	}
	b.stopped[taskID] = under
}

func (b *budget) isStopped(taskID, under string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, ok := b.stopped[taskID]
	if ok && was != under {
		delete(b.stopped, taskID)
	}
	return ok && was == under
}

// day is one task's day and the daemon's, with the limits in force.
type day struct {
	task, total time.Time // when they began
	names       task.Days
	eff         policy.Effective
	siblings    []string // the tasks of its project, itself included
}

// account is one budget that a task draws on, with what it takes to count its runs.
type account struct {
	policy.Account
	whom  string // as people are told of it
	began time.Time
	tasks []string // whose runs count; none means all
}

// accounts are the budgets of a day, the task's own first.
func (t day) accounts(spent task.DaySpend) []account {
	var list []account
	for _, acc := range policy.Accounts(t.eff, spent) {
		a := account{acc, alert.Everyone, t.total, nil}
		switch acc.Scope {
		case policy.ScopeTask:
			a = account{acc, t.eff.Task, t.task, []string{t.eff.Task}}
		case policy.ScopeProject:
			a.whom, a.tasks = alert.Project(t.eff.Project), t.siblings
		}
		list = append(list, a)
	}
	return list
}

// under is what a stop depends on: the days and the limits.
func (t day) under() string {
	return fmt.Sprint(t.names, asJSON(t.eff.Limits), asJSON(t.eff.Shared), asJSON(t.eff.Day))
}

func asJSON(l policy.Limits) string {
	data, err := l.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// dayOf reads what a task may spend today. ok is false if it is not known; then
// the run itself finds out.
func (d *Daemon) dayOf(ctx context.Context, taskID string, now time.Time) (today day, ok bool) {
	set := d.applied.Load()
	if set == nil {
		return today, false
	}
	t, ok := set.Tasks[taskID]
	if !ok {
		return today, false
	}
	eff, err := d.rules.Effective(ctx, taskID, t.Task.SessionID(), t.Task.Project)
	if err != nil {
		return today, false // the run itself will refuse, and say why
	}
	zone, err := time.LoadLocation(t.Task.Schedule.Zone)
	if err != nil {
		zone = d.zone
	}
	today = day{task: dawn(now, zone), total: dawn(now, d.zone), eff: eff}
	today.names = task.Days{Task: now.In(zone).Format(time.DateOnly), Total: now.In(d.zone).Format(time.DateOnly), Project: eff.Project}
	for _, id := range set.TaskIDs() {
		if eff.Project != "" && set.Tasks[id].Task.Project == eff.Project {
			today.siblings = append(today.siblings, id)
		}
	}
	return today, true
}

// dawn is when the day began: at midnight or, where clocks skip that, when they
// went on.
func dawn(now time.Time, zone *time.Location) time.Time {
	y, m, day := now.In(zone).Date()
	start := time.Date(y, m, day, 0, 0, 0, 0, zone)
	if _, skipped := start.ZoneBounds(); start.Day() != day && !skipped.IsZero() {
		return skipped
	}
	return start
}

// screen names the tasks that gate has to be asked about: those that a limit per
// day could stop, or all, if that cannot be told at once or a budget was spent that
// people have yet to hear is there again.
func (d *Daemon) screen(ctx context.Context, tasks []string) []string {
	set := d.applied.Load()
	if set == nil {
		return tasks
	}
	for _, t := range d.care.board.Open("") {
		if t.Event == alert.EventBudget {
			return tasks
		}
	}
	limits, err := d.rules.DayLimits(ctx, tasks)
	if err != nil || limits.Daemon {
		return tasks
	}
	var ask []string
	for _, id := range tasks {
		if limits.Tasks[id] || limits.Projects[set.Tasks[id].Task.Project] {
			ask = append(ask, id)
		}
	}
	return ask
}

// gate says why an instant of a task must be skipped before it becomes a run: the
// day's budget is spent. People are told once, and once when it is over.
func (d *Daemon) gate(ctx context.Context, taskID string, now time.Time) (reason, detail string) {
	today, ok := d.dayOf(ctx, taskID, now)
	if !ok {
		return "", ""
	}
	spent, err := d.main.Spent(ctx, taskID, today.names)
	if err != nil {
		d.log.Warn("budget not read", zap.String("task", taskID), zap.Error(err))
		return "", ""
	}
	list := today.accounts(spent)
	for i, acc := range list {
		detail, err := d.over(ctx, acc, now)
		if detail == "" && i == 0 && d.care.budget.isStopped(taskID, today.under()) {
			detail = "what is left of the day's budget does not pay for another call"
		}
		switch {
		case err != nil:
			d.log.Warn("budget not read", zap.String("task", taskID), zap.Error(err))
			return "", ""
		case detail != "":
			d.care.board.Spent(acc.whom, detail)
			return task.ReasonBudget, detail
		}
	}
	for _, acc := range list {
		d.care.board.NewDay(acc.whom, acc.began)
	}
	return "", ""
}

// over says which limit of an account is used up: on spend, or on runs since the
// day began.
func (d *Daemon) over(ctx context.Context, acc account, now time.Time) (string, error) {
	if detail := acc.Over(); detail != "" || acc.Limits.RunsPerDay == nil {
		return detail, nil
	}
	left, err := d.runsLeft(ctx, acc, now)
	if err != nil || left > 0 {
		return "", err
	}
	return acc.reached(), nil
}

func (a account) reached() string {
	return fmt.Sprintf("%sruns_per_day of %d is reached", a.Whose, *a.Limits.RunsPerDay)
}

// runsLeft is how many more runs may start today under an account's limit.
func (d *Daemon) runsLeft(ctx context.Context, acc account, now time.Time) (int, error) {
	n, err := d.main.RunsBetween(ctx, acc.began, now.Add(time.Microsecond), acc.tasks...)
	return *acc.Limits.RunsPerDay - int(n), err
}

// allow says how many more runs may start today: of the task, of its project, and
// in all. Runs that are planned at the same moment count there and not yet in gate:
// tasks that share an account share its allowance.
func (d *Daemon) allow(ctx context.Context, taskID string, now time.Time) []*scheduler.Allowance {
	today, ok := d.dayOf(ctx, taskID, now)
	if !ok {
		return nil
	}
	if d.care.turn.at != now {
		d.care.turn.at, d.care.turn.shared = now, map[string]*scheduler.Allowance{}
	}
	var list []*scheduler.Allowance
	for _, acc := range today.accounts(task.DaySpend{}) {
		if acc.Limits.RunsPerDay == nil {
			continue
		}
		allowance := d.care.turn.shared[acc.whom]
		if allowance == nil {
			left, err := d.runsLeft(ctx, acc, now)
			if err != nil {
				d.log.Warn("budget not read", zap.String("task", taskID), zap.Error(err))
				continue
			}
			detail := acc.reached()
			allowance = &scheduler.Allowance{
				Left: left, Reason: task.ReasonBudget + ": " + detail, Spent: func() { d.care.board.Spent(acc.whom, detail) },
			}
			d.care.turn.shared[acc.whom] = allowance
		}
		list = append(list, allowance)
	}
	return list
}

// noteBudget remembers a task that a daily limit stopped in the middle of a run.
func (d *Daemon) noteBudget(ctx context.Context, run task.Run) {
	if !alert.DayIsSpent(run) {
		return
	}
	if today, ok := d.dayOf(ctx, run.Task, time.Now()); ok {
		d.care.budget.stop(run.Task, today.under())
	}
}
