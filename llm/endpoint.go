package llm

import (
	"time"

	"go.uber.org/zap"
)

// Endpoint is what the vendors that speak HTTP have in common: where the model
// is, who asks and how much one call may take.
type Endpoint struct {
	// BaseURL is an absolute http or https URL; each vendor has its default.
	BaseURL string
	// Model is the vendor's name for the model.
	Model string
	// Key returns the API key, afresh for each call; nil or an empty key sends
	// none.
	Key func() (string, error)
	// MaxOutputTokens caps an answer where the request does not; 0 leaves it to
	// the vendor.
	MaxOutputTokens int
	// Timeout bounds a whole call; 0 means DefaultTimeout.
	Timeout time.Duration
	// IdleTimeout bounds the silence between two parts of an answer; 0 leaves it
	// to Timeout, since a reasoning model may be silent for long.
	IdleTimeout time.Duration
	// MaxBytes bounds an answer on the wire; 0 means DefaultMaxBytes.
	MaxBytes int64
	// Proxy is the URL of a proxy; empty means none. The environment is not read.
	Proxy  string
	Logger *zap.Logger
}

// The defaults of an Endpoint.
const (
	DefaultTimeout        = 10 * time.Minute
	DefaultMaxBytes int64 = 16 << 20
)
