package db

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// migrate004 adds how much of a day's spend is an estimate.
func migrate004(ctx context.Context, tx bun.Tx) error {
	return addColumn(ctx, tx, "spend", "estimated", "BIGINT NOT NULL DEFAULT 0")
}

// addColumn adds a column that is not there yet.
func addColumn(ctx context.Context, tx bun.Tx, table, column, kind string) error {
	query := "SELECT COUNT(*) FROM pragma_table_info(?) WHERE name = ?"
	if tx.Dialect().Name() == dialect.PG {
		query = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ? AND column_name = ?"
	}
	var n int
	if err := tx.NewRaw(query, table, column).Scan(ctx, &n); err != nil {
		return fmt.Errorf("look for column %s.%s: %w", table, column, err)
	}
	if n > 0 {
		return nil
	}
	if _, err := tx.NewRaw("ALTER TABLE ? ADD COLUMN ? "+kind, bun.Ident(table), bun.Ident(column)).Exec(ctx); err != nil {
		return fmt.Errorf("add column %s.%s: %w", table, column, err)
	}
	return nil
}
