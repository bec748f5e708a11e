package task

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Tool is a tool's definition as its connector lists it. Nothing in it is
// trusted: a class comes from policy.
type Tool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`
	// Hash is over the whole definition; see DefinitionHash.
	Hash string `json:"-"`
}

// Annotations are a server's hints. Absent and false are told apart.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// DefinitionHash is the SHA-256, in hex, of the definition as JSON with the
// schemas compacted: name, title, description, schemas, annotations.
func (t Tool) DefinitionHash() string {
	data, err := json.Marshal(t)
	if err != nil {
		// A schema that is no JSON: hash what there is, so that it cannot collide
		// with a good one.
		data = []byte("!" + t.Name + "\x00" + t.Description + "\x00" + string(t.InputSchema) + "\x00" + string(t.OutputSchema))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ArgsHash is the SHA-256, in hex, of the exact argument bytes.
func ArgsHash(arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return hex.EncodeToString(sum[:])
}

// ToolResult is what a tool answered. A failed tool is data, not a Go error.
type ToolResult struct {
	Text    string
	IsError bool
	// Cut says that the connector's size cap shortened the result.
	Cut bool
	// Touched is what a builtin connector's call read and changed; nil for others.
	Touched *Touched
}
