package grounding

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// word is one word of a sentence, in lower case, or one mark of punctuation.
type word struct {
	text string
	// path says that it is a file name, a path, an address or inline code:
	// something outside of the answer.
	path bool
}

// sentence is one sentence, and its words without what is quoted.
type sentence struct {
	text  string
	words []word
}

// has tells whether words stand at position i.
func (s sentence) has(i int, words []string) bool {
	if i+len(words) > len(s.words) {
		return false
	}
	for n, w := range words {
		if s.words[i+n].text != w {
			return false
		}
	}
	return true
}

// is tells whether the word at i is one of marks.
func (s sentence) is(i int, marks ...string) bool {
	if i < 0 || i >= len(s.words) {
		return false
	}
	for _, m := range marks {
		if s.words[i].text == m {
			return true
		}
	}
	return false
}

// Runes that stand for what is masked; positions stay as they are.
const (
	maskCode  = '\uE000'
	maskQuote = '\uE001'
)

// maxText bounds what is checked, in runes, and maxWords what is read as one
// sentence: longer ones are cut, so that the time stays linear.
const (
	maxText  = 1 << 20
	maxWords = 300
)

// sentences splits an answer. Code blocks and quotations are left out, list items
// and table cells count as sentences.
func sentences(text string, languages []*language) []sentence {
	runes := []rune(text)
	if len(runes) > maxText {
		runes = runes[:maxText]
	}
	masked := mask(runes)
	var all []sentence
	for _, b := range blocks(masked) {
		for _, r := range split(masked, b, languages) {
			text, read := shown(runes[r.from:r.to]), words(masked[r.from:r.to])
			for part := range slices.Chunk(read, maxWords) {
				all = append(all, sentence{text: text, words: part})
			}
		}
	}
	return all
}

// span is a range of runes.
type span struct{ from, to int }

var (
	fence  = regexp.MustCompile("^ {0,3}(```+|~~~+)")
	item   = regexp.MustCompile(`^\s*(?:[-*+•]|\d{1,3}[.)])\s+`)
	header = regexp.MustCompile(`^\s*#{1,6}\s`)
)

// mask overwrites code and quotations, so that nothing in them is read.
func mask(runes []rune) []rune {
	out := make([]rune, len(runes))
	copy(out, runes)
	closing := ""
	for _, line := range lines(runes) {
		text := string(runes[line.from:line.to])
		mark := ""
		if m := fence.FindStringSubmatch(text); m != nil {
			mark = m[1]
		}
		switch {
		case closing != "":
			fill(out, line, maskQuote)
			if strings.HasPrefix(mark, closing) && strings.TrimSpace(strings.TrimLeft(text, " `~")) == "" {
				closing = ""
			}
		case mark != "":
			fill(out, line, maskQuote)
			closing = mark
		case strings.HasPrefix(strings.TrimSpace(text), ">"):
			fill(out, line, maskQuote)
		}
	}
	maskInline(out)
	return out
}

func lines(runes []rune) []span {
	var all []span
	from := 0
	for i, r := range runes {
		if r == '\n' {
			all = append(all, span{from, i})
			from = i + 1
		}
	}
	return append(all, span{from, len(runes)})
}

func fill(out []rune, s span, r rune) {
	for i := s.from; i < s.to; i++ {
		out[i] = r
	}
}

// quotes are the marks that open a quotation, with those that close it.
var quotes = map[rune]string{'"': `"`, '“': `”"`, '„': `“”"`, '«': `»`, '»': `«`, '`': "`", '‹': `›`}

// maskInline overwrites quotations and code within a paragraph. An answer that is
// one quotation as a whole is the answer all the same.
func maskInline(out []rune) {
	for i := 0; i < len(out); i++ {
		closers, ok := quotes[out[i]]
		if !ok {
			continue
		}
		end := closeQuote(out, i+1, closers)
		if end < 0 {
			continue
		}
		if whole := strings.TrimSpace(string(out[:i])) == "" && strings.TrimSpace(string(out[end+1:])) == ""; whole {
			out[i], out[end] = ' ', ' '
			continue
		}
		r := maskQuote
		if out[i] == '`' {
			r = maskCode
		}
		fill(out, span{i, end + 1}, r)
		i = end
	}
}

// closeQuote finds the closing mark in the same paragraph; -1 if there is none.
func closeQuote(out []rune, from int, closers string) int {
	for i := from; i < len(out); i++ {
		if strings.ContainsRune(closers, out[i]) {
			return i
		}
		if out[i] == '\n' && i+1 < len(out) && out[i+1] == '\n' {
			return -1
		}
	}
	return -1
}

