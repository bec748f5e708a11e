package redact

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// minPlain is how long a form must be to be looked for across line ends, unless it
// is base64 or hex, which no words look like.
const minPlain = 16

// view is a text as another program would read it, and where its parts came from.
type view struct {
	data  []byte
	parts []part
}

// part is what stands in data from at on: as it is in the text, or what the
// escape from from to to stands for.
type part struct {
	at, from, to int
	same         bool
}

func (v *view) add(p part, data []byte) {
	p.at = len(v.data)
	v.data, v.parts = append(v.data, data...), append(v.parts, p)
}

// place is where the byte at i of data stands in the text.
func (v *view) place(i int) (from, to int) {
	n := sort.Search(len(v.parts), func(k int) bool { return v.parts[k].at > i }) - 1
	p := v.parts[n]
	if p.same {
		return p.from + i - p.at, p.from + i - p.at + 1
	}
	return p.from, p.to
}

// decoded is text with its escapes (%41, \x41, \u0041) resolved; nil if it has none.
// With joined it also lacks line ends and blanks, in escaped form too, as what
// wraps lines puts them in.
func decoded(text []byte, joined bool) *view {
	marks := &escapes
	if joined {
		marks = &joints
	}
	v := &view{}
	for i := 0; i < len(text); {
		run := i
		for run < len(text) && !marks[text[run]] {
			run++
		}
		if run == len(text) && v.data == nil {
			return nil
		}
		if v.data == nil {
			v.data, v.parts = make([]byte, 0, len(text)), make([]part, 0, len(text)/8)
		}
		if run > i {
			v.add(part{from: i, same: true}, text[i:run])
		}
		if i = run; i == len(text) {
			break
		}
		said, n := unescape(text[i:])
		switch {
		case joined && brk(text[i:]):
			n = 2
		case !joined || !blank(said):
			v.add(part{from: i, to: i + n}, said)
		}
		i += n
	}
	return v
}

// escapes are the signs that begin one, joints those and what joined lines lack.
var escapes, joints = signs("%\\"), signs("%\\= \t\r\n")

func signs(s string) (set [256]bool) {
	for _, b := range []byte(s) {
		set[b] = true
	}
	return set
}

func blank(b []byte) bool { return len(b) == 1 && strings.IndexByte(" \t\r\n", b[0]) >= 0 }

// brk tells whether text begins with an escaped or a soft line end.
func brk(text []byte) bool {
	if len(text) < 2 {
		return false
	}
	switch string(text[:2]) {
	case `\n`, `\r`, `\t`, "=\n", "=\r", "\\\n":
		return true
	}
	return false
}

// unescape returns what the beginning of text stands for and its length.
func unescape(text []byte) ([]byte, int) {
	hex := func(skip, digits int) (rune, bool) {
		if len(text) < skip+digits {
			return 0, false
		}
		n, err := strconv.ParseUint(string(text[skip:skip+digits]), 16, 32)
		return rune(n), err == nil
	}
	switch {
	case text[0] == '%':
		if b, ok := hex(1, 2); ok {
			return []byte{byte(b)}, 3
		}
	case text[0] == '\\' && len(text) > 1 && text[1] == 'x':
		if b, ok := hex(2, 2); ok {
			return []byte{byte(b)}, 4
		}
	case text[0] == '\\' && len(text) > 1 && text[1] == 'u':
		if r, ok := hex(2, 4); ok {
			if low, ok := hex(8, 4); ok && utf16.IsSurrogate(r) && string(text[6:8]) == `\u` {
				return utf8.AppendRune(nil, utf16.DecodeRune(r, low)), 12
			}
			return utf8.AppendRune(nil, r), 6
		}
	}
	return text[:1], 1
}

// hit is a place that holds a secret.
type hit struct {
	from, to int
	name     string
}

// hits finds what stands in text only for who decodes it or joins its lines. None
// overlaps another.
func (x *index) hits(text []byte) []hit {
	var all []hit
	for _, joined := range []bool{false, true} {
		v := decoded(text, joined)
		if v == nil {
			continue
		}
		for i := 0; i < len(v.data); i++ {
			if !x.may(v.data, i) {
				continue
			}
			p := x.match(v.data[i:], joined)
			if p == nil {
				continue
			}
			end := i + len(p.text)
			from, _ := v.place(i)
			_, to := v.place(end - 1)
			all = append(all, hit{from, to, p.name})
			i = end - 1
		}
	}
	slices.SortFunc(all, func(a, b hit) int { return a.from - b.from })
	var merged []hit
	for _, h := range all {
		if n := len(merged); n > 0 && h.from < merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, h.to)
			continue
		}
		merged = append(merged, h)
	}
	return merged
}

// clear is text without what hits finds.
func (x *index) clear(text []byte) []byte {
	hits := x.hits(text)
	if len(hits) == 0 {
		return text
	}
	var out []byte
	at := 0
	for _, h := range hits {
		out = append(append(append(append(out, text[at:h.from]...), "[redacted:"...), h.name...), ']')
		at = h.to
	}
	return append(out, text[at:]...)
}
