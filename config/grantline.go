package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"runnerd/policy"
	"runnerd/task"
)

// grantLine is one line of allow or deny. Policy says what it means and what is
// wrong with it.
type grantLine struct{ policy.Grant }

func (g *grantLine) UnmarshalJSON(data []byte) error {
	g.Grant = policy.DecodeGrant(data)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (g grantLine) MarshalJSON() ([]byte, error) { return json.Marshal(g.Grant) }

func grants(lines *[]grantLine) task.List[policy.Grant] {
	if lines == nil {
		return task.List[policy.Grant]{}
	}
	out := make([]policy.Grant, len(*lines))
	for i, l := range *lines {
		out[i] = l.Grant
	}
	return task.ListOf(out...)
}

// checkGrants complains about lines of the field, allow or deny.
func (p *parsed) checkGrants(at []string, field string, lines *[]grantLine) {
	if lines == nil {
		return
	}
	for i, line := range *lines {
		if line.Connector == "" && line.Tool == "" {
			continue // the schema has said so
		}
		here := below(at, fmt.Sprint(i))
		for _, f := range line.Faults(field) {
			p.fault(here, f)
		}
	}
}

// fault is a complaint of policy's about a place at or below the path. Where
// something further below was left out, that has been said.
func (p *parsed) fault(at []string, f policy.Fault) {
	place := below(at, f.Path...)
	if slices.ContainsFunc(p.cut, func(pointer string) bool { return strings.HasPrefix(pointer, pointerOf(place)+"/") }) {
		return
	}
	if slices.Equal(f.Path, []string{"tool"}) && !p.tree.has(place...) {
		place = at // a line that is the pair alone
	}
	p.complain(place, f.What, f.Expected, f.Hint)
}

// checkPattern complains about a pattern of tool names that policy does not
// understand.
func (p *parsed) checkPattern(at []string, pattern string) {
	if f := policy.PatternFault(pattern); f != nil {
		p.fault(at, *f)
	}
}