// blocks are paragraphs, list items, headings and table rows.
func blocks(runes []rune) []span {
	var all []span
	open := -1
	end := func(at int) {
		if open >= 0 {
			all = append(all, span{open, at})
		}
		open = -1
	}
	for _, l := range lines(runes) {
		text := strings.Trim(string(runes[l.from:l.to]), string(maskQuote)+" \t\r")
		starts := item.MatchString(text) || header.MatchString(text) || strings.HasPrefix(strings.TrimSpace(text), "|")
		if strings.TrimSpace(text) == "" || starts {
			end(l.from)
		}
		if strings.TrimSpace(text) != "" && open < 0 {
			open = l.from + len([]rune(item.FindString(string(runes[l.from:l.to]))))
		}
		if header.MatchString(text) {
			end(l.to)
		}
	}
	end(len(runes))
	return all
}

// split cuts a block into sentences.
func split(runes []rune, b span, languages []*language) []span {
	var all []span
	from := b.from
	for i := b.from; i < b.to; i++ {
		if !ends(runes, b, i, languages) {
			continue
		}
		all = append(all, span{from, i + 1})
		from = i + 1
	}
	return append(all, span{from, b.to})
}

// ends tells whether a sentence ends at position i.
func ends(runes []rune, b span, i int, languages []*language) bool {
	switch runes[i] {
	case '|':
		return true
	case '!', '?', '…':
	case '.':
		if abbreviated(runes[b.from:b.to], i-b.from, languages) {
			return false
		}
	default:
		return false
	}
	next := i + 1
	for next < b.to && strings.ContainsRune(`)]"”*_'`, runes[next]) {
		next++
	}
	return next >= b.to || unicode.IsSpace(runes[next]) || runes[next] > 0x2190
}

// abbreviated tells whether the full stop at i belongs to the word before it: an
// abbreviation, or a number as in "3. März".
func abbreviated(runes []rune, i int, languages []*language) bool {
	start := i
	for start > 0 && !unicode.IsSpace(runes[start-1]) && runes[start-1] != '(' {
		start--
	}
	before := strings.ToLower(string(runes[start:i]))
	ordinal := before != "" && len(before) <= 2 && strings.Trim(before, "0123456789") == ""
	next, _, _ := strings.Cut(strings.TrimLeft(strings.ToLower(string(runes[i+1:min(i+12, len(runes))])), " "), " ")
	for _, l := range languages {
		if _, known := l.Abbreviations[before]; known {
			return true
		}
		if _, month := l.Months[strings.TrimRight(next, ".,")]; ordinal && month {
			return true
		}
	}
	return false
}

// words reads a sentence into words; contractions are written out.
func words(runes []rune) []word {
	var all []word
	var b strings.Builder
	flush := func() {
		all = append(all, expand(b.String())...)
		b.Reset()
	}
	for i, r := range runes {
		switch {
		case r == maskCode || r == maskQuote:
			flush()
			if i == 0 || runes[i-1] != r {
				all = append(all, word{text: string(r), path: r == maskCode})
			}
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '~' || r == '\\':
			b.WriteRune(unicode.ToLower(r))
		case strings.ContainsRune("'’-./@:", r) && within(runes, i):
			if r == '’' {
				r = '\''
			}
			b.WriteRune(r)
		case r == '/' && b.Len() == 0:
			b.WriteRune(r)
		default:
			flush()
			if strings.ContainsRune(",;:—–()?", r) {
				all = append(all, word{text: string(r)})
			}
		}
	}
	flush()
	return all
}

// within tells whether the mark at i stands inside a word.
func within(runes []rune, i int) bool {
	letter := func(j int) bool {
		return j >= 0 && j < len(runes) && (unicode.IsLetter(runes[j]) || unicode.IsDigit(runes[j]) || runes[j] == '/' || runes[j] == '_')
	}
	return letter(i+1) && (letter(i-1) || runes[i] == '.' || runes[i] == '/')
}

var contractions = []struct{ suffix, word string }{
	{"'ve", "have"}, {"'ll", "will"}, {"'d", "would"}, {"'m", "am"}, {"'re", "are"},
}

// pathLike is a path, an address or a file name; "and/or" and "e.g" are not.
var pathLike = regexp.MustCompile(`^(?:~|\.{1,2})?/|/.*[/.]|://|\w@\w+\.|^\w:\\|^[\w-]{2,}[\w.-]*\.[a-z][a-z0-9]{1,4}$`)

func expand(text string) []word {
	if text = strings.Trim(text, "_"); text == "" { // emphasis
		return nil
	}
	for _, c := range contractions {
		if rest, ok := strings.CutSuffix(text, c.suffix); ok && rest != "" {
			return []word{{text: rest}, {text: c.word}}
		}
	}
	if text == "hab's" {
		return []word{{text: "hab"}, {text: "es"}}
	}
	if rest, ok := strings.CutSuffix(text, "n't"); ok && rest != "" {
		return []word{{text: rest}, {text: "not"}}
	}
	return []word{{text: text, path: pathLike.MatchString(text)}}
}

// maxShown bounds a sentence as it is shown, in runes.
const maxShown = 240

func shown(runes []rune) string {
	text := []rune(strings.Join(strings.Fields(string(runes)), " "))
	if len(text) > maxShown {
		text = append(text[:maxShown-1], '…')
	}
	return strings.TrimSpace(string(text))
}
