package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/uptrace/bun/driver/sqliteshim"
)

// Backup writes a compact copy of a SQLite database, as it stands at this
// moment, to a path where nothing may stand yet. Writers go on meanwhile. The
// path appears only when the copy is whole and on disk. The context alone bounds
// how long it may take.
func (d *DB) Backup(ctx context.Context, path string) error {
	return wrap("back up database to "+path, d.backup(ctx, path))
}

func (d *DB) backup(ctx context.Context, path string) error {
	if d.path == "" {
		return errors.New("this database is PostgreSQL: use pg_dump")
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: choose another path", fs.ErrExist)
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // gone already if all went well
	defer part.Close()
	if err := d.copyTo(ctx, part.Name()); err != nil {
		return err
	}
	if err := part.Sync(); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// copyTo uses a connection of its own: the read pool refuses a VACUUM, and the
// writer must not wait for it.
func (d *DB) copyTo(ctx context.Context, path string) (err error) {
	conn, err := sql.Open(sqliteshim.ShimName, sqliteDSN(d.path, "rw", []string{pragmaBusy(d.opts.BusyTimeout)}, "deferred"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = conn.ExecContext(ctx, "VACUUM INTO ?", path)
	return err
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Check reads the whole SQLite file and answers ErrCorrupt with what is wrong.
// The context alone bounds how long it may take.
func (d *DB) Check(ctx context.Context) error {
	if d.path == "" {
		return nil
	}
	var problems []string
	if err := d.read.NewRaw("PRAGMA quick_check(1)").Scan(ctx, &problems); err != nil {
		return wrap("check database", err)
	}
	if len(problems) == 1 && problems[0] == "ok" {
		return nil
	}
	return fmt.Errorf("check database %s: %w: %v; restore a backup", d.path, ErrCorrupt, problems)
}
