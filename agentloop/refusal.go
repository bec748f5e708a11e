package agentloop

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/task"
)

// maxInARow is how many denials, or how many calls that make no sense, a run may
// have one after another (DESIGN, section 9).
const maxInARow = 3

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
