package agentloop

import (
	"context"
	"fmt"
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
	if msg.LastWord() && !a.owesReport() && !a.wroteCall(msg) {
		msg.Notice = a.judge(msg.Text)
		if resp.Finish == llm.FinishLength {
			a.run.Mark(task.MarkTruncated)
			msg.Notice = join(msg.Notice, truncatedNotice)
		}
	}
	return a.spend(ctx, msg)
}

const truncatedNotice = "[runnerd] The vendor cut this answer at its limit; raise max_output_tokens of the model."

// spend stores the message of a model call with what it cost.
func (a *attempt) spend(ctx context.Context, msg *task.Message) error {
	a.run.Usage = a.run.Usage.Add(*msg.Usage)
	return a.append(ctx, msg)
}

// message turns an answer into what is stored: redacted, priced, with the alias
// table that its calls are to be read with.
func (a *attempt) message(resp *llm.Response, offer policy.Offer) *task.Message {
	msg := &task.Message{
		Session: a.run.Session, Run: a.run.ID, Step: a.steps() + 1, Role: task.RoleAssistant,
		Text: a.Redact.Text(resp.Text), At: time.Now(), Usage: &resp.Usage, Model: a.modelSpec.Name,
		Reasoning: a.Redact.Text(resp.Reasoning), Opaque: resp.Opaque, Vendor: resp.Vendor,
	}
	if a.Redact.Find(string(resp.Opaque)) != "" {
		msg.Opaque, msg.Vendor = nil, "" // it can be kept only byte for byte
	}
	for i, call := range resp.Calls {
		call.Name = a.Redact.Text(call.Name)
		call.Arguments, call.Secret = a.redactArguments(call.Arguments)
		if call.ID == "" || a.knownCall(call.ID) || duplicate(msg.Calls, call.ID) {
			call.ID = a.freshID(msg, i+1)
		}
		msg.Calls = append(msg.Calls, call)
	}
	for _, t := range a.shown(offer).Tools {
		msg.Slots = append(msg.Slots, t.Slot)
	}
	return msg
}

// freshID makes an id for a call whose own is missing or was used before.
func (a *attempt) freshID(msg *task.Message, n int) string {
	id := fmt.Sprintf("call_%d_%d", msg.Step, n)
	for a.knownCall(id) || duplicate(msg.Calls, id) {
		id += "x"
	}
	return id
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
		return a.lastOffer, a.unreadable(ctx, err)
	}
	if a.toolMode() == toolsNone {
		a.noTools(eff)
		return policy.Offer{}, nil
	}
	connected := a.connected(ctx, policy.Selection(eff))
	if ctx.Err() != nil {
		return policy.Offer{}, ctx.Err()
	}
	if a.acceptFirstUse(ctx, eff, connected) {
		if eff, err = a.effective(ctx); err != nil {
			return a.lastOffer, a.unreadable(ctx, err)
		}
	}
	offer := policy.BuildOffer(eff, connected)
	for _, m := range offer.Marks {
		a.run.Mark(m)
	}
	a.warn("offer", offer.Notices)
	a.lookAtNeeds(eff, offer)
	a.advise(eff, connected)
	a.lastOffer, a.offered = offer, true
	return offer, nil
}

// unreadable notes that policy could not be read, unless the run was just ended.
func (a *attempt) unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.log.Error("policy unreadable", zap.Error(err))
	a.run.Mark(task.MarkPolicyUnreadable)
	if !a.offered {
		a.lacks(task.MarkNoTools, "policy could not be read, so that no tool was offered: "+err.Error())
	}
	return nil
}

// advise marks the run, once, where its policy cannot do what its author meant.
func (a *attempt) advise(eff policy.Effective, connected []policy.Connected) {
	if a.advised {
		return
	}
	a.advised = true
	var advice []string
	for _, adv := range policy.Advise(eff, connected) {
		if adv.Mark != "" {
			a.run.Mark(adv.Mark)
			advice = append(advice, adv.Where+": "+adv.Text)
		}
	}
	a.warn("policy advice", advice)
}

// connected lists the tools of connectors, all at once; each waits no longer than
// its own connect deadline.
func (a *attempt) connected(ctx context.Context, ids []string) []policy.Connected {
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
	return list
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
