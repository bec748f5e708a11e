package agentloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// step makes one model call and stores its answer. The calls that it asks for
// are answered by the next turn of the loop, so that a crash between the two is
// no special case.
func (a *attempt) step(ctx context.Context) error {
	offer, err := a.offer(ctx)
	if err != nil {
		return err
	}
	resp, err := a.ask(ctx, offer)
	if err != nil {
		return err
	}
	msg := a.message(resp, offer)
	if len(msg.Calls) == 0 {
		a.check(msg)
		a.checkOutput(msg)
	}
	if resp.Finish == llm.FinishLength {
		a.run.Mark(task.MarkTruncated)
	}
	a.run.Usage = a.run.Usage.Add(*msg.Usage)
	return a.append(ctx, msg)
}

// message turns an answer into what is stored: redacted, priced, with the alias
// table that its calls are to be read with.
func (a *attempt) message(resp *llm.Response, offer policy.Offer) *task.Message {
	usage := a.priced(resp.Usage)
	msg := &task.Message{
		Session: a.run.Session, Run: a.run.ID, Step: a.steps() + 1, Role: task.RoleAssistant,
		Text: a.Redact.Text(resp.Text), At: time.Now(), Usage: &usage, Model: a.modelSpec.Name,
		Opaque: resp.Opaque, Vendor: resp.Vendor,
	}
	for i, call := range resp.Calls {
		if call.ID == "" || a.knownCall(call.ID) || duplicate(resp.Calls[:i], call.ID) {
			call.ID = fmt.Sprintf("call_%d_%d", msg.Step, i+1)
		}
		call.Arguments = a.Redact.Text(call.Arguments)
		msg.Calls = append(msg.Calls, call)
	}
	for _, t := range offer.Tools {
		msg.Slots = append(msg.Slots, t.Slot)
	}
	return msg
}

// priced fills in the cost of a usage where the model's price is known.
func (a *attempt) priced(u task.Usage) task.Usage {
	if p := a.modelSpec.Price; p != nil {
		cost := p.Cost(u)
		u.Cost = &cost
	}
	return u
}

func (a *attempt) knownCall(id string) bool {
	for i := range a.msgs {
		if duplicate(a.msgs[i].Calls, id) {
			return true
		}
	}
	return false
}

func duplicate(calls []task.ToolCall, id string) bool {
	for _, c := range calls {
		if c.ID == id {
			return true
		}
	}
	return false
}

// steps counts the model calls of the run so far.
func (a *attempt) steps() int {
	n := 0
	for i := range a.msgs {
		if a.msgs[i].Role == task.RoleAssistant {
			n++
		}
	}
	return n
}

// offer is what the model is shown in this step. If policy cannot be read the
// model is offered nothing new: dispatch refuses anyway.
func (a *attempt) offer(ctx context.Context) (policy.Offer, error) {
	eff, err := a.effective(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return policy.Offer{}, ctx.Err()
		}
		a.log.Error("policy unreadable", zap.Error(err))
		a.run.Mark(task.MarkPolicyUnreadable)
		return a.lastOffer, nil
	}
	a.adopt(eff)
	if a.toolMode() == toolsNone {
		a.noTools(eff)
		return policy.Offer{}, nil
	}
	connected := a.connected(ctx, eff)
	if a.acceptFirstUse(ctx, eff, connected) {
		if eff, err = a.Policies.Effective(ctx, a.run.Task, a.run.Session, a.spec.Project); err != nil {
			return policy.Offer{}, fmt.Errorf("read policy: %w", err)
		}
	}
	offer := policy.BuildOffer(eff, connected)
	for _, m := range offer.Marks {
		a.run.Mark(m)
	}
	for _, n := range offer.Notices {
		a.log.Warn("offer", zap.String("detail", n))
	}
	a.lastOffer = offer
	return offer, nil
}

// connected lists the tools of every connector that the task may select, all at
// once; each waits no longer than its own connect deadline.
func (a *attempt) connected(ctx context.Context, eff policy.Effective) []policy.Connected {
	ids := candidates(eff)
	list := make([]policy.Connected, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			tools, err := a.Connectors.Tools(ctx, id)
			list[i] = policy.Connected{ID: id, Up: err == nil, Tools: tools}
			if err != nil {
				list[i].Down = a.Redact.Text(err.Error())
			}
		})
	}
	wg.Wait()
	for _, c := range list {
		if !c.Up {
			a.run.Mark(task.MarkConnectorDown + ":" + c.ID)
		}
	}
	return list
}

