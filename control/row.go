package control

import (
	"time"

	"runnerd/task"
	"runnerd/text"
)

// RunRow is a run as `runs --json` and the API show it (DESIGN, appendix). What is
// absent is absent, not 0.
type RunRow struct {
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
	// NotBefore is when a queued run may start.
	NotBefore *time.Time `json:"not_before,omitempty"`
	Steps     int        `json:"steps,omitempty"`
	Calls     int        `json:"calls,omitempty"`
	// Wall is worker time over all attempts, in seconds.
	Wall   float64  `json:"wall,omitempty"`
	Tokens *int64   `json:"tokens,omitempty"`
	Cost   *float64 `json:"cost,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// NewRunRow shows a run.
func NewRunRow(r task.Run) RunRow {
	row := RunRow{
		ID: r.ID, Task: r.Task, Due: stamp(r.Due), Trigger: r.Trigger, Attempt: r.Attempt,
		Status: r.Status(), Execution: r.Execution, Outcome: string(r.Outcome), Delivery: string(r.Delivery),
		Marks: append([]string{}, r.Marks...), StartedAt: stamp(r.StartedAt), FinishedAt: stamp(r.FinishedAt),
		Steps: r.Steps, Calls: r.Calls, Wall: r.Wall.Round(time.Millisecond).Seconds(), Reason: r.Reason,
	}
	if r.Execution == task.Queued {
		row.NotBefore = stamp(r.NotBefore)
	}
	if r.Steps > 0 || r.Usage.Tokens() > 0 {
		tokens := r.Usage.Tokens()
		row.Tokens = &tokens
	}
	if r.Usage.Cost != nil {
		cost := r.Usage.Cost.Float()
		row.Cost = &cost
	}
	return row
}

// NewRunRows shows runs; never nil, so that none is [].
func NewRunRows(runs []task.Run) []RunRow { return rows(runs, NewRunRow) }

func rows[T, R any](list []T, row func(T) R) []R {
	out := make([]R, 0, len(list))
	for _, v := range list {
		out = append(out, row(v))
	}
	return out
}

// stamp is a time as JSON has it: UTC, or absent.
func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}

// ReceiptRow is a receipt as `show --json` and the API show it.
type ReceiptRow struct {
	Seq        int64               `json:"seq"`
	Step       int                 `json:"step,omitempty"`
	CallID     string              `json:"call_id,omitempty"`
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

// NewReceiptRow shows a receipt.
func NewReceiptRow(r task.Receipt) ReceiptRow {
	return ReceiptRow{
		Seq: r.Seq, Step: r.Step, CallID: r.CallID, Connector: r.Connector, Tool: r.Tool, Class: r.Class,
		Decision: r.Decision, Code: r.Code, Rule: r.Rule, ArgsHash: r.ArgsHash, Outcome: r.Outcome,
		ApprovalID: r.ApprovalID, StartedAt: stamp(r.StartedAt), FinishedAt: stamp(r.FinishedAt),
	}
}

// NewReceiptRows shows receipts; never nil.
func NewReceiptRows(list []task.Receipt) []ReceiptRow { return rows(list, NewReceiptRow) }

// RunView is `show RUN --json`.
type RunView struct {
	Run      RunRow         `json:"run"`
	Messages []task.Message `json:"messages"`
	Receipts []ReceiptRow   `json:"receipts"`
	// Output is the final text as delivered.
	Output string `json:"output,omitempty"`
	// Untried is how many destinations have their first attempt still before them.
	Untried int `json:"untried,omitempty"`
}

// NewRunView shows a run with all that was said and done.
func NewRunView(r task.Run, msgs []task.Message, receipts []task.Receipt) RunView {
	return RunView{Run: NewRunRow(r), Messages: append([]task.Message{}, msgs...), Receipts: NewReceiptRows(receipts), Output: r.Output}
}

// WhyRow is one line of `why --json`.
type WhyRow struct {
	Due    *time.Time `json:"due"`
	Until  *time.Time `json:"until,omitempty"`
	Count  int        `json:"count,omitempty"`
	End    task.End   `json:"end"`
	Reason string     `json:"reason,omitempty"`
	Run    string     `json:"run,omitempty"`
}

// NewWhyRows shows what became of instants; never nil.
func NewWhyRows(list []task.Occurrence) []WhyRow {
	return rows(list, func(o task.Occurrence) WhyRow {
		return WhyRow{Due: stamp(o.Due), Until: stamp(o.Until), Count: o.Count, End: o.End, Reason: o.Reason, Run: o.RunID}
	})
}

// ApprovalRow is an approval as `approvals --json` and the API show it.
type ApprovalRow struct {
	ID        string `json:"id"`
	Run       string `json:"run"`
	Task      string `json:"task"`
	Connector string `json:"connector"`
	Tool      string `json:"tool"`
	Class     string `json:"class"`
	// Preview is the beginning of the arguments, with everything escaped that a
	// terminal could obey.
	Preview   string             `json:"preview"`
	ArgsHash  string             `json:"args_hash"`
	State     task.ApprovalState `json:"state"`
	DecidedBy string             `json:"decided_by,omitempty"`
	Reason    string             `json:"reason,omitempty"`
	CreatedAt *time.Time         `json:"created_at,omitempty"`
	ExpiresAt *time.Time         `json:"expires_at,omitempty"`
	DecidedAt *time.Time         `json:"decided_at,omitempty"`
}

// NewApprovalRow shows an approval.
func NewApprovalRow(a task.Approval) ApprovalRow {
	return ApprovalRow{
		ID: a.ID, Run: a.Run, Task: a.Task, Connector: text.Escape(a.Connector), Tool: text.Escape(a.Tool), Class: a.Class,
		Preview: text.Escape(a.Preview), ArgsHash: a.ArgsHash, State: a.State, DecidedBy: a.DecidedBy, Reason: text.Escape(a.Reason),
		CreatedAt: stamp(a.CreatedAt), ExpiresAt: stamp(a.ExpiresAt), DecidedAt: stamp(a.DecidedAt),
	}
}

// NewApprovalRows shows approvals; never nil.
func NewApprovalRows(list []task.Approval) []ApprovalRow { return rows(list, NewApprovalRow) }
