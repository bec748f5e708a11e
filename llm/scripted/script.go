package scripted

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"runnerd/llm"
	"runnerd/task"
)

// Script is a parsed file of turns.
type Script struct {
	File  string
	Turns []Turn
	// LoopLast plays the last turn again and again once all were played.
	LoopLast bool
}

// Turn is one answer or error, with what must hold before it is given.
type Turn struct {
	Line   int // in the file, from 1
	Expect Expect
	Say    string // ${last_result} stands for the newest tool result
	Calls  []Call
	Error  *llm.Error
	Usage  task.Usage
	Finish llm.Finish // "": as the calls say
	Delay  time.Duration
	// Repeat is how often the turn is played, at least 1; Always is for ever.
	Repeat int
}

// Always is the Repeat of a turn that is played for ever.
const Always = 1 << 30

// Call is one tool call of a turn.
type Call struct {
	ID   string // "": made from the turn's position
	Tool string // connector/tool, or a name as the model would write it
	// Args is a JSON object whose strings may hold ${last_result}; Raw, if set,
	// goes out as it is and need not be JSON.
	Args string
	Raw  *string
}

// Expect is what a request must look like; an unset field says nothing.
type Expect struct {
	Line           int
	LastContains   []string
	LastMatches    *regexp.Regexp
	SystemContains []string
	ResultsContain []string
	// Offered are tools that must be offered; an empty list: none at all.
	Offered    task.List[string]
	NotOffered []string
}

// at returns the turn to play after step answers of which failed errors were
// already played; nil if the script has none.
func (s *Script) at(step, failed int) *Turn {
	pos := 0
	for i := range s.Turns {
		t := &s.Turns[i]
		switch {
		case t.Error != nil && pos == step:
			if failed < t.Repeat {
				return t
			}
			failed -= t.Repeat
		case t.Error == nil && step < pos+t.Repeat:
			return t
		case t.Error == nil:
			pos += t.Repeat
		}
	}
	if s.LoopLast && len(s.Turns) > 0 {
		return &s.Turns[len(s.Turns)-1]
	}
	return nil
}

const lastResultMark = "${last_result}"

func fill(text, result string) string { return strings.ReplaceAll(text, lastResultMark, result) }

func (c Call) arguments(result string) string {
	if c.Raw != nil {
		return *c.Raw
	}
	if !strings.Contains(c.Args, lastResultMark) {
		return c.Args
	}
	// The mark stands inside a JSON string, so its value goes in as the inside of
	// one.
	quoted, err := json.Marshal(result)
	if err != nil {
		return c.Args
	}
	return fill(c.Args, string(quoted[1:len(quoted)-1]))
}

// check compares a request with what the turn expects.
func (s *Script) check(t *Turn, req *llm.Request) error {
	unmet := t.Expect.unmet(req)
	if unmet == "" {
		return nil
	}
	return &llm.Error{Kind: llm.Script, Message: fmt.Sprintf("%s:%d: %s", s.File, t.Expect.Line, unmet)}
}

func (e Expect) unmet(req *llm.Request) string {
	last := req.Messages[len(req.Messages)-1].Text
	for _, want := range e.LastContains {
		if !strings.Contains(last, want) {
			return fmt.Sprintf("the last message does not contain %q; it is %q", want, excerpt(last))
		}
	}
	if e.LastMatches != nil && !e.LastMatches.MatchString(last) {
		return fmt.Sprintf("the last message does not match %q; it is %q", e.LastMatches, excerpt(last))
	}
	for _, want := range e.SystemContains {
		if !strings.Contains(req.System, want) {
			return fmt.Sprintf("the system prompt does not contain %q; it is %q", want, excerpt(req.System))
		}
	}
	results := newResults(req.Messages)
	for _, want := range e.ResultsContain {
		if !strings.Contains(results, want) {
			return fmt.Sprintf("no tool result of the last step contains %q; they are %q", want, excerpt(results))
		}
	}
	return e.unmetOffer(req.Tools)
}

func (e Expect) unmetOffer(tools []llm.Tool) string {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	seen := "offered are: " + strings.Join(names, ", ")
	if len(names) == 0 {
		seen = "no tool is offered"
	}
	if e.Offered.Declared() && e.Offered.Len() == 0 && len(names) > 0 {
		return "no tool should be offered; " + excerpt(seen)
	}
	for _, want := range e.Offered.Items() {
		if !slices.Contains(names, alias(want, tools)) {
			return fmt.Sprintf("%s should be offered; %s", want, excerpt(seen))
		}
	}
	for _, no := range e.NotOffered {
		if slices.Contains(names, alias(no, tools)) {
			return fmt.Sprintf("%s should not be offered; %s", no, excerpt(seen))
		}
	}
	return ""
}

// newResults are the tool results since the last assistant message, a line each.
func newResults(msgs []task.Message) string {
	i := len(msgs)
	for i > 0 && msgs[i-1].Role != task.RoleAssistant {
		i--
	}
	var texts []string
	for _, m := range msgs[i:] {
		if m.Role == task.RoleTool {
			texts = append(texts, m.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// maxExcerpt bounds what an error quotes, in bytes.
const maxExcerpt = 600

func excerpt(s string) string {
	if len(s) <= maxExcerpt {
		return s
	}
	return strings.ToValidUTF8(s[:maxExcerpt], "") + "…"
}
