package agentloop

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/task"
)

// approval is a stored approval with what the loop asks of it.
type approval struct{ task.Approval }

// fits tells whether what was approved is what would be sent: the same definition
// and, unless a grant or its class allow the call by now, the same class.
func (p *approval) fits(d policy.Decision, granted bool) bool {
	return p.Definition == d.Definition && (granted || p.Class == string(d.Class))
}

// approvalOf is the newest approval that was asked for a call.
func (a *attempt) approvalOf(step int, callID string) *approval {
	var newest *approval
	for _, ap := range a.approvals {
		if ap.Step == step && ap.CallID == callID && ap.State != task.ApprovalSuperseded && (newest == nil || !ap.CreatedAt.Before(newest.CreatedAt)) {
			newest = &approval{ap}
		}
	}
	return newest
}

// askFor parks a call: its receipt and the approval that a person is asked for.
func (a *attempt) askFor(ctx context.Context, turn *task.Message, call task.ToolCall, d policy.Decision) error {
	ask := a.newApproval(turn, call, d)
	rc := a.receipt(turn, call, d)
	rc.Outcome, rc.FinishedAt, rc.ApprovalID = task.ReceiptNone, rc.StartedAt, ask.ID
	if err := a.Store.Refuse(ctx, rc, nil, &ask); err != nil {
		return fmt.Errorf("store request for approval: %w", err)
	}
	a.keep(*rc)
	a.approvals = append(a.approvals, ask)
	a.log.Warn("approval needed", zap.String("approval", ask.ID), zap.String("connector", d.Connector), zap.String("tool", d.Tool))
	return nil
}

// askAgain replaces an approval that no longer fits, without asking the model.
func (a *attempt) askAgain(ctx context.Context, turn *task.Message, call task.ToolCall, d policy.Decision, old *approval) error {
	ask := a.newApproval(turn, call, d)
	if err := a.Store.Supersede(ctx, old.ID, &ask); err != nil {
		return fmt.Errorf("store new request for approval: %w", err)
	}
	a.approvals = append(a.approvals, ask)
	a.log.Warn("approval superseded", zap.String("old", old.ID), zap.String("approval", ask.ID))
	return nil
}

func (a *attempt) newApproval(turn *task.Message, call task.ToolCall, d policy.Decision) task.Approval {
	now := time.Now()
	return task.Approval{
		ID: a.NewID(), Run: a.run.ID, Task: a.run.Task, Step: turn.Step, CallID: call.ID,
		Connector: d.Connector, Tool: d.Tool, Class: string(d.Class), Definition: d.Definition,
		Arguments: call.Arguments, ArgsHash: task.ArgsHash(call.Arguments),
		Preview: preview(call.Arguments), State: task.ApprovalPending,
		CreatedAt: now, ExpiresAt: now.Add(a.approvalTTL),
	}
}

// refuseSettled answers a call that a person refused, or that nobody decided in
// time.
func (a *attempt) refuseSettled(ctx context.Context, turn *task.Message, call task.ToolCall, ask *approval) error {
	d := policy.Decision{
		Kind: task.DecisionDeny, Code: policy.CodeApprovalDenied, Connector: ask.Connector, Tool: ask.Tool,
		Class: policy.Class(ask.Class), Definition: ask.Definition, Rule: "a person refused approval " + ask.ID,
	}
	if ask.State == task.ApprovalExpired {
		d.Code, d.Rule = policy.CodeApprovalExpired, "approval "+ask.ID+" expired before anybody decided"
	}
	if ask.Reason != "" {
		d.Rule += ": " + ask.Reason
	}
	return a.refuse(ctx, turn, call, d)
}
