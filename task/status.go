package task

import (
	"fmt"
	"slices"
)

// Execution is where a run stands as a process. The table of transitions is
// docs/run-states.md; CanMove is the one place that enforces it.
type Execution string

// The executions.
const (
	Queued      Execution = "queued"
	Running     Execution = "running"
	Waiting     Execution = "waiting"     // parked on an approval; no worker
	Interrupted Execution = "interrupted" // by a shutdown or a crash; will be resumed
	Completed   Execution = "completed"   // the model gave its last answer
	Failed      Execution = "failed"
	Limited     Execution = "limited" // a limit ended it
	Cancelled   Execution = "cancelled"
)

var moves = map[Execution][]Execution{
	Queued:      {Running, Cancelled, Limited, Failed},
	Running:     {Queued, Waiting, Interrupted, Completed, Failed, Limited, Cancelled},
	Waiting:     {Queued, Cancelled, Failed},
	Interrupted: {Queued, Running, Failed, Cancelled},
}

// CanMove tells whether a run may go from one execution to another. A finished
// execution never changes.
func (e Execution) CanMove(to Execution) bool {
	for _, m := range moves[e] {
		if m == to {
			return true
		}
	}
	return false
}

// Finished tells whether the execution can change no more.
func (e Execution) Finished() bool { return e != "" && moves[e] == nil }

// Active tells whether a run counts as active for overlap (DESIGN, section 8).
func (e Execution) Active() bool { return moves[e] != nil }

// Executions lists every execution, in the order of docs/run-states.md.
func Executions() []Execution {
	return []Execution{Queued, Running, Waiting, Interrupted, Completed, Failed, Limited, Cancelled}
}

// Status is the one word that people and exit codes get. It is derived, never
// stored on its own.
type Status string

// The statuses.
const (
	StatusQueued      Status = "queued"
	StatusRunning     Status = "running"
	StatusUnknown     Status = "unknown"
	StatusCancelled   Status = "cancelled"
	StatusInterrupted Status = "interrupted"
	StatusWaiting     Status = "waiting"
	StatusBudget      Status = "budget"
	StatusDenied      Status = "denied"
	StatusFailed      Status = "failed"
	StatusOK          Status = "ok"
)

// Statuses are all of them.
func Statuses() []Status {
	return []Status{
		StatusQueued, StatusRunning, StatusUnknown, StatusCancelled, StatusInterrupted, StatusWaiting,
		StatusBudget, StatusDenied, StatusFailed, StatusOK,
	}
}

// Status is StatusOf for a run as it is stored: its marks hold already what its
// receipts say.
func (r Run) Status() Status { return StatusOf(r, nil) }

// StatusOf turns a run's facts, its marks and its receipts into its status. The
// first match wins (DESIGN, section 7); docs/run-states.md is the same as a table.
func StatusOf(r Run, receipts []Receipt) Status {
	r.Account(receipts)
	switch {
	case r.Execution == Queued:
		return StatusQueued
	case r.Execution == Running:
		return StatusRunning
	case r.HasMark(MarkUnknownEffect):
		return StatusUnknown
	case r.Execution == Cancelled:
		return StatusCancelled
	case r.Execution == Interrupted:
		return StatusInterrupted
	case r.Execution == Waiting:
		return StatusWaiting
	case r.Execution == Limited:
		return StatusBudget
	case r.Refused() > 0:
		return StatusDenied
	case r.Execution != Completed, r.fellShort():
		return StatusFailed
	case r.HasMark(MarkHeld):
		return StatusWaiting
	}
	return StatusOK
}

// fellShort tells whether a run that completed still did not do its job.
func (r Run) fellShort() bool {
	return r.Outcome == OutcomeFailed || r.Outcome == OutcomeNeedsAttention ||
		r.Delivery == DeliveryFailed || slices.ContainsFunc(fallingShort, r.HasMark)
}

// fallingShort are the marks of a run that did not do its job, though its model
// said a last word.
var fallingShort = []string{
	MarkEmptyAnswer, MarkUnverifiedClaims, MarkRequiredDown, MarkNoTools, MarkInvalidOutput, MarkTruncated, MarkReportMissing, MarkUndelivered,
}

// Account puts into the run's marks what its receipts say: unknown_effect and
// refused:N. It never takes back what a mark says already, since an effect that
// was unknown once stays so and a refusal is not undone.
func (r *Run) Account(receipts []Receipt) {
	refused := 0
	for _, rc := range receipts {
		if rc.MayHaveActed(r.Execution) {
			r.Marks = slices.Clip(r.Marks)
			r.Mark(MarkUnknownEffect)
		}
		if rc.Refused() {
			refused++
		}
	}
	if refused > r.Refused() {
		r.SetRefused(refused)
	}
}

// MayHaveActed tells whether the receipt is of a call that may have changed
// something without anybody knowing. While its run is running, a call without an
// outcome is under way; in any other execution nobody will hear of it any more.
func (r Receipt) MayHaveActed(e Execution) bool {
	lost := r.Outcome == ReceiptUnknown || r.Outcome == ReceiptPending && e != Running
	return lost && r.Class != classRead
}

// classRead is the class of tools that change nothing, as receipts have it.
const classRead = "read"

// Refused tells whether policy refused the call. One that was parked waits for a
// person and is not refused.
func (r Receipt) Refused() bool { return r.Decision != DecisionPark && RefusalCode(r.Code) }

// RefusalCode tells whether a code is a refusal by policy, which makes the run
// denied, as against a mistake of the model's (invalid arguments, a name that
// nobody lists) or a limit.
func RefusalCode(code string) bool {
	switch code {
	case "", "invalid_arguments", "unknown_tool", "limit", "repeated_call":
		return false
	}
	return true
}

// Exit codes of the command line (DESIGN, section 11).
const (
	ExitOK       = 0
	ExitInternal = 1
	ExitUsage    = 2
	ExitFailed   = 3
	ExitDenied   = 4
	ExitBudget   = 5
	ExitWaiting  = 6
	ExitUnknown  = 7
	ExitStopped  = 8
)

// ExitCode is the exit code of `runnerd run` for a run that ended so.
func (s Status) ExitCode() int {
	switch s {
	case StatusOK:
		return ExitOK
	case StatusFailed:
		return ExitFailed
	case StatusDenied:
		return ExitDenied
	case StatusBudget:
		return ExitBudget
	case StatusWaiting:
		return ExitWaiting
	case StatusUnknown:
		return ExitUnknown
	case StatusCancelled, StatusInterrupted:
		return ExitStopped
	}
	return ExitInternal
}

// TransitionError says that a run was told to move where it cannot.
type TransitionError struct {
	Run      string
	From, To Execution
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("run %s: %s cannot become %s (docs/run-states.md)", e.Run, e.From, e.To)
}
