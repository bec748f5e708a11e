package scheduler

import (
	"context"

	"runnerd/task"
)

// Store keeps cursors, occurrences and runs. The db package implements it.
type Store interface {
	// Cursors returns every known cursor by task id, retired ones included.
	Cursors(ctx context.Context) (map[string]task.Cursor, error)
	// Fire runs one transaction over the named tasks. For each it calls decide
	// with the state inside the transaction, in the order given, and writes the
	// answered plan: occurrences, runs and cursor together or not at all. It
	// returns the runs that were inserted. decide must not block.
	Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error)
}
