// Package llmtest holds the conformance test that every llm.Model passes: the
// scripted model as it is, each vendor against a fake server that plays the same
// turns over the vendor's wire. Only tests call it.
package llmtest

import (
	"strings"

	"runnerd/llm"
	"runnerd/task"
)

// Turn is one answer that a subject's model must give.
type Turn struct {
	// Pieces are the text, in the parts in which it streams in.
	Pieces []string
	Calls  []task.ToolCall
	// Finish is FinishStop, or FinishToolCalls if there are calls, unless set.
	Finish llm.Finish
	Usage  task.Usage
	// Think is reasoning that the vendor shows and wants back with the message.
	Think string
	// Hang answers nothing until the request is given up.
	Hang bool
}

// Text is the whole text of the turn.
func (t Turn) Text() string { return strings.Join(t.Pieces, "") }

// Finished is how the turn ends, the default filled in.
func (t Turn) Finished() llm.Finish {
	switch {
	case t.Finish != "":
		return t.Finish
	case len(t.Calls) > 0:
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}

// Feature is something that a kind of model may be unable to do.
type Feature string

// The features that a Subject may lack.
const (
	// Calls are tool calls of any kind.
	Calls Feature = "calls"
	// RawArguments are arguments that need not be a JSON object.
	RawArguments Feature = "raw_arguments"
	// Reasoning is an opaque part that the vendor wants back.
	Reasoning Feature = "reasoning"
	// Usage is a count of tokens.
	Usage Feature = "usage"
	// Streaming is text that comes in pieces.
	Streaming Feature = "streaming"
	// Finish tells a cut answer from a whole one.
	Finish Feature = "finish"
)

// Subject is one implementation under test.
type Subject struct {
	// New returns a model that will give the script's turns, one for each
	// assistant message that the request already holds plus one. Whatever plays
	// the turns must fail the test if the history that it is sent is not well
	// formed or not what it played (see History).
	New func(t TB, script []Turn) llm.Model
	// Lacks are the features that the wire has no room for.
	Lacks []Feature
}

// TB is what a subject needs of *testing.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

func (s Subject) can(f Feature) bool {
	for _, l := range s.Lacks {
		if l == f {
			return false
		}
	}
	return true
}
