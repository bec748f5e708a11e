package agentloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/task"
)

// maxInARow is how many denials, or how many calls that make no sense, a run may
// have one after another (DESIGN, section 9).
const maxInARow = 3

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
	if done, err := a.settleOpenIntent(ctx, turn, call); done || err != nil {
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
	c.Slots = renewed(c.Slots, c.Name, c.Tool)
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
		Untrusted: a.sawUntrusted(eff), ToolCalls: a.dispatched(), Repeats: a.repeats(turn, call),
		Secret: func(text string) string {
			if call.Secret != "" {
				return call.Secret
			}
			return a.Redact.Find(text)
		},
	}
	if slot, ok := findSlot(turn.Slots, call.Name); ok && policy.Reachable(eff, slot.Connector) {
		tools, err := a.Connectors.Tools(ctx, slot.Connector)
		if err != nil && ctx.Err() == nil {
			c.Down = a.Redact.Text(err.Error())
			a.run.Mark(task.MarkConnectorDown + ":" + slot.Connector)
		}
		c.Tool = findTool(tools, slot.Tool)
	}
	return c
}

// renewed is the alias table with the tool's definition as it is now.
func renewed(slots []task.Slot, alias string, tool *task.Tool) []task.Slot {
	slots = slices.Clone(slots)
	for i := range slots {
		if slots[i].Alias == alias && tool != nil {
			slots[i].Definition = tool.Hash
		}
	}
	return slots
}

func findSlot(slots []task.Slot, alias string) (task.Slot, bool) {
	for _, s := range slots {
		if s.Alias == alias {
			return s, true
		}
	}
	return task.Slot{}, false
}

