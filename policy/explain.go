package policy

import (
	"fmt"
	"slices"
	"strings"

	"runnerd/task"
)

// Explain answers one row for each tool of each connector, sorted by name: what a
// call of it would get now, before anything untrusted was read. Where the answer
// depends on arguments, the row shows what other arguments get, and its rule names
// the condition. A connector whose tools are not known has one row with the tool
// "*".
func Explain(e Effective, connected []Connected) []Row {
	offered := map[[2]string]bool{}
	for _, o := range BuildOffer(e, connected).Tools {
		offered[[2]string{o.Slot.Connector, o.Slot.Tool}] = true
	}
	all := slices.Clone(connected)
	for id := range e.Connectors {
		if !slices.ContainsFunc(connected, func(c Connected) bool { return c.ID == id }) {
			all = append(all, Connected{ID: id, Down: "not connected"})
		}
	}
	var rows []Row
	for _, c := range byID(all) {
		if !c.Up {
			rows = append(rows, explainDown(e, c))
			continue
		}
		for _, s := range Slots([]Connected{c}) {
			i := slices.IndexFunc(c.Tools, func(t task.Tool) bool { return t.Name == s.Tool })
			row := explainTool(e, s, c.Tools[i])
			row.Offered = offered[[2]string{s.Connector, s.Tool}]
			rows = append(rows, row)
		}
	}
	return rows
}

func explainDown(e Effective, c Connected) Row {
	row := Row{Connector: c.ID, Tool: "*", Class: ClassExec, Decision: task.DecisionDeny, Rule: "down: " + c.Down}
	if !Reachable(e, c.ID) {
		row.Code, row.Rule = CodeNotReachable, whyUnreachable(e, c.ID)
	} else if !Selected(e, c.ID) {
		row.Code, row.Rule = CodeNotOffered, fmt.Sprintf("tools (%s) does not list it", layerWord(e, "tools"))
	}
	return row
}

// explainTool runs the steps that need no arguments.
func explainTool(e Effective, s task.Slot, t task.Tool) Row {
	d := &decider{e: &e, call: Call{Name: s.Alias, Slots: []task.Slot{s}, Tool: &t}}
	row := Row{Connector: s.Connector, Tool: s.Tool}
	refused := d.resolve()
	row.Class, row.ClassFrom = d.class, d.from
	for _, step := range []func(*decider) *refusal{
		(*decider).reach, (*decider).offered, (*decider).enabled, (*decider).pinned,
	} {
		if refused == nil {
			refused = step(d)
		}
	}
	var conditions []string
	if refused == nil {
		d.e, conditions = unconditional(e, s)
		if refused = d.denied(); refused == nil {
			refused = d.permitted()
		}
	}
	row.Decision, row.Rule = task.DecisionAllow, d.rule
	if refused != nil {
		row.Decision, row.Code, row.Rule = refused.kind, refused.code, refused.rule
	}
	row.Rule = strings.Join(append(conditions, row.Rule), "; otherwise ")
	return row
}

// unconditional leaves out the rules with conditions and words those that name the
// tool.
func unconditional(e Effective, s task.Slot) (*Effective, []string) {
	var words []string
	plain := func(word string, rules []Grant) []Grant {
		var kept []Grant
		for _, g := range rules {
			if len(g.Where) == 0 {
				kept = append(kept, g)
			} else if MatchGrant(g, s.Connector, s.Tool) {
				words = append(words, fmt.Sprintf("%s: %s (%s)", word, g, layerWord(e, word)))
			}
		}
		return kept
	}
	e.Deny = plain("deny", e.Deny)
	e.Allow = plain("allow", e.Allow)
	return &e, words
}
