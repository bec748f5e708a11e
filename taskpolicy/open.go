package taskpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	"runnerd/sqldb"
)

const readers = 4

// open opens the database and makes sure that it is whole: a column that is missing
// must not turn into a rule that is.
func (s *Store) open(ctx context.Context) error {
	if err := s.createIfMissing(ctx); err != nil {
		return err
	}
	if sqldb.IsPostgres(s.opts.DSN) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*s.opts.WriteWait)
		defer cancel()
	}
	opened, err := s.connect(ctx, s.opts.DSN)
	if err != nil {
		return err
	}
	s.sql = opened
	return checkColumns(ctx, opened.Read)
}

func (s *Store) connect(ctx context.Context, dsn string) (*sqldb.DB, error) {
	return sqldb.Open(ctx, sqldb.Options{
		DSN: dsn, Readers: readers, ReadBusy: s.opts.ReadWait, WriteBusy: s.opts.WriteWait, Whole: true,
	}, sqldb.Schema{
		Kind: Kind, Number: "version", Steps: migrations,
		Applied: func(m sqldb.Step) {
			s.log.Info("policy database migrated", zap.Int(keyVersion, m.Number), zap.String("name", m.Name))
		},
	})
}

// createIfMissing makes a new database beside its place and moves it there whole,
// so that a file that is there is one that was finished. What looks like the rest
// of a database is not built over.
func (s *Store) createIfMissing(ctx context.Context) error {
	if sqldb.IsPostgres(s.opts.DSN) {
		return nil
	}
	path, err := sqldb.Path(s.opts.DSN)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Size() == 0 && info.Mode().IsRegular():
		return errors.New("the file is empty, so its rules are lost: put it back, or `runnerd restore DIR`")
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if wal, err := os.Lstat(path + "-wal"); err == nil && wal.Size() > 0 {
		return fmt.Errorf("the file is gone but %s-wal is there: put it back, or `runnerd restore DIR`", path)
	}
	fresh := path + ".new"
	if err := sqldb.Remove(fresh); err != nil {
		return err
	}
	opened, err := s.connect(ctx, fresh)
	if err != nil {
		return err
	}
	if err := opened.Close(); err != nil {
		return err
	}
	return sqldb.Place(fresh, path)
}
