package main

import (
	"context"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/text"
)

type reloadCmd struct {
	Empty bool `help:"There are to be no tasks: take the directory as it is, although all of them are gone."`
	JSON  bool `help:"Print JSON."`
}

// Help says when it is needed.
func (reloadCmd) Help() string {
	return "The daemon sees edits by itself; this reads every file at once and says what came of it. A config directory that has lost all of its " +
		"tasks keeps those that were in force, since a volume may not be mounted; --empty says that it is meant."
}

func (c reloadCmd) Run(ctx context.Context, a *app) error {
	v, err := c.view(ctx, a)
	if err != nil {
		return remote(err)
	}
	if c.JSON {
		return writeJSON(a.out, v)
	}
	text.Fprintf(a.out, "%s, %s, %s in force\n", count(v.Tasks, "task"), count(v.Connectors, "connector"), count(len(v.Problems), "problem"))
	for _, p := range v.Problems {
		text.Fprintf(a.out, "problem   %s\n", p)
	}
	return nil
}

func (c reloadCmd) view(ctx context.Context, a *app) (v control.ReloadView, err error) {
	if client := a.live(ctx); client != nil {
		return client.Reload(ctx, c.Empty)
	}
	if !c.Empty {
		return v, usage("no daemon runs, and its start reads every file; `runnerd check` looks at them")
	}
	err = a.asDaemon(ctx, func(d *daemon.Daemon) error {
		v, err = d.ReloadView(ctx, true)
		return err
	})
	return v, err
}
