package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"go.uber.org/zap"

	"runnerd/builtin"
	"runnerd/config"
	"runnerd/control"
	"runnerd/daemon"
	"runnerd/policy"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/text"
)

type connectorsCmd struct {
	List   connectorsListCmd   `cmd:"" default:"withargs" help:"List connectors; each is started or dialled once."`
	Tools  connectorsToolsCmd  `cmd:"" help:"List one connector's tools with their classes."`
	Diff   connectorsDiffCmd   `cmd:"" help:"Show what changed since a connector's tools were accepted."`
	Accept connectorsAcceptCmd `cmd:"" help:"Accept a connector's tools as they are now."`
}

type connectorsListCmd struct {
	JSON bool `help:"Print JSON."`
}

func (c connectorsListCmd) Run(ctx context.Context, a *app) error {
	i, err := a.Inspect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.list(ctx, a, i), i.Close())
}

func (c connectorsListCmd) list(ctx context.Context, a *app, i *daemon.Inspection) error {
	if err := a.Together(ctx, sqldb.Look); err != nil {
		text.Fprintf(a.err, "warning: no daemon starts here: %v\n", err)
	}
	i.TellKept("")
	_, pool, err := i.Dial(ctx, zap.NewNop(), i.Set.ConnectorIDs())
	if err != nil {
		return err
	}
	states := daemon.ConnectorRows(pool.Status())
	if c.JSON {
		return writeJSON(a.out, states)
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "CONNECTOR\tKIND\tSTATE\tTOOLS\tSERVER\tDETAIL\n")
	for _, s := range states {
		state := "up"
		if !s.Up {
			state = "DOWN"
		}
		text.Fprintf(w, "%s\t%s\t%s\t%d\t%s %s\t%s\n", s.ID, s.Kind, state, s.Tools, orNone(s.Server), s.ServerVersion, oneLine(s.Err+" "+s.Containment, 160))
	}
	return w.Flush()
}

type connectorsToolsCmd struct {
	Name    string `arg:"" help:"Connector."`
	Suggest bool   `help:"Print a classes: block to review and paste into connectors.yaml."`
	JSON    bool   `help:"Print JSON."`
}

func (c connectorsToolsCmd) Run(ctx context.Context, a *app) error {
	i, err := a.Inspect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.tools(ctx, a, i), i.Close())
}

func (c connectorsToolsCmd) tools(ctx context.Context, a *app, i *daemon.Inspection) error {
	if _, ok := i.Set.Connectors[c.Name]; !ok {
		return noConnector(i.Set, c.Name)
	}
	rules, err := i.Effective(ctx)
	if err != nil {
		return err
	}
	own, err := daemon.ConnectorRules(ctx, rules, c.Name)
	if err != nil {
		return err
	}
	connected, _, err := i.Dial(ctx, zap.NewNop(), []string{c.Name})
	if err != nil {
		return err
	}
	if down := connected[c.Name].Down; down != "" {
		return &exit{task.ExitFailed, fmt.Errorf("connector %s is down: %s", c.Name, down)}
	}
	tools := connected[c.Name].Tools
	if c.Suggest {
		return c.suggest(a, own, tools)
	}
	rows := control.NewToolRows(own, tools)
	if c.JSON {
		return writeJSON(a.out, rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "TOOL\tCLASS\tFROM\tDEFINITION\tDESCRIPTION\n")
	for _, r := range rows {
		if r.Disabled {
			r.From += "; disabled"
		}
		text.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Tool, r.Class, r.From, r.Pin, oneLine(r.Description, 70))
	}
	return w.Flush()
}

// noConnector names the nearest connector.
func noConnector(set *config.Set, name string) error {
	if near := task.Nearest(name, set.ConnectorIDs()); near != "" {
		return usage("there is no connector %s; did you mean %s?", name, near)
	}
	return usage("there is no connector %s; `runnerd connectors` lists them", name)
}

// suggest prints classes for a person to review: it decides nothing.
func (c connectorsToolsCmd) suggest(a *app, rules policy.ConnectorRules, tools []task.Tool) error {
	text.Fprintf(a.out, "# Suggested from annotations and names, which a server can choose freely.\n# Review each line, then paste it under mcpServers.%s in connectors.yaml.\nclasses:\n", c.Name)
	for _, s := range policy.SuggestClasses(rules, tools) {
		text.Fprintf(a.out, "  %q: %s  # now %s; %s\n", s.Tool, s.Class, s.Current, s.Why)
	}
	if policy.Unflagged(rules) {
		text.Fprintf(a.out, "flags: [untrusted, private, egress]  # assumed, since nothing is known: leave out what is not true, [] if none is\n")
	}
	return nil
}

type mcpCmd struct {
	Name string   `arg:"" help:"files, fetch, shell or memory."`
	Args []string `arg:"" optional:"" passthrough:"" help:"The server's own flags."`
}

func (c mcpCmd) Run(ctx context.Context, a *app) error {
	if err := builtin.Serve(ctx, c.Name, c.Args, a.in, a.out); err != nil {
		return &exit{task.ExitUsage, err}
	}
	return nil
}
