package llm

import (
	"encoding/json"
	"regexp"
	"strings"
)

// The tags between which models think aloud in their text.
var (
	openThink  = regexp.MustCompile(`(?i)<think(?:ing)?>|<thoughts?>|<reasoning>|<reflection>|<seed:think>|\[THINK\]|◁think▷|<\|channel\|>analysis<\|message\|>`)
	closeThink = regexp.MustCompile(`(?i)</think(?:ing)?>|</thoughts?>|</reasoning>|</reflection>|</seed:think>|\[/THINK\]|◁/think▷|` +
		`<\|end\|>(?:<\|start\|>assistant)?(?:<\|channel\|>final<\|message\|>)?`)
	anyThink = regexp.MustCompile(`(?:` + openThink.String() + `)|(` + closeThink.String() + `)`)
)

// SplitThinking takes a model's thinking out of its text. Thinking is what stands
// between an opening tag, wherever in a line, and the closing tag that fits it, or the
// next one where none fits, or the end of the text where there is none; and everything
// before a closing tag that nothing opened, since some servers put the opening tag into
// the prompt.
//
// Tags that the text speaks of are part of the answer: those in code, in quotation
// marks, beside the word tag, and all in a text that is JSON.
func SplitThinking(text string) (answer, thinking string) {
	if !anyThink.MatchString(text) || json.Valid([]byte(text)) {
		return text, ""
	}
	var thoughts []string
	var kept strings.Builder
	s := newScan(text, "")
	for {
		before, tag := s.next()
		kept.WriteString(before)
		if tag == nil {
			break
		}
		if tag.closing {
			thoughts = append(thoughts, kept.String())
			kept.Reset()
			continue
		}
		thoughts = append(thoughts, s.thought(tag))
		s.join(before)
	}
	if thoughts == nil {
		return text, ""
	}
	return strings.TrimSpace(kept.String()), joinThoughts(thoughts)
}

func joinThoughts(list []string) string {
	var all []string
	for _, t := range list {
		if t = strings.TrimSpace(t); t != "" {
			all = append(all, t)
		}
	}
	return strings.Join(all, "\n\n")
}

// tag is one tag in a text. end is the index of the tag that closes it, -1 if none
// fits.
type tag struct {
	from, to int
	closing  bool
	fits     *tag
	next     *tag // the next closing tag, whether it fits or not
	spoken   bool // the text speaks of it, as of the one before it
}

// scan goes through a text once, from tag to tag.
type scan struct {
	text  string
	pos   int
	fence string // of the code block that pos lies in
	tags  []*tag // from pos on
	line  int    // where the masked line begins
	mask  string // it, with code blanked out
}

func newScan(text, fence string) *scan {
	s := &scan{text: text, fence: fence}
	var open []*tag
	for _, m := range anyThink.FindAllStringSubmatchIndex(text, -1) {
		t := &tag{from: m[0], to: m[1], closing: m[2] >= 0}
		s.tags = append(s.tags, t)
		switch n := len(open); {
		case !t.closing:
			open = append(open, t)
		case n > 0:
			open[n-1].fits = t
			open = open[:n-1]
		}
	}
	var next *tag
	for i := len(s.tags) - 1; i >= 0; i-- {
		if s.tags[i].next = next; s.tags[i].closing {
			next = s.tags[i]
		}
	}
	return s
}

// next returns the text up to the next tag that is used and not spoken of, and the
// tag; nil at the end of the text.
func (s *scan) next() (before string, t *tag) {
	begin := s.pos
	for ; len(s.tags) > 0; s.tags = s.tags[1:] {
		t := s.tags[0]
		if t.from < s.pos || !s.used(t) {
			continue
		}
		s.tags = s.tags[1:]
		s.pos = t.to
		return s.text[begin:t.from], t
	}
	s.pos = len(s.text)
	return s.text[begin:], nil
}

// thought is what the tag opens; the scan goes on behind it.
func (s *scan) thought(t *tag) string {
	end := t.fits
	if end == nil {
		end = t.next
	}
	if end == nil {
		s.pos = len(s.text)
		return s.text[t.to:]
	}
	s.pos = end.to
	if strings.Contains(s.text[t.to:end.from], "\n") {
		s.line, s.mask = s.pos, "" // the line goes on outside the thought
	}
	return s.text[t.to:end.from]
}

