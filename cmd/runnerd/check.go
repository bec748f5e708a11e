package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"go.uber.org/zap"

	"runnerd/config"
	"runnerd/daemon"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/text"
)

type checkCmd struct {
	Dir     string `arg:"" optional:"" help:"Config directory; default: --config." type:"path"`
	Offline bool   `help:"Do not start or dial connectors: no tool tables."`
	Models  bool   `help:"Ask each model for one word: what it answers, and what its endpoint does not take. Spends some tokens."`
	JSON    bool   `help:"Print JSON."`
}

func (c checkCmd) Run(ctx context.Context, a *app) error {
	if c.Dir != "" {
		a.ConfigDir = c.Dir
	}
	i, err := a.Inspect(ctx)
	if err != nil {
		return err
	}
	report, err := i.Check(ctx, daemon.CheckOptions{Offline: c.Offline, Models: c.Models})
	if err = errors.Join(err, i.Close()); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(a.out, report)
	} else {
		err = printReport(a.out, report, i)
	}
	if err == nil && !report.OK {
		err = &exit{task.ExitUsage, errSilent}
	}
	return err
}

func printReport(w io.Writer, r daemon.CheckReport, i *daemon.Inspection) error {
	for _, p := range r.Problems {
		text.Fprintf(w, "%s\n", p)
	}
	for _, p := range r.Warnings {
		text.Fprintf(w, "warning: %s\n", p)
	}
	for _, m := range r.Models {
		printModel(w, m)
	}
	for _, t := range r.Tasks {
		if err := printTask(w, t, i.Set.Tasks[t.ID]); err != nil {
			return err
		}
	}
	verdict := "ok"
	if !r.OK {
		verdict = "NOT ok: see above"
	}
	text.Fprintf(w, "\n%s, %s, %s, %s: %s\n", count(len(r.Tasks), "task"), count(len(i.Set.Connectors), "connector"),
		count(r.Count(), "problem"), count(len(r.Warnings), "warning"), verdict)
	if len(r.Tasks) == 0 && r.OK {
		text.Fprintf(w, "There is no task yet: a task is a file tasks/NAME.md in %s. `runnerd init` writes a first one.\n", i.ConfigDir())
	}
	return nil
}

func printTask(w io.Writer, c daemon.TaskCheck, file config.TaskFile) error {
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
	i, err := a.Inspect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.explain(ctx, a, i), i.Close())
}

func (c explainCmd) explain(ctx context.Context, a *app, i *daemon.Inspection) error {
	t, err := i.Task(c.Task)
	if err != nil {
		return err
	}
	rules, err := i.Effective(ctx)
	if err != nil {
		return err
	}
	eff, err := rules.Effective(ctx, c.Task, t.Task.SessionID(), t.Task.Project)
	if err != nil {
		return err
	}
	connected, _, err := i.Dial(ctx, zap.NewNop(), i.Set.ConnectorIDs())
	if err != nil {
		return err
	}
	rows := policy.Explain(eff, daemon.OfTask(eff, connected))
	if c.JSON {
		return writeJSON(a.out, append([]policy.Row{}, rows...))
	}
	reach, source := policy.Reach(eff)
	text.Fprintf(a.out, "task %s\n  reachable  %s (from %s)\n  selected   %s\n  on_ask     %s\n", c.Task,
		listWords(reach, "every connector"), source, listWords(eff.Tools, "every reachable connector that is up and has a read tool"), eff.OnAsk)
	for _, id := range i.Set.ConnectorIDs() {
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

// printModel shows what one model answered.
func printModel(w io.Writer, c daemon.ModelCheck) {
	said := fmt.Sprintf("answered %q", c.Answer)
	if c.Error != "" {
		said = "failed: " + c.Error
	}
	text.Fprintf(w, "\nmodel %s  %s in %.1f s\n", c.Name, said, c.TookS)
	for _, line := range c.Adapted {
		text.Fprintf(w, "  note   %s\n", line)
	}
	if c.Error == "" && !c.Counted {
		text.Fprintf(w, "  note   it counts no tokens: what it costs is estimated\n")
	}
}
