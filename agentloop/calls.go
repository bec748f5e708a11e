package agentloop

import (
	"context"
	"slices"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// answerCalls answers the calls of the last assistant message that have no
// answer yet, in order: those of this step, and whatever an earlier attempt left.
// It returns errParked if a person must decide first.
func (a *attempt) answerCalls(ctx context.Context) error {
	turn := a.openTurn()
	if turn == nil {
		return nil
	}
	parked := false
	for _, call := range turn.Calls {
		if a.answered(call.ID) {
			continue
		}
		wait, err := a.answer(ctx, turn, call, parked)
		if err != nil {
			return err
		}
		parked = parked || wait
	}
	if parked {
		return errParked
	}
	return nil
}

// openTurn is the run's last assistant message if it asked for calls. A copy, so
// that appending answers does not move it.
func (a *attempt) openTurn() *task.Message {
	for i := len(a.msgs) - 1; i >= 0; i-- {
		if a.msgs[i].Role == task.RoleAssistant {
			if len(a.msgs[i].Calls) == 0 {
				return nil
			}
			turn := a.msgs[i]
			return &turn
		}
	}
	return nil
}

func (a *attempt) answered(callID string) bool {
	for i := len(a.msgs) - 1; i >= 0; i-- {
		if a.msgs[i].Role == task.RoleTool && a.msgs[i].CallID == callID {
			return true
		}
	}
	return false
}

// answer takes one call from decision to answer. wait tells that it, or an
// earlier one of its turn, waits for a person.
func (a *attempt) answer(ctx context.Context, turn *task.Message, call task.ToolCall, parked bool) (wait bool, err error) {
	if call.Name == reportTool && a.mayReport(ctx) {
		return false, a.report(ctx, turn, call)
	}
	if done, err := a.answerSent(ctx, turn, call); done || err != nil {
		return false, err
	}
	ask := a.approvalOf(turn.Step, call.ID)
	if ask != nil {
		switch ask.State {
		case task.ApprovalPending:
			return true, nil
		case task.ApprovalDenied, task.ApprovalExpired, task.ApprovalCancelled:
			return false, a.refuseSettled(ctx, turn, call, ask)
		}
	}
	if ask != nil && ask.State != task.ApprovalApproved {
		ask = nil // used before; what is sent now needs a new one
	}
	d, stale, err := a.decide(ctx, turn, call, ask)
	switch {
	case err != nil:
		return false, err
	case stale:
		return true, a.askAgain(ctx, turn, call, d, ask)
	case d.Kind == task.DecisionAllow && parked && d.Class != policy.ClassRead:
		return true, nil // a granted write waits for what was asked before it
	case d.Kind == task.DecisionAllow:
		return false, a.dispatch(ctx, turn, call, d, ask)
	case d.Kind == task.DecisionPark:
		return true, a.askFor(ctx, turn, call, d)
	}
	return false, a.refuse(ctx, turn, call, d)
}

// decide asks policy about one call, with everything read at this moment. With an
// approval it also tells whether that is stale: what a person said yes to is not
// what would be sent.
func (a *attempt) decide(ctx context.Context, turn *task.Message, call task.ToolCall, ask *approval) (d policy.Decision, stale bool, err error) {
	eff, err := a.effective(ctx)
	if err != nil {
		return policy.Unreadable(call.Name, turn.Slots, err), false, a.unreadable(ctx, err)
	}
	c := a.facts(ctx, eff, turn, call)
	if ctx.Err() != nil {
		return d, false, ctx.Err()
	}
	if ask == nil {
		return policy.Decide(eff, c), false, nil
	}
	// The definition may have been changed, and accepted, while a person thought.
	c.Slots = renewed(c)
	d = policy.Decide(eff, c)
	granted := d.Allowed()
	if !granted {
		c.Approved = true
		d = policy.Decide(eff, c)
	}
	return d, d.Allowed() && !ask.fits(d, granted), nil
}

// facts gathers what a decision about the call reads beside the policy.
func (a *attempt) facts(ctx context.Context, eff policy.Effective, turn *task.Message, call task.ToolCall) policy.Call {
	c := policy.Call{
		Name: call.Name, Arguments: call.Arguments, Slots: turn.Slots, Resolve: a.Resolve, Schemas: a.schemas,
		Untrusted: a.sawUntrusted(eff), ToolCalls: a.counted(turn.Step, call.ID), Waiting: a.waiting(), Repeats: a.repeats(turn, call),
		Used: func(rule string) int { return a.used(rule, turn.Step, call.ID) },
		Secret: func(text string) string {
			if call.Secret != "" {
				return call.Secret
			}
			return a.Redact.Find(text)
		},
	}
	c.Connected = a.connected(ctx, policy.Concerns(eff, turn.Slots, call.Name))
	for _, on := range c.Connected {
		if !on.Up && ctx.Err() == nil {
			a.run.Mark(task.MarkConnectorDown + ":" + on.ID)
		}
	}
	return c
}

// renewed is the alias table with the tool's definition as it is now.
func renewed(c policy.Call) []task.Slot {
	slots := slices.Clone(c.Slots)
	for i := range slots {
		if slots[i].Alias != c.Name {
			continue
		}
		for _, on := range c.Connected {
			for _, t := range on.Tools {
				if t.Name == slots[i].Tool {
					slots[i].Definition = t.Hash
				}
			}
		}
	}
	return slots
}

func (a *attempt) receipt(turn *task.Message, call task.ToolCall, d policy.Decision) *task.Receipt {
	return &task.Receipt{
		Run: a.run.ID, Task: a.run.Task, Step: turn.Step, CallID: call.ID,
		Connector: d.Connector, Tool: d.Tool, Class: string(d.Class), Definition: d.Definition,
		Decision: d.Kind, Code: string(d.Code), Rule: d.Rule,
		ArgsHash: task.ArgsHash(call.Arguments), StartedAt: time.Now(),
	}
}

func (a *attempt) toolMessage(turn *task.Message, callID, text string, isError bool) *task.Message {
	return &task.Message{
		Session: a.run.Session, Run: a.run.ID, Step: turn.Step, Role: task.RoleTool,
		CallID: callID, Text: text, IsError: isError, At: time.Now(),
	}
}

// dispatched counts the calls that were sent in the whole run.
func (a *attempt) dispatched() int {
	n := 0
	for _, rc := range a.receipts {
		if rc.Decision == task.DecisionAllow {
			n++
		}
	}
	return n
}

// counted is how many calls of the run count for tool_calls beside one call: those
// that were sent, and those that wait for a person or waited in vain.
func (a *attempt) counted(step int, callID string) int {
	type key struct {
		step int
		call string
	}
	n, sent := 0, map[key]bool{}
	for _, rc := range a.receipts {
		if rc.Decision == task.DecisionAllow {
			n++
			sent[key{rc.Step, rc.CallID}] = true
		}
	}
	own := key{step, callID}
	for _, rc := range a.receipts {
		if k := (key{rc.Step, rc.CallID}); rc.Decision == task.DecisionPark && k != own && !sent[k] {
			n++
		}
	}
	return n
}

// used counts the calls of the run that the rule has let through, from their
// intents on, so that one of unknown outcome counts. A call that is made again
// after a shutdown is itself and no other.
func (a *attempt) used(rule string, step int, callID string) int {
	n := 0
	for _, rc := range a.receipts {
		if rc.Decision == task.DecisionAllow && rc.Rule == rule && (rc.Step != step || rc.CallID != callID) {
			n++
		}
	}
	return n
}

// waiting counts the approvals of the run that nobody decided yet.
func (a *attempt) waiting() int {
	n := 0
	for _, ap := range a.approvals {
		if ap.State == task.ApprovalPending {
			n++
		}
	}
	return n
}

// repeats counts how often the run made the same call before this one: the same
// name and the same arguments in canonical form.
func (a *attempt) repeats(turn *task.Message, call task.ToolCall) int {
	want, n := canonical(call.Arguments), 0
	for i := range a.msgs {
		for _, c := range a.msgs[i].Calls {
			if c.ID == call.ID && a.msgs[i].Step == turn.Step {
				return n
			}
			if c.Name == call.Name && canonical(c.Arguments) == want {
				n++
			}
		}
	}
	return n
}
