package daemon

import (
	"context"
	"errors"
	"io/fs"

	"runnerd/taskpolicy"
	"runnerd/text"
)

// copyPolicy copies what people have set and accepted, if there is a database yet.
func (i *Inspection) copyPolicy(ctx context.Context, to *taskpolicy.Store) error {
	live, err := i.options.OpenPolicy(ctx)
	if errors.Is(err, fs.ErrPermission) || Apart(err) != nil {
		text.Fprintf(i.options.Log, "warning: only the files count in what follows, overrides and accepted tools are not known: %v\n", err)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(live.CopyTo(ctx, to), live.Close())
}
