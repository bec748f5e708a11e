package agentloop

import (
	"context"
	"errors"
	"fmt"

	"runnerd/llm"
	"runnerd/task"
)

// next is one model call with its own deadline. What it cost is in the answer; of
// a call that failed although it cost, it is booked here.
func (a *attempt) next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	resp, err := a.call(ctx, req)
	if err != nil {
		return nil, a.lose(ctx, req, err)
	}
	if !resp.Metered {
		thought := int64(len(resp.Reasoning)+len(resp.Opaque)+3) / 4
		resp.Usage = meter(req, resp.Usage, tokensOf(resp.Text, resp.Calls), thought)
	}
	resp.Usage = a.priced(resp.Usage)
	a.noteEstimate(resp.Usage)
	return resp, nil
}

func (a *attempt) call(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	if a.modelSpec.Timeout <= 0 {
		return a.model.Next(ctx, req)
	}
	own, cancel := context.WithTimeout(ctx, a.modelSpec.Timeout)
	defer cancel()
	resp, err := a.model.Next(own, req)
	if err != nil && own.Err() != nil && ctx.Err() == nil && llm.ErrorKind(err) == "" {
		return nil, &llm.Error{Kind: llm.Timeout, Message: fmt.Sprintf("no answer within %s", a.modelSpec.Timeout), Err: err}
	}
	return resp, err
}

// lose books a failed call that the vendor may charge for. It returns the call's
// own error, or that of the booking: what cannot be booked must not be repeated.
func (a *attempt) lose(ctx context.Context, req *llm.Request, err error) error {
	var spent *llm.Spent
	if !errors.As(err, &spent) {
		return err
	}
	usage := a.priced(meter(req, spent.Usage, int64(spent.Bytes+3)/4, 0))
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel()
	if failed := a.Store.Book(final, a.days(), a.run.ID, usage); failed != nil {
		return fmt.Errorf("book a failed model call (%s): %w", err, failed)
	}
	a.run.Usage = a.run.Usage.Add(usage)
	a.noteEstimate(usage)
	return err
}

func (a *attempt) noteEstimate(u task.Usage) {
	if u.Estimated {
		a.run.Mark(task.MarkUsageEstimated)
	}
}

// meter is what a call cost: each half as the vendor counted it, but never less than
// what went over the wire by our estimate, so that no limit rests on a vendor's word
// that it was less. What is below half of that is no count at all. answer and thought
// are estimates of what came: only the first is sure to be charged.
func meter(req *llm.Request, u task.Usage, answer, thought int64) task.Usage {
	input := int64(size(req))
	switch sure := input - opaque(req); {
	case 2*u.Input < sure:
		u.Input, u.CacheRead, u.CacheWrite, u.Estimated = input, 0, 0, true
	case u.Input < sure:
		u.Input, u.Estimated = sure, true
	}
	switch {
	case 2*u.Output < answer || u.Output <= 0 && thought > 0:
		u.Output, u.Estimated = answer+thought, true
	case u.Output+shortAnswer < answer:
		u.Output, u.Estimated = answer, true
	}
	u.Output = max(u.Output, 0)
	u.CacheRead = max(min(u.CacheRead, u.Input), 0)
	u.CacheWrite = max(min(u.CacheWrite, u.Input-u.CacheRead), 0)
	return u
}

// shortAnswer is by how many tokens the count of an answer may lie below our estimate,
// which is rough where there are only a few words.
const shortAnswer = 16

// opaque estimates the tokens of what a vendor gave to be sent back: it need not
// charge for it.
func opaque(req *llm.Request) int64 {
	n := 0
	for i := range req.Messages {
		n += len(req.Messages[i].Opaque)
	}
	return int64(n+3) / 4
}

// tokensOf estimates the tokens of an answer.
func tokensOf(text string, calls []task.ToolCall) int64 {
	n := len(text)
	for _, c := range calls {
		n += len(c.Name) + len(c.Arguments)
	}
	return int64(n+3) / 4
}
