// Package agentloop takes one run from claim to its next resting place. It is
// the only place where tools are called: each call is decided afresh, recorded
// before it is sent and after it was answered.
//
// A fresh run, a retry, a run resumed after a crash and a run resumed after an
// approval all enter by [Runner.Run]: the stored transcript says where to go on.
package agentloop

import (
	"context"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// Models opens a model by its name in models.yaml.
type Models interface {
	Model(ctx context.Context, name string) (llm.Model, task.ModelSpec, error)
	// Rehearsal is a script in place of the model of that name, with its limits.
	Rehearsal(ctx context.Context, name string, script task.Script) (llm.Model, task.ModelSpec, error)
}

// Redactor replaces known secrets.
type Redactor interface {
	Text(s string) string
	// Find names a known secret that s holds, or answers "".
	Find(s string) string
}

// Options are what a Runner works with. Every field but those with a stated
// default is required.
type Options struct {
	Store      Store
	Policies   Policies
	Connectors Connectors
	Files      Files
	Models     Models
	Redact     Redactor
	// Resolve makes a path argument of a connector's call absolute and free of
	// links; see policy.Call.
	Resolve func(connector, path string) (string, error)
	// Prompt resolves what a prompt refers to (${file:NAME}, ${env:NAME}) when a
	// run begins.
	Prompt func(text string) (string, error)
	// Zone is the daemon's, for its daily totals.
	Zone *time.Location
	// NewID makes ids of approvals.
	NewID func() string
	// Logger defaults to none.
	Logger *zap.Logger
	// ModelRetries bounds how often one step repeats a model call that may
	// succeed later; default 3. Backoff is the first pause; default 2s.
	ModelRetries int
	Backoff      time.Duration
	// FinalWrites bounds the writes after a cancellation; default 15s.
	FinalWrites time.Duration
}

// Runner executes runs. It is safe for concurrent use by several workers.
type Runner struct {
	Options
	schemas *policy.Schemas
	said    *said
}

// New returns a Runner. It does no I/O.
func New(o Options) *Runner {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.ModelRetries == 0 {
		o.ModelRetries = 3
	}
	if o.Backoff == 0 {
		o.Backoff = 2 * time.Second
	}
	if o.FinalWrites == 0 {
		o.FinalWrites = 15 * time.Second
	}
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	return &Runner{Options: o, schemas: policy.NewSchemas(), said: &said{}}
}

// Run executes a claimed run until it is finished, waits for an approval, is
// queued for a retry or is interrupted, and records which. The context's cause
// tells a shutdown (task.ErrShutdown) from a cancellation (*task.CancelledError).
// An error means that the record itself could not be read or written, or that the
// run was not claimed. A run that another worker holds by now is left to it,
// without an error and without a further write.
func (r *Runner) Run(ctx context.Context, runID string) error {
	// What is read first says where the run stands: without it a cancellation could
	// not be recorded as one.
	a, err := r.load(context.WithoutCancel(ctx), runID)
	if err != nil {
		return err
	}
	work, release := a.withWall(ctx)
	defer release()
	return a.conclude(work, a.work(work))
}
