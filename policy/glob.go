package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxPatternBytes = 256

// isGlob tells whether a pattern has a wildcard.
func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

// PatternFault says why a pattern of tool names is not understood, or nil. There is
// one grammar for rules, classes, disabled_tools and flags: letters, digits, a few
// signs and blanks stand for themselves, "*" for any text, "?" for one character.
// Whatever else a name or another pattern language holds is refused, so that no
// pattern loads that MatchGlob reads in another way than its author.
func PatternFault(pattern string) *Fault {
	const expected = "letters, digits and _-./:@#, with * for any text and ? for one character"
	switch {
	case pattern == "":
		return &Fault{What: "the name is empty", Expected: expected}
	case len(pattern) > maxPatternBytes:
		return &Fault{What: "pattern " + quote(pattern) + " is too long", Expected: "at most 256 bytes"}
	case strings.TrimSpace(pattern) != pattern:
		return &Fault{What: "pattern " + quote(pattern) + " begins or ends with a blank", Expected: expected}
	}
	for _, r := range pattern {
		if !plainRune(r) && r != '*' && r != '?' {
			return &Fault{What: "pattern " + quote(pattern) + " is not understood: it has " + quote(string(r)), Expected: expected}
		}
	}
	return nil
}

// plainRune tells whether the character stands for itself in a pattern.
func plainRune(r rune) bool {
	return r != unicode.ReplacementChar && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:@# ", r))
}

// patternOf is the narrowest pattern that matches the name.
func patternOf(name string) string {
	runes := []rune(name)
	for i, r := range runes {
		if edge := i == 0 || i == len(runes)-1; !plainRune(r) || edge && r == ' ' {
			runes[i] = '?'
		}
	}
	return string(runes)
}

// MatchGlob matches a whole name: "*" stands for any text, "?" for one character,
// everything else for itself. It takes time linear in both for every star.
func MatchGlob(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == '?':
			_, size := utf8.DecodeRuneInString(name[n:])
			p, n = p+1, n+size
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
		case star >= 0:
			_, size := utf8.DecodeRuneInString(name[mark:])
			mark += size
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
