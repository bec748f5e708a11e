package task

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Run is the execution of one occurrence or of a manual start. Retries and
// resumes are further attempts of the same run.
type Run struct {
	ID       string
	Task     string
	Session  string
	Revision string // of the task's spec; see Revision
	Due      time.Time
	Trigger  Trigger
	// Attempt counts from 1, over retries and resumes.
	Attempt int
	// NotBefore is due + jitter, or the end of a backoff.
	NotBefore time.Time

	Execution Execution
	Outcome   Outcome
	Delivery  DeliveryState
	Marks     []string
	// Reason says in one sentence why a run that is not ok ended as it did.
	Reason string
	// Output is the final text as delivered: redacted, notices appended.
	Output string
	// Script is what a rehearsal plays; no other run has one. Listings leave it out.
	Script Script

	CreatedAt  time.Time
	StartedAt  time.Time // zero until claimed
	FinishedAt time.Time // zero until finished
	// Wall is worker time summed over attempts.
	Wall  time.Duration
	Usage Usage
	Steps int
	Calls int
}

// Script is the text of a scripted model, with the name that its errors call it by.
type Script struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Rehearsal tells whether the run is one. It has a session of its own, and whatever
// asks how its task does passes over it.
func (r Run) Rehearsal() bool { return r.HasMark(MarkRehearsal) }

// Trigger is what started a run.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule"
	TriggerCatchUp  Trigger = "catch_up"
	TriggerManual   Trigger = "manual"
)

// Outcome is the task's own word on how its work went, given with the report
// tool; empty if it gave none.
type Outcome string

// The outcomes.
const (
	OutcomeNone           Outcome = ""
	OutcomeOK             Outcome = "ok"
	OutcomeNothingToDo    Outcome = "nothing_to_do"
	OutcomeFailed         Outcome = "failed"
	OutcomeNeedsAttention Outcome = "needs_attention"
)

// DeliveryState is whether the result reached its destinations.
type DeliveryState string

// The delivery states.
const (
	DeliveryNone      DeliveryState = "none" // nothing to deliver, or not due yet
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed"
)

// Marks are short facts about a run that its status is derived from. Some carry
// a value after a colon.
const (
	MarkUnknownEffect    = "unknown_effect"     // a write or exec without an outcome
	MarkRefused          = "refused"            // refused:N calls by policy
	MarkUnverifiedClaims = "unverified_claims"  // the text claims what no receipt backs
	MarkEmptyAnswer      = "empty_answer"       // no final text
	MarkConnectorDown    = "connector_down"     // connector_down:ID
	MarkRequiredDown     = "required_down"      // required_down:ID, needed and not up when last looked at
	MarkNoTools          = "no_tools"           // no connector had a tool; no_tools:ID, one that was needed had none
	MarkReportMissing    = "report_missing"     // report: required, and none was given
	MarkUndelivered      = "undelivered"        // not at a destination after its first attempt
	MarkToolsUnsupported = "tools_unsupported"  // tool mode none, connectors were selected
	MarkToolsFenced      = "tools_fenced"       // the vendor rejected native tools
	MarkNoReadTools      = "no_read_tools"      // no_read_tools:ID, left out of the default
	MarkUnusedRule       = "unused_rule"        // a grant or deny that matches no tool
	MarkHintContradicts  = "hint_contradicts"   // hint_contradicts:ID/TOOL
	MarkRepeatedCall     = "repeated_call"      // the same call a fourth time
	MarkRepeatedDenial   = "repeated_denial"    // one call refused three times, or eight refusals
	MarkAccepted         = "first_use_accepted" // first_use_accepted:ID, definitions pinned
	MarkQuarantined      = "quarantined"        // quarantined:ID/TOOL
	MarkFallbackModel    = "fallback_model"     // fallback_model:NAME
	MarkCompacted        = "compacted"          // older messages were summarised
	MarkTruncated        = "truncated_output"   // the vendor cut the final answer at its limit
	MarkPolicyUnreadable = "policy_unreadable"  // at least one decision could not be read
	MarkConfigBroken     = "config_broken"      // config_broken:FILE, its connectors are not known
	MarkConfigKeptOld    = "config_kept_old"    // config_kept_old:FILE, last good revision in force
	MarkInvalidOutput    = "invalid_output"     // the answer does not fit output_schema
	MarkHeld             = "held_delivery"      // its result waits for a person, since untrusted text was read
	MarkUntrusted        = "untrusted_input"    // an untrusted result was read
	MarkUsageEstimated   = "usage_estimated"    // the vendor did not count; what is booked is an estimate
	MarkRehearsal        = "rehearsal"          // played a script instead of its model
	MarkCallAsText       = "call_as_text"       // the model wrote its calls as text, also after it was told
)

