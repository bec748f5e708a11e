package agentloop_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// What a running run is at is its reason while it is so, and no longer: neither the
// further try of a model that has answered since, nor what the last attempt ended with.
func TestRunningKeepsNoReasonOfThePast(t *testing.T) {
	w := world(t)
	desk(w)
	w.Spec.Fallback = []string{"backup"}
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	var run string
	var reasons []string
	slow := &llm.Error{Kind: llm.RateLimited, Status: 429, Message: "slow down", RetryAfter: time.Millisecond}
	answers := []any{slow, looptest.Ask("desk__look", "{}"), slow, slow, slow, slow, looptest.Say("done")}
	model := looptest.ModelFunc(func(ctx context.Context, _ *llm.Request) (*llm.Response, error) {
		stored, err := w.Main.Run(ctx, run)
		if err != nil {
			t.Error(err)
		}
		reasons = append(reasons, stored.Reason)
		next := answers[0]
		answers = answers[1:]
		if e, failed := next.(*llm.Error); failed {
			return nil, e
		}
		r := next.(llm.Response)
		return &r, nil
	})
	w.Use(model)
	w.Named(task.ModelSpec{Name: "backup"}, model)
	run = w.Queue("brief")
	w.Claim(run)
	ended(t, w.Go(run), task.StatusOK, "")
	for i, want := range []string{"", "try 2 of 4", "", "try 2 of 4", "try 3 of 4", "try 4 of 4", ""} {
		if got := reasons[i]; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("at request %d the run's reason is %q, want %q", i+1, got, want)
		}
	}

	answers, reasons = []any{slow, slow, slow, slow, slow, slow, slow, slow, looptest.Say("done")}, nil
	run = w.Queue("brief")
	w.Claim(run)
	if r := w.Go(run); r.Run.Execution != task.Queued || !strings.Contains(r.Run.Reason, "slow down") {
		t.Fatalf("run %+v", r.Run)
	}
	w.ClaimAt(run, time.Now().Add(time.Hour))
	ended(t, w.Go(run), task.StatusOK, "")
	if got := reasons[len(reasons)-1]; got != "" {
		t.Errorf("the second attempt runs with the reason %q", got)
	}
}
