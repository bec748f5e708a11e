package task

import (
	"os"
	"regexp"
	"testing"
)

// The page that people read and the code must not drift apart.
func TestRunStatesPageMatchesCode(t *testing.T) {
	page, err := os.ReadFile("../docs/run-states.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[[2]Execution]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| (\w+) \| .* \|$`).FindAllStringSubmatch(string(page), -1) {
		listed[[2]Execution{Execution(m[1]), Execution(m[2])}] = true
	}
	for _, from := range Executions() {
		for _, to := range Executions() {
			if got, want := listed[[2]Execution{from, to}], from.CanMove(to); got != want {
				t.Errorf("%s to %s: docs/run-states.md says %v, CanMove says %v", from, to, got, want)
			}
		}
		if from.Finished() == from.Active() {
			t.Errorf("%s: a run is either finished or active", from)
		}
	}
}

func TestStatusFirstMatchWins(t *testing.T) {
	done := func(change func(*Run)) Run {
		r := Run{Execution: Completed, Delivery: DeliveryNone}
		change(&r)
		return r
	}
	cases := []struct {
		name string
		run  Run
		want Status
		code int
	}{
		{"completed", done(func(*Run) {}), StatusOK, 0},
		{"nothing to do", done(func(r *Run) { r.Outcome = OutcomeNothingToDo }), StatusOK, 0},
		{"queued", Run{Execution: Queued, Marks: []string{MarkUnknownEffect}}, StatusQueued, 1},
		{"running", Run{Execution: Running}, StatusRunning, 1},
		{"unknown effect before all ends", Run{Execution: Cancelled, Marks: []string{MarkUnknownEffect}}, StatusUnknown, 7},
		{"cancelled", Run{Execution: Cancelled, Marks: []string{"refused:2"}}, StatusCancelled, 8},
		{"interrupted", Run{Execution: Interrupted}, StatusInterrupted, 8},
		{"waiting", Run{Execution: Waiting}, StatusWaiting, 6},
		{"limit before refusal", Run{Execution: Limited, Marks: []string{"refused:2"}}, StatusBudget, 5},
		{"refused", done(func(r *Run) { r.SetRefused(1) }), StatusDenied, 4},
		{"refused and failed", Run{Execution: Failed, Marks: []string{"refused:3"}}, StatusDenied, 4},
		{"failed", Run{Execution: Failed}, StatusFailed, 3},
		{"outcome failed", done(func(r *Run) { r.Outcome = OutcomeFailed }), StatusFailed, 3},
		{"needs attention", done(func(r *Run) { r.Outcome = OutcomeNeedsAttention }), StatusFailed, 3},
		{"empty answer", done(func(r *Run) { r.Mark(MarkEmptyAnswer) }), StatusFailed, 3},
		{"cut answer", done(func(r *Run) { r.Mark(MarkTruncated) }), StatusFailed, 3},
		{"unverified claim", done(func(r *Run) { r.Mark(MarkUnverifiedClaims) }), StatusFailed, 3},
		{"required connector down", done(func(r *Run) { r.Mark(MarkRequiredDown + ":mail") }), StatusFailed, 3},
		{"any connector down is not a failure", done(func(r *Run) { r.Mark(MarkConnectorDown + ":mail") }), StatusOK, 0},
		{"not delivered", done(func(r *Run) { r.Delivery = DeliveryFailed }), StatusFailed, 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.run.Status(); got != c.want {
				t.Errorf("status %s, want %s", got, c.want)
			}
			if got := c.run.Status().ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
		})
	}
}

func TestRefusedMarkIsReplaced(t *testing.T) {
	var r Run
	r.Mark(MarkEmptyAnswer)
	r.SetRefused(2)
	r.SetRefused(3)
	if r.Refused() != 3 || len(r.Marks) != 2 {
		t.Errorf("marks %v, want one refused:3 beside the other", r.Marks)
	}
	if r.SetRefused(0); r.HasMark(MarkRefused) {
		t.Errorf("marks %v, want no refused", r.Marks)
	}
}
