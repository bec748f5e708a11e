package redact

import (
	"slices"
	"strings"
)

// pattern is one form of one secret.
type pattern struct {
	text  string
	name  string
	joins bool // it is looked for across line ends too
}

// window is how many bytes of a pattern choose its bucket. No pattern is shorter
// than MinLength.
const window = MinLength

// index finds patterns in a text. A bitmap over pairs of two-byte words rules
// out nearly every position at the cost of one load; what is left is looked up
// by its first eight bytes.
type index struct {
	pairs   [1 << 13]byte // bit set: some pattern begins with this pair of bytes
	buckets map[string][]*pattern
	sorted  []*pattern // by text
	longest int
}

// newIndex returns nil for no secrets.
func newIndex(secrets []Secret) *index {
	if len(secrets) == 0 {
		return nil
	}
	x := &index{buckets: map[string][]*pattern{}}
	known := map[string]bool{}
	for _, s := range secrets {
		coded := codedForms(s.Value)
		for i, form := range append(coded, forms(s.Value)...) {
			if len(form) < window || known[form] {
				continue
			}
			known[form] = true
			x.add(&pattern{text: form, name: s.Name, joins: i < len(coded) || len(form) >= minPlain})
		}
	}
	for _, b := range x.buckets { // the longest first
		slices.SortStableFunc(b, func(a, b *pattern) int { return len(b.text) - len(a.text) })
	}
	slices.SortFunc(x.sorted, func(a, b *pattern) int { return strings.Compare(a.text, b.text) })
	return x
}

func (x *index) add(p *pattern) {
	pair := uint16(p.text[0])<<8 | uint16(p.text[1])
	x.pairs[pair>>3] |= 1 << (pair & 7)
	x.buckets[p.text[:window]] = append(x.buckets[p.text[:window]], p)
	x.sorted = append(x.sorted, p)
	x.longest = max(x.longest, len(p.text))
}

// may tells, by two bytes, whether a pattern can begin at data[i]; the last byte
// of data may always begin one.
func (x *index) may(data []byte, i int) bool {
	if i+1 >= len(data) {
		return true
	}
	pair := uint16(data[i])<<8 | uint16(data[i+1])
	return x.pairs[pair>>3]&(1<<(pair&7)) != 0
}

// match returns the longest pattern that stands at the beginning of data, of those
// that are looked for across line ends if it is joined.
func (x *index) match(data []byte, joined bool) *pattern {
	if len(data) < window {
		return nil
	}
	for _, p := range x.buckets[string(data[:window])] {
		if joined && !p.joins {
			continue
		}
		if len(p.text) <= len(data) && string(data[:len(p.text)]) == p.text {
			return p
		}
	}
	return nil
}

// begins tells whether data is the beginning of a longer pattern.
func (x *index) begins(data []byte) bool {
	i, found := slices.BinarySearchFunc(x.sorted, data, func(p *pattern, b []byte) int {
		return strings.Compare(p.text, string(b))
	})
	if found {
		i++
	}
	return i < len(x.sorted) && strings.HasPrefix(x.sorted[i].text, string(data))
}

// first returns the pattern that begins earliest in data; nil if there is none.
func (x *index) first(data []byte) *pattern {
	for i := range data {
		if !x.may(data, i) {
			continue
		}
		if p := x.match(data[i:], false); p != nil {
			return p
		}
	}
	return nil
}
