package main

import (
	"time"

	"runnerd/task"
)

// runRow is a run as `runs --json` prints it (DESIGN, appendix). What is absent
// is absent, not 0.
type runRow struct {
	ID         string         `json:"id"`
	Task       string         `json:"task"`
	Due        *time.Time     `json:"due,omitempty"`
	Trigger    task.Trigger   `json:"trigger"`
	Attempt    int            `json:"attempt"`
	Status     task.Status    `json:"status"`
	Execution  task.Execution `json:"execution"`
	Outcome    string         `json:"outcome,omitempty"`
	Delivery   string         `json:"delivery,omitempty"`
	Marks      []string       `json:"marks"`
	StartedAt  *time.Time     `json:"started_at,omitempty"`
	FinishedAt *time.Time     `json:"finished_at,omitempty"`
	Tokens     *int64         `json:"tokens,omitempty"`
	Cost       *float64       `json:"cost,omitempty"`
	Reason     string         `json:"reason,omitempty"`
}

func rowOf(r task.Run) runRow {
	row := runRow{
		ID: r.ID, Task: r.Task, Due: stamp(r.Due), Trigger: r.Trigger, Attempt: r.Attempt,
		Status: r.Status(), Execution: r.Execution, Outcome: string(r.Outcome), Delivery: string(r.Delivery),
		Marks: append([]string{}, r.Marks...), StartedAt: stamp(r.StartedAt), FinishedAt: stamp(r.FinishedAt), Reason: r.Reason,
	}
	if r.Steps > 0 {
		tokens := r.Usage.Tokens()
		row.Tokens = &tokens
	}
	if r.Usage.Cost != nil {
		cost := r.Usage.Cost.Float()
		row.Cost = &cost
	}
	return row
}

// stamp is a time as JSON has it: UTC, or absent.
func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}

// receiptRow is a receipt as `show --json` prints it.
type receiptRow struct {
	Seq        int64               `json:"seq"`
	Connector  string              `json:"connector"`
	Tool       string              `json:"tool"`
	Class      string              `json:"class"`
	Decision   task.DecisionKind   `json:"decision"`
	Code       string              `json:"code,omitempty"`
	Rule       string              `json:"rule"`
	ArgsHash   string              `json:"args_hash"`
	Outcome    task.ReceiptOutcome `json:"outcome"`
	ApprovalID string              `json:"approval_id,omitempty"`
	StartedAt  *time.Time          `json:"started_at,omitempty"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
}

func receiptRows(list []task.Receipt) []receiptRow {
	rows := make([]receiptRow, 0, len(list))
	for _, r := range list {
		rows = append(rows, receiptRow{
			Seq: r.Seq, Connector: r.Connector, Tool: r.Tool, Class: r.Class, Decision: r.Decision, Code: r.Code, Rule: r.Rule,
			ArgsHash: r.ArgsHash, Outcome: r.Outcome, ApprovalID: r.ApprovalID, StartedAt: stamp(r.StartedAt), FinishedAt: stamp(r.FinishedAt),
		})
	}
	return rows
}