// HasMark tells whether the run carries the mark, with or without a value.
func (r Run) HasMark(mark string) bool {
	for _, m := range r.Marks {
		if m == mark || strings.HasPrefix(m, mark+":") {
			return true
		}
	}
	return false
}

// UntrustedSources are what the run read untrusted text from, in our words: tools,
// and earlier runs; nil if it read none.
func (r Run) UntrustedSources() (sources []string) {
	for _, m := range r.Marks {
		if source, ok := strings.CutPrefix(m, MarkUntrusted+":"); ok {
			sources = append(sources, source)
		}
	}
	return sources
}

// Mark adds a mark once.
func (r *Run) Mark(mark string) {
	for _, m := range r.Marks {
		if m == mark {
			return
		}
	}
	r.Marks = append(r.Marks, mark)
}

// Unmark takes a mark back that does not hold any more.
func (r *Run) Unmark(mark string) {
	r.Marks = slices.DeleteFunc(slices.Clone(r.Marks), func(m string) bool { return m == mark })
}

// Refused is the number of calls that policy refused, from the refused:N mark.
func (r Run) Refused() int {
	for _, m := range r.Marks {
		if n, ok := strings.CutPrefix(m, MarkRefused+":"); ok {
			v, _ := strconv.Atoi(n)
			return v
		}
	}
	return 0
}

// SetRefused replaces the refused:N mark; 0 removes it.
func (r *Run) SetRefused(n int) {
	kept := r.Marks[:0:0]
	for _, m := range r.Marks {
		if !strings.HasPrefix(m, MarkRefused+":") {
			kept = append(kept, m)
		}
	}
	if n > 0 {
		kept = append(kept, MarkRefused+":"+strconv.Itoa(n))
	}
	r.Marks = kept
}

// Ending is the line that closes the transcript of a run without a last word.
func (r Run) Ending() string {
	how := map[Execution]string{Limited: "a limit ended it", Cancelled: "it was cancelled"}[r.Execution]
	if how == "" {
		how = "it failed"
	}
	return "[runnerd] This run ended without an answer: " + how + "."
}

// Usage is what a model call or a run has spent.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	// Cost is nil when the price is unknown, which is not free.
	Cost *Money `json:"cost,omitempty"`
	// Estimated tells that some of it was not counted by a vendor.
	Estimated bool `json:"estimated,omitempty"`
}

// Tokens is everything that counts against a token limit.
func (u Usage) Tokens() int64 { return u.Input + u.Output }

// Add sums two usages. The cost of the sum is what is known of it.
func (u Usage) Add(v Usage) Usage {
	s := Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output,
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
		Estimated: u.Estimated || v.Estimated,
	}
	if u.Cost != nil || v.Cost != nil {
		var c Money
		if u.Cost != nil {
			c += *u.Cost
		}
		if v.Cost != nil {
			c += *v.Cost
		}
		s.Cost = &c
	}
	return s
}

// Money is an amount in millionths of the currency that models.yaml prices in.
type Money int64

// MoneyOf converts an amount as people write it.
func MoneyOf(amount float64) Money {
	if amount < 0 {
		return Money(amount*1e6 - 0.5)
	}
	return Money(amount*1e6 + 0.5)
}

// Float is the amount as people write it.
func (m Money) Float() float64 { return float64(m) / 1e6 }
