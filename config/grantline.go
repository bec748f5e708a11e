package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"runnerd/policy"
	"runnerd/task"
)

// grantLine is one line of allow or deny: "connector/tool", or a mapping.
type grantLine struct {
	Tool  string                   `json:"tool"`
	Where map[string]conditionKeys `json:"where,omitempty"`
}

func (g *grantLine) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*g = grantLine{Tool: s}
		return nil
	}
	type plain grantLine
	return json.Unmarshal(data, (*plain)(g))
}

type conditionKeys struct {
	Eq    any      `json:"eq,omitempty" title:"Equals" jsonschema:"the argument is exactly this"`
	In    *[]any   `json:"in,omitempty" jsonschema:"the argument is one of these"`
	Under string   `json:"under,omitempty" example:"/srv/reports" jsonschema:"the argument is a path at or below this one"`
	Host  string   `json:"host,omitempty" example:"*.example.com" jsonschema:"the argument is a URL of this host"`
	Max   *float64 `json:"max,omitempty" jsonschema:"a number at most this, or a text or list at most this long"`
}

// grant is the line as policy reads it. It expects a line that was checked.
func (g grantLine) grant() policy.Grant {
	conn, tool, _ := strings.Cut(g.Tool, "/")
	out := policy.Grant{Connector: conn, Tool: tool}
	if len(g.Where) > 0 {
		out.Where = make(map[string]policy.Condition, len(g.Where))
	}
	for name, c := range g.Where {
		cond := policy.Condition{Eq: c.Eq, Under: c.Under, Host: c.Host, Max: c.Max}
		if c.In != nil {
			cond.In = *c.In
		}
		out.Where[name] = cond
	}
	return out
}

func grants(lines *[]grantLine) task.List[policy.Grant] {
	if lines == nil {
		return task.List[policy.Grant]{}
	}
	out := make([]policy.Grant, len(*lines))
	for i, l := range *lines {
		out[i] = l.grant()
	}
	return task.ListOf(out...)
}

func isGlob(s string) bool { return strings.ContainsAny(s, `*?[\`) }

func badGlob(s string) bool { _, err := path.Match(s, ""); return err != nil }

func (p *parsed) checkGrants(at []string, lines *[]grantLine) {
	if lines == nil {
		return
	}
	for i, line := range *lines {
		here := below(at, fmt.Sprint(i))
		p.checkGrant(here, line)
		for _, name := range slices.Sorted(maps.Keys(line.Where)) {
			p.checkCondition(below(here, "where", name), line.Where[name])
		}
	}
}

func (p *parsed) checkGrant(at []string, line grantLine) {
	conn, tool, ok := strings.Cut(line.Tool, "/")
	if inner := below(at, "tool"); p.tree.has(inner...) {
		at = inner
	}
	switch {
	case line.Tool == "": // the schema has said so
	case !ok || conn == "" || tool == "":
		hint := ""
		if task.ValidConnectorID(line.Tool) {
			hint = "for every tool of a connector write " + line.Tool + "/*"
		}
		p.complain(at, quoted(line.Tool)+" names no tool", "connector/tool", hint)
	case badGlob(conn) || badGlob(tool):
		p.complain(at, "bad glob "+quoted(line.Tool), "* ? and [a-z] as in file names", "")
	case !isGlob(conn) && !task.ValidConnectorID(conn):
		p.complain(at, "bad connector name "+quoted(conn), expectedConnectorID, "")
	}
}

func (p *parsed) checkCondition(at []string, c conditionKeys) {
	if c.In != nil && len(*c.In) == 0 {
		p.complain(below(at, "in"), "empty list: nothing would ever match", "at least one value", "")
	}
	if h := strings.TrimPrefix(c.Host, "*."); strings.ContainsAny(h, "*/: ") {
		p.complain(below(at, "host"), "bad host "+quoted(c.Host), `a host name, or "*.example.com"`, "")
	}
}