// join leaves out the second of the blanks around what was taken out.
func (s *scan) join(before string) {
	if before == "" || strings.HasSuffix(before, " ") || strings.HasSuffix(before, "\n") {
		for s.pos < len(s.text) && s.text[s.pos] == ' ' {
			s.pos++
		}
	}
}

// reach goes on line by line until the masked one holds the byte at.
func (s *scan) reach(at int) {
	for s.line+len(s.mask) <= at {
		s.line += len(s.mask)
		end := len(s.text)
		if i := strings.IndexByte(s.text[s.line:], '\n'); i >= 0 {
			end = s.line + i + 1
		}
		s.mask, s.fence = maskLine(s.text[s.line:end], s.fence)
	}
}

// used tells whether a tag is one, and not part of what is said.
func (s *scan) used(t *tag) bool {
	s.reach(t.from)
	if t.spoken || s.mask[t.from-s.line] == ' ' { // the latter is code
		return false
	}
	left, right := s.text[:t.from], s.text[t.to:]
	switch {
	case quotes(left, right), tagWordBefore.MatchString(tail(left)), tagWordAfter.MatchString(head(right)):
		return false
	case !t.closing && t.next != nil && strings.TrimSpace(s.text[s.line:t.from]) != "":
		t.next.spoken = listed.MatchString(s.text[t.to:min(t.next.from, t.to+contextBytes)])
		return !t.next.spoken
	}
	return true
}

// contextBytes is how far around a tag it is looked whether the text speaks of it.
const contextBytes = 24

func tail(s string) string { return s[max(0, len(s)-contextBytes):] }
func head(s string) string { return s[:min(len(s), contextBytes)] }

// The words beside which a tag is spoken of, and what lies between two that are.
var (
	tagWordBefore = regexp.MustCompile(`(?i)\b(?:tags?|tokens?|elements?|markers?|opening|closing) $`)
	tagWordAfter  = regexp.MustCompile(`(?i)^(?: |-)(?:tags?|tokens?|elements?|markers?|blocks?)\b`)
	listed        = regexp.MustCompile(`(?i)^\s+(?:and|or|to|und|oder)\s+$|^\s*(?:/|,|\.{3}|…)\s*$`)
	closers       = map[string]string{`"`: `"`, "'": "'", "“": "”", "„": "“", "‘": "’", "«": "»", "‹": "›", "*": "*", "_": "_"}
)

// quotes tells whether what stands between two texts is in quotation marks.
func quotes(left, right string) bool {
	for begin, end := range closers {
		if strings.HasSuffix(left, begin) && strings.HasPrefix(right, end) {
			return true
		}
	}
	return false
}

// maskLine blanks out the code of a line: all of it within a fenced block, else the
// spans between backticks. It returns the fence of the block that the line ends in.
func maskLine(line, fence string) (masked, after string) {
	m := anyFence.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	switch {
	case fence != "" && m != nil && strings.HasPrefix(m[1], fence) && strings.TrimSpace(m[2]) == "":
		return blanked(line), ""
	case fence != "":
		return blanked(line), fence
	case m != nil:
		return blanked(line), m[1]
	}
	return codeSpan.ReplaceAllStringFunc(line, blanked), ""
}

// maskCode blanks out code: fenced blocks, and spans between backticks on one
// line. Every other byte stays where it is.
func maskCode(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		var masked string
		masked, fence = maskLine(line, fence)
		b.WriteString(masked)
	}
	return b.String()
}

var codeSpan = regexp.MustCompile("``[^\n]+?``|`[^`\n]+`")

// blanked is as many blanks as s has bytes, its line breaks kept.
func blanked(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c != '\n' && c != '\r' {
			b[i] = ' '
		}
	}
	return string(b)
}

// startsLine tells whether nothing but blanks stands before at in its line.
func startsLine(text string, at int) bool {
	return strings.TrimSpace(text[strings.LastIndexByte(text[:at], '\n')+1:at]) == ""
}
