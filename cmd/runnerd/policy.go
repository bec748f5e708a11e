package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
	"runnerd/text"
)

type policyCmd struct {
	Show    policyShowCmd    `cmd:"" help:"Show each field with its value, its layer and when it changed."`
	Set     policySetCmd     `cmd:"" help:"Override fields: it counts on the next call, and replaces the file's whole field."`
	Unset   policyUnsetCmd   `cmd:"" help:"Take overrides back: the file's fields count again."`
	History policyHistoryCmd `cmd:"" help:"List changes of policy: who, what, when."`
}

type policyShowCmd struct {
	Task string `arg:"" help:"Task."`
	JSON bool   `help:"Print JSON."`
}

func (c policyShowCmd) Run(ctx context.Context, a *app) error {
	fields, err := a.policyOf(ctx, c.Task)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, fields)
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "FIELD\tLAYER\tCHANGED\tBY\tVALUE\n")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := fields[name]
		text.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, f.Layer, changed(f.ChangedAt), f.By, oneLine(string(f.Value), 120))
	}
	return w.Flush()
}

func changed(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// policyOf shows a task's fields: as the daemon has them, else as the policy
// database has them with the files as they are now.
func (a *app) policyOf(ctx context.Context, id string) (map[string]taskpolicy.Field, error) {
	i, err := a.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := i.Task(id); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	rules, err := i.Effective(ctx)
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	fields, err := rules.Show(ctx, policy.ScopeTask, id)
	return fields, errors.Join(err, i.Close())
}

type policySetCmd struct {
	Task   string   `arg:"" help:"Task."`
	Fields []string `arg:"" help:"FIELD=JSON, for example 'connectors=[\"mail\"]' or on_ask='\"park\"'." name:"field=json"`
}

func (c policySetCmd) Run(ctx context.Context, a *app) error {
	patch := map[string]json.RawMessage{}
	for _, f := range c.Fields {
		name, value, ok := strings.Cut(f, "=")
		if !ok || !json.Valid([]byte(value)) {
			return usage("%q: expected FIELD=JSON; a text needs quotes of its own: on_ask='\"park\"'", f)
		}
		if strings.TrimSpace(value) == "null" {
			return usage("%q: null takes an override back; `runnerd policy unset %s %s` does that", f, c.Task, name)
		}
		patch[name] = json.RawMessage(value)
	}
	if err := a.known(ctx, patch["connectors"], patch["tools"]); err != nil {
		return err
	}
	return a.patchTask(ctx, c.Task, patch)
}

// known refuses lists that name a connector that there is not: the database would
// drop it, which a person who mistyped it does not expect.
func (a *app) known(ctx context.Context, lists ...json.RawMessage) error {
	i, err := a.Inspect(ctx)
	if err != nil {
		return err
	}
	for _, list := range lists {
		var names []string
		if json.Unmarshal(list, &names) != nil {
			continue // absent, or refused with more words where it is written
		}
		for _, name := range names {
			if _, ok := i.Set.Connectors[name]; !ok && len(i.Set.Connectors) > 0 {
				return noConnector(i.Set, name)
			}
		}
	}
	return nil
}

type policyUnsetCmd struct {
	Task   string   `arg:"" help:"Task."`
	Fields []string `arg:"" help:"Fields." name:"field"`
}

func (c policyUnsetCmd) Run(ctx context.Context, a *app) error {
	patch := map[string]json.RawMessage{}
	for _, name := range c.Fields {
		patch[name] = json.RawMessage("null")
	}
	return a.patchTask(ctx, c.Task, patch)
}

func (a *app) patchTask(ctx context.Context, id string, patch map[string]json.RawMessage) error {
	if client := a.live(ctx); client != nil {
		v, err := client.PatchTaskPolicy(ctx, id, patch)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, w := range v[name].Warnings {
				text.Fprintf(a.err, "warning: %s\n", w)
			}
		}
		if err == nil {
			text.Fprintf(a.out, "policy of %s changed; it counts on the next call\n", id)
		}
		return remote(err)
	}
	return a.override(ctx, policy.ScopeTask, id, patch)
}

