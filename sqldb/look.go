package sqldb

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/driver/sqliteshim"
)

// lookWait bounds one look.
const lookWait = 20 * time.Second

// lookBusy bounds how long a look waits for a writer.
const lookBusy = 5 * time.Second

// Look reads a database's state and changes nothing: not even a log that was left
// behind is taken up.
func Look(ctx context.Context, dsn string, k Kind) (State, error) { return lookAt(ctx, dsn, k, 0) }

// LookWhole is Look that reads the whole of a SQLite file as well, as far as it comes
// in the time, and finds what is damaged. With a log that was left behind, which may
// be another file's, it holds the indexes against the tables too.
func LookWhole(ctx context.Context, dsn string, k Kind, within time.Duration) (State, error) {
	return lookAt(ctx, dsn, k, within)
}

func lookAt(ctx context.Context, dsn string, k Kind, within time.Duration) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait+within)
	defer cancel()
	s := State{Role: k.Role, Place: Name(dsn), Served: IsPostgres(dsn)}
	q, err := openLook(dsn)
	if err == nil && q != nil && within > 0 && !IsPostgres(dsn) {
		if err = whole(ctx, q, dsn, within); err != nil {
			err = errors.Join(err, q.Close())
		}
	}
	if err != nil || q == nil {
		return s, lookError(s, err)
	}
	err = q.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) (err error) {
		s, err = look(ctx, tx, k, IsPostgres(dsn))
		return err
	})
	s.Role, s.Place, s.Served = k.Role, Name(dsn), IsPostgres(dsn)
	return s, lookError(s, errors.Join(err, q.Close()))
}

func whole(ctx context.Context, q *bun.DB, dsn string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	path, err := Path(dsn)
	if err != nil {
		return err
	}
	pragma, perhaps := "PRAGMA quick_check(1)", ""
	if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
		pragma, perhaps = "PRAGMA integrity_check(1)", ", or its log "+path+"-wal is not its own"
	}
	var problems []string
	err = q.NewRaw(pragma).Scan(ctx, &problems)
	switch {
	case ctx.Err() != nil: // it is too large to be read in the time
		return nil
	case err != nil:
		return err
	}
	return corrupt(problems, perhaps)
}

func lookError(s State, err error) error {
	if err == nil {
		return nil
	}
	return &Error{s.Role, s.Place, err}
}

// openLook is nil where there is no file, or one without a byte.
func openLook(dsn string) (*bun.DB, error) {
	if IsPostgres(dsn) {
		return pool("pgx", dsn, 1, 1)
	}
	path, err := Path(dsn)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		err = CheckHeader(f)
	}
	if err = errors.Join(err, f.Close()); err != nil || info.Size() == 0 {
		return nil, err
	}
	return pool(sqliteshim.ShimName, sqliteDSN(path, "ro", "deferred", lookBusy, "query_only(ON)"), 1, 1)
}

func look(ctx context.Context, q bun.IDB, k Kind, shared bool) (s State, err error) {
	names, err := tables(ctx, q)
	if err != nil {
		return s, err
	}
	switch {
	case !slices.Contains(names, k.Mark):
		s.There = len(names) > 0
		return s, k.foreign(names, shared)
	case slices.Contains(names, k.Table):
		return Read(ctx, q, k)
	}
	s = State{Role: k.Role, There: true}
	return s, count(ctx, q, k, &s)
}

// CheckHeader finds a file that is no SQLite database, or one that was cut short. An
// empty file is a new database.
func CheckHeader(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	head := make([]byte, 100)
	if _, err := io.ReadFull(f, head); err != nil {
		return fmt.Errorf("%w: the file has only %d bytes; `runnerd restore DIR` puts a backup in its place", ErrCorrupt, info.Size())
	}
	if string(head[:16]) != "SQLite format 3\x00" {
		return fmt.Errorf("%w: the file is no SQLite database; move it away, or `runnerd restore DIR` puts a backup in its place", ErrCorrupt)
	}
	if wal, err := os.Stat(f.Name() + "-wal"); err == nil && wal.Size() > 0 {
		return nil // the log may hold the missing pages
	}
	page := int64(binary.BigEndian.Uint16(head[16:18]))
	if page == 1 {
		page = 65536
	}
	if want := page * int64(binary.BigEndian.Uint32(head[28:32])); info.Size() < want {
		return fmt.Errorf("%w: the file has %d bytes of %d; `runnerd restore DIR` puts a backup in its place", ErrCorrupt, info.Size(), want)
	}
	return nil
}
