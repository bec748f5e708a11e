package sqldb

import (
	"errors"
	"fmt"
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

// cure is what helps against an error that does not say so itself, where that is known.
func cure(err error) string {
	switch kind := KindOf(err); {
	case kind == ErrNoSpace:
		return "; its disk is full: make room there and start again, nothing is lost"
	case kind == ErrCorrupt && !errors.Is(err, ErrCorrupt):
		return "; it is damaged: `runnerd restore DIR` puts a backup in its place, `runnerd doctor` says more"
	}
	return ""
}
