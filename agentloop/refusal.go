package agentloop

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/task"
)

// What ends a run (DESIGN, section 9): a call that was refused as often, as many
// refusals in all, and as many calls one after another that make no sense.
const (
	maxSameRefusals = 3
	maxRefusals     = 8
	maxInARow       = 3
)

// refuse records a call that is not sent and tells the model so. The run goes on,
// unless refusals repeat.
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
	case d.Code.Refusal():
		a.badRow = 0
		return a.afterDenials(d)
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

// afterDenials ends a run that asks for the same refused call again and again, or
// was refused too often.
func (a *attempt) afterDenials(d policy.Decision) error {
	if n := a.sameRefusals(); n >= maxSameRefusals {
		a.run.Mark(task.MarkRepeatedDenial)
		return a.fail("the same call was refused %d times; the last: %s", n, d.Rule)
	}
	if n := a.refused(); n >= maxRefusals {
		a.run.Mark(task.MarkRepeatedDenial)
		return a.fail("%d calls were refused; the last: %s", n, d.Rule)
	}
	return nil
}

// sameRefusals counts how often the call of the last receipt was refused in the
// run: the same tool, by whatever name, and the same arguments in canonical form.
func (a *attempt) sameRefusals() int {
	last := a.receipts[len(a.receipts)-1]
	want, n := a.arguments(last), 0
	for _, rc := range a.receipts {
		if rc.Refused() && rc.Connector == last.Connector && rc.Tool == last.Tool && a.arguments(rc) == want {
			n++
		}
	}
	return n
}

// arguments are those of the call that a receipt is of, in canonical form.
func (a *attempt) arguments(rc task.Receipt) string {
	for i := range a.msgs {
		for _, c := range a.msgs[i].Calls {
			if c.ID == rc.CallID && a.msgs[i].Step == rc.Step {
				return canonical(c.Arguments)
			}
		}
	}
	return ""
}

// refused counts the calls that policy refused in the whole run.
func (a *attempt) refused() int {
	n := 0
	for _, rc := range a.receipts {
		if rc.Refused() {
			n++
		}
	}
	return n
}

func (a *attempt) lastRefusal() string {
	for i := len(a.receipts) - 1; i >= 0; i-- {
		if rc := a.receipts[i]; rc.Refused() {
			return fmt.Sprintf("%s/%s was refused: %s", rc.Connector, rc.Tool, rc.Rule)
		}
	}
	return ""
}
