package task

import (
	"encoding/json"
	"time"
)

// Role is who speaks in a message.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
	RoleSummary   Role = "summary" // stands for older messages; sent as the user's
)

// Message is one entry of a session's transcript, in a form that belongs to no
// vendor. The transcript is the write-ahead log of a run: what is stored is what
// a resumed run goes on from.
type Message struct {
	Seq     int64     `json:"seq"` // of the session, from 1; set by the store
	Session string    `json:"session"`
	Run     string    `json:"run"`
	Step    int       `json:"step"` // of the run, from 1; 0 for the opening message
	Role    Role      `json:"role"`
	Text    string    `json:"text,omitempty"`
	At      time.Time `json:"at"`

	// Of an assistant message.
	Calls []ToolCall `json:"calls,omitempty"`
	Slots []Slot     `json:"slots,omitempty"` // what was offered: the step's alias table
	Usage *Usage     `json:"usage,omitempty"`
	Model string     `json:"model,omitempty"` // name in models.yaml
	// Reasoning is what the model thought aloud in its text: kept, but neither sent
	// back nor delivered.
	Reasoning string `json:"reasoning,omitempty"`
	// Opaque is what only its vendor understands (reasoning blocks, signatures),
	// byte for byte; Vendor says whose it is, and only that vendor gets it back.
	Opaque json.RawMessage `json:"opaque,omitempty"`
	Vendor string          `json:"vendor,omitempty"`

	// Of a tool message.
	CallID  string `json:"call_id,omitempty"`
	IsError bool   `json:"is_error,omitempty"`

	// Notice is a line written by runnerd, never by a model.
	Notice string `json:"notice,omitempty"`
}

// LastWord tells whether the message ends its run's conversation: an assistant's
// that asks for no call.
func (m Message) LastWord() bool { return m.Role == RoleAssistant && len(m.Calls) == 0 }

// ToolCall is one call that a model asked for. Arguments are the exact bytes
// that the model wrote, which need not be JSON.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"` // the alias, or whatever the model made up
	Arguments string `json:"arguments"`
	// Secret names a known secret that stood in Arguments before they were
	// redacted. Such a call is refused, also when it is looked at again later.
	Secret string `json:"secret,omitempty"`
}

// Slot is one line of a step's alias table.
type Slot struct {
	Alias      string `json:"alias"`
	Connector  string `json:"connector"`
	Tool       string `json:"tool"`
	Definition string `json:"definition"` // hash; see Tool.Hash
}
