package sqldb

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

// What callers may rely on, with errors.Is on what KindOf answers.
var (
	// ErrNotFound: no database to read, or no row of that id.
	ErrNotFound = errors.New("not found")
	// ErrCorrupt: the file is damaged or no database. It is never recreated.
	ErrCorrupt = errors.New("database is damaged")
	// ErrNoSpace: the disk, or the database's quota on it, is full. Nothing was
	// written; the same call succeeds when there is space again.
	ErrNoSpace = errors.New("no space left for the database")
	// ErrBusy: another process held the database longer than the wait allows.
	ErrBusy = errors.New("database is locked by another process")
	// ErrReadOnly: a write on a database that was opened for reading.
	ErrReadOnly = errors.New("database was opened for reading only")
)

// KindOf is the error above that an error of a driver or of the system means, nil
// where it means none.
func KindOf(err error) error {
	for _, kind := range []error{ErrCorrupt, ErrNoSpace, ErrBusy, ErrReadOnly} {
		if errors.Is(err, kind) {
			return kind
		}
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
