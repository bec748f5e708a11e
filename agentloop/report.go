package agentloop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

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

// reportArgs is what the agent states.
type reportArgs struct {
	Outcome task.Outcome `json:"outcome"`
	Summary string       `json:"summary"`
}

// mayReport tells whether the report tool is there at this moment: it is unless
// `tools` is [] or the model takes none. If policy cannot be read it is not.
func (a *attempt) mayReport(ctx context.Context) bool {
	eff, err := a.effective(ctx)
	return err == nil && a.toolMode() != toolsNone && (!eff.Tools.Declared() || eff.Tools.Len() > 0)
}

// reported is the summary of the agent's last report, for the reason of its run;
// empty, or ": " and the summary.
func (a *attempt) reported() string {
	for i := len(a.msgs) - 1; i >= 0; i-- {
		for _, c := range slices.Backward(a.msgs[i].Calls) {
			var in reportArgs
			if c.Name == reportTool && json.Unmarshal([]byte(c.Arguments), &in) == nil && in.Outcome == a.run.Outcome && in.Summary != "" {
				return ": " + cut(strings.Join(strings.Fields(in.Summary), " "), 400)
			}
		}
	}
	return ""
}

// report stores the agent's own word. It sends nothing, so it has no receipt.
func (a *attempt) report(ctx context.Context, turn *task.Message, call task.ToolCall) error {
	var in reportArgs
	err := json.Unmarshal([]byte(call.Arguments), &in)
	if err == nil {
		switch in.Outcome {
		case task.OutcomeOK, task.OutcomeNothingToDo, task.OutcomeFailed, task.OutcomeNeedsAttention:
		default:
			err = fmt.Errorf("outcome %q: expected ok, nothing_to_do, failed or needs_attention", in.Outcome)
		}
	}
	if err != nil {
		if err := a.append(ctx, a.toolMessage(turn, call.ID, errorText("report: "+err.Error()), true)); err != nil {
			return err
		}
		return a.bad("report: " + err.Error())
	}
	a.badRow = 0
	a.run.Outcome = in.Outcome
	if err := a.Store.Update(ctx, a.run); err != nil {
		return fmt.Errorf("store outcome of run: %w", err)
	}
	return a.append(ctx, a.toolMessage(turn, call.ID, `{"recorded":true}`, false))
}

// reportReminder is what an agent reads, once, that answers without the report that
// its task requires.
const reportReminder = "[runnerd] You have not called the tool report, which this task requires. Call it now, then give your final answer again, in full."

// owesReport tells whether an answer that came now would have to wait: the report is
// required, was not given, and the agent was not reminded of it.
func (a *attempt) owesReport() bool {
	return a.spec.Report == task.ReportRequired && a.run.Outcome == task.OutcomeNone && a.reminder() < 0
}

// reminder is the place of the reminder among the run's messages, or -1.
func (a *attempt) reminder() int {
	return slices.IndexFunc(a.msgs, func(m task.Message) bool { return m.Role == task.RoleUser && m.Text == reportReminder })
}

// remind asks an agent that has said its last word for the report that it owes. asked
// is false if there is nothing to ask for, or no tool to report with.
func (a *attempt) remind(ctx context.Context) (asked bool, err error) {
	if !a.owesReport() || !a.mayReport(ctx) {
		return false, nil
	}
	return true, a.append(ctx, &task.Message{
		Session: a.run.Session, Run: a.run.ID, Step: a.steps(), Role: task.RoleUser, Text: reportReminder, At: time.Now(),
	})
}

// finalAnswer is the message with which the model ended the run; if it had nothing to
// add after the reminder, its answer before.
func (a *attempt) finalAnswer() *task.Message {
	last := a.lastWord()
	if i := a.reminder(); i > 0 && blank(last.Text) && !blank(a.msgs[i-1].Text) {
		return &a.msgs[i-1]
	}
	return last
}
