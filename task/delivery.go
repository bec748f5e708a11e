package task

import (
	"slices"
	"strings"
	"time"
)

// DeliveryRecord is how far one destination of a finished run has come. It is
// kept apart from the run's execution, which never changes any more.
type DeliveryRecord struct {
	Run string `json:"run"`
	// Index is the destination's place in the task's deliver list.
	Index int              `json:"index"`
	To    string           `json:"to"` // file | command | notify
	State DestinationState `json:"state"`
	// Attempts counts those that were begun.
	Attempts int `json:"attempts"`
	// Error is why the last attempt did not work; empty if it did.
	Error string `json:"error,omitempty"`
	// NextAt is when the next attempt is due; zero: at once, or never if settled.
	NextAt    time.Time `json:"next_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at"`
}

// DestinationState is where one destination stands.
type DestinationState string

// The destination states: pending → sending → delivered | failed | pending;
// pending → skipped.
const (
	DestinationPending DestinationState = "pending"
	// DestinationSending is an attempt under way. Found after a crash it means
	// that the attempt's outcome is not known.
	DestinationSending   DestinationState = "sending"
	DestinationDelivered DestinationState = "delivered"
	DestinationFailed    DestinationState = "failed"
	DestinationSkipped   DestinationState = "skipped" // its `when` did not apply, or a person refused it
	// DestinationHeld waits for a person's decision, since the run has read
	// untrusted text: held → sending | skipped | failed.
	DestinationHeld DestinationState = "held"
)

// Settled tells whether nothing more will be tried.
func (s DestinationState) Settled() bool {
	return s == DestinationDelivered || s == DestinationFailed || s == DestinationSkipped
}

// Missed tells whether an attempt was made and the result is not there.
func (r DeliveryRecord) Missed() bool {
	return r.Error != "" && r.State != DestinationDelivered && r.State != DestinationSkipped
}

// undeliveredYet begins the reason of a run whose result is still tried.
const undeliveredYet = "not delivered yet: "

// AccountDeliveries puts into a finished run's marks, and into a reason that it
// lacks, that its result is not at a destination after an attempt. Both go when it
// has arrived, and when its delivery has come to an end, which is a fact then.
func (r *Run) AccountDeliveries(records []DeliveryRecord) {
	r.Unmark(MarkUndelivered)
	r.Unmark(MarkHeld)
	if r.Delivery == DeliveryPending && slices.ContainsFunc(records, func(d DeliveryRecord) bool { return d.State == DestinationHeld }) {
		r.Mark(MarkHeld)
	}
	if strings.HasPrefix(r.Reason, undeliveredYet) {
		r.Reason = ""
	}
	i := slices.IndexFunc(records, DeliveryRecord.Missed)
	if i < 0 || r.Delivery != DeliveryPending {
		return
	}
	r.Mark(MarkUndelivered)
	if r.Reason == "" {
		r.Reason = undeliveredYet + records[i].Error
	}
}

// BeforeDelivery is the run as it ended: how its delivery goes is no part of what it
// has to say.
func (r Run) BeforeDelivery() Run {
	r.AccountDeliveries(nil)
	r.Delivery = DeliveryPending
	return r
}

// Undelivered is a finished run whose result is still to be delivered, without
// its Output, and what is recorded of its destinations.
type Undelivered struct {
	Run     Run
	Records []DeliveryRecord
}

// Trouble is something that a person should know of, from when it began until it
// was over.
type Trouble struct {
	// Key says what it is and of whom: "task/brief/failed". There is one trouble
	// of a key at a time.
	Key string `json:"key"`
	// Event is what `notify: events:` selects it by.
	Event string `json:"event"`
	Title string `json:"title"`
	Text  string `json:"text"`

	OpenedAt time.Time `json:"opened_at"`
	// ToldAt is when somebody was told; zero until then.
	ToldAt time.Time `json:"told_at,omitzero"`
	// ClearedAt is when it was over, zero while it is open; Ending says how.
	ClearedAt time.Time `json:"cleared_at,omitzero"`
	Ending    string    `json:"ending,omitempty"`
	// EndToldAt is when somebody was told that it is over.
	EndToldAt time.Time `json:"end_told_at,omitzero"`
}
