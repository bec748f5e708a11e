// Package llm defines what runnerd asks of a model: the Model interface, its
// errors, a deterministic scripted model and the conformance test that every
// implementation passes. Vendors live in llm/openai, llm/anthropic, llm/ollama
// and llm/command; each is a small client of our own that keeps every vendor
// field it does not know.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"runnerd/task"
)

// Model answers one step. Implementations are safe for concurrent use, do not
// retry by themselves and return *Error for everything that the vendor or the
// wire did.
type Model interface {
	Next(ctx context.Context, req *Request) (*Response, error)
}

// Request is one model call in neutral form.
type Request struct {
	// System is byte-stable over a run, for prompt caches.
	System   string
	Messages []task.Message
	Tools    []Tool
	// MaxOutputTokens caps the answer; 0 leaves it to the vendor.
	MaxOutputTokens int
	// OnText, if set, gets text as it streams in. It must not block.
	OnText func(delta string)
}

// Tool is a tool as offered to a model.
type Tool struct {
	Name        string // alias, at most 64 characters of [a-zA-Z0-9_-]
	Description string
	InputSchema json.RawMessage
}

// Response is one answer. Calls keep the exact argument bytes.
type Response struct {
	Text   string
	Calls  []task.ToolCall
	Finish Finish
	// Reasoning is what the model thought aloud in its text, which is no part of it.
	Reasoning string
	// Usage is what the vendor counted, 0 where it counted nothing that can be
	// believed. Cost is left nil: the loop prices it.
	Usage task.Usage
	// Metered tells that Usage is exact whatever it says: the model has no vendor.
	Metered bool
	Opaque  json.RawMessage
	Vendor  string
}

// Finish is why the model stopped.
type Finish string

// The finishes.
const (
	FinishStop          Finish = "stop"
	FinishToolCalls     Finish = "tool_calls"
	FinishLength        Finish = "length"
	FinishContentFilter Finish = "content_filter"
)

// Kind classes a model error by what can be done about it.
type Kind string

// The kinds. Retryable says which may be tried again unchanged.
const (
	RateLimited      Kind = "rate_limited" // 429
	Overloaded       Kind = "overloaded"   // 503, 529
	ServerError      Kind = "server_error" // other 5xx
	Timeout          Kind = "timeout"
	Unreachable      Kind = "unreachable"
	CutStream        Kind = "cut_stream" // ended before its end marker
	Malformed        Kind = "malformed_answer"
	UnknownEnd       Kind = "unknown_end" // ended with a word that its vendor's list lacks
	Auth             Kind = "auth"        // 401, 403
	Quota            Kind = "quota"       // the account is empty; waiting does not help
	NotFound         Kind = "not_found"   // 404: model or endpoint
	BadRequest       Kind = "bad_request" // other 4xx
	ContextOverflow  Kind = "context_overflow"
	ToolsUnsupported Kind = "tools_unsupported"
	ContentFilter    Kind = "content_filter"
	Script           Kind = "script" // the scripted model's expectation failed
)

// Error is what a vendor or the wire did, in the vendor's own words.
type Error struct {
	Kind       Kind
	Status     int           // HTTP status, 0 if none
	RetryAfter time.Duration // from the vendor, 0 if it named none
	Param      string        // the parameter that the vendor complains of, if it names one
	Message    string        // the vendor's words
	Err        error
}

func (e *Error) Error() string {
	s := string(e.Kind)
	if e.Status != 0 {
		s = fmt.Sprintf("%s (HTTP %d)", s, e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil && e.Message == "" {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Spent is the error of a call that failed although the vendor had begun to
// answer it, or may have: it costs like one that did not fail.
type Spent struct {
	Err error
	// Usage is what the vendor had counted so far.
	Usage task.Usage
	// Bytes is how much text and calls had come.
	Bytes int
}

func (e *Spent) Error() string { return e.Err.Error() }
func (e *Spent) Unwrap() error { return e.Err }

// NobodyListens tells that this machine itself refused the connection: no program
// listens there, and asking again at once does not start one.
func (e *Error) NobodyListens() bool {
	var op *net.OpError
	if e.Kind != Unreachable || !errors.Is(e.Err, syscall.ECONNREFUSED) || !errors.As(e.Err, &op) {
		return false
	}
	at, ok := op.Addr.(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// Retryable tells whether the same request may succeed later.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case RateLimited, Overloaded, ServerError, Timeout, Unreachable, CutStream, Malformed, UnknownEnd:
		return true
	}
	return false
}

// ErrorKind returns the kind of err, or "" if it is no *Error.
func ErrorKind(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
