package agentloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// stop ends a run with an execution and a reason.
type stop struct {
	execution task.Execution
	reason    string
}

func (s *stop) Error() string { return s.reason }

func (a *attempt) fail(format string, args ...any) error {
	return &stop{task.Failed, fmt.Sprintf(format, args...)}
}

// retryable ends this attempt; the run goes on later if its retry rule allows.
type retryable struct {
	reason string
	after  time.Duration // the vendor's Retry-After
}

func (e *retryable) Error() string { return e.reason }

// parked ends this attempt: the run waits for a person.
var errParked = errors.New("waiting for approval")

// conclude records how the attempt ended, under a context that survives the
// cancellation that may have ended it.
func (a *attempt) conclude(ctx context.Context, err error) error {
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel()
	a.run.Wall = a.wallSpent + time.Since(a.started)

	var s *stop
	var again *retryable
	switch cause := context.Cause(ctx); {
	case err == nil:
		return a.complete(final)
	case errors.Is(err, task.ErrLost), errors.Is(err, task.ErrConsumed):
		a.log.Error("run is left to the worker that holds it", zap.Error(err))
		return nil
	case errors.As(err, &s):
		return a.end(final, s.execution, s.reason)
	case errors.Is(err, errParked):
		return a.park(final)
	case errors.Is(cause, task.ErrShutdown):
		return a.end(final, task.Interrupted, cause.Error())
	case cause != nil:
		return a.cutShort(final, cause)
	case errors.As(err, &again):
		return a.retry(final, again)
	}
	return errors.Join(err, a.end(final, task.Failed, "internal: "+err.Error()))
}

func (a *attempt) cutShort(ctx context.Context, cause error) error {
	var c *task.CancelledError
	switch {
	case errors.As(cause, &c):
		return a.end(ctx, task.Cancelled, c.Reason)
	case errors.Is(cause, errWall):
		return a.end(ctx, task.Limited, fmt.Sprintf("wall limit of %s reached", *a.limits.Wall))
	}
	return a.end(ctx, task.Interrupted, cause.Error())
}

// retry queues the run again if its rule allows a further attempt.
func (a *attempt) retry(ctx context.Context, e *retryable) error {
	if a.run.Attempt >= a.spec.Retry.Attempts {
		return a.end(ctx, task.Failed, e.reason)
	}
	pause := max(backoff(a.spec.Retry.Backoff, a.run.Attempt-1), e.after)
	a.run.Execution, a.run.Reason = task.Queued, a.Redact.Text(e.reason)
	a.run.NotBefore = time.Now().Add(pause)
	a.tally()
	a.log.Warn("run will be retried", zap.String("reason", a.run.Reason), zap.Duration("pause", pause))
	return a.write(ctx, a.Store.Retry)
}

// park leaves the run waiting for a person. If everything was settled in the
// meantime the store queues it at once.
func (a *attempt) park(ctx context.Context) error {
	a.run.Execution, a.run.Reason = task.Waiting, errParked.Error()
	a.tally()
	return a.write(ctx, a.Store.Update)
}

// complete finishes a run whose model has said its last word.
func (a *attempt) complete(ctx context.Context) error {
	last := a.finalAnswer()
	notice := a.judge(last.Text) // a crash may have lost the marks, not the notice
	a.run.Output = join(last.Text, cmp.Or(last.Notice, notice))
	if a.spec.Report == task.ReportRequired && a.run.Outcome == task.OutcomeNone {
		a.run.Mark(task.MarkReportMissing)
	}
	if blank(last.Text) {
		a.run.Mark(task.MarkEmptyAnswer)
	}
	return a.end(ctx, task.Completed, "")
}

// tally sets what follows from the transcript and the receipts, which a crash
// does not lose.
func (a *attempt) tally() {
	a.run.Steps, a.run.Calls = a.steps(), a.dispatched()
	a.run.Account(a.receipts)
}

// blank tells a text that says nothing: vendors refuse it as history, and as an
// answer it is none.
func blank(text string) bool { return strings.TrimSpace(text) == "" }

// end writes the final execution. Nothing of the run stays open: calls without
// an answer are answered, intents without an outcome get one.
func (a *attempt) end(ctx context.Context, e task.Execution, reason string) error {
	var err error
	if e != task.Interrupted {
		err = a.abandon(ctx)
	}
	a.tally()
	a.run.Execution = e
	a.run.FinishedAt = time.Now()
	a.run.Delivery = task.DeliveryNone
	if e != task.Interrupted && len(a.spec.Deliver) > 0 {
		a.run.Delivery = task.DeliveryPending
	}
	if e == task.Interrupted {
		a.run.FinishedAt = time.Time{}
	}
	a.run.Reason = a.Redact.Text(a.reason(reason))
	err = errors.Join(err, a.write(ctx, a.Store.Update))
	a.log.Info("run ended", zap.String("status", string(a.run.Status())), zap.String("reason", a.run.Reason),
		zap.Int("attempt", a.run.Attempt), zap.Int64("tokens", a.run.Usage.Tokens()), zap.Duration("wall", a.run.Wall))
	return err
}

// reason is the one sentence that says why a run is not ok.
func (a *attempt) reason(given string) string {
	switch {
	case given != "":
		return given
	case a.run.HasMark(task.MarkUnknownEffect):
		return "a write or exec was sent and its outcome is not known; check before repeating it"
	case a.run.Refused() > 0:
		return a.lastRefusal()
	case a.run.Outcome == task.OutcomeFailed || a.run.Outcome == task.OutcomeNeedsAttention:
		return "the agent reported " + string(a.run.Outcome) + a.reported()
	case a.lacking != "":
		return a.lacking
	case a.run.HasMark(task.MarkReportMissing):
		return "the agent gave no report, which the task requires (report: required)"
	case a.run.HasMark(task.MarkEmptyAnswer):
		return "the model gave an empty answer"
	case a.run.HasMark(task.MarkUnverifiedClaims):
		return "the answer claims work that no receipt backs"
	case a.run.HasMark(task.MarkTruncated):
		return "the vendor cut the answer at its limit; raise max_output_tokens of the model"
	case a.run.HasMark(task.MarkInvalidOutput):
		return "the answer does not fit output_schema"
	}
	return ""
}

// write stores where the run stands. One that another worker holds by now is left
// to it.
func (a *attempt) write(ctx context.Context, store func(context.Context, task.Run) error) error {
	err := insist(ctx, func() error { return store(ctx, a.run) })
	if errors.Is(err, task.ErrLost) {
		a.log.Error("run is left to the worker that holds it", zap.Error(err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("store run %s as %s: %w", a.run.ID, a.run.Execution, err)
	}
	return nil
}

// insist tries a write again until the context ends: a finished run that stays
// "running" would be a lie, and an answer that arrived must not be lost.
func insist(ctx context.Context, write func() error) error {
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		err := write()
		var moved *task.TransitionError
		if err == nil || errors.As(err, &moved) || errors.Is(err, task.ErrLost) || !sleep(ctx, pause) {
			return err
		}
	}
}

func join(text, notice string) string {
	if notice == "" {
		return text
	}
	if text == "" {
		return notice
	}
	return text + "\n\n" + notice
}

// sleep waits for d and tells whether the context let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff doubles from base, n times, up to an hour.
func backoff(base time.Duration, n int) time.Duration {
	for ; n > 0 && base < time.Hour; n-- {
		base *= 2
	}
	return min(base, time.Hour)
}
