package db

import (
	"context"

	"github.com/uptrace/bun"
)

// migrate006 adds what a rehearsal plays.
func migrate006(ctx context.Context, tx bun.Tx) error {
	return addColumn(ctx, tx, "runs", "script", "TEXT NOT NULL DEFAULT ''")
}
