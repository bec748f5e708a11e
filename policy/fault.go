package policy

import "strings"

// Fault is one thing that is wrong with a rule. Path leads to it from the rule, as
// the rule stands in a file: where, path, under.
type Fault struct {
	Path []string
	// What is wrong, Expected what belongs there, Hint what to do; the last two may
	// be empty.
	What, Expected, Hint string
}

// Error is "where.path.under: what; expected …; hint".
func (f *Fault) Error() string {
	var b strings.Builder
	if len(f.Path) > 0 {
		b.WriteString(strings.Join(f.Path, ".") + ": ")
	}
	b.WriteString(f.What)
	if f.Expected != "" {
		b.WriteString("; expected " + f.Expected)
	}
	if f.Hint != "" {
		b.WriteString("; " + f.Hint)
	}
	return b.String()
}

// at is the fault as seen from further up.
func (f Fault) at(path ...string) Fault {
	f.Path = append(path, f.Path...)
	return f
}
