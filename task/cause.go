package task

import "errors"

// ErrShutdown is the context cause that tells a runner that the daemon stops:
// the run is interrupted, not failed, and will be resumed.
var ErrShutdown = errors.New("the daemon is shutting down")

// ErrLost says that a worker does not hold its run any more. It must write
// nothing further: the record belongs to whoever holds the run now.
var ErrLost = errors.New("run is held by another attempt")

// ErrConsumed says that an approval is not there to be used: somebody else used
// it, it was never approved, or it is for another call.
var ErrConsumed = errors.New("approval already used or not for this call")

// CancelledError is the context cause that tells a runner that its run was
// cancelled: by a person, or by overlap: replace.
type CancelledError struct{ Reason string }

func (e *CancelledError) Error() string { return "cancelled: " + e.Reason }

// Days are the two dates that spend is booked to: the task's in its own zone and
// the daemon's total in its own (DESIGN, section 9). Form: 2006-01-02. What the
// tasks of a project spend is booked to the project too, on the daemon's date.
type Days struct {
	Task, Total string
	Project     string // the project's name; empty for none
}

// DaySpend is what was booked on a day: to the task, to its project, and in all.
type DaySpend struct{ Task, Project, Total Usage }
