package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// tasks adds every task file. Where two files claim one name, the one in force
// stays so; of two new ones neither is taken.
func (a *assembly) tasks() {
	a.survey()
	byID := make(map[string][]string, len(a.files[kindTask]))
	var order []string
	for _, rel := range a.files[kindTask] {
		id, _ := taskID(rel)
		if byID[id] == nil {
			order = append(order, id)
		}
		byID[id] = append(byID[id], rel)
	}
	for _, id := range order {
		if files := byID[id]; len(files) > 1 {
			a.twoFiles(id, files)
			continue
		}
		rel := byID[id][0]
		if a.takeOver(id, rel) {
			continue
		}
		warned := len(a.set.Warnings)
		if p, stale := a.pick(rel, a.checkTask); p != nil {
			a.set.Tasks[id] = a.task(id, p, stale)
			if !stale && len(a.set.Warnings) == warned {
				p.giveUp()
			}
		}
	}
}

func (a *assembly) twoFiles(id string, files []string) {
	a.set.Problems = append(a.set.Problems, Problem{
		File: files[1], Line: 1, Col: 1, What: fmt.Sprintf("two files define the task %s: %s and %s", quoted(id), files[0], files[1]),
		Expected: "one of them", Hint: "remove or rename the other",
	})
	if l := a.l.Current(); l != nil && l.Tasks[id].File == files[1] {
		files = []string{files[1], files[0]}
	}
	for _, rel := range files {
		if p := a.lastGood(rel); p != nil {
			a.set.Tasks[id] = a.task(id, p, true)
			return
		}
	}
}

// checkTask is the cross-file part of a task's checks.
func (a *assembly) checkTask(p *parsed) []Problem {
	own := p.keys().taskKeys
	full := own.over(a.defaults)
	out := a.checkNames(p, own, full)
	if _, ok := a.set.Models[full.Model]; own.Model == "" && !ok && !a.lost[kindModels] {
		out = append(out, p.problemAt(nil, fmt.Sprintf("the task has no key model, and models.yaml has no %s", quoted(full.Model)), "a model of models.yaml", ""))
	}
	if own.Schedule == nil && full.Schedule != nil {
		out = append(out, a.checkSchedule(p, full, nil)...)
	}
	out = append(out, a.checkRequire(p, own, full.Project)...)
	out = append(out, a.checkPrices(p, full)...)
	a.warnUnreachableTools(p, own)
	return out
}

// checkRequire wants the required connectors to be reachable.
func (a *assembly) checkRequire(p *parsed, own taskKeys, project string) (out []Problem) {
	reach, from := own.Connectors, "the task's connectors"
	if reach == nil {
		reach, from = a.projects[project].Connectors, "the project's connectors"
	}
	if reach == nil {
		return nil
	}
	for _, id := range values(own.Require) {
		if !slices.Contains(*reach, id) {
			out = append(out, p.problemAt(indexOf(p, []string{"require"}, id), fmt.Sprintf("%s is required but not reachable", quoted(id)), "one of "+from, ""))
		}
	}
	return out
}

// checkPrices refuses a money limit that could not be kept.
func (a *assembly) checkPrices(p *parsed, full taskKeys) (out []Problem) {
	if full.Limits.Cost == nil && full.Limits.CostPerDay == nil {
		return nil
	}
	at := []string{"limits", "cost"}
	if full.Limits.Cost == nil {
		at[1] = "cost_per_day"
	}
	for _, name := range slices.Concat([]string{full.Model}, a.set.Models[full.Model].Fallback) {
		if m, ok := a.set.Models[name]; ok && m.Price == nil {
			out = append(out, p.problemAt(at, fmt.Sprintf("a money limit, but model %s has no price", quoted(name)),
				"its price in models.yaml", "{input: 0, output: 0} if it is free"))
		}
	}
	return out
}

func (a *assembly) warnUnreachableTools(p *parsed, own taskKeys) {
	if own.Connectors == nil {
		return
	}
	for _, id := range values(own.Tools) {
		if !slices.Contains(*own.Connectors, id) {
			a.set.Warnings = append(a.set.Warnings, p.problemAt(indexOf(p, []string{"tools"}, id), fmt.Sprintf("%s is offered by tools but not reachable by connectors", quoted(id)), "", ""))
		}
	}
}

