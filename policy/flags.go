package policy

import (
	"fmt"
	"slices"
	"strings"
)

// FlagAdvice tells the operator of a connector that has every flag only because
// nothing is known of it: what that makes ask, and the line to write. It returns ""
// where there is nothing to tell.
func FlagAdvice(rules ConnectorRules, c Connected) string {
	if !Unflagged(rules) {
		return ""
	}
	return fmt.Sprintf("nothing says whether its tools bring in untrusted text, show private data or send data out, so they count as all three; "+
		"once a tool of such a connector was read, each further read of it asks%s. Write under it what is true: `flags: [untrusted, private, egress]`, or `flags: []` if none is",
		here(asking(rules, c)))
}

// asking are the reads of the connector that need a grant after untrusted text.
func asking(rules ConnectorRules, c Connected) []string {
	var names []string
	for _, t := range uniqueTools(c.Tools) {
		if class, _ := Classify(rules, t); class == ClassRead && HasFlag(rules, t.Name, FlagEgress) && disabled(rules, t.Name) == "" {
			names = append(names, c.ID+"/"+t.Name)
		}
	}
	slices.Sort(names)
	return names
}

func here(names []string) string {
	const most = 8
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		return fmt.Sprintf(" (%s and %d more)", strings.Join(names[:most], ", "), len(names)-most)
	}
	return " (" + strings.Join(names, ", ") + ")"
}
