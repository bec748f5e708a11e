package agentloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/task"
)

// dispatch sends an allowed call: intent first, then the call, then its outcome.
func (a *attempt) dispatch(ctx context.Context, turn *task.Message, call task.ToolCall, d policy.Decision, ask *approval) error {
	rc := a.receipt(turn, call, d)
	if ask != nil {
		rc.ApprovalID = ask.ID
	}
	if err := a.taintAhead(ctx, call, d); err != nil {
		return err
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
	if d.Untrusted {
		a.run.Mark(untrustedFrom(d.Connector + "/" + d.Tool))
	}
	if err := a.touch(ctx, d, call, result); err != nil {
		return err
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
		raw, isError = errorText("call to "+rc.Connector+" failed: "+a.Redact.Text(err.Error())), true
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