func findTool(tools []task.Tool, name string) *task.Tool {
	for i := range tools {
		if tools[i].Name == name {
			return &tools[i]
		}
	}
	return nil
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

// dispatch sends an allowed call: intent first, then the call, then its outcome.
func (a *attempt) dispatch(ctx context.Context, turn *task.Message, call task.ToolCall, d policy.Decision, ask *approval) error {
	rc := a.receipt(turn, call, d)
	if ask != nil {
		rc.ApprovalID = ask.ID
	}
	if err := a.Store.Intend(ctx, rc, rc.ApprovalID); err != nil {
		return fmt.Errorf("store intent: %w", err)
	}
	a.keep(*rc)
	a.badRow = 0
	a.log.Info("call", zap.String("connector", d.Connector), zap.String("tool", d.Tool), zap.String("class", string(d.Class)), zap.String("rule", d.Rule))
	result, err := a.Connectors.Call(ctx, d.Connector, d.Tool, json.RawMessage(call.Arguments))
	if err != nil && mayRepeat(ctx, d, err) {
		a.log.Warn("read repeated", zap.String("connector", d.Connector), zap.Error(err))
		result, err = a.Connectors.Call(ctx, d.Connector, d.Tool, json.RawMessage(call.Arguments))
	}
	if err != nil && ctx.Err() == nil {
		a.run.Mark(task.MarkConnectorDown + ":" + d.Connector)
	}
	return a.settle(ctx, turn, rc, result, err)
}

// mayRepeat tells whether a failed call may be sent once more: a read that did
// not run into its deadline.
func mayRepeat(ctx context.Context, d policy.Decision, err error) bool {
	var ce CallError
	return ctx.Err() == nil && d.Class == policy.ClassRead && errors.As(err, &ce) && !ce.Timeout()
}

// settle records what came of a call. It outlives a cancellation: an answer that
// arrived is never lost, and an intent never stays without an outcome.
func (a *attempt) settle(ctx context.Context, turn *task.Message, rc *task.Receipt, result task.ToolResult, err error) error {
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel()
	rc.FinishedAt, rc.Outcome = time.Now(), outcome(rc, result, err)
	if err != nil && rc.Outcome != task.ReceiptUnknown && errors.Is(context.Cause(ctx), task.ErrShutdown) {
		return a.settled(final, rc, nil, "") // stays unanswered: a resumed run makes the call again
	}
	raw, isError := a.Redact.Text(result.Text), result.IsError
	switch {
	case rc.Outcome == task.ReceiptUnknown:
		raw, isError = unknownText, true
	case err != nil:
		raw, isError = errorText("call to "+rc.Connector+" got no answer: "+a.Redact.Text(err.Error())), true
	}
	text := cut(raw, a.resultLimit())
	if text == raw {
		raw = ""
	}
	return a.settled(final, rc, a.toolMessage(turn, rc.CallID, text, isError), raw)
}

func (a *attempt) settled(ctx context.Context, rc *task.Receipt, msg *task.Message, raw string) error {
	err := insist(ctx, func() error { return a.Store.Settle(ctx, rc, msg, raw) })
	if err != nil {
		return fmt.Errorf("store outcome: %w", err)
	}
	a.keep(*rc)
	if msg != nil {
		a.msgs = append(a.msgs, *msg)
	}
	return nil
}

// keep puts a receipt into the attempt's own list, once.
func (a *attempt) keep(rc task.Receipt) {
	for i := range a.receipts {
		if a.receipts[i].Seq == rc.Seq {
			a.receipts[i] = rc
			return
		}
	}
	a.receipts = append(a.receipts, rc)
}

// outcome classes what came of a call. One without an answer that may have changed
// something has an unknown outcome.
func outcome(rc *task.Receipt, result task.ToolResult, err error) task.ReceiptOutcome {
	if err == nil && !result.IsError {
		return task.ReceiptOK
	}
	var ce CallError
	known := errors.As(err, &ce)
	switch {
	case err == nil:
		return task.ReceiptError
	case rc.Class != string(policy.ClassRead) && (!known || ce.Sent()):
		return task.ReceiptUnknown
	case known && ce.Timeout():
		return task.ReceiptTimeout
	}
	return task.ReceiptError
}

const unknownText = `{"error":"This call was sent, but its outcome is not known: it may or may not have taken effect. It will not be repeated by itself. Check the actual state first, before you do anything that would repeat it.","exit_code":1}`

func errorText(text string) string {
	data, err := json.Marshal(struct {
		Error    string `json:"error"`
		ExitCode int    `json:"exit_code"`
	}{text, 1})
	if err != nil {
		return `{"error":"call failed","exit_code":1}`
	}
	return string(data)
}

// refuse records a call that is not sent, tells the model so and ends the run if
// refusals repeat.
func (a *attempt) refuse(ctx context.Context, turn *task.Message, call task.ToolCall, d policy.Decision) error {
	if d.Kind == "" {
		d.Kind = task.DecisionDeny
	}
	rc := a.receipt(turn, call, d)
	rc.Outcome, rc.FinishedAt = task.ReceiptNone, rc.StartedAt
	if ask := a.approvalOf(turn.Step, call.ID); ask != nil {
		rc.ApprovalID = ask.ID
	}
	answer := d.Answer
	if answer == "" {
		answer = errorText("This call was NOT run: " + d.Rule)
	}
	msg := a.toolMessage(turn, call.ID, a.Redact.Text(answer), true)
	if err := a.Store.Refuse(ctx, rc, msg, nil); err != nil {
		return fmt.Errorf("store refusal: %w", err)
	}
	a.keep(*rc)
	a.msgs = append(a.msgs, *msg)
	a.log.Warn("call refused", zap.String("connector", d.Connector), zap.String("tool", d.Tool), zap.String("name", call.Name),
		zap.String("code", string(d.Code)), zap.String("rule", d.Rule))
	return a.afterRefusal(d)
}

// afterRefusal ends the run where going on would only burn its budget.
func (a *attempt) afterRefusal(d policy.Decision) error {
	switch {
	case d.Kind == task.DecisionAbort && d.Code == policy.CodeLimit:
		return &stop{task.Limited, d.Rule}
	case d.Kind == task.DecisionAbort && d.Code == policy.CodeRepeatedCall:
		a.run.Mark(task.MarkRepeatedCall)
		return a.fail("%s", d.Rule)
	case d.Kind == task.DecisionAbort:
		return a.fail("%s", d.Rule)
	case d.Code.Refusal() && a.denialsInARow() >= maxInARow:
		a.run.Mark(task.MarkRepeatedDenial)
		return a.fail("%d calls in a row were refused; the last: %s", maxInARow, d.Rule)
	}
	if d.Code == policy.CodeInvalidArguments || d.Code == policy.CodeUnknownTool {
		return a.bad(d.Rule)
	}
	return nil
}

// bad counts a call that could not be made and ends the run after some in a row.
func (a *attempt) bad(why string) error {
	if a.badRow++; a.badRow >= maxInARow {
		return a.fail("%d calls in a row could not be made; the last: %s", maxInARow, why)
	}
	return nil
}

// denialsInARow counts the refusals by policy at the end of the run's receipts.
func (a *attempt) denialsInARow() int {
	n := 0
	for i := len(a.receipts) - 1; i >= 0 && policy.Code(a.receipts[i].Code).Refusal(); i-- {
		if a.receipts[i].Decision == task.DecisionPark {
			break
		}
		n++
	}
	return n
}

// refused counts the calls that policy refused in the whole run.
func (a *attempt) refused() int {
	n := 0
	for _, rc := range a.receipts {
		if policy.Code(rc.Code).Refusal() && rc.Decision != task.DecisionPark {
			n++
		}
	}
	return n
}

func (a *attempt) lastRefusal() string {
	for i := len(a.receipts) - 1; i >= 0; i-- {
		rc := a.receipts[i]
		if policy.Code(rc.Code).Refusal() && rc.Decision != task.DecisionPark {
			return fmt.Sprintf("%s/%s was refused: %s", rc.Connector, rc.Tool, rc.Rule)
		}
	}
	return ""
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

// sawUntrusted tells whether an untrusted result was read in this run.
func (a *attempt) sawUntrusted(eff policy.Effective) bool {
	for _, rc := range a.receipts {
		if rc.Decision == task.DecisionAllow && policy.HasFlag(eff.Connectors[rc.Connector], rc.Tool, policy.FlagUntrusted) {
			a.run.Mark(task.MarkUntrusted)
		}
	}
	return a.run.HasMark(task.MarkUntrusted)
}
