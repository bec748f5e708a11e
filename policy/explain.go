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
			rows = append(rows, explainTool(e, c, task.Slot{Connector: c.ID, Tool: "*"}))
			continue
		}
		for _, s := range Slots([]Connected{c}) {
			row := explainTool(e, c, s)
			row.Offered = offered[[2]string{s.Connector, s.Tool}]
			rows = append(rows, row)
		}
	}
	return rows
}

// explainTool runs the steps that need no arguments.
func explainTool(e Effective, c Connected, s task.Slot) Row {
	d := &decider{e: &e, call: Call{Connected: []Connected{c}}}
	d.mean(s)
	row := Row{Connector: s.Connector, Tool: s.Tool, Class: d.class, ClassFrom: d.from}
	refused := d.standing()
	var conditions []string
	if refused == nil {
		d.whole = &e
		d.e, conditions = unconditional(e, s)
		for _, step := range []func(*decider) *refusal{(*decider).denied, (*decider).byDefault, (*decider).permitted} {
			if refused == nil {
				refused = step(d)
			}
		}
	}
	row.Decision, row.Rule = task.DecisionAllow, d.countedRule()
	if refused != nil {
		row.Decision, row.Code, row.Rule = refused.kind, refused.code, refused.rule
	}
	row.Rule = strings.Join(append(conditions, row.Rule), "; otherwise ")
	return row
}

// countedRule words what lets a call through and, where that counts calls, what
// further ones get.
func (d *decider) countedRule() string {
	words, used := "", map[string]int{}
	d.call.Used = func(rule string) int { return used[rule] }
	for d.grant != nil && d.grant.Limit() > 0 {
		words += fmt.Sprintf("allow: %s%s (%s); then ", d.grant, d.grant.limitWords(), layerWord(*d.e, "allow"))
		used[d.rule] = d.grant.Limit()
		if r := d.permitted(); r != nil {
			return words + fmt.Sprintf("%s (%s)", r.kind, r.code)
		}
	}
	return words + d.rule
}

// unconditional leaves out the rules with conditions and words those that name the
// tool.
func unconditional(e Effective, s task.Slot) (*Effective, []string) {
	var words []string
	plain := func(word, field string, rules []Grant) []Grant {
		var kept []Grant
		for _, g := range rules {
			if len(g.Where) == 0 {
				kept = append(kept, g)
			} else if MatchGrant(g, s.Connector, s.Tool) {
				limit := ""
				if field == "allow" {
					limit = g.limitWords()
				}
				words = append(words, fmt.Sprintf("%s: %s%s (%s)", word, g, limit, layerWord(e, field)))
			}
		}
		return kept
	}
	e.Ceiling = plain("deny", ceiling, e.Ceiling)
	e.Deny = plain("deny", "deny", e.Deny)
	e.Allow = plain("allow", "allow", e.Allow)
	return &e, words
}
