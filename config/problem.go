package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"runnerd/task"
)

// Problem is one complaint about one place in one file.
type Problem struct {
	// File is relative to the config directory.
	File string `json:"file"`
	// Line and Col count from 1; both are 0 if the problem has no place inside
	// the file. Col counts characters.
	Line int `json:"line,omitempty"`
	Col  int `json:"col,omitempty"`
	// What is wrong, Expected what belongs there, Hint what to do or the nearest
	// valid name. The last two may be empty.
	What     string `json:"what"`
	Expected string `json:"expected,omitempty"`
	Hint     string `json:"hint,omitempty"`
}

// Error is "file:line:col: what; expected …; hint".
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, max(p.Col, 1))
	}
	b.WriteString(": ")
	b.WriteString(p.What)
	if p.Expected != "" {
		b.WriteString("; expected ")
		b.WriteString(p.Expected)
	}
	if p.Hint != "" {
		b.WriteString("; ")
		b.WriteString(p.Hint)
	}
	return b.String()
}

// sortProblems orders by place and drops repeats.
func sortProblems(list []Problem) []Problem {
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col), cmp.Compare(a.What, b.What), cmp.Compare(a.Hint, b.Hint))
	})
	return slices.Compact(list)
}

// didYouMean is the hint that names the candidate nearest to got, or "".
func didYouMean(got string, candidates []string) string {
	if near := task.Nearest(got, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// oneOf words a choice: "a, b or c".
func oneOf(names []string) string {
	switch len(names) {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// quoted shows a value from a file: quoted, escaped and cut at 60 characters.
func quoted(s string) string {
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "")
	}
	if r := []rune(s); len(r) > 60 {
		s = string(r[:57]) + "..."
	}
	return fmt.Sprintf("%q", s)
}
