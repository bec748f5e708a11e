package policy

import (
	"errors"

	"runnerd/task"
)

// Classify says what a tool can do and, in words, where that is known from.
func Classify(rules ConnectorRules, tool task.Tool) (Class, string) { return ClassExec, "" }

// HasFlag tells whether a tool carries a flag, its own or its connector's.
func HasFlag(rules ConnectorRules, tool, kind string) bool { return false }

// BuildOffer says what a model is shown in one step.
func BuildOffer(e Effective, connected []Connected) Offer { return Offer{} }

// Decide decides one call.
func Decide(e Effective, c Call) Decision { return Decision{} }

// Unreadable is the decision when the policy could not be read.
func Unreadable(name string, slots []task.Slot, err error) Decision { return Decision{} }

// Schemas is a bounded cache of compiled argument schemas.
type Schemas struct{}

// NewSchemas returns an empty cache.
func NewSchemas() *Schemas { return &Schemas{} }

// Canonical is the RFC 8785 form of arguments; it serves to see repeats only.
func Canonical(arguments string) (string, error) { return arguments, nil }

// Explain answers one row for each tool of the connectors.
func Explain(e Effective, connected []Connected) []Row { return nil }

// Advice is a remark of check.
type Advice struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"`
	Text     string   `json:"text"`
	Mark     string   `json:"mark,omitempty"` // for the run; empty if none fits
}

// Severity says whether check fails.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Advise looks for rules that cannot do what their author meant.
func Advise(e Effective, connected []Connected) []Advice { return nil }

// Suggestion is a class for a tool, for a person to review.
type Suggestion struct {
	Tool    string `json:"tool"`
	Class   Class  `json:"class"`
	Current Class  `json:"current"`
	Why     string `json:"why"`
}

// SuggestClasses proposes classes from annotations and names.
func SuggestClasses(rules ConnectorRules, tools []task.Tool) []Suggestion { return nil }

// ParseGrant reads "connector/tool", where both parts may be globs.
func ParseGrant(s string) (Grant, error) { return Grant{}, errors.New("not yet") }

// MatchGrant tells whether the grant names the pair; conditions are not looked at.
func MatchGrant(g Grant, connector, tool string) bool { return false }

// String words the grant for a person.
func (g Grant) String() string { return "" }

// YAML is the grant as an item of allow or deny.
func (g Grant) YAML() string { return "" }
