package task

import "time"

// Connector is one MCP server as the operator configured it. Strings may hold
// ${credential:...} and ${env:...}, which are resolved at use, never stored.
// What its tools may do is policy and lives in the policy database.
type Connector struct {
	ID string `json:"id"`
	// Exactly one of Builtin, Command and URL is set.
	Builtin string            `json:"builtin,omitempty"` // files | fetch | shell | memory
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"cwd,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Root bounds the files builtin and resolves relative paths in grants.
	Root string `json:"root,omitempty"`
	// AllowPrivate lets the URL's name resolve to a private address.
	AllowPrivate   bool          `json:"allow_private,omitempty"`
	ConnectTimeout time.Duration `json:"connect_timeout"`
	CallTimeout    time.Duration `json:"call_timeout"`
	File           string        `json:"file,omitempty"`
}

// ModelSpec is one entry of models.yaml.
type ModelSpec struct {
	Name            string        `json:"name"`
	Provider        string        `json:"provider"` // openai | anthropic | ollama | command | scripted
	BaseURL         string        `json:"base_url,omitempty"`
	Model           string        `json:"model,omitempty"`
	APIKey          string        `json:"api_key,omitempty"` // as written, ${...} unresolved
	Command         []string      `json:"command,omitempty"`
	Script          string        `json:"script,omitempty"` // file of the scripted model, absolute
	ToolMode        string        `json:"tool_mode"`        // auto | native | fenced | none
	ContextTokens   int           `json:"context_tokens"`
	MaxOutputTokens int           `json:"max_output_tokens"`
	Price           *Price        `json:"price,omitempty"`
	Fallback        []string      `json:"fallback,omitempty"`
	Timeout         time.Duration `json:"timeout"`
}

// Price is per million tokens. A ModelSpec without one has an unknown price.
type Price struct {
	Input      float64  `json:"input"`
	Output     float64  `json:"output"`
	CacheRead  *float64 `json:"cache_read,omitempty"`
	CacheWrite *float64 `json:"cache_write,omitempty"`
}

// Cost is the price of a usage. Input counts everything the vendor charged as
// input, cache reads included; those go at their own price where it has one.
func (p Price) Cost(u Usage) Money {
	input := float64(u.Input)
	cost := float64(u.Output) * p.Output
	if p.CacheRead != nil {
		input -= float64(u.CacheRead)
		cost += float64(u.CacheRead) * *p.CacheRead
	}
	if p.CacheWrite != nil {
		input -= float64(u.CacheWrite)
		cost += float64(u.CacheWrite) * *p.CacheWrite
	}
	return MoneyOf((cost + input*p.Input) / 1e6)
}

// Project is a group of tasks. Its connectors are policy.
type Project struct {
	ID           string `json:"id"`
	Instructions string `json:"instructions,omitempty"`
}
