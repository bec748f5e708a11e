package llm

import (
	"encoding/json"
	"regexp"
	"strings"
)

// The tags between which models think aloud in their text.
var (
	openThink  = regexp.MustCompile(`(?i)<think(?:ing)?>|<thought>|<reasoning>|<seed:think>|\[THINK\]|◁think▷|<\|channel\|>analysis<\|message\|>`)
	closeThink = regexp.MustCompile(`(?i)</think(?:ing)?>|</thought>|</reasoning>|</seed:think>|\[/THINK\]|◁/think▷|` +
		`<\|end\|>(?:<\|start\|>assistant)?(?:<\|channel\|>final<\|message\|>)?`)
	leadThink = regexp.MustCompile(`^\s*(?:` + openThink.String() + `)`)
)

// SplitThinking takes a model's thinking out of its text. Thinking is
//   - what stands between an opening tag at the very beginning and its closing tag,
//     or the end of the text if it is never closed;
//   - a tagged block that begins a later line;
//   - everything before a closing tag that nothing opened, since some servers put
//     the opening tag into the prompt.
//
// Tags in code, and in a text that is JSON, are part of the answer.
func SplitThinking(text string) (answer, thinking string) {
	if !closeThink.MatchString(text) && !leadThink.MatchString(text) || json.Valid([]byte(text)) {
		return text, ""
	}
	var s split
	for {
		lead := leadThink.FindStringIndex(text)
		if lead == nil {
			break
		}
		body := text[lead[1]:]
		end := closeThink.FindStringIndex(body)
		if end == nil {
			s.think(body)
			return "", s.thinking()
		}
		s.think(body[:end[0]])
		text = body[end[1]:]
	}
	rest := s.later(text)
	if len(s.thoughts) == 0 {
		return text, ""
	}
	return strings.TrimSpace(rest), s.thinking()
}

// split gathers what was thought.
type split struct{ thoughts []string }

func (s *split) think(text string) {
	if text = strings.TrimSpace(text); text != "" {
		s.thoughts = append(s.thoughts, text)
	} else if s.thoughts == nil {
		s.thoughts = []string{""} // tags without a thought are no text either
	}
}

func (s *split) thinking() string { return strings.TrimSpace(strings.Join(s.thoughts, "\n\n")) }

// later takes thinking out of a text that does not begin with it.
func (s *split) later(text string) string {
	var b strings.Builder
	masked := maskCode(text)
	for {
		end := closeThink.FindStringIndex(masked)
		if end == nil {
			b.WriteString(text)
			return b.String()
		}
		begin := lastOpen(masked[:end[0]])
		switch {
		case begin != nil && startsLine(masked, begin[0]):
			b.WriteString(text[:begin[0]])
			s.think(text[begin[1]:end[0]])
		case begin != nil: // quoted in a sentence
			b.WriteString(text[:end[1]])
		default:
			s.think(b.String() + text[:end[0]])
			b.Reset()
		}
		text, masked = text[end[1]:], masked[end[1]:]
	}
}

func lastOpen(text string) []int {
	if all := openThink.FindAllStringIndex(text, -1); all != nil {
		return all[len(all)-1]
	}
	return nil
}

func startsLine(text string, at int) bool {
	return strings.TrimSpace(text[strings.LastIndexByte(text[:at], '\n')+1:at]) == ""
}

// maskCode blanks out code: fenced blocks, and spans between backticks on one
// line. Every other byte stays where it is.
func maskCode(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		m := anyFence.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case fence != "":
			if m != nil && strings.HasPrefix(m[1], fence) && strings.TrimSpace(m[2]) == "" {
				fence = ""
			}
			b.WriteString(blanked(line))
		case m != nil:
			fence = m[1]
			b.WriteString(blanked(line))
		default:
			b.WriteString(codeSpan.ReplaceAllStringFunc(line, blanked))
		}
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

// ThinkFilter passes on streamed text without the thinking at its beginning. A
// closing tag that nothing opened comes too late for what was passed on before.
type ThinkFilter struct {
	emit    func(string)
	held    strings.Builder
	through bool
}

// NewThinkFilter returns a filter in front of emit; nil if emit is nil.
func NewThinkFilter(emit func(string)) *ThinkFilter {
	if emit == nil {
		return nil
	}
	return &ThinkFilter{emit: emit}
}

// Add takes the next piece of a text.
func (f *ThinkFilter) Add(delta string) {
	if f == nil || delta == "" {
		return
	}
	if f.through {
		f.emit(delta)
		return
	}
	f.held.WriteString(delta)
	text := f.held.String()
	for {
		lead := leadThink.FindStringIndex(text)
		if lead == nil {
			break
		}
		end := closeThink.FindStringIndex(text[lead[1]:])
		if end == nil {
			return
		}
		text = strings.TrimLeft(text[lead[1]+end[1]:], " \t\r\n")
	}
	if mayLead(text) {
		f.held.Reset()
		f.held.WriteString(text)
		return
	}
	f.through = true
	f.emit(text)
}

// End passes on what was held back and turned out to be no thinking.
func (f *ThinkFilter) End() {
	if f == nil || f.through {
		return
	}
	f.through = true
	if text := f.held.String(); text != "" && !leadThink.MatchString(text) {
		f.emit(text)
	}
}

// mayLead tells whether a text that begins so can still begin with a tag.
func mayLead(text string) bool {
	t := strings.ToLower(strings.TrimLeft(text, " \t\r\n"))
	for _, tag := range []string{"<thinking>", "<think>", "<thought>", "<seed:think>", "[think]", "◁think▷", "<|channel|>analysis<|message|>"} {
		if len(t) < len(tag) && strings.HasPrefix(tag, t) {
			return true
		}
	}
	return false
}
