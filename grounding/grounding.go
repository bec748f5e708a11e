// Package grounding checks a final text against the receipts of its run: each
// sentence in which the agent says that it did something needs a successful
// call of a kind that can have done it (DESIGN, section 6). The loop calls it
// when a model has given its last answer, and appends the notice.
//
// It is pure. What counts as a claim is read from phrase tables, one a language,
// under phrases/. Where it cannot tell a claim from a report about the world, it
// lets the sentence pass: a false alarm marks an honest run as failed.
package grounding

import (
	"slices"
	"strings"
	"unicode"

	"runnerd/task"
)

// Kind is what a claim says was done, or what a tool can do.
type Kind string

// The kinds. Act needs any successful write or exec, Read any successful call.
const (
	Write    Kind = "write"
	Send     Kind = "send"
	Delete   Kind = "delete"
	Run      Kind = "run"
	Update   Kind = "update"
	Schedule Kind = "schedule"
	Act      Kind = "act"
	Read     Kind = "read"
)

// Claim is a sentence that says that something was done.
type Claim struct {
	Sentence string // as it stands in the text, at most 240 characters
	Kind     Kind
	Backed   bool // a successful receipt of a matching kind exists
}

// Result is what a text claims.
type Result struct {
	Claims []Claim
	// Notice is to be appended to the text; empty if every claim is backed.
	Notice string
}

// Unverified tells whether a claim has no receipt, which marks the run
// task.MarkUnverifiedClaims.
func (r Result) Unverified() bool { return r.Notice != "" }

// Check finds the claims of a text and looks for what backs each of them. Only
// receipts with the outcome ok count; a call that failed, was refused or whose
// outcome is unknown backs nothing.
func Check(text string, receipts []task.Receipt) Result {
	t, err := load()
	if err != nil {
		return Result{Notice: notice + " The claims of this answer were not checked: " + err.Error()}
	}
	done := t.evidence(receipts)
	var r Result
	for _, s := range sentences(text, t.languages) {
		for _, kind := range t.claims(s, done.read) {
			r.Claims = append(r.Claims, Claim{Sentence: s.text, Kind: kind, Backed: done.backs(t, kind)})
		}
	}
	r.Notice = r.notice()
	return r
}

// claims returns the kinds that a sentence claims, each once. reading tells that
// the run has read something that a sentence may be a report of.
func (t *tables) claims(s sentence, reading bool) []Kind {
	var kinds []Kind
	for _, l := range t.languages {
		c := &scan{language: l, s: s, reading: reading}
		if l.Grammar == "bracket" {
			c.bracket()
		} else {
			c.adjacent()
		}
		for _, k := range c.found {
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

// evidence is what the receipts of a run show.
type evidence struct {
	any   bool // some call succeeded
	read  bool // one of them only read
	other bool // a write or exec succeeded that could have done anything
	kinds map[Kind]bool
}

func (t *tables) evidence(receipts []task.Receipt) evidence {
	e := evidence{kinds: map[Kind]bool{}}
	for _, r := range receipts {
		if r.Outcome != task.ReceiptOK || r.Connector == "" {
			continue // runnerd's own report tool has no connector and does no work
		}
		e.any = true
		if r.Class == "read" {
			e.read = true
			continue
		}
		kinds := t.kindsOf(r.Tool)
		e.other = e.other || len(kinds) == 0 || slices.Contains(kinds, Run)
		for _, k := range kinds {
			e.kinds[k] = true
		}
	}
	return e
}

func (e evidence) backs(t *tables, kind Kind) bool {
	if kind == Read {
		return e.any
	}
	if e.other {
		return true
	}
	for _, k := range t.backs[kind] {
		if e.kinds[k] {
			return true
		}
	}
	return false
}

// kindsOf tells what a tool does by the words of its name.
func (t *tables) kindsOf(tool string) []Kind {
	var kinds []Kind
	for _, w := range nameWords(tool) {
		for _, k := range t.toolKinds[w] {
			if k != Read && !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

// nameWords splits a name at its marks and at each capital after a small letter;
// a plural loses its s.
func nameWords(name string) []string {
	var b strings.Builder
	last := ' '
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(last) {
			b.WriteByte(' ')
		}
		if !unicode.IsLetter(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
		last = r
	}
	words := strings.FieldsFunc(b.String(), func(r rune) bool { return !unicode.IsLetter(r) })
	for _, w := range words {
		if singular, ok := strings.CutSuffix(w, "s"); ok {
			words = append(words, singular)
		}
	}
	return words
}

// notice begins every notice, so that no reader takes it for the model's words.
const notice = "[runnerd, automatic check]"

// maxListed bounds how many sentences a notice quotes.
const maxListed = 5

func (r Result) notice() string {
	var lines []string
	more := 0
	for _, c := range r.Claims {
		line := "- “" + c.Sentence + "”"
		switch {
		case c.Backed || slices.Contains(lines, line):
		case len(lines) == maxListed:
			more++
		default:
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	if more > 0 {
		lines = append(lines, "- and further sentences")
	}
	return notice + " No successful tool call of this run backs the following, so it may not have happened:\n" + strings.Join(lines, "\n")
}