// task is the file with every default filled in. Absent connectors, tools, allow
// and deny stay absent.
func (a *assembly) task(id string, p *parsed, stale bool) TaskFile {
	own := p.keys()
	k := own.over(a.defaults)
	if own.Connectors == nil && a.projects[k.Project].Connectors != nil {
		k.Connectors = nil // a default yields to the project's own word
	}
	t := task.Task{
		ID: id, File: p.rel, Enabled: *k.Enabled, Model: k.Model, Project: k.Project,
		Schedule:     task.Schedule{Zone: k.Timezone, DayMatch: k.DayMatch},
		Instructions: a.projects[k.Project].Instructions, Prompt: own.Prompt,
		Session: task.SessionMode(k.Session), CatchUp: task.CatchUp(k.CatchUp), CatchUpWindow: time.Duration(*k.CatchUpWindow),
		Overlap: task.Overlap(k.Overlap), Jitter: time.Duration(*k.Jitter),
		Retry:   task.Retry{Attempts: *k.Retry.Attempts, Backoff: time.Duration(*k.Retry.Backoff)},
		Require: values(k.Require), Optional: values(k.Optional), Report: task.ReportRule(k.Report), Deliver: deliveries(k.Deliver), AcceptRisk: k.AcceptRisk, Ping: k.Ping,
	}
	if t.Schedule.Zone == "" {
		t.Schedule.Zone = a.l.opts.Zone
	}
	if k.Schedule != nil && len(*k.Schedule) > 0 {
		t.Schedule.Specs = *k.Schedule
	}
	if k.OutputSchema != nil {
		t.OutputSchema, _ = json.Marshal(k.OutputSchema) // it came from JSON
	}
	return TaskFile{Task: t, Policy: a.policy(k), File: p.rel, Stale: stale}
}

// shared are values that most tasks of a set have in common, kept once.
type shared struct {
	ask    map[string]*policy.OnAsk
	ttl    map[duration]*time.Duration
	limits map[*limitKeys]*policy.Limits // by the keys as `defaults:` has them
}

// once answers the value that is kept under the key, made at the first asking.
func once[K comparable, V any](kept *map[K]*V, key K, fresh func() V) *V {
	if v := (*kept)[key]; v != nil {
		return v
	}
	if *kept == nil {
		*kept = make(map[K]*V)
	}
	v := fresh()
	(*kept)[key] = &v
	return &v
}

// policy is the task's row of the policy database.
func (a *assembly) policy(k taskKeys) policy.Fields {
	f := policy.Fields{
		Connectors: list(k.Connectors), Tools: list(k.Tools), Allow: grants(k.Allow), Deny: grants(k.Deny),
		OnAsk:       once(&a.shared.ask, k.OnAsk, func() policy.OnAsk { return policy.OnAsk(k.OnAsk) }),
		ApprovalTTL: once(&a.shared.ttl, *k.ApprovalTTL, func() time.Duration { return time.Duration(*k.ApprovalTTL) }),
	}
	if k.Limits == a.defaults.Limits {
		f.Limits = once(&a.shared.limits, k.Limits, k.Limits.limits)
	} else {
		own := k.Limits.limits()
		f.Limits = &own
	}
	if k.AcceptRisk != "" {
		f.AcceptRisk = &k.AcceptRisk
	}
	return f
}

const defaultDeliveryTimeout = 30 * time.Second

func deliveries(keys *[]deliveryKeys) []task.Delivery {
	if keys == nil {
		return nil
	}
	var out []task.Delivery
	for _, d := range *keys {
		when := d.When
		if when == "" {
			when = "always"
		}
		to := task.Delivery{To: d.To, When: when, Path: d.Path, Command: values(d.Command), URL: d.URL, Timeout: orElse(d.Timeout, defaultDeliveryTimeout)}
		if d.WhenTainted == task.HoldTainted {
			to.WhenTainted = task.HoldTainted
		}
		out = append(out, to)
	}
	return out
}
