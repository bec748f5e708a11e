package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/task"
	"runnerd/text"
)

type connectorsDiffCmd struct {
	Name string `arg:"" help:"Connector."`
	JSON bool   `help:"Print JSON."`
}

func (c connectorsDiffCmd) Run(ctx context.Context, a *app) error {
	diff, err := a.diff(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, diff)
	}
	printDiff(a, c.Name, diff)
	return nil
}

// diff compares what was accepted of a connector with what it lists now.
func (a *app) diff(ctx context.Context, name string) ([]control.DiffRow, error) {
	if client := a.live(ctx); client != nil {
		diff, err := client.ConnectorDiff(ctx, name)
		return diff, remote(err)
	}
	i, err := a.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := diff(ctx, i, name)
	return rows, errors.Join(err, i.Close())
}

func diff(ctx context.Context, i *daemon.Inspection, name string) ([]control.DiffRow, error) {
	if _, ok := i.Set.Connectors[name]; !ok {
		return nil, noConnector(i.Set, name)
	}
	rules, err := i.Effective(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := rules.Definitions(ctx, name)
	if err != nil {
		return nil, err
	}
	connected, _, err := i.Dial(ctx, zap.NewNop(), []string{name})
	if err != nil {
		return nil, err
	}
	if down := connected[name].Down; down != "" {
		return nil, &exit{task.ExitFailed, fmt.Errorf("connector %s is down: %s", name, down)}
	}
	return control.NewDiff(accepted, connected[name].Tools), nil
}

func printDiff(a *app, name string, diff []control.DiffRow) {
	if len(diff) == 0 {
		text.Fprintf(a.out, "Every tool of %s is as it was accepted.\n", name)
		return
	}
	printChanges(a, diff)
	text.Fprintf(a.out, "\nThe first run that uses a connector accepts what it lists then. What changes or is added later is refused until a person accepts it, as it is shown here and not otherwise:\n  %s connectors accept %s [TOOL …] --hash %s\n", a.again(), name, control.DiffHash(diff))
}

func printChanges(a *app, diff []control.DiffRow) {
	for _, d := range diff {
		text.Fprintf(a.out, "%s  %s\n", d.Tool, d.Change)
		if d.Change != "changed" {
			continue
		}
		for _, f := range d.Fields {
			text.Fprintf(a.out, "  %s\n    - %s\n    + %s\n", f, oneLine(field(d.Accepted, f), 300), oneLine(field(d.Now, f), 300))
		}
	}
}

// field is one part of a definition, as JSON.
func field(t *task.Tool, name string) string {
	data, err := json.Marshal(t)
	var parts map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &parts) != nil {
		return ""
	}
	return string(parts[name])
}

type connectorsAcceptCmd struct {
	Name  string   `arg:"" help:"Connector."`
	Tools []string `arg:"" optional:"" help:"Tools; all that it lists now if left out."`
	Hash  string   `help:"What connectors diff printed: what it showed is accepted, and nothing else." placeholder:"HASH"`
	JSON  bool     `help:"Print JSON."`
}

// Run accepts what the connector lists now if that is what the hash stands for;
// without one it shows what there is to accept.
func (c connectorsAcceptCmd) Run(ctx context.Context, a *app) error {
	client := a.live(ctx)
	if client == nil {
		return a.asDaemon(ctx, func(d *daemon.Daemon) error { return c.here(ctx, a, d) })
	}
	diff, err := client.ConnectorDiff(ctx, c.Name)
	if err != nil {
		return remote(err)
	}
	if err := c.seen(a, diff); err != nil {
		return err
	}
	req := control.AcceptRequest{Hash: c.Hash}
	if len(c.Tools) > 0 {
		req.Tools = task.ListOf(c.Tools...)
	}
	v, err := client.Accept(ctx, c.Name, req)
	if err != nil {
		return remote(err)
	}
	if c.JSON {
		return writeJSON(a.out, v)
	}
	text.Fprintf(a.out, "accepted of %s: %s\n", v.Connector, orNone(strings.Join(v.Accepted, ", ")))
	return nil
}

// seen lets through what the caller has looked at.
func (c connectorsAcceptCmd) seen(a *app, diff []control.DiffRow) error {
	if !c.JSON {
		printChanges(a, c.chosen(diff))
	}
	switch now := control.DiffHash(diff); {
	case len(diff) == 0 || c.Hash == now:
		return nil
	case c.Hash == "":
		return usage("nothing is accepted yet: review what is shown, then run: %s connectors accept %s --hash %s", a.again(), strings.Join(append([]string{c.Name}, c.Tools...), " "), now)
	}
	return usage("nothing is accepted: %s lists something else than what hash %s stands for; `%s connectors diff %s` shows it", c.Name, c.Hash, a.again(), c.Name)
}

// chosen are the changes that are to be accepted.
func (c connectorsAcceptCmd) chosen(diff []control.DiffRow) []control.DiffRow {
	var list []control.DiffRow
	for _, d := range diff {
		if len(c.Tools) == 0 || slices.Contains(c.Tools, d.Tool) {
			list = append(list, d)
		}
	}
	return list
}

func (c connectorsAcceptCmd) here(ctx context.Context, a *app, d *daemon.Daemon) error {
	if err := d.Reload(ctx); err != nil {
		return err
	}
	set := d.Set()
	if _, ok := set.Connectors[c.Name]; !ok {
		return noConnector(set, c.Name)
	}
	tools, err := d.Tools(ctx, c.Name)
	if err != nil {
		return &exit{task.ExitFailed, err}
	}
	accepted, err := d.Rules().Definitions(ctx, c.Name)
	if err != nil {
		return err
	}
	if err := c.seen(a, control.NewDiff(accepted, tools)); err != nil {
		return err
	}
	if err := d.Rules().AcceptTools(ctx, c.Name, tools, c.Tools, caller()); err != nil {
		return &exit{task.ExitUsage, err}
	}
	text.Fprintf(a.out, "accepted of %s: %s\n", c.Name, orAll(c.Tools))
	return nil
}

func orAll(names []string) string {
	if len(names) == 0 {
		return "every tool that it lists now"
	}
	return strings.Join(names, ", ")
}
