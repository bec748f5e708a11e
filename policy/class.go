package policy

import (
	"slices"
	"sort"

	"runnerd/task"
)

func (c Class) rank() int {
	switch c {
	case ClassRead:
		return 1
	case ClassWrite:
		return 2
	}
	return 3 // exec, and whatever is no class
}

// known is the class itself, or exec for anything that is none.
func (c Class) known() Class {
	if c.rank() == 3 {
		return ClassExec
	}
	return c
}

// Classify says what a tool can do and, in words, where that is known from. The
// operator's own entry is final (an exact name beats a glob, among globs the
// highest class wins); then the shipped catalogue; then, only where the operator
// trusts the server's annotations, its read-only hint; else exec.
func Classify(rules ConnectorRules, tool task.Tool) (Class, string) {
	if class, from, ok := statedClass(rules, tool.Name); ok {
		return class, from
	}
	if !rules.TrustAnnotations {
		return ClassExec, "nothing says what it does"
	}
	if hint(tool.Annotations.ReadOnly) {
		return ClassRead, "the server's readOnlyHint, which trust_annotations believes"
	}
	return ClassWrite, "no readOnlyHint of the server, which trust_annotations believes"
}

// statedClass is the class that the operator or the catalogue states for a tool.
func statedClass(rules ConnectorRules, tool string) (class Class, from string, ok bool) {
	if class, pattern, ok := operatorClass(rules.Classes, tool); ok {
		return class, "classes entry " + pattern, true
	}
	if entry, key := catalogued(rules.Origin); entry != nil {
		if class, ok := entry.classes[tool]; ok {
			return class, "catalogue entry " + key, true
		}
	}
	return "", "", false
}

func hint(b *bool) bool { return b != nil && *b }

func operatorClass(classes map[string]Class, tool string) (class Class, pattern string, ok bool) {
	if class, ok := classes[tool]; ok {
		return class.known(), tool, true
	}
	patterns := make([]string, 0, len(classes))
	for p := range classes {
		if isGlob(p) && MatchGlob(p, tool) {
			patterns = append(patterns, p)
		}
	}
	sort.Strings(patterns)
	for _, p := range patterns {
		if !ok || classes[p].rank() > class.rank() {
			class, pattern, ok = classes[p].known(), p, true
		}
	}
	return class, pattern, ok
}

// HasFlag tells whether a tool carries a flag (untrusted, private or egress), its
// own or its connector's. Flags that the operator declared, an empty list
// included, replace the default ones.
func HasFlag(rules ConnectorRules, tool, kind string) bool {
	return slices.ContainsFunc(flagsOf(rules), func(f Flag) bool {
		return f.Kind == kind && (f.Tool == "" || MatchGlob(f.Tool, tool))
	})
}

func flagsOf(rules ConnectorRules) []Flag {
	if rules.Flags != nil {
		return rules.Flags
	}
	return DefaultFlags(rules.Origin)
}

// DefaultFlags are those of a connector for which the operator declared none: the
// catalogue's, and every one where no catalogue knows it. What nobody vouches for
// may bring in a stranger's text, show what is private and send it away.
func DefaultFlags(origin Origin) []Flag {
	if entry, _ := catalogued(origin); entry != nil {
		return entry.flags
	}
	return []Flag{{Kind: FlagUntrusted}, {Kind: FlagPrivate}, {Kind: FlagEgress}}
}

// Unflagged tells whether the connector has its flags only because nothing is
// known of it.
func Unflagged(rules ConnectorRules) bool {
	entry, _ := catalogued(rules.Origin)
	return rules.Flags == nil && entry == nil
}

// disabled answers the disabled_tools entry that switches the tool off, or "".
func disabled(rules ConnectorRules, tool string) string {
	for _, pattern := range rules.Disabled {
		if pattern == tool || MatchGlob(pattern, tool) {
			return pattern
		}
	}
	return ""
}
