package agentloop

import (
	"context"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// maxReads is how often one read call is sent in all when crashes get between
// it and its answer.
const maxReads = 2

// settleOpenIntent deals with a call that an earlier attempt may have sent. A
// write or exec gets the outcome "unknown", which the model is told, and is never
// sent again. A read is settled and made again, once. done tells that the call
// now has its answer.
func (a *attempt) settleOpenIntent(ctx context.Context, turn *task.Message, call task.ToolCall) (done bool, err error) {
	open, sent := a.intents(turn.Step, call.ID)
	if open == nil {
		return false, nil
	}
	if open.Class != string(policy.ClassRead) {
		return true, a.settleUnknown(ctx, turn, open)
	}
	open.Outcome, open.FinishedAt = task.ReceiptError, time.Now()
	if sent < maxReads {
		return false, a.settled(ctx, open, nil, "")
	}
	text := errorText("this read was interrupted twice and is not made again")
	return true, a.settled(ctx, open, a.toolMessage(turn, call.ID, text, true), "")
}

// intents returns the receipt of a call that has no outcome yet, and how many
// times the call was sent in all.
func (a *attempt) intents(step int, callID string) (open *task.Receipt, sent int) {
	for _, rc := range a.receipts {
		if rc.Step != step || rc.CallID != callID || rc.Decision != task.DecisionAllow {
			continue
		}
		sent++
		if rc.Outcome == task.ReceiptPending {
			rc := rc
			open = &rc
		}
	}
	return open, sent
}

func (a *attempt) settleUnknown(ctx context.Context, turn *task.Message, rc *task.Receipt) error {
	rc.Outcome, rc.FinishedAt = task.ReceiptUnknown, time.Now()
	return a.settled(ctx, rc, a.toolMessage(turn, rc.CallID, unknownText, true), "")
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
		if open, _ := a.intents(turn.Step, call.ID); open != nil && open.Class != string(policy.ClassRead) {
			if err := a.settleUnknown(ctx, turn, open); err != nil {
				return err
			}
			continue
		} else if open != nil {
			open.Outcome, open.FinishedAt = task.ReceiptError, time.Now()
			if err := a.settled(ctx, open, nil, ""); err != nil {
				return err
			}
		}
		msg := a.toolMessage(turn, call.ID, errorText("This call was NOT run: the run ended before it."), true)
		if err := a.append(ctx, msg); err != nil {
			return err
		}
	}
	return nil
}
