package policy

import (
	"fmt"

	"runnerd/task"
)

// Account is one budget per day that runs draw on: a task's own, its project's,
// which all tasks of the project share, or the daemon's, which all share.
type Account struct {
	Scope Scope // task | project; empty for the daemon's
	// Whose is how messages name it, as a prefix; empty for the task's own.
	Whose  string
	Limits Limits
	Spent  task.Usage
}

// Accounts are the budgets that a task draws on, its own first, with what was spent
// of them. It is the one place that says so: the loop asks it before each model
// call, the scheduler's side before each start.
func Accounts(e Effective, spent task.DaySpend) []Account {
	list := []Account{{ScopeTask, "", e.Limits, spent.Task}}
	if e.Project != "" {
		list = append(list, Account{ScopeProject, "project " + e.Project + "'s ", e.Shared, spent.Project})
	}
	return append(list, Account{"", "the daemon's ", e.Day, spent.Total})
}

// Over says which limit on a day's spend is used up; empty if none is.
func (a Account) Over() string {
	if l := a.Limits.CostPerDay; l != nil && a.Spent.Cost != nil && *a.Spent.Cost >= *l {
		return fmt.Sprintf("%scost_per_day of %.2f is spent", a.Whose, l.Float())
	}
	if l := a.Limits.TokensPerDay; l != nil && a.Spent.Tokens() >= *l {
		return fmt.Sprintf("%stokens_per_day of %d are spent", a.Whose, *l)
	}
	return ""
}

// PerDay is the part of limits that bounds a day.
func (l Limits) PerDay() Limits {
	return Limits{CostPerDay: l.CostPerDay, TokensPerDay: l.TokensPerDay, RunsPerDay: l.RunsPerDay}
}

// PerRun is the part of limits that bounds one run.
func (l Limits) PerRun() Limits {
	l.CostPerDay, l.TokensPerDay, l.RunsPerDay = nil, nil, nil
	return l
}
