package daemon

import (
	"context"
	"errors"
	"io/fs"

	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/taskpolicy"
)

// Reading lets read use the main database; if there is none yet nothing is read.
func (o Options) Reading(ctx context.Context, read func(*db.DB) error) error {
	main, err := o.OpenMain(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(read(main), main.Close())
}

// ReadingPolicy lets read use the policy database; if there is none yet nothing
// is read.
func (o Options) ReadingPolicy(ctx context.Context, read func(*taskpolicy.Store) error) error {
	rules, err := o.OpenPolicy(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(read(rules), rules.Close())
}

// OpenPolicy opens a policy database that is there, and makes none.
func (o Options) OpenPolicy(ctx context.Context) (*taskpolicy.Store, error) {
	found, err := sqldb.Look(ctx, o.PolicyDatabase, taskpolicy.Kind)
	if err != nil {
		return nil, err
	}
	if !found.There {
		return nil, o.absent(ctx, "there is no policy database yet")
	}
	return taskpolicy.Open(ctx, taskpolicy.Options{DSN: o.PolicyDatabase})
}
