package agentloop_test

import (
	"context"
	"testing"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// A cancellation that comes before the loop has read anything is one all the same,
// and no failure.
func TestCancelledAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		cause  error
		status task.Status
		reason string
	}{
		"by a person":   {&task.CancelledError{Reason: "cancelled by alice"}, task.StatusCancelled, "cancelled by alice"},
		"by a shutdown": {task.ErrShutdown, task.StatusInterrupted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
			w.Script(lookThenNote)
			run := w.Start("brief")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(c.cause)
			if err := w.Runner.Run(ctx, run); err != nil {
				t.Errorf("the runner answers %v", err)
			}
			ended(t, w.Result(run), c.status, c.reason)
			saw(t, server)
		})
	}
}

// What a summary has cost is booked, also when the run is cancelled while the
// vendor answers.
func TestCancelledSummaryIsPaidFor(t *testing.T) {
	w := world(t)
	w.Spec.ContextTokens, w.Spec.MaxOutputTokens = 4000, 400
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w.Use(talker(t, 1500, 16000, func() (*llm.Response, error) {
		cancel(&task.CancelledError{Reason: "enough"})
		return fine()
	}))
	for range 20 {
		run := w.Start("brief")
		if err := w.Runner.Run(ctx, run); err != nil {
			t.Fatal(err)
		}
		r := w.Result(run)
		if r.Run.Execution != task.Cancelled {
			continue
		}
		if r.Run.Usage.Input != 50 || r.Run.Usage.Output != 5 {
			t.Errorf("the run has spent %+v, want what the summary cost", r.Run.Usage)
		}
		return
	}
	t.Fatal("nothing was compacted")
}
