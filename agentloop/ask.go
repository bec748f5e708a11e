package agentloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// ask makes the model call of one step: bounded by what may still be spent,
// repeated while the vendor asks for patience, and after an error that can pass by
// the models that the spec lists as fallback, never another. A fallback that answered stays for the rest of
// the attempt.
func (a *attempt) ask(ctx context.Context, offer policy.Offer) (*llm.Response, error) {
	failed := &modelFailure{watched: a.run.Trigger == task.TriggerManual}
	for i, name := range append([]string{a.modelSpec.Name}, a.modelSpec.Fallback...) {
		if i > 0 {
			if err := a.useModel(ctx, name); err != nil {
				failed.add(name, err)
				continue
			}
			a.run.Mark(task.MarkFallbackModel + ":" + name)
		}
		resp, err := a.askModel(ctx, offer)
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil || llm.ErrorKind(err) == "":
			return nil, err // not the model's doing
		}
		failed.add(name, err)
		if !canPass(err) {
			break
		}
	}
	return nil, failed.end()
}

// canPass tells whether an error is of a kind that can pass: only then another
// model may answer. A wrong key, a wrong request or an empty account would stay
// unseen behind it.
func canPass(err error) bool {
	var e *llm.Error
	return errors.As(err, &e) && e.Retryable()
}

// modelFailure gathers why no model answered.
type modelFailure struct {
	watched   bool // a person waits for the run, who can start what does not run
	reasons   []string
	retryable bool
	after     time.Duration
}

func (f *modelFailure) add(name string, err error) {
	f.reasons = append(f.reasons, fmt.Sprintf("model %s: %s", name, err))
	var e *llm.Error
	if canPass(err) && errors.As(err, &e) && !(f.watched && e.NobodyListens()) {
		f.retryable = true
		f.after = max(f.after, e.RetryAfter)
	}
}

// end says whether the run may be tried again later: if one of the models may
// answer then.
func (f *modelFailure) end() error {
	reason := strings.Join(f.reasons, "; ")
	if f.retryable {
		return &retryable{reason: reason, after: f.after}
	}
	return &stop{task.Failed, reason}
}

// askModel asks the open model, again after a pause where that can help. What the run
// says of further tries is over with them.
func (a *attempt) askModel(ctx context.Context, offer policy.Offer) (*llm.Response, error) {
	resp, err := a.tries(ctx, offer)
	if a.run.Reason != "" && ctx.Err() == nil {
		if serr := a.say(ctx, ""); serr != nil {
			a.log.Error("reason not cleared", zap.Error(serr)) // no ground to lose an answer
		}
	}
	return resp, err
}

func (a *attempt) tries(ctx context.Context, offer policy.Offer) (*llm.Response, error) {
	for try := 0; ; try++ {
		req, err := a.request(ctx, offer)
		if err != nil {
			return nil, err
		}
		resp, err := a.next(ctx, req)
		switch {
		case err == nil && resp.Finish == llm.FinishContentFilter:
			return nil, a.filtered(ctx, resp)
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		var e *llm.Error
		if !errors.As(err, &e) {
			return nil, err
		}
		pause, again, err := a.recover(ctx, e, try)
		if !again {
			return nil, err
		}
		a.log.Warn("model call repeated", zap.String("error", a.Redact.Text(e.Error())), zap.Duration("pause", pause))
		if err := a.sayTry(ctx, e, try+2, pause); err != nil {
			return nil, err
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// sayTry puts into the run's reason that its model is asked again, so that whoever
// watches is told.
func (a *attempt) sayTry(ctx context.Context, e *llm.Error, try int, pause time.Duration) error {
	if pause <= 0 {
		return nil
	}
	return a.say(ctx, fmt.Sprintf("model %s: try %d of %d in %s: %s", a.modelSpec.Name, try, a.ModelRetries+1, pause.Round(time.Second), e))
}

// say stores what the run is at as its reason.
func (a *attempt) say(ctx context.Context, reason string) error {
	a.run.Reason = a.Redact.Text(reason)
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel()
	return a.write(final, a.Store.Update)
}

// filtered keeps an answer that the vendor's filter ended for what it cost. Its
// text is not to be taken for the agent's word.
func (a *attempt) filtered(ctx context.Context, resp *llm.Response) error {
	msg := a.message(&llm.Response{Usage: resp.Usage}, policy.Offer{})
	msg.Notice = "[runnerd] The vendor's content filter ended this answer."
	if err := a.spend(ctx, msg); err != nil {
		return err
	}
	return &llm.Error{Kind: llm.ContentFilter, Message: "the vendor's content filter ended the answer"}
}

// recover says what can be done about a model error: change how it is asked, or
// wait. A vendor that asks for more patience than the wall limit has left is not
// waited for. Where nothing helps it answers the error to go on with.
func (a *attempt) recover(ctx context.Context, e *llm.Error, try int) (pause time.Duration, again bool, err error) {
	switch e.Kind {
	case llm.ToolsUnsupported:
		if a.modelSpec.ToolMode == toolsAuto && !a.fenced {
			a.useFenced()
			return 0, true, nil
		}
		return 0, false, e
	case llm.ContextOverflow:
		return a.relieve(ctx, e)
	}
	if !e.Retryable() || e.NobodyListens() || try >= a.ModelRetries {
		return 0, false, e
	}
	pause = max(backoff(a.Backoff, try), e.RetryAfter)
	if a.wallLeft() <= pause {
		return 0, false, e
	}
	return pause, true, nil
}

// relieve answers a vendor's word that the context is full with one compaction per
// attempt, whatever the estimate said.
func (a *attempt) relieve(ctx context.Context, e *llm.Error) (time.Duration, bool, error) {
	const advice = "; lower context_tokens to what the model really takes, or use session: fresh"
	full := &llm.Error{Kind: e.Kind, Status: e.Status, Message: e.Message + advice, Err: e}
	if a.overflowed {
		return 0, false, full
	}
	a.overflowed = true
	done, err := a.compact(ctx, a.room/4)
	if err != nil {
		return 0, false, err
	}
	return 0, done, full
}
