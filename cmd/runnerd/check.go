package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.uber.org/zap"

	"runnerd/config"
	"runnerd/connector"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
	"runnerd/text"
)

type checkCmd struct {
	Dir     string `arg:"" optional:"" help:"Config directory; default: --config." type:"path"`
	Offline bool   `help:"Do not start or dial connectors: no tool tables."`
	Models  bool   `help:"Ask each model for one word: what it answers, and what its endpoint does not take. Spends some tokens."`
	JSON    bool   `help:"Print JSON."`
}

// checkReport is `check --json`.
type checkReport struct {
	OK       bool        `json:"ok"`
	Problems []string    `json:"problems"`
	Warnings []string    `json:"warnings"`
	Tasks    []taskCheck `json:"tasks"`
	// Models is only there if they were asked.
	Models []modelCheck `json:"models,omitempty"`
}

// taskCheck is what check says of one task.
type taskCheck struct {
	ID     string       `json:"id"`
	Model  string       `json:"model"`
	Next   []instant    `json:"next"`
	Tools  []policy.Row `json:"tools,omitempty"`
	Errors []string     `json:"errors,omitempty"`
	Notes  []string     `json:"notes,omitempty"`
}

func (c checkCmd) Run(ctx context.Context, a *app) error {
	if c.Dir != "" {
		a.ConfigDir = c.Dir
	}
	i, err := a.inspect(ctx)
	if err != nil {
		return err
	}
	report, err := c.examine(ctx, a, i)
	if err = errors.Join(err, i.close()); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(a.out, report)
	} else {
		err = report.print(a.out, i)
	}
	if err == nil && !report.OK {
		err = &exit{task.ExitUsage, errSilent}
	}
	return err
}

