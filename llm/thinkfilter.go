package llm

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// ThinkFilter passes on streamed text without the thinking in it. A line is held back
// from where a tag or code may begin until it is whole. A closing tag that nothing
// opened comes too late for what was passed on before.
type ThinkFilter struct {
	emit   func(string)
	line   string // what was passed on of the line that grows, its end
	fence  string // of the code block that the stream is in
	held   strings.Builder
	opened bool // held begins with an opening tag that nothing closed yet
	json   bool // tags are part of a text that is JSON
	any    bool // something was passed on
	// tries is how often the end of a thought was looked for, tried how long it was at
	// the last time.
	tries, tried int
}

// maxTries is how often the end of a thought is looked for wherever a tag ends; beyond
// it, only when the thought has doubled, so that the time stays in proportion.
const maxTries = 100

// NewThinkFilter returns a filter in front of emit; nil if emit is nil.
func NewThinkFilter(emit func(string)) *ThinkFilter {
	if emit == nil {
		return nil
	}
	return &ThinkFilter{emit: emit}
}

// suspect is where a tag or code may begin.
var suspect = regexp.MustCompile("<(?:$|[A-Za-z/|])|\\[(?:$|[Tt/])|◁|`|^ *~")

// Add takes the next piece of a text.
func (f *ThinkFilter) Add(delta string) {
	if f == nil || delta == "" {
		return
	}
	f.held.WriteString(delta)
	if f.opened {
		if !strings.ContainsAny(delta, ">]▷") || f.tries >= maxTries && f.held.Len() < 2*f.tried {
			return
		}
		f.tries, f.tried = f.tries+1, f.held.Len()
	}
	f.pass(false)
}

// End passes on what was held back and turned out to be no thinking.
func (f *ThinkFilter) End() {
	if f != nil {
		f.pass(true)
	}
}

// pass passes on what is sure to be text.
func (f *ThinkFilter) pass(end bool) {
	held := f.held.String()
	f.held.Reset()
	f.json = f.json || !f.any && strings.HasPrefix(strings.TrimSpace(held), "{")
	if f.opened {
		held = f.through(held, end)
	}
	whole := strings.LastIndexByte(held, '\n') + 1
	if end || f.json {
		whole = len(held)
	}
	if !f.opened && whole > 0 {
		held = f.through(held[:whole], end) + held[whole:]
	}
	if f.opened {
		f.held.WriteString(held)
		return
	}
	if f.fence == "" {
		sure := wholeRunes(held)
		if at := suspect.FindStringIndex(held); at != nil {
			sure = at[0]
		}
		f.keep(held[:sure])
		held = held[sure:]
	}
	f.held.WriteString(held)
}

// wholeRunes is the length of a text without a character at its end that is cut.
func wholeRunes(s string) int {
	for i := len(s) - 1; i >= max(0, len(s)-utf8.UTFMax); i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return i
			}
			break
		}
	}
	return len(s)
}

// through passes on whole lines without their thoughts. Of a thought that has no end
// yet it returns all, and says that it is opened; of one that was, what follows it.
func (f *ThinkFilter) through(text string, end bool) (rest string) {
	if f.json {
		f.keep(text)
		return ""
	}
	again := f.opened
	f.opened = false
	s := newScan(f.line+text, f.fence)
	s.pos = len(f.line)
	for {
		before, t := s.next()
		f.keep(before)
		switch {
		case t == nil:
			s.reach(len(s.text) - 1)
			f.fence = s.fence
			return ""
		case !t.closing && t.fits == nil && !end:
			f.opened, f.fence = true, s.fence
			return s.text[t.from:]
		case !t.closing:
			_ = s.thought(t)
			s.join(f.line)
		}
		if again {
			f.tries = 0
			return s.text[s.pos:]
		}
	}
}

// keep passes on text.
func (f *ThinkFilter) keep(text string) {
	if text == "" {
		return
	}
	f.any = f.any || strings.TrimSpace(text) != ""
	f.line += text
	f.line = tail(f.line[strings.LastIndexByte(f.line, '\n')+1:])
	f.emit(text)
}