// override writes the override layer with no daemon running.
func (a *app) override(ctx context.Context, scope policy.Scope, id string, patch map[string]json.RawMessage) error {
	return a.asDaemon(ctx, func(d *daemon.Daemon) error {
		if err := d.Reload(ctx); err != nil {
			return err
		}
		warnings, err := d.Rules().Set(ctx, taskpolicy.Change{Scope: scope, ID: id, Patch: patch, By: caller()})
		for _, w := range warnings {
			text.Fprintf(a.err, "warning: %s\n", w)
		}
		if err != nil {
			return &exit{task.ExitUsage, err}
		}
		text.Fprintf(a.out, "policy of %s %s changed\n", scope, id)
		return nil
	})
}

type policyHistoryCmd struct {
	Task  string `arg:"" optional:"" help:"Task; everything if left out."`
	Limit int    `short:"n" help:"How many." default:"50"`
	JSON  bool   `help:"Print JSON."`
}

func (c policyHistoryCmd) Run(ctx context.Context, a *app) error {
	filter := taskpolicy.HistoryFilter{Limit: c.Limit}
	if c.Task != "" {
		filter.Scope, filter.ID = policy.ScopeTask, c.Task
	}
	var list []taskpolicy.HistoryEntry
	err := a.ReadingPolicy(ctx, func(rules *taskpolicy.Store) (err error) {
		list, err = rules.History(ctx, filter)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, append([]taskpolicy.HistoryEntry{}, list...))
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "WHEN\tBY\tWHAT\tFIELD\tFROM\tTO\n")
	for _, e := range list {
		text.Fprintf(w, "%s\t%s\t%s %s (%s)\t%s\t%s\t%s\n", changed(e.At), e.By, e.Scope, e.ID, e.Layer, e.Field, oneLine(string(e.Old), 40), oneLine(string(e.New), 60))
	}
	return w.Flush()
}

type sessionCmd struct {
	Connectors sessionConnectorsCmd `cmd:"" help:"Show or set which connectors a session may reach."`
}

type sessionConnectorsCmd struct {
	Session string   `arg:"" help:"Session: the task's id."`
	Set     []string `help:"These connectors." placeholder:"ID,…" xor:"change"`
	None    bool     `help:"No connector at all." xor:"change"`
	Clear   bool     `help:"Say nothing: project and defaults count." xor:"change"`
	JSON    bool     `help:"Print JSON."`
}

func (c sessionConnectorsCmd) Run(ctx context.Context, a *app) error {
	if len(c.Set) > 0 || c.None || c.Clear {
		list := task.ListOf(c.Set...)
		names, err := json.Marshal(c.Set)
		if err = errors.Join(err, a.known(ctx, names)); err != nil {
			return err
		}
		if c.Clear {
			list = task.List[string]{}
		}
		if err := c.change(ctx, a, list); err != nil {
			return err
		}
	}
	v, err := c.view(ctx, a)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, v)
	}
	text.Fprintf(a.out, "own        %s\neffective  %s (from %s)\n", listWords(v.Own, "nothing said"), listWords(v.Effective, "every connector"), v.Source)
	return nil
}

func (c sessionConnectorsCmd) change(ctx context.Context, a *app, list task.List[string]) error {
	if client := a.live(ctx); client != nil {
		v, err := client.SetSessionConnectors(ctx, c.Session, list)
		for _, w := range v.Warnings {
			text.Fprintf(a.err, "warning: %s\n", w)
		}
		return remote(err)
	}
	value, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return a.override(ctx, policy.ScopeSession, c.Session, map[string]json.RawMessage{"connectors": value})
}

func (c sessionConnectorsCmd) view(ctx context.Context, a *app) (control.ConnectorsView, error) {
	if client := a.live(ctx); client != nil {
		v, err := client.SessionConnectors(ctx, c.Session)
		return v, remote(err)
	}
	i, err := a.Inspect(ctx)
	if err != nil {
		return control.ConnectorsView{}, err
	}
	t, err := i.Task(c.Session)
	if err != nil {
		return control.ConnectorsView{}, errors.Join(err, i.Close())
	}
	rules, err := i.Effective(ctx)
	if err != nil {
		return control.ConnectorsView{}, errors.Join(err, i.Close())
	}
	reach, err := rules.Reachability(ctx, policy.ScopeSession, c.Session, t.Task.Project)
	return control.ConnectorsView{Reachability: reach}, errors.Join(err, i.Close())
}
