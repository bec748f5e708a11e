package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/uptrace/bun/driver/sqliteshim"
)

// Backup writes a compact copy of a SQLite database, as it stands at this
// moment, to a path where nothing may stand yet. Writers go on meanwhile. The
// path appears only when the copy is whole and on disk. The context alone bounds
// how long it may take.
func (d *DB) Backup(ctx context.Context, path string) error {
	if d.Path == "" {
		return errors.New("this database is PostgreSQL: use pg_dump")
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: choose another path", fs.ErrExist)
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) //nolint:errcheck // gone already if all went well
	if err := d.copyTo(ctx, part.Name()); err != nil {
		return errors.Join(err, part.Close())
	}
	if err := errors.Join(part.Sync(), part.Close()); err != nil {
		return err
	}
	return Place(part.Name(), path)
}

// copyTo uses a connection of its own: the read pool refuses a VACUUM, and the
// writer must not wait for it.
func (d *DB) copyTo(ctx context.Context, path string) error {
	conn, err := pool(sqliteshim.ShimName, sqliteDSN(d.Path, "rw", "deferred", d.opts.WriteBusy), 1, 1)
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "VACUUM INTO ?", path)
	return errors.Join(err, conn.Close())
}

// Check reads the whole SQLite file and answers ErrCorrupt with what is wrong.
// The context alone bounds how long it may take.
func (d *DB) Check(ctx context.Context) error {
	if d.Path == "" {
		return nil
	}
	var problems []string
	if err := d.Read.NewRaw("PRAGMA quick_check(1)").Scan(ctx, &problems); err != nil {
		return fmt.Errorf("read the whole file: %w%s", err, cure(err))
	}
	return corrupt(problems, "")
}

// corrupt makes an error of what SQLite's own check says.
func corrupt(problems []string, perhaps string) error {
	if len(problems) == 1 && problems[0] == "ok" {
		return nil
	}
	what := strings.Join(strings.Fields(strings.Join(problems, " ")), " ")
	return fmt.Errorf("%w (%s)%s; `runnerd restore DIR` puts a backup in its place", ErrCorrupt, what, perhaps)
}
