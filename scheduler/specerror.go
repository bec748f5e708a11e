package scheduler

import (
	"fmt"
	"strings"
)

// SpecError says what is wrong with a schedule and where. Parse joins one for
// each fault with errors.Join.
type SpecError struct {
	// Spec is the index into task.Schedule.Specs; -1 if the fault lies in the
	// zone or in day_match.
	Spec int
	// Key is the key of the task file that the fault is in: schedule, timezone or
	// day_match.
	Key string
	// Text is the value as written.
	Text string
	// Offset is the byte offset of the fault in Text.
	Offset int
	// Reason says what is wrong and what to do about it.
	Reason string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Key, e.Text, e.Reason)
}

// Position returns Spec and Offset, for a caller that knows the error by a
// method only.
func (e *SpecError) Position() (spec, offset int) { return e.Spec, e.Offset }

// fault is a SpecError before Parse knows which spec it belongs to.
func fault(offset int, format string, args ...any) *SpecError {
	return &SpecError{Key: "schedule", Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// word is a part of a spec with the byte offset at which it stands.
type word struct {
	text   string
	offset int
}

const blanks = " \t\r\n"

// words splits at blanks.
func words(text string) []word {
	var out []word
	for at := 0; at < len(text); {
		if strings.IndexByte(blanks, text[at]) >= 0 {
			at++
			continue
		}
		end := strings.IndexAny(text[at:], blanks)
		if end < 0 {
			end = len(text) - at
		}
		out = append(out, word{text[at : at+end], at})
		at += end
	}
	return out
}

// split cuts a word at every separator, empty parts included.
func (w word) split(separator string) []word {
	var out []word
	at := w.offset
	for _, part := range strings.Split(w.text, separator) {
		out = append(out, word{part, at})
		at += len(part) + len(separator)
	}
	return out
}
