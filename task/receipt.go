package task

import "time"

// Receipt is the durable record of one tool call: what was decided and by which
// rule before it, what came of it after.
type Receipt struct {
	Seq  int64  `json:"seq"` // of the whole database, from 1; set by the store
	Run  string `json:"run"`
	Task string `json:"task"`
	Step int    `json:"step"`
	// CallID is the model's id for the call, unique within a step.
	CallID     string         `json:"call_id"`
	Connector  string         `json:"connector"`
	Tool       string         `json:"tool"`
	Class      string         `json:"class"`
	Definition string         `json:"definition,omitempty"`
	Decision   DecisionKind   `json:"decision"`
	Code       string         `json:"code,omitempty"`
	Rule       string         `json:"rule"`
	ArgsHash   string         `json:"args_hash"`
	Outcome    ReceiptOutcome `json:"outcome"`
	ApprovalID string         `json:"approval_id,omitempty"`
	StartedAt  time.Time      `json:"started_at"`
	FinishedAt time.Time      `json:"finished_at,omitzero"`
}

// DecisionKind is what policy said. The empty kind denies.
type DecisionKind string

// The decisions.
const (
	DecisionAllow DecisionKind = "allow"
	DecisionDeny  DecisionKind = "deny"
	DecisionPark  DecisionKind = "park"
	DecisionAbort DecisionKind = "abort"
)

// ReceiptOutcome is what came of a call.
type ReceiptOutcome string

// The outcomes. ReceiptPending is an intent whose call is under way; no receipt
// of a finished or interrupted run keeps it.
const (
	ReceiptPending ReceiptOutcome = ""
	ReceiptOK      ReceiptOutcome = "ok"
	ReceiptError   ReceiptOutcome = "error"
	ReceiptTimeout ReceiptOutcome = "timeout"
	ReceiptUnknown ReceiptOutcome = "outcome_unknown"
	ReceiptNone    ReceiptOutcome = "none" // refused or parked: nothing was sent
)

// Approval is a person's decision, asked for one exact call.
type Approval struct {
	ID         string        `json:"id"`
	Run        string        `json:"run"`
	Task       string        `json:"task"`
	Step       int           `json:"step"`
	CallID     string        `json:"call_id"`
	Connector  string        `json:"connector"`
	Tool       string        `json:"tool"`
	Class      string        `json:"class"`
	Definition string        `json:"definition"`
	Arguments  string        `json:"-"` // the exact bytes that will be sent
	ArgsHash   string        `json:"args_hash"`
	Preview    string        `json:"preview"`
	State      ApprovalState `json:"state"`
	DecidedBy  string        `json:"decided_by,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	CreatedAt  time.Time     `json:"created_at"`
	ExpiresAt  time.Time     `json:"expires_at"`
	DecidedAt  time.Time     `json:"decided_at,omitzero"`
}

// ClassDelivery is the class of an approval that is not of a call: it lets the
// result of a finished run go to one destination.
const ClassDelivery = "delivery"

// ApprovalState is where an approval stands.
type ApprovalState string

// The approval states: pending → approved | denied | expired | superseded |
// cancelled; approved → consumed → done | outcome_unknown.
const (
	ApprovalPending    ApprovalState = "pending"
	ApprovalApproved   ApprovalState = "approved"
	ApprovalDenied     ApprovalState = "denied"
	ApprovalExpired    ApprovalState = "expired"
	ApprovalSuperseded ApprovalState = "superseded"
	ApprovalCancelled  ApprovalState = "cancelled"
	ApprovalConsumed   ApprovalState = "consumed"
	ApprovalDone       ApprovalState = "done"
	ApprovalUnknown    ApprovalState = "outcome_unknown"
)
