package main

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
}

// under is what a stop depends on: the days and the limits.
func (d day) under() string {
	return fmt.Sprint(d.names, text(d.eff.Limits), text(d.eff.Day))
}

func text(l policy.Limits) string {
	data, err := l.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// dayOf reads what a task may spend today. ok is false if it is not known; then
// the run itself finds out.
func (h *house) dayOf(ctx context.Context, taskID string, now time.Time) (d day, ok bool) {
	set := h.applied.Load()
	if set == nil {
		return d, false
	}
	t, ok := set.Tasks[taskID]
	if !ok {
		return d, false
	}
	eff, err := h.rules.Effective(ctx, taskID, t.Task.SessionID(), t.Task.Project)
	if err != nil {
		return d, false // the run itself will refuse, and say why
	}
	zone, err := time.LoadLocation(t.Task.Schedule.Zone)
	if err != nil {
		zone = h.zone
	}
	d = day{task: dawn(now, zone), total: dawn(now, h.zone), eff: eff}
	d.names = task.Days{Task: now.In(zone).Format(time.DateOnly), Total: now.In(h.zone).Format(time.DateOnly)}
	return d, true
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
func (h *house) screen(ctx context.Context, tasks []string) []string {
	set := h.applied.Load()
	if set == nil {
		return tasks
	}
	for _, t := range h.care.board.Open("") {
		if t.Event == alert.EventBudget {
			return tasks
		}
	}
	limits, err := h.rules.DayLimits(ctx, tasks)
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
func (h *house) gate(ctx context.Context, taskID string, now time.Time) (reason, detail string) {
	d, ok := h.dayOf(ctx, taskID, now)
	if !ok {
		return "", ""
	}
	own, total, err := h.over(ctx, taskID, now, d)
	switch {
	case err != nil:
		h.log.Warn("budget not read", zap.String("task", taskID), zap.Error(err))
		return "", ""
	case own != "":
		h.care.board.Spent(taskID, own)
		return task.ReasonBudget, own
	case total != "":
		h.care.board.Spent(alert.Everyone, total)
		return task.ReasonBudget, total
	}
	h.care.board.NewDay(taskID, d.task)
	h.care.board.NewDay(alert.Everyone, d.total)
	return "", ""
}

// over says which daily limits are used up: the task's own and the daemon's.
func (h *house) over(ctx context.Context, taskID string, now time.Time, d day) (own, total string, err error) {
	spent, all, err := h.main.Spent(ctx, taskID, d.names)
	if err != nil {
		return "", "", err
	}
	own, total = overDay(d.eff.Limits, spent), overDay(d.eff.Day, all)
	if own == "" && h.care.budget.isStopped(taskID, d.under()) {
		own = "what is left of the day's budget does not pay for another call"
	}
	if own == "" {
		own, err = h.overRuns(ctx, taskID, d.eff.Limits.RunsPerDay, d.task, now)
	}
	if err == nil && total == "" {
		total, err = h.overRuns(ctx, "", d.eff.Day.RunsPerDay, d.total, now)
	}
	if total != "" {
		total = "the daemon's " + total
	}
	return own, total, err
}

// overRuns says that there were as many runs since dawn as a day may have.
func (h *house) overRuns(ctx context.Context, taskID string, limit *int, dawn, now time.Time) (string, error) {
	if limit == nil {
		return "", nil
	}
	n, err := h.main.RunsBetween(ctx, taskID, dawn, now.Add(time.Microsecond))
	if err != nil || n < int64(*limit) {
		return "", err
	}
	return fmt.Sprintf("runs_per_day of %d is reached", *limit), nil
}

// allow says how many more runs may start today: of the task, and in all. Runs that
// are planned at the same moment count there and not yet in gate.
func (h *house) allow(ctx context.Context, taskID string, now time.Time) []*scheduler.Allowance {
	d, ok := h.dayOf(ctx, taskID, now)
	if !ok {
		return nil
	}
	var list []*scheduler.Allowance
	if limit := d.eff.Limits.RunsPerDay; limit != nil {
		list = h.allowRuns(ctx, list, taskID, *limit, d.task, now)
	}
	if limit := d.eff.Day.RunsPerDay; limit != nil {
		if h.care.total.at != now { // all tasks of a turn share it
			h.care.total.at = now
			h.care.total.list = h.allowRuns(ctx, nil, "", *limit, d.total, now)
		}
		list = append(list, h.care.total.list...)
	}
	return list
}

func (h *house) allowRuns(ctx context.Context, list []*scheduler.Allowance, taskID string, limit int, dawn, now time.Time) []*scheduler.Allowance {
	n, err := h.main.RunsBetween(ctx, taskID, dawn, now.Add(time.Microsecond))
	if err != nil {
		h.log.Warn("budget not read", zap.String("task", taskID), zap.Error(err))
		return list
	}
	whom, detail := taskID, fmt.Sprintf("runs_per_day of %d is reached", limit)
	if taskID == "" {
		whom, detail = alert.Everyone, "the daemon's "+detail
	}
	return append(list, &scheduler.Allowance{
		Left: limit - int(n), Reason: task.ReasonBudget + ": " + detail, Spent: func() { h.care.board.Spent(whom, detail) },
	})
}

// overDay says which daily limit on spending is used up.
func overDay(l policy.Limits, spent task.Usage) string {
	if l.CostPerDay != nil && spent.Cost != nil && *spent.Cost >= *l.CostPerDay {
		return fmt.Sprintf("cost_per_day of %.2f is spent", l.CostPerDay.Float())
	}
	if l.TokensPerDay != nil && spent.Tokens() >= *l.TokensPerDay {
		return fmt.Sprintf("tokens_per_day of %d are spent", *l.TokensPerDay)
	}
	return ""
}

// noteBudget remembers a task that a daily limit stopped in the middle of a run.
func (h *house) noteBudget(ctx context.Context, run task.Run) {
	if !alert.DayIsSpent(run) {
		return
	}
	if d, ok := h.dayOf(ctx, run.Task, time.Now()); ok {
		h.care.budget.stop(run.Task, d.under())
	}
}