// examine collects everything that is wrong and what each task would do.
func (c checkCmd) examine(ctx context.Context, a *app, i *inspection) (checkReport, error) {
	r := checkReport{Problems: []string{}, Warnings: []string{}, Tasks: []taskCheck{}}
	r.Problems = append(r.Problems, i.problems()...)
	if i.set.Away != nil {
		r.Problems = append(r.Problems, i.set.Away.Error())
	}
	if err := a.together(ctx, whole); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	for _, p := range i.set.Warnings {
		r.Warnings = append(r.Warnings, p.Error())
	}
	rules, err := i.effective(ctx)
	if err != nil {
		return r, err
	}
	var connected map[string]policy.Connected
	if !c.Offline {
		var pool *connector.Pool
		if connected, pool, err = i.dial(ctx, a, zap.NewNop(), i.set.ConnectorIDs()); err != nil {
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
	exposed := i.exposure(a)
	r.Warnings = append(append(r.Warnings, unflagged...), exposed.commands()...)
	if c.Models {
		r.Models = i.askModels(ctx, a)
	}
	for _, m := range r.Models {
		if m.Error != "" {
			r.Problems = append(r.Problems, fmt.Sprintf("models.yaml: models.%s: asked for one word: %s", m.Name, m.Error))
		}
	}
	for _, id := range i.set.TaskIDs() {
		t, err := i.checkTask(ctx, i.set.Tasks[id].Task, rules, connected)
		if err != nil {
			return r, err
		}
		t.Notes = append(t.Notes, exposed.deliveries(i.set.Tasks[id].Task)...)
		if c.Offline {
			t.Tools = nil // nobody was asked, so nothing is known of them
		}
		r.Tasks = append(r.Tasks, t)
		if why := tooLate(i.set.Tasks[id].Task, time.Now(), len(t.Next)); why != "" {
			r.Warnings = append(r.Warnings, i.set.Tasks[id].File+": "+why)
		}
	}
	r.OK = r.problems() == 0
	return r, nil
}

// problems counts all errors, those of single tasks too.
func (r checkReport) problems() int {
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
		if missed, err := upcoming(t, now.Add(-t.CatchUpWindow), 1); err != nil || len(missed) > 0 {
			return ""
		}
	}
	return "schedule: every instant has passed: it will never run by itself again; remove the file, or set a new time"
}

func (i *inspection) checkTask(ctx context.Context, t task.Task, rules *taskpolicy.Store, connected map[string]policy.Connected) (taskCheck, error) {
	c := taskCheck{ID: t.ID, Model: t.Model, Next: []instant{}}
	next, err := upcoming(t, time.Now(), 5)
	if err != nil {
		return c, err
	}
	zone, err := time.LoadLocation(t.Schedule.Zone)
	if err != nil {
		return c, err
	}
	for _, n := range next {
		c.Next = append(c.Next, instant{Due: n.In(zone).Format(time.RFC3339), UTC: n.UTC().Format(time.RFC3339)})
	}
	eff, err := rules.Effective(ctx, t.ID, t.SessionID(), t.Project)
	if err != nil {
		if _, known := i.set.Projects[t.Project]; t.Project != "" && !known {
			err = fmt.Errorf("its project %s cannot be read, so nothing it may do is known; see the problems above", t.Project)
		}
		c.Errors = append(c.Errors, err.Error())
		return c, nil
	}
	list := ofTask(eff, connected)
	for _, advice := range policy.Advise(eff, list) {
		c.add(advice, advice.Where)
	}
	resolve := func(connector, path string) (string, error) { return pathOf(i.set, i.secrets, connector, path) }
	for _, advice := range policy.AdviseLines(eff, list, resolve) {
		c.add(advice.Advice, i.place(t.ID, eff, advice))
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
func (i *inspection) hidden(t task.Task, rows []policy.Row) (notes []string) {
	for _, row := range rows {
		if row.Code == policy.CodeQuarantined {
			notes = append(notes, row.Rule)
		}
	}
	if i.set.Models[t.Model].ToolMode == "none" && slices.ContainsFunc(rows, func(r policy.Row) bool { return r.Offered }) {
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
func (i *inspection) unflagged(ctx context.Context, rules *taskpolicy.Store, connected map[string]policy.Connected) (warnings []string, err error) {
	for _, id := range i.set.ConnectorIDs() {
		own, err := connectorRules(ctx, rules, id)
		if err != nil {
			return nil, err
		}
		if text := policy.FlagAdvice(own, connected[id]); text != "" {
			warnings = append(warnings, fmt.Sprintf("%s: connector %s: %s", i.set.Connectors[id].File, id, text))
		}
	}
	return warnings, nil
}

func (c *taskCheck) add(advice policy.Advice, where string) {
	text := where + ": " + advice.Text
	if advice.Severity == policy.SeverityError {
		c.Errors = append(c.Errors, text)
	} else {
		c.Notes = append(c.Notes, text)
	}
}

// place says where a line stands that advice is about: in a file, or in words where
// it came over the API.
func (i *inspection) place(task string, eff policy.Effective, advice policy.LineAdvice) string {
	place, ok := "", false
	if field := advice.Path[0]; field == taskpolicy.Ceiling {
		place, ok = i.set.DaemonPlace(append([]string{"deny"}, advice.Path[1:]...)...)
	} else if eff.Sources[field] == policy.LayerFile {
		place, ok = i.set.Place(task, advice.Path...)
	}
	if !ok {
		place = advice.Where + ": " + strings.Join(advice.Path[1:], ".")
	}
	return place
}

// moneyWithoutPrice finds money limits that cannot be kept (DESIGN, section 9).
func (i *inspection) moneyWithoutPrice(t task.Task, eff policy.Effective) []string {
	if eff.Limits.Cost == nil && eff.Limits.CostPerDay == nil && eff.Shared.CostPerDay == nil && eff.Day.CostPerDay == nil {
		return nil
	}
	var errs []string
	for _, name := range append([]string{t.Model}, i.set.Models[t.Model].Fallback...) {
		if m, ok := i.set.Models[name]; ok && m.Price == nil {
			errs = append(errs, fmt.Sprintf("limits: a money limit is set, but model %s has no price in models.yaml; add `price:` or remove the limit", name))
		}
	}
	return errs
}

// ofTask is the connectors that policy may be asked about for a task.
func ofTask(eff policy.Effective, connected map[string]policy.Connected) []policy.Connected {
	var list []policy.Connected
	for id, c := range connected {
		if _, ok := eff.Connectors[id]; ok {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b policy.Connected) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (r checkReport) print(w io.Writer, i *inspection) error {
	for _, p := range r.Problems {
		text.Fprintf(w, "%s\n", p)
	}
	for _, p := range r.Warnings {
		text.Fprintf(w, "warning: %s\n", p)
	}
	for _, m := range r.Models {
		m.print(w)
	}
	for _, t := range r.Tasks {
		if err := t.print(w, i.set.Tasks[t.ID]); err != nil {
			return err
		}
	}
	verdict := "ok"
	if !r.OK {
		verdict = "NOT ok: see above"
	}
	text.Fprintf(w, "\n%s, %s, %s, %s: %s\n", count(len(r.Tasks), "task"), count(len(i.set.Connectors), "connector"),
		count(r.problems(), "problem"), count(len(r.Warnings), "warning"), verdict)
	if len(r.Tasks) == 0 && r.OK {
		text.Fprintf(w, "There is no task yet: a task is a file tasks/NAME.md in %s. `runnerd init` writes a first one.\n", i.settings.ConfigDir)
	}
	return nil
}

func (c taskCheck) print(w io.Writer, file config.TaskFile) error {
	text.Fprintf(w, "\ntask %s  (%s, model %s)\n", c.ID, file.File, c.Model)
	if why := noNext(file.Task, len(c.Next)); why != "" {
		text.Fprintf(w, "  next   %s\n", why)
	}
	for _, n := range c.Next {
		text.Fprintf(w, "  next   %s  %s\n", n.Local(), n.UTC)
	}
	rows, hidden := reachableRows(c.Tools)
	if len(rows) > 0 {
		if err := printRows(w, rows); err != nil {
			return err
		}
	}
	if len(hidden) > 0 {
		text.Fprintf(w, "  not reachable: %s\n", strings.Join(hidden, ", "))
	}
	for _, e := range c.Errors {
		text.Fprintf(w, "  error   %s\n", e)
	}
	for _, n := range c.Notes {
		text.Fprintf(w, "  note    %s\n", n)
	}
	return nil
}

// noNext says why a task that has n instants ahead does not fire by itself, or
// nothing if it does.
func noNext(t task.Task, n int) string {
	switch {
	case len(t.Schedule.Specs) == 0:
		return "by hand only: runnerd run " + t.ID
	case !t.Enabled:
		return "disabled (enabled: false): its instants are recorded as skipped; by hand: runnerd run " + t.ID
	case n == 0:
		return "never again: every instant of its schedule has passed; by hand: runnerd run " + t.ID
	}
	return ""
}

// reachableRows leaves out the rows of connectors that the task cannot reach and
// names these once.
func reachableRows(rows []policy.Row) (reachable []policy.Row, hidden []string) {
	for _, r := range rows {
		if r.Code != policy.CodeNotReachable {
			reachable = append(reachable, r)
		} else if !slices.Contains(hidden, r.Connector) {
			hidden = append(hidden, r.Connector)
		}
	}
	return reachable, hidden
}

// count is a number of things in words.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// printRows prints the effective table: each tool, its class, whether it is
// offered, what a call would get and by which rule.
func printRows(out io.Writer, rows []policy.Row) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "  TOOL\tCLASS\tOFFERED\tA CALL GETS\tBECAUSE\n")
	for _, r := range rows {
		offered := "no"
		if r.Offered {
			offered = "yes"
		}
		gets, because := verdictWords(r)
		text.Fprintf(w, "  %s/%s\t%s\t%s\t%s\t%s\n", r.Connector, r.Tool, r.Class, offered, gets, oneLine(because, 200))
	}
	return w.Flush()
}

// verdictWords puts a row's decision and rule into the few words that a table has
// room for: what is said in other columns is left out, what would permit the call
// is kept.
func verdictWords(r policy.Row) (gets, because string) {
	gets = string(r.Decision)
	if r.Code != "" {
		gets += " (" + string(r.Code) + ")"
	}
	conditions, rule := "", r.Rule
	if i := strings.LastIndex(rule, otherwise); i >= 0 {
		conditions, rule = rule[:i+len(otherwise)], rule[i+len(otherwise):]
		gets = "by arguments, else " + gets
	}
	because = conditions + rule
	if r.Code == policy.CodeNeedsApproval {
		because = conditions + r.ClassFrom + "; no allow line matches"
		if _, line, ok := strings.Cut(rule, "would permit it: "); ok {
			because += "; to permit it: " + line
		}
	}
	return gets, because
}

// otherwise stands in a rule between what depends on arguments and the rest.
const otherwise = "; otherwise "

type explainCmd struct {
	Task string `arg:"" help:"Task."`
	JSON bool   `help:"Print JSON."`
}

func (c explainCmd) Run(ctx context.Context, a *app) error {
	i, err := a.inspect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.explain(ctx, a, i), i.close())
}

func (c explainCmd) explain(ctx context.Context, a *app, i *inspection) error {
	t, err := i.task(c.Task)
	if err != nil {
		return err
	}
	rules, err := i.effective(ctx)
	if err != nil {
		return err
	}
	eff, err := rules.Effective(ctx, c.Task, t.Task.SessionID(), t.Task.Project)
	if err != nil {
		return err
	}
	connected, _, err := i.dial(ctx, a, zap.NewNop(), i.set.ConnectorIDs())
	if err != nil {
		return err
	}
	rows := policy.Explain(eff, ofTask(eff, connected))
	if c.JSON {
		return writeJSON(a.out, append([]policy.Row{}, rows...))
	}
	reach, source := policy.Reach(eff)
	text.Fprintf(a.out, "task %s\n  reachable  %s (from %s)\n  selected   %s\n  on_ask     %s\n", c.Task,
		listWords(reach, "every connector"), source, listWords(eff.Tools, "every reachable connector that is up and has a read tool"), eff.OnAsk)
	for _, id := range i.set.ConnectorIDs() {
		if down := connected[id].Down; down != "" {
			text.Fprintf(a.out, "  down       %s: %s\n", id, down)
		}
	}
	return printRows(a.out, rows)
}

// listWords tells absent, empty and listed apart.
func listWords(l task.List[string], absent string) string {
	switch {
	case !l.Declared():
		return absent
	case l.Len() == 0:
		return "none"
	}
	return strings.Join(l.Items(), ", ")
}

type schemaCmd struct {
	Kind string `arg:"" help:"task, models, connectors, projects or runnerd."`
}

func (c schemaCmd) Run(a *app) error {
	data, err := config.Schema(c.Kind)
	if err != nil {
		return &exit{task.ExitUsage, err}
	}
	text.Fprintf(a.out, "%s\n", text.Raw(text.Block(string(data))))
	return nil
}
