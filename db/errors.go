package db

import (
	"database/sql"
	"errors"
	"fmt"

	"runnerd/sqldb"
	"runnerd/task"
)

// Errors that callers may rely on, with errors.Is.
var (
	// ErrNotFound: no row of that id. An approval of another task looks the same.
	ErrNotFound = sqldb.ErrNotFound
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
	ErrNoSpace = sqldb.ErrNoSpace
	// ErrCorrupt: the file is damaged or no database. It is never recreated.
	ErrCorrupt = sqldb.ErrCorrupt
	// ErrBusy: another process held the database longer than the wait allows.
	ErrBusy = sqldb.ErrBusy
	// ErrReadOnly: a write on a database that was opened for reading.
	ErrReadOnly = sqldb.ErrReadOnly
	// ErrAmbiguous: a prefix that fits more than one id.
	ErrAmbiguous = errors.New("prefix fits more than one")
)

// ActiveError says that a task has an active run already.
type ActiveError struct{ Run task.Run }

func (e *ActiveError) Error() string {
	return fmt.Sprintf("task %s has an active run: %s (%s)", e.Run.Task, e.Run.ID, e.Run.Execution)
}

// Refusals of a database that this runnerd cannot work with, with errors.As.
type (
	// NewerError says that a newer runnerd wrote the database. It was not touched.
	NewerError = sqldb.NewerError
	// OlderError says that a database opened for reading lacks migrations, which
	// only a writer applies.
	OlderError = sqldb.OlderError
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
	return sqldb.KindOf(err)
}
