package taskpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

// Backup writes a whole, consistent copy of the database to path, which must not
// exist, and has it on disk when it returns. Writers wait meanwhile, decisions do
// not. On PostgreSQL it is an error: use pg_dump.
func (s *Store) Backup(ctx context.Context, path string) error {
	if sqldb.IsPostgres(s.opts.DSN) {
		return errors.New("back up policy database: it is on PostgreSQL; use pg_dump")
	}
	if err := s.backup(ctx, path); err != nil {
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
		err := s.read.NewSelect().Model(table).Scan(reading)
		cancel()
		if err != nil {
			return fmt.Errorf("copy policy database: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, to.opts.WriteWait+time.Duration(len(rules)+len(definitions))*syncWait)
	defer cancel()
	err := to.write.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
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

func (s *Store) backup(ctx context.Context, path string) error {
	// SQLite fills an empty file that is there, so the mode can be set first.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = s.write.DB.ExecContext(ctx, "VACUUM INTO ?", path)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return syncDir(filepath.Dir(path))
}
