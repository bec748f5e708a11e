package agentloop

import (
	"context"
	"encoding/json"
	"fmt"

	"runnerd/llm"
	"runnerd/task"
)

// reportTool is the only bare tool: with it the agent states its outcome.
const reportTool = "report"

var reportDefinition = llm.Tool{
	Name:        reportTool,
	Description: "State how the task went, once, before your final answer. Use needs_attention if a person must look.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"outcome":{"type":"string","enum":["ok","nothing_to_do","failed","needs_attention"]},"summary":{"type":"string","description":"one or two sentences"}},"required":["outcome"],"additionalProperties":false}`),
}

// report stores the agent's own word. It sends nothing, so it has no receipt.
func (a *attempt) report(ctx context.Context, turn *task.Message, call task.ToolCall) error {
	var in struct {
		Outcome task.Outcome `json:"outcome"`
		Summary string       `json:"summary"`
	}
	err := json.Unmarshal([]byte(call.Arguments), &in)
	if err == nil {
		switch in.Outcome {
		case task.OutcomeOK, task.OutcomeNothingToDo, task.OutcomeFailed, task.OutcomeNeedsAttention:
		default:
			err = fmt.Errorf("outcome %q: expected ok, nothing_to_do, failed or needs_attention", in.Outcome)
		}
	}
	if err != nil {
		if a.badRow++; a.badRow >= maxInARow {
			return a.fail("%d calls in a row made no sense; the last: report: %v", maxInARow, err)
		}
		return a.append(ctx, a.toolMessage(turn, call.ID, errorText("report: "+err.Error()), true))
	}
	a.run.Outcome = in.Outcome
	if err := a.Store.Update(ctx, a.run); err != nil {
		return fmt.Errorf("store outcome of run: %w", err)
	}
	return a.append(ctx, a.toolMessage(turn, call.ID, `{"recorded":true}`, false))
}
