package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"runnerd/daemon"
	"runnerd/sqldb"
)

type serveCmd struct {
	NewPolicy       bool `help:"Make a new policy database in place of one that was lost: what people set and accepted is gone, the files' rules count."`
	NewMain         bool `help:"Make a new main database in place of one that was lost: runs and receipts are gone."`
	AcceptDatabases bool `help:"Take both databases as they are, although one is older than the other remembers or not of it."`
}

// Help lists the settings, from the struct that reads them.
func (serveCmd) Help() string { return "Settings, from the environment:\n" + settingsTable() }

func (c serveCmd) Run(ctx context.Context, a *app) error {
	a.Consent = sqldb.Consent{NewMain: c.NewMain, NewPolicy: c.NewPolicy, Accept: c.AcceptDatabases}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	return daemon.Serve(context.WithoutCancel(ctx), a.Options, signals) // signals say what they mean there
}
