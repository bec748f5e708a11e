package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/connector"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// CheckReport is `check --json`.
type CheckReport struct {
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`
	// Kept are the broken files of which the last good revision stays in force.
	Kept  []string    `json:"kept"`
	Tasks []TaskCheck `json:"tasks"`
	// Models is only there if they were asked.
	Models []ModelCheck `json:"models,omitempty"`
}

// TaskCheck is what check says of one task.
type TaskCheck struct {
	ID     string       `json:"id"`
	Model  string       `json:"model"`
	Next   []Instant    `json:"next"`
	Tools  []policy.Row `json:"tools,omitempty"`
	Errors []string     `json:"errors,omitempty"`
	Notes  []string     `json:"notes,omitempty"`
}

// CheckOptions say what a check leaves out and what it adds.
type CheckOptions struct {
	Offline bool // no connector is started or dialled
	Models  bool // each model is asked for one word
}

// Check collects everything that is wrong and what each task would do.
func (i *Inspection) Check(ctx context.Context, c CheckOptions) (CheckReport, error) {
	r := CheckReport{Problems: []string{}, Warnings: []string{}, Kept: append([]string{}, i.Set.Kept...), Tasks: []TaskCheck{}}
	r.Problems = append(r.Problems, i.Problems()...)
	if i.Set.Away != nil {
		r.Problems = append(r.Problems, i.Set.Away.Error())
	}
	if err := i.options.Together(ctx, Whole); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	r.Warnings = append(r.Warnings, i.Kept("")...)
	for _, p := range i.Set.Warnings {
		r.Warnings = append(r.Warnings, p.Error())
	}
	rules, err := i.Effective(ctx)
	if err != nil {
		return r, err
	}
	var connected map[string]policy.Connected
	if !c.Offline {
		var pool *connector.Pool
		if connected, pool, err = i.Dial(ctx, zap.NewNop(), i.Set.ConnectorIDs()); err != nil {
			return r, err
		}
		for _, s := range pool.Status() {
			if s.Err != "" {
				r.Warnings = append(r.Warnings, fmt.Sprintf("connector %s: %s", s.ID, s.Err))
			}
			for _, w := range s.Warnings {
				r.Warnings = append(r.Warnings, fmt.Sprintf("connector %s: %s", s.ID, w))
			}
		}
	}
	unflagged, err := i.unflagged(ctx, rules, connected)
	if err != nil {
		return r, err
	}
	exposed := i.Exposure()
	r.Warnings = append(append(r.Warnings, unflagged...), exposed.Commands()...)
	if c.Models {
		r.Models = i.AskModels(ctx)
	}
	for _, m := range r.Models {
		if m.Error != "" {
			r.Problems = append(r.Problems, fmt.Sprintf("models.yaml: models.%s: asked for one word: %s", m.Name, m.Error))
		}
	}
	for _, id := range i.Set.TaskIDs() {
		t, err := i.checkTask(ctx, i.Set.Tasks[id].Task, rules, connected)
		if err != nil {
			return r, err
		}
		t.Notes = append(t.Notes, exposed.Deliveries(i.Set.Tasks[id].Task)...)
		if c.Offline {
			t.Tools = nil // nobody was asked, so nothing is known of them
		}
		r.Tasks = append(r.Tasks, t)
		if why := tooLate(i.Set.Tasks[id].Task, time.Now(), len(t.Next)); why != "" {
			r.Warnings = append(r.Warnings, i.Set.Tasks[id].File+": "+why)
		}
	}
	r.OK = r.Count() == 0
	return r, nil
}

// Count counts all errors, those of single tasks too.
func (r CheckReport) Count() int {
	n := len(r.Problems)
	for _, t := range r.Tasks {
		n += len(t.Errors)
	}
	return n
}

// tooLate says that a schedule with n instants ahead will not fire, if nothing that
// passed will be caught up either.
func tooLate(t task.Task, now time.Time, n int) string {
	if n > 0 || len(t.Schedule.Specs) == 0 || !t.Enabled {
		return ""
	}
	if t.CatchUp != task.CatchUpSkip {
		if missed, err := Upcoming(t, now.Add(-t.CatchUpWindow), 1); err != nil || len(missed) > 0 {
			return ""
		}
	}
	return "schedule: every instant has passed: it will never run by itself again; remove the file, or set a new time"
}

func (i *Inspection) checkTask(ctx context.Context, t task.Task, rules *taskpolicy.Store, connected map[string]policy.Connected) (TaskCheck, error) {
	c := TaskCheck{ID: t.ID, Model: t.Model, Next: []Instant{}}
	next, err := Upcoming(t, time.Now(), 5)
	if err != nil {
		return c, err
	}
	zone, err := time.LoadLocation(t.Schedule.Zone)
	if err != nil {
		return c, err
	}
	for _, n := range next {
		c.Next = append(c.Next, Instant{Due: n.In(zone).Format(time.RFC3339), UTC: n.UTC().Format(time.RFC3339)})
	}
	eff, err := rules.Effective(ctx, t.ID, t.SessionID(), t.Project)
	if err != nil {
		if _, known := i.Set.Projects[t.Project]; t.Project != "" && !known {
			err = fmt.Errorf("its project %s cannot be read, so nothing it may do is known; see the problems above", t.Project)
		}
		c.Errors = append(c.Errors, err.Error())
		return c, nil
	}
	list := OfTask(eff, connected)
	resolve := func(connector, path string) (string, error) { return pathOf(i.Set, i.secrets, connector, path) }
	for _, advice := range append(policy.Advise(eff, list), policy.AdviseLines(eff, list, resolve)...) {
		c.add(advice, i.place(t.ID, eff, advice))
	}
	c.Errors = append(c.Errors, i.moneyWithoutPrice(t, eff)...)
	if connected != nil {
		c.Errors = append(c.Errors, cannotBegin(t, eff, list)...)
	}
	c.Tools = policy.Explain(eff, list)
	c.Notes = append(c.Notes, i.hidden(t, c.Tools)...)
	return c, nil
}

// hidden says which tools of a table the task's model will not see, though nobody
// who wrote the files meant that.
func (i *Inspection) hidden(t task.Task, rows []policy.Row) (notes []string) {
	for _, row := range rows {
		if row.Code == policy.CodeQuarantined {
			notes = append(notes, row.Rule)
		}
	}
	if i.Set.Models[t.Model].ToolMode == "none" && slices.ContainsFunc(rows, func(r policy.Row) bool { return r.Offered }) {
		notes = append(notes, fmt.Sprintf("model %s is given no tools (tool_mode: none): none of these is offered to it", t.Model))
	}
	return notes
}

// cannotBegin says why no run could do its work, as things stand now.
func cannotBegin(t task.Task, eff policy.Effective, list []policy.Connected) (errs []string) {
	offer := policy.BuildOffer(eff, list)
	for _, id := range policy.Needed(eff, t.Require, t.Optional) {
		if _, configured := eff.Connectors[id]; !configured {
			errs = append(errs, fmt.Sprintf("connectors: the task needs %s, which is not configured", id))
		} else if why, down := offer.Down[id]; down {
			errs = append(errs, fmt.Sprintf("connectors: the task needs %s, which is down: %s; if it can do without, say `optional: [%s]`", id, why, id))
		}
	}
	bare := policy.Bare(eff, offer, t.Require, t.Optional)
	for _, id := range slices.Sorted(maps.Keys(bare)) {
		errs = append(errs, fmt.Sprintf("connectors: %s has no tool for the task: %s", id, bare[id]))
	}
	without := policy.WithoutTools(eff, offer, t.Optional)
	for _, id := range slices.Sorted(maps.Keys(without)) {
		errs = append(errs, fmt.Sprintf("connectors: none that the task may use has a tool for it: %s is %s", id, without[id]))
	}
	return errs
}

// unflagged finds connectors of which neither the operator nor the catalogue says
// what their tools do with text.
func (i *Inspection) unflagged(ctx context.Context, rules *taskpolicy.Store, connected map[string]policy.Connected) (warnings []string, err error) {
	for _, id := range i.Set.ConnectorIDs() {
		own, err := ConnectorRules(ctx, rules, id)
		if err != nil {
			return nil, err
		}
		if text := policy.FlagAdvice(own, connected[id]); text != "" {
			warnings = append(warnings, fmt.Sprintf("%s: connector %s: %s", i.Set.Connectors[id].File, id, text))
		}
	}
	return warnings, nil
}

func (c *TaskCheck) add(advice policy.Advice, where string) {
	text := where + ": " + advice.Text
	if advice.Severity == policy.SeverityError {
		c.Errors = append(c.Errors, text)
	} else {
		c.Notes = append(c.Notes, text)
	}
}

// place says where a line stands that advice is about: in a file, or in words where
// it came over the API or is about no line.
func (i *Inspection) place(task string, eff policy.Effective, advice policy.Advice) string {
	if len(advice.Path) == 0 {
		return advice.Where
	}
	place, ok := "", false
	if field := advice.Path[0]; field == taskpolicy.Ceiling {
		place, ok = i.Set.DaemonPlace(append([]string{"deny"}, advice.Path[1:]...)...)
	} else if eff.Sources[field] == policy.LayerFile {
		place, ok = i.Set.Place(task, advice.Path...)
	}
	if !ok {
		place = advice.Where + ": " + strings.Join(advice.Path[1:], ".")
	}
	return place
}

// moneyWithoutPrice finds money limits that cannot be kept (DESIGN, section 9).
func (i *Inspection) moneyWithoutPrice(t task.Task, eff policy.Effective) []string {
	if eff.Limits.Cost == nil && eff.Limits.CostPerDay == nil && eff.Shared.CostPerDay == nil && eff.Day.CostPerDay == nil {
		return nil
	}
	var errs []string
	for _, name := range append([]string{t.Model}, i.Set.Models[t.Model].Fallback...) {
		if m, ok := i.Set.Models[name]; ok && m.Price == nil {
			errs = append(errs, fmt.Sprintf("limits: a money limit is set, but model %s has no price in models.yaml; add `price:` or remove the limit", name))
		}
	}
	return errs
}

// OfTask is the connectors that policy may be asked about for a task.
func OfTask(eff policy.Effective, connected map[string]policy.Connected) []policy.Connected {
	var list []policy.Connected
	for id, c := range connected {
		if _, ok := eff.Connectors[id]; ok {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b policy.Connected) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// ConnectorRules is what policy knows of one connector, accepted definitions
// included.
func ConnectorRules(ctx context.Context, rules *taskpolicy.Store, id string) (policy.ConnectorRules, error) {
	fields, err := rules.Own(ctx, policy.ScopeConnector, id)
	if err != nil {
		return policy.ConnectorRules{}, err
	}
	accepted, err := rules.Definitions(ctx, id)
	if err != nil {
		return policy.ConnectorRules{}, err
	}
	own := policy.RulesOf(fields)
	for _, t := range accepted {
		if own.Pins == nil {
			own.Pins = map[string]string{}
		}
		own.Pins[t.Name] = t.DefinitionHash()
	}
	return own, nil
}

// Instant is one line of `next --json`.
type Instant struct {
	Task      string `json:"task,omitempty"`
	Due       string `json:"due"`
	UTC       string `json:"utc"`
	NotBefore string `json:"not_before,omitempty"`
	// Run is the run that the instant had while the clock was ahead: it has no other.
	Run string    `json:"run,omitempty"`
	At  time.Time `json:"-"`
}

// Local is the instant as people in its zone write it, with the offset.
func (i Instant) Local() string {
	due, err := time.Parse(time.RFC3339Nano, i.Due)
	if err != nil {
		return i.Due
	}
	return due.Format("Mon 2006-01-02 15:04:05 -07:00")
}
