// Package policy decides one call. Its functions are pure: no I/O, no clock, no
// logs; what they need is passed in. Everything unknown, unlisted, malformed or
// unreadable is refused, and every zero value denies.
package policy

import (
	"time"

	"runnerd/task"
)

// Class is what a tool can do. The zero Class counts as ClassExec.
type Class string

// The classes, from least to most dangerous.
const (
	ClassRead  Class = "read"
	ClassWrite Class = "write"
	ClassExec  Class = "exec"
)

// Scope is what a stored policy row is about.
type Scope string

// The scopes.
const (
	ScopeTask      Scope = "task"
	ScopeSession   Scope = "session"
	ScopeProject   Scope = "project"
	ScopeConnector Scope = "connector"
)

// Layer is who wrote a stored policy row. A field of a higher layer replaces
// the whole field of a lower one.
type Layer string

// The layers, lowest first.
const (
	LayerDefault  Layer = "default"
	LayerFile     Layer = "file"
	LayerOverride Layer = "override"
)

// Fields is one row of the policy database: what one layer says about one task,
// session, project or connector. A nil or absent field says nothing.
type Fields struct {
	// Reachability: scopes task, session and project.
	Connectors task.List[string] `json:"connectors"`

	// Scope task.
	Tools       task.List[string] `json:"tools"`
	Allow       task.List[Grant]  `json:"allow"`
	Deny        task.List[Grant]  `json:"deny"`
	OnAsk       *OnAsk            `json:"on_ask"`
	ApprovalTTL *time.Duration    `json:"approval_ttl"`
	Limits      *Limits           `json:"limits"` // also scope project
	AcceptRisk  *string           `json:"accept_risk"`

	// Scope connector.
	Classes          map[string]Class  `json:"classes"` // by tool name or glob
	DisabledTools    task.List[string] `json:"disabled_tools"`
	TrustAnnotations *bool             `json:"trust_annotations"`
	// Flags are untrusted, private or egress, for the connector or, written
	// tool:flag by config, for one tool.
	Flags task.List[Flag] `json:"flags"`
	Pin   *PinMode        `json:"pin"`
	// Origin is what the catalogue is keyed by and Root what relative paths in
	// grants start from; both are copied from the connector's own file entry.
	Origin *Origin `json:"origin"`
}

// OnAsk says what happens to a call that needs a person.
type OnAsk string

// The answers.
const (
	OnAskDeny OnAsk = "deny"
	OnAskPark OnAsk = "park"
)

// PinMode says how a connector's definitions are first accepted.
type PinMode string

// The pin modes.
const (
	PinFirstUse PinMode = "first-use" // accepted by the daemon on first use, with a notice
	PinStrict   PinMode = "strict"    // refused until a person accepts
)

// Flag says that a connector, or one of its tools, brings in untrusted text,
// shows private data or sends data out.
type Flag struct {
	Tool string `json:"tool,omitempty"` // empty: every tool of the connector
	Kind string `json:"kind"`
}

// The kinds of flag.
const (
	FlagUntrusted = "untrusted"
	FlagPrivate   = "private"
	FlagEgress    = "egress"
)

// Origin is where a connector's tools come from, as the operator wrote it.
type Origin struct {
	// Package is the npm, PyPI or image name in the command, or "builtin:files".
	Package string `json:"package,omitempty"`
	URL     string `json:"url,omitempty"`
	Root    string `json:"root,omitempty"`
}

// Limits bound a run and a day. A nil field is no limit of that kind.
type Limits struct {
	Steps      *int           `json:"steps,omitempty"`
	ToolCalls  *int           `json:"tool_calls,omitempty"`
	Tokens     *int64         `json:"tokens,omitempty"`
	Cost       *task.Money    `json:"cost,omitempty"`
	Wall       *time.Duration `json:"wall,omitempty"`
	CostPerDay *task.Money    `json:"cost_per_day,omitempty"`
	// TokensPerDay and RunsPerDay complete the daily ones.
	TokensPerDay *int64 `json:"tokens_per_day,omitempty"`
	RunsPerDay   *int   `json:"runs_per_day,omitempty"`
}

// Effective is everything that a decision about one task reads, as it stands at
// this moment: one query of the policy database.
type Effective struct {
	Task, Session, Project string

	// The three tiers of reachability, each after its layers.
	TaskConnectors, SessionConnectors, ProjectConnectors task.List[string]

	Tools task.List[string]
	Allow []Grant
	Deny  []Grant
	// Ceiling are the daemon's own deny lines, which nothing of a task, project or
	// session lifts.
	Ceiling     []Grant
	OnAsk       OnAsk
	ApprovalTTL time.Duration
	Limits      Limits
	Shared      Limits // the project's per-day limits, for its tasks together
	Day         Limits // the daemon's own per-day limits
	AcceptRisk  string

	// Connectors are all that the operator configured, by id. A connector that
	// is not here does not exist.
	Connectors map[string]ConnectorRules
	// Sources says for each field of the task which layer it came from.
	Sources map[string]Layer
	// Warnings are values that were stored in a wrong shape and counted as
	// absent or were dropped.
	Warnings []string
	// Hidden names file values that an override replaces, as "task brief: allow";
	// check and reload warn about them.
	Hidden []string
}

