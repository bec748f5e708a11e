package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"runnerd/sqldb"
	"runnerd/taskpolicy"
	"runnerd/text"
)

// copyPolicy copies what people have set and accepted, if there is a database yet.
func (i *inspection) copyPolicy(ctx context.Context, to *taskpolicy.Store) error {
	if _, err := os.Stat(i.settings.PolicyDatabase); err != nil && !sqldb.IsPostgres(i.settings.PolicyDatabase) {
		if errors.Is(err, fs.ErrPermission) {
			text.Fprintf(i.warn, "warning: only the files count in what follows, overrides and accepted tools are not known: %v\n", err)
		}
		return nil
	}
	live, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: i.settings.PolicyDatabase})
	if err != nil {
		return err
	}
	return errors.Join(live.CopyTo(ctx, to), live.Close())
}
