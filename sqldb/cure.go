package sqldb

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

// Error says which database an operation failed on, and what a person can do.
type Error struct {
	Role  Role
	Place string
	Err   error
}

// Named makes an *Error of err, nil of nil. An error that names its database already
// stays as it is.
func Named(role Role, dsn string, err error) error {
	var named *Error
	if err == nil || errors.As(err, &named) {
		return err
	}
	return &Error{role, Name(dsn), err}
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %v%s", e.Role, e.Place, e.Err, cure(e.Err))
}

func (e *Error) Unwrap() error { return e.Err }

// cure is what helps against an error, where that is known.
func cure(err error) string {
	switch {
	case full(err):
		return "; its disk is full: make room there and start again, nothing is lost"
	case damaged(err):
		return "; it is damaged: `runnerd restore DIR` puts a backup in its place, `runnerd doctor` says more"
	}
	return ""
}

// code is the primary result code of SQLite, 0 if there is none.
func code(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	return 0
}

func full(err error) bool {
	const sqliteFull, shmSize = 13, 4874 // the latter: the shared-memory file cannot grow
	var coded interface{ Code() int }
	var pg *pgconn.PgError
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || code(err) == sqliteFull ||
		errors.As(err, &coded) && coded.Code() == shmSize || errors.As(err, &pg) && pg.Code == "53100"
}

func damaged(err error) bool {
	const sqliteCorrupt, sqliteNotADB = 11, 26
	return code(err) == sqliteCorrupt || code(err) == sqliteNotADB
}
