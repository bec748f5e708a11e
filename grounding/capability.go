package grounding

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Offered is one tool that a run's model is shown.
type Offered struct {
	Connector string // empty for runnerd's own report tool
	Tool      string
	Class     string // read, write or exec
}

// maxNames bounds how many tools of a connector are named: the model has the
// definitions anyway.
const maxNames = 12

// Capability says in words what the agent can do in this turn. It stands next to
// the tools in the system prompt and does not depend on the order of what is
// passed in. down are the connectors that are selected but not up; of their
// reasons nothing is shown, since a server may have worded them.
func Capability(offered []Offered, down map[string]string) string {
	var b strings.Builder
	if len(offered) == 0 {
		b.WriteString("You have no tools in this run. You can only answer with text: you cannot read, change, send, look up or run anything. " +
			"Do not say that you did, or that you will.")
	} else {
		b.WriteString("In this run you can call these tools and nothing else:\n")
		b.WriteString(listed(offered))
	}
	if len(down) > 0 {
		fmt.Fprintf(&b, "\nNot available in this run, because they are down: %s.", strings.Join(slices.Sorted(maps.Keys(down)), ", "))
	}
	if len(offered) > 0 {
		b.WriteString("\nA call may still be refused. Say that something was done only if the call that did it succeeded in this run.")
	}
	return b.String()
}

// listed is a line for each connector, in the order of their names.
func listed(offered []Offered) string {
	reads, changes := map[string][]string{}, map[string][]string{}
	names := map[string]bool{}
	report := false
	for _, o := range offered {
		switch {
		case o.Connector == "":
			report = true
			continue
		case o.Class == "read":
			reads[o.Connector] = append(reads[o.Connector], o.Tool)
		default:
			changes[o.Connector] = append(changes[o.Connector], o.Tool)
		}
		names[o.Connector] = true
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var parts []string
		if r := reads[name]; r != nil {
			parts = append(parts, "reads with "+some(r))
		}
		if c := changes[name]; c != nil {
			parts = append(parts, "changes things with "+some(c))
		}
		lines = append(lines, "- "+name+": "+strings.Join(parts, "; "))
	}
	if report {
		lines = append(lines, "- report: states the outcome of this run")
	}
	return strings.Join(lines, "\n")
}

func some(tools []string) string {
	slices.Sort(tools)
	if more := len(tools) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(tools[:maxNames], ", "), more)
	}
	return strings.Join(tools, ", ")
}
