package taskpolicy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/sqliteshim"

	"runnerd/sqldb"
)

const readers = 4

// openSQLite checks the file through a read-only handle before anything could
// write to it.
func (s *Store) openSQLite(ctx context.Context) error {
	path, err := sqldb.Path(s.opts.DSN)
	if err != nil {
		return err
	}
	if err := s.createIfMissing(ctx, path); err != nil {
		return err
	}
	if s.read, err = s.openReadOnly(path); err != nil {
		return err
	}
	if err := checkIntegrity(ctx, s.read); err != nil {
		return err
	}
	version, err := checkVersion(ctx, s.read)
	if err != nil {
		return err
	}
	if version == latestVersion() {
		if err := checkColumns(ctx, s.read); err != nil {
			return err
		}
	}
	if s.write, err = s.openWritable(path); err != nil {
		return err
	}
	if err := migrate(ctx, s.write); err != nil {
		return err
	}
	return checkColumns(ctx, s.read)
}

// createIfMissing makes a new database beside its place and moves it there whole,
// so that a file that is there is one that was finished. What looks like the rest
// of a database is not built over.
func (s *Store) createIfMissing(ctx context.Context, path string) error {
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
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(fresh + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := s.build(ctx, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func (s *Store) build(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := s.openWritable(path)
	if err != nil {
		return err
	}
	return errors.Join(migrate(ctx, db), db.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

var uriEscape = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

func (s *Store) openWritable(path string) (*bun.DB, error) {
	dsn := fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate",
		uriEscape.Replace(path), s.opts.WriteWait.Milliseconds())
	return openPool(sqliteshim.ShimName, dsn, 1)
}

func (s *Store) openReadOnly(path string) (*bun.DB, error) {
	dsn := fmt.Sprintf("file:%s?mode=ro&_pragma=busy_timeout(%d)&_pragma=query_only(1)", uriEscape.Replace(path), s.opts.ReadWait.Milliseconds())
	return openPool(sqliteshim.ShimName, dsn, readers)
}

func openPool(driver, dsn string, most int) (*bun.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	if driver == "pgx" {
		return bun.NewDB(db, pgdialect.New()), nil
	}
	return bun.NewDB(db, sqlitedialect.New()), nil
}

// openPostgres uses one pool: the server itself keeps readers and writers apart.
func (s *Store) openPostgres(ctx context.Context) error {
	var err error
	if s.write, err = openPool("pgx", s.opts.DSN, readers); err != nil {
		return err
	}
	s.read = s.write
	ctx, cancel := context.WithTimeout(ctx, 2*s.opts.WriteWait)
	defer cancel()
	if _, err := checkVersion(ctx, s.write); err != nil {
		return err
	}
	if err := migrate(ctx, s.write); err != nil {
		return err
	}
	return checkColumns(ctx, s.write)
}

// checkIntegrity reads the whole file once. A page that does not read back is found
// here and not in the middle of a run.
func checkIntegrity(ctx context.Context, db *bun.DB) error {
	var answer string
	if err := db.DB.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&answer); err != nil {
		return fmt.Errorf("check the file: %w; `runnerd restore DIR` puts a backup in its place", err)
	}
	if answer != "ok" {
		return fmt.Errorf("the file is corrupt (%s); `runnerd restore DIR` puts a backup in its place", answer)
	}
	return nil
}
