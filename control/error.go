package control

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"runnerd/db"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// Error is what a request that was not done is answered with, as
// {"error": {"code", "message", "hint"}}. The parts of the daemon that are passed in
// may return one; Client returns nothing else for an answer that says no.
type Error struct {
	// Status is the HTTP status.
	Status int `json:"-"`
	// Code is one of the Code* values.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
	// State is where an approval or a run stands that has moved on.
	State string `json:"state,omitempty"`
	// Run is the active run that keeps another from starting.
	Run string `json:"run,omitempty"`
	// PID is the daemon's, where it says that it is not well or another's.
	PID int `json:"pid,omitempty"`
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// The codes of an Error.
const (
	CodeBadRequest   = "bad_request"        // 400: malformed, or something unknown in it
	CodeAmbiguous    = "ambiguous"          // 400: a prefix that fits more than one id
	CodeForbidden    = "forbidden"          // 403
	CodeNotFound     = "not_found"          // 404
	CodeMethod       = "method_not_allowed" // 405
	CodeConflict     = "conflict"           // 409: it has moved on
	CodeActiveRun    = "active_run"         // 409: the task has an active run
	CodeTooLarge     = "too_large"          // 413
	CodeElsewhere    = "elsewhere"          // 421: the daemon is that of another state directory
	CodeInvalidValue = "invalid_value"      // 422: well formed, but not a value for this field
	CodeInternal     = "internal"           // 500
	CodeUnavailable  = "unavailable"        // 503: try again
)

func badRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// NotFound is the Error for a name that is not there.
func NotFound(message, hint string) *Error {
	return &Error{Status: http.StatusNotFound, Code: CodeNotFound, Message: message, Hint: hint}
}

func noTask(id string) *Error {
	return NotFound(fmt.Sprintf("there is no task %q", id), "`runnerd tasks` lists them; `runnerd check` says what is wrong with a file")
}

func invalid(err error) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: CodeInvalidValue, Message: err.Error()}
}

// answerFor turns any error into what the client reads.
func answerFor(err error) *Error {
	var known *Error
	var active *db.ActiveError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &active):
		return activeRun(active.Run)
	case errors.As(err, &tooLarge):
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: CodeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case errors.Is(err, db.ErrNotFound), errors.Is(err, taskpolicy.ErrNoRow):
		return NotFound(err.Error(), "")
	case errors.Is(err, db.ErrAmbiguous):
		return &Error{Status: http.StatusBadRequest, Code: CodeAmbiguous, Message: err.Error(), Hint: "give more of the id"}
	case errors.Is(err, db.ErrConflict):
		return &Error{Status: http.StatusConflict, Code: CodeConflict, Message: err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, db.ErrBusy):
		return &Error{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: err.Error(), Hint: "try again"}
	}
	return &Error{Status: http.StatusInternalServerError, Code: CodeInternal, Message: err.Error(), Hint: "the daemon's log has more"}
}

func activeRun(r task.Run) *Error {
	return &Error{
		Status: http.StatusConflict, Code: CodeActiveRun, Run: r.ID, State: string(r.Status()),
		Message: fmt.Sprintf("task %s has an active run, %s (%s)", r.Task, r.ID, r.Status()),
		Hint:    fmt.Sprintf("wait for it or end it with `runnerd cancel %s`", r.ID),
	}
}

// storeFailed tells a failing policy database from a value that it refused: what
// comes from the driver or from a deadline is the daemon's trouble.
func storeFailed(err error) bool {
	var coded interface{ Code() int }
	var state interface{ SQLState() string }
	return errors.As(err, &coded) || errors.As(err, &state) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
