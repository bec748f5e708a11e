package taskpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

// Backup writes a whole, consistent copy of the database to path, which must not
// exist, and has it on disk when it returns. Writers and decisions go on meanwhile.
// On PostgreSQL it is an error: use pg_dump.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := s.sql.Backup(ctx, path); err != nil {
		return fmt.Errorf("back up policy database: %w", err)
	}
	return nil
}

// CopyTo brings all rules and accepted definitions, without their history, into an
// empty database of any kind: there one can see what other files would mean.
func (s *Store) CopyTo(ctx context.Context, to *Store) error {
	var rules []*ruleRow
	var pins []*pinRow
	var definitions []*definitionRow
	for _, table := range []any{&rules, &pins, &definitions} {
		reading, cancel := s.reading(ctx)
		err := s.sql.Read.NewSelect().Model(table).Scan(reading)
		cancel()
		if err != nil {
			return fmt.Errorf("copy policy database: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, to.opts.WriteWait+time.Duration(len(rules)+len(definitions))*syncWait)
	defer cancel()
	err := to.sql.Transact(ctx, sqldb.SyncFull, func(ctx context.Context, tx bun.Tx) error {
		return errors.Join(insertAll(ctx, tx, rules), insertAll(ctx, tx, pins), insertAll(ctx, tx, definitions))
	})
	if err != nil {
		return fmt.Errorf("copy policy database: %w", err)
	}
	return nil
}

func insertAll[R any](ctx context.Context, tx bun.Tx, rows []R) error {
	for some := range slices.Chunk(rows, batch) {
		if _, err := tx.NewInsert().Model(&some).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
