package task

import (
	"encoding/json"
	"regexp"
	"time"
)

// Task is one file under tasks/, without its policy: when it runs, what it is
// told and with which model. What it may do lives in the policy database
// (package taskpolicy) and is read afresh at every call; what stands here is
// kept by a run from its beginning.
type Task struct {
	ID       string   `json:"id"`
	File     string   `json:"file"`
	Enabled  bool     `json:"enabled"`
	Schedule Schedule `json:"schedule"`
	Model    string   `json:"model"`
	Project  string   `json:"project,omitempty"`
	// Instructions are the project's, stated before the prompt.
	Instructions  string        `json:"instructions,omitempty"`
	Prompt        string        `json:"prompt"`
	Session       SessionMode   `json:"session"`
	CatchUp       CatchUp       `json:"catch_up"`
	CatchUpWindow time.Duration `json:"catch_up_window"`
	Overlap       Overlap       `json:"overlap"`
	Jitter        time.Duration `json:"jitter"`
	Retry         Retry         `json:"retry"`
	Require       []string      `json:"require,omitempty"`
	// Optional are connectors that the task names and that may be down all the same.
	Optional     []string        `json:"optional,omitempty"`
	Report       ReportRule      `json:"report,omitempty"`
	Deliver      []Delivery      `json:"deliver,omitempty"`
	AcceptRisk   string          `json:"accept_risk,omitempty"`
	Ping         string          `json:"ping,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

// SessionID is the id of the one session that the task's runs share: the task's
// own (DESIGN, section 2).
func (t Task) SessionID() string { return t.ID }

var taskID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// ValidID tells whether id can name a task or a project.
func ValidID(id string) bool { return taskID.MatchString(id) }

var connectorID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}$`)

// ValidConnectorID tells whether id can name a connector.
func ValidConnectorID(id string) bool { return connectorID.MatchString(id) }

// Schedule says when a task is due, as written: package scheduler parses it.
type Schedule struct {
	// Specs are cron lines, intervals or instants; the task is due at the union
	// of their instants. Empty: only by hand.
	Specs []string `json:"specs,omitempty"`
	// Zone is an IANA name; config fills in the daemon's where a file has none.
	Zone string `json:"zone"`
	// DayMatch is "", "any" or "all" (DESIGN, section 8).
	DayMatch string `json:"day_match,omitempty"`
}

// SessionMode says what of the session a run sees.
type SessionMode string

// The session modes.
const (
	SessionKeep       SessionMode = "keep"
	SessionFresh      SessionMode = "fresh"
	SessionLastOutput SessionMode = "last-output"
)

// CatchUp says what happens to instants that passed while nobody was there.
type CatchUp string

// The catch-up rules.
const (
	CatchUpSkip CatchUp = "skip"
	CatchUpOnce CatchUp = "once"
	CatchUpAll  CatchUp = "all"
)

// Overlap says what happens to an instant while an earlier run is active.
type Overlap string

// The overlap rules.
const (
	OverlapSkip    Overlap = "skip"
	OverlapQueue   Overlap = "queue"
	OverlapReplace Overlap = "replace"
)

// ReportRule says whether a run must call the report tool.
type ReportRule string

// ReportRequired fails a run without a report; the empty rule asks for none.
const ReportRequired ReportRule = "required"

// Retry bounds further attempts of one run.
type Retry struct {
	// Attempts is the total, the first included; at least 1.
	Attempts int           `json:"attempts"`
	Backoff  time.Duration `json:"backoff"`
}

// HoldTainted is the value of when_tainted that lets a person decide.
const HoldTainted = "hold"

// Delivery is one destination of a finished run's result.
type Delivery struct {
	To   string `json:"to"` // file | command | notify
	When string `json:"when,omitempty"`
	// WhenTainted is HoldTainted or empty: what becomes of the result of a run that
	// has read untrusted text.
	WhenTainted string `json:"when_tainted,omitempty"`
	// Path is a text/template for To == "file"; Command an argv; URL a shoutrrr
	// URL that may hold ${credential:...}.
	Path    string        `json:"path,omitempty"`
	Command []string      `json:"command,omitempty"`
	URL     string        `json:"url,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
}
