package policy

import (
	"strings"
	"unicode/utf8"
)

// isGlob tells whether a pattern has a wildcard.
func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

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
