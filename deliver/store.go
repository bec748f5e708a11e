package deliver

import (
	"context"

	"runnerd/task"
)

// Store is the main database as a Worker sees it. The db package implements it.
type Store interface {
	Results
	Records
}

// Results are finished runs and what they had to say.
type Results interface {
	// Run reads one run with its output.
	Run(ctx context.Context, id string) (task.Run, error)
	// Revision reads the task as it stood when the run was created.
	Revision(ctx context.Context, hash string) (task.Task, error)
	// PreviousOutput is the text of the task's completed run before this one; ok
	// is false if there is none.
	PreviousOutput(ctx context.Context, run task.Run) (text string, ok bool, err error)
}

// Records are what is known of deliveries.
type Records interface {
	// Undelivered lists finished runs whose delivery is pending, the one that
	// finished first coming first, without their output.
	Undelivered(ctx context.Context, limit int) ([]task.Undelivered, error)
	// SaveDelivery stores where one destination stands.
	SaveDelivery(ctx context.Context, rec task.DeliveryRecord) error
	// HoldDelivery asks a person, once, whether a result may go to a destination,
	// and returns the approval as it stands.
	HoldDelivery(ctx context.Context, ask task.Approval) (task.Approval, error)
	// Approval reads one approval.
	Approval(ctx context.Context, id string) (task.Approval, error)
	// Touch stores what was written where builtin stores may read it, and whether
	// the run had read untrusted text.
	Touch(ctx context.Context, run string, tainted bool, t task.Touched) error
	// FinishDelivery sets the run's delivery fact, once.
	FinishDelivery(ctx context.Context, runID string, state task.DeliveryState, reason string) error
}
