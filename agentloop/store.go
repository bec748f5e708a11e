package agentloop

import (
	"context"
	"encoding/json"

	"runnerd/policy"
	"runnerd/task"
)

// Store is the main database as the loop sees it. The db package implements it.
// Every write is durable when the call returns.
type Store interface {
	Run(ctx context.Context, id string) (task.Run, error)
	// Revision returns the task as it stood when the run was created.
	Revision(ctx context.Context, hash string) (task.Task, error)
	// Window returns the session's messages that a model may still see: from
	// where the window begins, oldest first.
	Window(ctx context.Context, session string) ([]task.Message, error)
	RunMessages(ctx context.Context, run string) ([]task.Message, error)
	RunReceipts(ctx context.Context, run string) ([]task.Receipt, error)
	RunApprovals(ctx context.Context, run string) ([]task.Approval, error)

	// Append stores messages in one transaction and sets their Seq. Usage on a
	// message is booked to the task's day and to the daemon's total day
	// in the same transaction, and added to the run.
	Append(ctx context.Context, days task.Days, msgs ...*task.Message) error
	// Intend stores the decision and the intent to dispatch, before dispatch, and
	// sets Seq. If approval is not empty it consumes that approval in the same
	// transaction and answers task.ErrConsumed if somebody else did. It answers
	// task.ErrLost if the run is not running.
	Intend(ctx context.Context, r *task.Receipt, approval string) error
	// Settle stores the outcome of a receipt and the message that answers the
	// call, together. raw is the whole result if msg carries a cut one. msg is nil
	// for a read that a shutdown interrupted: the call stays unanswered and is
	// made again on resume.
	Settle(ctx context.Context, r *task.Receipt, msg *task.Message, raw string) error
	// Refuse stores a receipt that dispatches nothing, with its answer. With ask
	// the call is parked: the approval is stored too and msg is nil.
	Refuse(ctx context.Context, r *task.Receipt, msg *task.Message, ask *task.Approval) error
	// Supersede ends one approval and stores the next, for a call that must be
	// asked anew.
	Supersede(ctx context.Context, old string, ask *task.Approval) error

	// Update stores what changed on a run that this worker holds; one that is to
	// wait although nothing is pending any more is queued instead (marks, outcome,
	// output, counters, wall, execution). It checks the transition against
	// task.Execution.CanMove and the attempt against the stored one, so that a
	// worker that lost its run cannot write: that is task.ErrLost.
	Update(ctx context.Context, r task.Run) error
	// Retry is Update to queued with the attempt counted up.
	Retry(ctx context.Context, r task.Run) error
	// StartWindow moves where the session's context begins, to just before seq.
	StartWindow(ctx context.Context, session string, seq int64) error
	// Tainted returns the run that wrote one of the entries of a builtin store after
	// it had read untrusted text, "" if there is none.
	Tainted(ctx context.Context, entries []string) (run string, err error)
	// Touch stores what a call changed in a builtin store, and whether the run had
	// read untrusted text.
	Touch(ctx context.Context, run string, tainted bool, t task.Touched) error
	// Book adds what a call cost that left no message, as Append does for one that did.
	Book(ctx context.Context, days task.Days, run string, u task.Usage) error
	// Spent is what was booked on that day, for the task, its project and in all.
	Spent(ctx context.Context, taskID string, days task.Days) (task.DaySpend, error)
}

// Policies is the policy database as the loop sees it: one fresh read.
type Policies interface {
	Effective(ctx context.Context, taskID, session, project string) (policy.Effective, error)
	// Accept pins definitions at first use; it never replaces a pin.
	Accept(ctx context.Context, connector string, tools []task.Tool, by string) error
}

// Connectors opens, lists and calls. The connector package implements it.
type Connectors interface {
	// Tools lists a connector's tools, opening it if need be. The list is the one
	// that the live session announced last.
	Tools(ctx context.Context, connector string) ([]task.Tool, error)
	// Call sends one call. An error means that no answer came; see CallError.
	Call(ctx context.Context, connector, tool string, args json.RawMessage) (task.ToolResult, error)
}

// CallError is implemented by a connector's errors that know more.
type CallError interface {
	error
	// Sent tells whether the request may have reached the server.
	Sent() bool
	// Timeout tells whether a deadline ended it.
	Timeout() bool
}

// Files is the config directory as the loop sees it: it stats what the task's
// decision depends on and loads what changed. The error of a broken file is not
// returned here; the last good revision stays in force.
type Files interface {
	Freshen(ctx context.Context, taskID string) error
	// Stale names the files whose last good revision is in force instead of what is
	// on disk, as far as they decide about the task.
	Stale(taskID string) []string
	// Lost are the connector files of which nothing is known, since they are broken
	// and have no last good revision, with the places that are wrong.
	Lost() map[string]string
}