// candidates are the connectors that may be offered, sorted: configured,
// reachable and not left out by the task's own selection.
func candidates(eff policy.Effective) []string {
	var ids []string
	for id := range eff.Connectors {
		if policy.Reachable(eff, id) && policy.Selected(eff, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// acceptFirstUse pins the definitions of a connector that the operator
// configured and nobody used yet, with a mark on the run.
func (a *attempt) acceptFirstUse(ctx context.Context, eff policy.Effective, connected []policy.Connected) bool {
	accepted := false
	for _, c := range connected {
		rules := eff.Connectors[c.ID]
		if !c.Up || len(c.Tools) == 0 || rules.Pins != nil || rules.Pin == policy.PinStrict {
			continue
		}
		if err := a.Policies.Accept(ctx, c.ID, c.Tools, "first use by run "+a.run.ID); err != nil {
			a.log.Error("definitions not accepted", zap.String("connector", c.ID), zap.Error(err))
			continue
		}
		a.run.Mark(task.MarkAccepted + ":" + c.ID)
		accepted = true
	}
	return accepted
}

// ask makes the model call of one step: bounded by what may still be spent,
// repeated while the vendor asks for patience, and by the models that the spec
// lists as fallback, never another.
func (a *attempt) ask(ctx context.Context, offer policy.Offer) (*llm.Response, error) {
	var last error
	names := append([]string{a.modelSpec.Name}, a.modelSpec.Fallback...)
	for i, name := range names {
		if i > 0 {
			if err := a.useModel(ctx, name); err != nil {
				last = err
				continue
			}
			a.run.Mark(task.MarkFallbackModel + ":" + name)
		}
		resp, err := a.askModel(ctx, offer)
		if err == nil {
			return resp, nil
		}
		var s *stop
		if ctx.Err() != nil || errors.As(err, &s) {
			return nil, err
		}
		last = err
	}
	return nil, a.modelFailure(last)
}

// modelFailure says whether the run may be tried again later.
func (a *attempt) modelFailure(err error) error {
	var e *llm.Error
	if errors.As(err, &e) && e.Retryable() {
		return &retryable{reason: "model: " + e.Error(), after: e.RetryAfter}
	}
	return err
}

// askModel asks the open model, again after a pause where that can help.
func (a *attempt) askModel(ctx context.Context, offer policy.Offer) (*llm.Response, error) {
	for try := 0; ; try++ {
		req, err := a.request(ctx, offer)
		if err != nil {
			return nil, err
		}
		resp, err := a.next(ctx, req)
		if err == nil && resp.Finish == llm.FinishContentFilter && len(resp.Calls) == 0 {
			return nil, &llm.Error{Kind: llm.ContentFilter, Message: "the vendor's content filter ended the answer"}
		}
		if err == nil {
			return resp, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var e *llm.Error
		if !errors.As(err, &e) {
			return nil, err
		}
		pause, again := a.recover(ctx, e, try)
		if !again {
			return nil, err
		}
		a.log.Warn("model call repeated", zap.String("error", a.Redact.Text(e.Error())), zap.Duration("pause", pause))
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// next is one model call with its own deadline.
func (a *attempt) next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	if a.modelSpec.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.modelSpec.Timeout)
		defer cancel()
	}
	return a.model.Next(ctx, req)
}

// recover says what can be done about a model error: change how it is asked, or
// wait. A vendor that asks for more patience than the wall limit has left is not
// waited for.
func (a *attempt) recover(ctx context.Context, e *llm.Error, try int) (pause time.Duration, again bool) {
	switch e.Kind {
	case llm.ToolsUnsupported:
		if a.modelSpec.ToolMode == "auto" && !a.fenced {
			a.useFenced()
			return 0, true
		}
		return 0, false
	case llm.ContextOverflow:
		if a.compacted {
			return 0, false
		}
		return 0, a.compact(ctx, true) == nil
	}
	if !e.Retryable() || try >= a.ModelRetries {
		return 0, false
	}
	pause = max(backoff(a.Backoff, try), e.RetryAfter)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return 0, false
	}
	return pause, true
}
