package agentloop

import (
	"context"
	"time"

	"runnerd/task"
)

// maxReads is how often one read call is sent in all when crashes get between
// it and its answer.
const maxReads = 2

// answerSent deals with a call that an earlier attempt has sent and that has no
// answer. A write or exec whose outcome is not known is answered so and never sent
// again. A read is made again, once. done tells that the call now has its answer.
func (a *attempt) answerSent(ctx context.Context, turn *task.Message, call task.ToolCall) (done bool, err error) {
	last, lost := a.sent(turn.Step, call.ID)
	if last == nil {
		return false, nil
	}
	if err := a.settleLost(ctx, last); err != nil {
		return false, err
	}
	text := errorText("this read was interrupted twice and is not made again")
	switch {
	case last.MayHaveActed(a.run.Execution):
		text = unknownText
	case last.Outcome != task.ReceiptUnknown || lost < maxReads:
		return false, nil
	}
	return true, a.append(ctx, a.toolMessage(turn, call.ID, text, true))
}

// sent returns the newest receipt of a call that was sent, nil if it never was, and
// how often it was sent without an answer that came home. One that an orderly stop
// cut off has an outcome and counts for none.
func (a *attempt) sent(step int, callID string) (last *task.Receipt, lost int) {
	for _, rc := range a.receipts {
		if rc.Step != step || rc.CallID != callID || rc.Decision != task.DecisionAllow {
			continue
		}
		if rc.Outcome == task.ReceiptPending || rc.Outcome == task.ReceiptUnknown {
			lost++
		}
		last = &rc
	}
	return last, lost
}

// settleLost gives an intent of this attempt that got no outcome one. Those of
// earlier attempts got theirs when their worker left them.
func (a *attempt) settleLost(ctx context.Context, rc *task.Receipt) error {
	if rc.Outcome != task.ReceiptPending {
		return nil
	}
	rc.Outcome, rc.FinishedAt = task.ReceiptUnknown, time.Now()
	return a.settled(ctx, rc, nil, "")
}

// abandon closes the transcript of a run that ends: every call has an answer and
// every intent an outcome, so that the next run of the session starts clean.
func (a *attempt) abandon(ctx context.Context) error {
	turn := a.openTurn()
	if turn == nil {
		return nil
	}
	for _, call := range turn.Calls {
		if a.answered(call.ID) {
			continue
		}
		last, _ := a.sent(turn.Step, call.ID)
		if last != nil {
			if err := a.settleLost(ctx, last); err != nil {
				return err
			}
		}
		text := errorText("This call was NOT run: the run ended before it.")
		if last != nil && last.MayHaveActed(a.run.Execution) {
			text = unknownText
		}
		if err := a.append(ctx, a.toolMessage(turn, call.ID, text, true)); err != nil {
			return err
		}
	}
	return nil
}
