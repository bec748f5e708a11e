package db

import (
	"context"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

func migrate003(ctx context.Context, tx bun.Tx) error {
	return sqldb.CreateIdentity(ctx, tx, Kind.Table)
}
