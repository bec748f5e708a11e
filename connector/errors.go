package connector

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/text"
)

// What was being done when an [Error] arose; its Op.
const (
	opOpen = "open"
	opList = "list tools"
	opCall = "call"
)

// Error says that no answer came from a connector. A tool that answered with a
// failure is no Error: that is a result with IsError set.
type Error struct {
	Connector string
	Op        string // "open", "list tools", "call TOOL"
	// Cause is what happened, for errors.Is and errors.As. It may hold secrets:
	// print the Error, whose text is redacted, not the cause.
	Cause error
	// Advice says what a person can do about it; often empty.
	Advice string

	words         string
	sent, timeout bool
}

// Error is the redacted text: connector, operation, cause and advice.
func (e *Error) Error() string { return e.words }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Sent tells whether the request may have reached the server. False is certain:
// the call did not happen.
func (e *Error) Sent() bool { return e.sent }

// Timeout tells whether a deadline ended it.
func (e *Error) Timeout() bool { return e.timeout }

// advised is a cause that knows what a person can do about it.
type advised struct {
	error
	advice string
}

func (a *advised) Unwrap() error { return a.error }

func advise(advice, format string, args ...any) error {
	return &advised{fmt.Errorf(format, args...), advice}
}

// errGone is the cause of what failed because the session was closed by us.
var errGone = errors.New("the session was closed")

// errStopped is the cause of every use after Close.
var errStopped = errors.New("the connectors are shut down")

// fail builds the Error of an operation on c.
func (c *conn) fail(op string, cause error, sent bool) *Error {
	var known *Error
	if errors.As(cause, &known) {
		return known
	}
	e := &Error{Connector: c.id, Op: op, Cause: cause, sent: sent}
	e.timeout = errors.Is(cause, context.DeadlineExceeded)
	var a *advised
	if errors.As(cause, &a) {
		e.Advice = a.advice
	}
	words := fmt.Sprintf("connector %s: %s: %s", c.id, op, plainCause(cause))
	if e.Advice != "" {
		words += "; " + e.Advice
	}
	e.words = oneLine(c.pool.redact(words), maxErrorText)
	return e
}

// maxErrorText bounds the text of an error in bytes: servers choose part of it.
const maxErrorText = 4096

// plainCause words the causes that the SDK words for programmers.
func plainCause(err error) string {
	if errors.Is(err, mcp.ErrSessionMissing) {
		return "the server no longer knows the session (HTTP 404)"
	}
	return err.Error()
}

// oneLine makes a text fit for a log line or a message: at most limit bytes of one
// line.
func oneLine(s string, limit int) string { return text.Cut(text.Line(s), limit) }
