package db

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"runnerd/sqldb"
	"runnerd/task"
)

// Errors that callers may rely on, with errors.Is.
var (
	// ErrNotFound: no row of that id. An approval of another task looks the same.
	ErrNotFound = errors.New("not found")
	// ErrConsumed: the approval is not there to be used: somebody else used it,
	// it was never approved, or it is for another call.
	ErrConsumed = task.ErrConsumed
	// ErrLost: the run is not held by this worker any more: its attempt differs
	// from the stored one, or it is not running.
	ErrLost = task.ErrLost
	// ErrConflict: the row has moved on and the change was not made.
	ErrConflict = errors.New("conflict")
	// ErrNoSpace: the disk, or the database's quota on it, is full. Nothing was
	// written; the same call succeeds when there is space again.
	ErrNoSpace = errors.New("no space left for the database")
	// ErrCorrupt: the file is damaged or no database. It is never recreated.
	ErrCorrupt = sqldb.ErrCorrupt
	// ErrBusy: another process held the database longer than the wait allows.
	ErrBusy = errors.New("database is locked by another process")
	// ErrReadOnly: a write on a database that was opened for reading.
	ErrReadOnly = errors.New("database was opened for reading only")
	// ErrAmbiguous: a prefix that fits more than one id.
	ErrAmbiguous = errors.New("prefix fits more than one")
)

// ActiveError says that a task has an active run already.
type ActiveError struct{ Run task.Run }

func (e *ActiveError) Error() string {
	return fmt.Sprintf("task %s has an active run: %s (%s)", e.Run.Task, e.Run.ID, e.Run.Execution)
}

// NewerError says that a newer runnerd wrote the database. It was not touched.
type NewerError struct {
	Path         string
	Found, Known int // schema numbers
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("database %s has schema %d, this runnerd knows up to %d: run the newer version, or restore a backup",
		e.Path, e.Found, e.Known)
}

// OlderError says that a database opened for reading lacks migrations, which
// only a writer applies.
type OlderError struct {
	Path         string
	Found, Known int
}

func (e *OlderError) Error() string {
	return fmt.Sprintf("database %s has schema %d, this runnerd needs %d: start the daemon once to migrate it",
		e.Path, e.Found, e.Known)
}

// Primary result codes of SQLite that have a meaning for callers.
const (
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadOnly = 8
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteNotADB   = 26
	// sqliteShmSize is the one extended code: the shared-memory file cannot grow.
	sqliteShmSize = 4874
)

// wrap names the operation and turns what the driver said into one of the
// errors above. It leaves errors of this package and contexts as they are.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: %w: %w", op, kind, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func kindOf(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return ErrNoSpace
	}
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return sqliteKind(coded.Code())
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "53100": // disk_full
			return ErrNoSpace
		case "XX001", "XX002": // data_corrupted, index_corrupted
			return ErrCorrupt
		case "55P03": // lock_not_available
			return ErrBusy
		}
	}
	return nil
}

func sqliteKind(code int) error {
	if code == sqliteShmSize {
		return ErrNoSpace
	}
	switch code & 0xff {
	case sqliteFull:
		return ErrNoSpace
	case sqliteCorrupt, sqliteNotADB:
		return ErrCorrupt
	case sqliteBusy, sqliteLocked:
		return ErrBusy
	case sqliteReadOnly:
		return ErrReadOnly
	}
	return nil
}