// ConnectorRules is what policy knows of one connector.
type ConnectorRules struct {
	Classes          map[string]Class
	Disabled         []string
	TrustAnnotations bool
	Flags            []Flag
	Pin              PinMode
	Origin           Origin
	// Pins are the accepted definitions, tool name to hash; nil when nothing was
	// ever accepted.
	Pins map[string]string

	settled *ConnectorRules // see Settle
}

// Source names the tier that decided reachability.
type Source string

// The sources.
const (
	SourceTask    Source = "task"
	SourceSession Source = "session"
	SourceProject Source = "project"
	SourceAll     Source = "all"
)

// Code says why a call was refused. The values are stored and shown.
type Code string

// The codes (DESIGN, appendix).
const (
	CodeNotReachable      Code = "not_reachable"
	CodeNotOffered        Code = "not_offered"
	CodeDisabled          Code = "disabled"
	CodeQuarantined       Code = "quarantined"
	CodeInvalidArguments  Code = "invalid_arguments"
	CodeUnknownTool       Code = "unknown_tool"
	CodeSecretInArguments Code = "secret_in_arguments"
	CodeDenied            Code = "denied"
	CodeNeedsApproval     Code = "needs_approval"
	CodeApprovalDenied    Code = "approval_denied"
	CodeApprovalExpired   Code = "approval_expired"
	CodeLimit             Code = "limit"
	CodeRepeatedCall      Code = "repeated_call"
	CodePolicyError       Code = "policy_error"
)

// Refusal tells whether a code is a refusal by policy; see task.RefusalCode.
func (c Code) Refusal() bool { return task.RefusalCode(string(c)) }

// Call is one call that a model asked for, with what is known at this moment.
type Call struct {
	Name      string // as the model wrote it
	Arguments string // the exact bytes
	// Slots is the alias table of the step in which the model made the call.
	Slots []task.Slot
	// Connected is the connector that the name means (see Named) as it stands now;
	// for a name of neither form, those that the task selects. One that is missing
	// counts as down.
	Connected []Connected

	// Secret answers the name of a known secret that the text holds, or "".
	Secret func(text string) string
	// Resolve makes a path absolute and free of links: the nearest existing
	// parent is resolved, relative to the connector's root. An error never
	// matches in allow and always matches in deny.
	Resolve func(connector, path string) (string, error)
	// Schemas compiles and caches argument schemas; nil compiles each time.
	Schemas *Schemas

	// Untrusted says that an untrusted result was read earlier in this run.
	Untrusted bool
	// ToolCalls is how many calls the run has dispatched or parked beside this one.
	ToolCalls int
	// Waiting is how many calls of the run wait for a person.
	Waiting int
	// Repeats is how often this run made the same call before: same pair, same
	// canonical arguments.
	Repeats int
	// Used is how many calls of this run the rule, in its recorded words, has let
	// through, counted from their intents; nil: none.
	Used func(rule string) int
	// Approved says that a person approved exactly this call.
	Approved bool
}

// MaxRepeats is how often the same call with the same arguments may be made.
const MaxRepeats = 3

// MaxWaiting is how many calls of one run may wait for a person at a time: in a
// longer list nobody finds the one that matters.
const MaxWaiting = 20

// Decision is the answer. The zero Decision denies.
type Decision struct {
	Kind       task.DecisionKind
	Code       Code
	Rule       string // the deciding rule, in words that a person can act on
	Connector  string
	Tool       string
	Definition string
	Class      Class
	// Answer is what the model reads when the call is not dispatched: JSON.
	Answer string
	// Untrusted says that the tool brings in untrusted text, Store which builtin
	// store it belongs to: "builtin:files", "builtin:memory", or "".
	Untrusted bool
	Store     string
	// Grant is the `allow:` line that would permit an ask, ready to paste.
	Grant string
}

// Allowed tells whether the call may be dispatched.
func (d Decision) Allowed() bool { return d.Kind == task.DecisionAllow }

// Connected is a connector as it stands now, for the offer.
type Connected struct {
	ID    string
	Up    bool
	Down  string // why not
	Tools []task.Tool
}

// Offer is what a model is shown in one step.
type Offer struct {
	Tools []Offered
	// Report tells whether the bare tool `report` is offered.
	Report bool
	// Down are selected, reachable connectors that are not up, with the reason.
	Down map[string]string
	// LeftOut are connectors that the default selection leaves out, with the reason.
	LeftOut map[string]string
	// Bare are selected connectors of which nothing can be offered though none of
	// them is down or left out by default, with the reason.
	Bare map[string]string
	// Marks are task.Mark* values for the run, Notices the same in words.
	Marks   []string
	Notices []string
}

// Offered is one tool of an offer.
type Offered struct {
	Slot  task.Slot
	Tool  task.Tool
	Class Class
	From  string // where the class comes from, in words
}

// Row is one line of `runnerd explain`: a tool and what a call of it would get.
type Row struct {
	Connector string            `json:"connector"`
	Tool      string            `json:"tool"`
	Class     Class             `json:"class"`
	ClassFrom string            `json:"class_from"`
	Offered   bool              `json:"offered"`
	Decision  task.DecisionKind `json:"decision"`
	Code      Code              `json:"code,omitempty"`
	Rule      string            `json:"rule"`
}
