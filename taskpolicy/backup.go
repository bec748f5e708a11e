package taskpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Backup writes a whole, consistent copy of the database to path, which must not
// exist, and has it on disk when it returns. Writers wait meanwhile, decisions do
// not. On PostgreSQL it is an error: use pg_dump.
func (s *Store) Backup(ctx context.Context, path string) error {
	if isPostgres(s.opts.DSN) {
		return errors.New("back up policy database: it is on PostgreSQL; use pg_dump")
	}
	if err := s.backup(ctx, path); err != nil {
		return fmt.Errorf("back up policy database: %w", err)
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
