package control

import (
	"context"
	"encoding/json"
	"time"

	"runnerd/db"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// Main is the main database as the API needs it. *db.DB implements it.
type Main interface {
	Runs
	Transcripts
	Occurrences
	Approvals
	Pauses
	Events
}

// Runs finds runs.
type Runs interface {
	FindRun(ctx context.Context, prefix string) (task.Run, error)
	Runs(ctx context.Context, f db.RunFilter) ([]task.Run, error)
	LastRuns(ctx context.Context) (map[string]task.Run, error)
}

// Transcripts reads what was said and done.
type Transcripts interface {
	RunMessages(ctx context.Context, run string) ([]task.Message, error)
	RunReceipts(ctx context.Context, run string) ([]task.Receipt, error)
	Untried(ctx context.Context, run task.Run) (int, error)
	SessionMessages(ctx context.Context, session string, after int64, limit int) ([]task.Message, error)
	Receipt(ctx context.Context, seq int64) (task.Receipt, error)
}

// Occurrences tells what became of instants.
type Occurrences interface {
	Occurrences(ctx context.Context, f db.OccurrenceFilter) ([]task.Occurrence, error)
	OccurrenceAt(ctx context.Context, taskID string, instant time.Time) (task.Occurrence, error)
}

// Approvals lists and decides approvals.
type Approvals interface {
	FindApproval(ctx context.Context, prefix string) (task.Approval, error)
	Approvals(ctx context.Context, f db.ApprovalFilter) ([]task.Approval, error)
	DecideApproval(ctx context.Context, v db.Verdict, now time.Time) (task.Approval, error)
}

// Pauses holds tasks back.
type Pauses interface {
	SetPause(ctx context.Context, p db.Pause) error
	Resume(ctx context.Context, name string) (was bool, err error)
	Pauses(ctx context.Context) ([]db.Pause, error)
}

// Events is the log that the event stream reads.
type Events interface {
	Events(ctx context.Context, f db.EventFilter) ([]db.Event, error)
	LastEvent(ctx context.Context) (int64, error)
}

// Policies is the policy database. *taskpolicy.Store implements it.
type Policies interface {
	Layers
	Pins
}

// Layers reads and edits what the layers say.
type Layers interface {
	Show(ctx context.Context, scope policy.Scope, id string) (map[string]taskpolicy.Field, error)
	Set(ctx context.Context, ch taskpolicy.Change) ([]string, error)
	Own(ctx context.Context, scope policy.Scope, id string) (policy.Fields, error)
	Reachability(ctx context.Context, scope policy.Scope, id, project string) (taskpolicy.Reachability, error)
}

// Pins reads and replaces accepted definitions.
type Pins interface {
	Definitions(ctx context.Context, connector string) ([]task.Tool, error)
	AcceptTools(ctx context.Context, connector string, tools []task.Tool, names []string, by string) error
}

// patch is the body of a PATCH: a missing key leaves its field, null clears it.
type patch = map[string]json.RawMessage
