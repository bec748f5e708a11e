package agentloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	if call.Name == reportTool {
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
	approved := ask != nil && ask.State == task.ApprovalApproved
	d := a.decide(ctx, turn, call, approved)
	switch {
	case d.Kind == task.DecisionAllow && approved && !ask.fits(d):
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

// decide asks policy about one call, with everything read at this moment.
func (a *attempt) decide(ctx context.Context, turn *task.Message, call task.ToolCall, approved bool) policy.Decision {
	eff, err := a.effective(ctx)
	if err != nil {
		a.log.Error("policy unreadable", zap.Error(err))
		a.run.Mark(task.MarkPolicyUnreadable)
		return policy.Unreadable(call.Name, turn.Slots, err)
	}
	a.adopt(eff)
	c := policy.Call{
		Name: call.Name, Arguments: call.Arguments, Slots: turn.Slots,
		Secret: a.secretIn, Resolve: a.Resolve, Schemas: a.schemas,
		Untrusted: a.sawUntrusted(eff), ToolCalls: a.dispatched(), Repeats: a.repeats(turn, call), Approved: approved,
	}
	if slot, ok := findSlot(turn.Slots, call.Name); ok && policy.Reachable(eff, slot.Connector) {
		tools, err := a.Connectors.Tools(ctx, slot.Connector)
		if err != nil {
			c.Down = a.Redact.Text(err.Error())
			a.run.Mark(task.MarkConnectorDown + ":" + slot.Connector)
		}
		c.Tool = findTool(tools, slot.Tool)
	}
	return policy.Decide(eff, c)
}

// secretIn names a secret in the arguments. Arguments are redacted when they are
// stored, so a resumed call shows the redaction instead of the secret.
func (a *attempt) secretIn(text string) string {
	if name := a.Redact.Find(text); name != "" {
		return name
	}
	if _, rest, ok := strings.Cut(text, "[redacted:"); ok {
		name, _, _ := strings.Cut(rest, "]")
		return name
	}
	return ""
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
	if ask != nil && ask.State == task.ApprovalApproved {
		rc.ApprovalID = ask.ID
	}
	if err := a.Store.Intend(ctx, rc, rc.ApprovalID); err != nil {
		return fmt.Errorf("store intent: %w", err)
	}
	a.badRow = 0
	a.log.Info("call", zap.String("connector", d.Connector), zap.String("tool", d.Tool), zap.String("class", string(d.Class)), zap.String("rule", d.Rule))
	result, err := a.Connectors.Call(ctx, d.Connector, d.Tool, json.RawMessage(call.Arguments))
	if err != nil && mayRepeat(ctx, d, err) {
		a.log.Warn("read repeated", zap.String("connector", d.Connector), zap.Error(err))
		result, err = a.Connectors.Call(ctx, d.Connector, d.Tool, json.RawMessage(call.Arguments))
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
	rc.FinishedAt = time.Now()
	raw := a.Redact.Text(result.Text)
	isError := result.IsError
	rc.Outcome = task.ReceiptOK
	if isError {
		rc.Outcome = task.ReceiptError
	}
	if err != nil {
		rc.Outcome, raw, isError = a.failed(rc, err), a.failureText(rc, err), true
		if rc.Outcome == task.ReceiptUnknown {
			raw = unknownText
			a.run.Mark(task.MarkUnknownEffect)
		}
		if errors.Is(context.Cause(ctx), task.ErrShutdown) && rc.Outcome != task.ReceiptUnknown {
			// Stays unanswered: a resumed run makes the read again.
			return a.settled(final, rc, nil, "")
		}
	}
	text := cut(raw, a.resultLimit())
	if text == raw {
		raw = ""
	}
	return a.settled(final, rc, a.toolMessage(turn, rc.CallID, text, isError), raw)
}

func (a *attempt) settled(ctx context.Context, rc *task.Receipt, msg *task.Message, raw string) error {
	if err := a.Store.Settle(ctx, rc, msg, raw); err != nil {
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

// failed classes a call without an answer: what may have changed something has
// an unknown outcome.
func (a *attempt) failed(rc *task.Receipt, err error) task.ReceiptOutcome {
	var ce CallError
	known := errors.As(err, &ce)
	switch {
	case rc.Class != string(policy.ClassRead) && (!known || ce.Sent()):
		return task.ReceiptUnknown
	case known && ce.Timeout():
		return task.ReceiptTimeout
	}
	return task.ReceiptError
}

func (a *attempt) failureText(rc *task.Receipt, err error) string {
	a.run.Mark(task.MarkConnectorDown + ":" + rc.Connector)
	return errorText("call to " + rc.Connector + " got no answer: " + a.Redact.Text(err.Error()))
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
		if a.badRow++; a.badRow >= maxInARow {
			return a.fail("%d calls in a row made no sense; the last: %s", maxInARow, d.Rule)
		}
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

func canonical(arguments string) string {
	if c, err := policy.Canonical(arguments); err == nil {
		return c
	}
	return arguments
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
