package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"runnerd/taskpolicy"
)

// copyPolicy copies what people have set and accepted, if there is a database yet.
func (i *inspection) copyPolicy(ctx context.Context, to *taskpolicy.Store) error {
	file := strings.TrimPrefix(i.settings.PolicyDatabase, "file:")
	if _, err := os.Stat(file); err != nil && !strings.Contains(file, "://") {
		return nil
	}
	live, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: i.settings.PolicyDatabase})
	if err != nil {
		return err
	}
	return errors.Join(live.CopyTo(ctx, to), live.Close())
}
