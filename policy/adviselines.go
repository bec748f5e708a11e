package policy

import (
	"fmt"
	"slices"
	"strings"

	"runnerd/task"
)

// AdviseLines holds the conditions of allow and deny against the schemas that the
// tools have now. A condition that no call of any tool that the line names can meet
// is an error; what only looks odd is a warning. Of tools that are not known only
// paths and bounds are judged. resolve is as in Call; nil compares paths as text.
func AdviseLines(e Effective, connected []Connected, resolve func(connector, path string) (string, error)) []Advice {
	a := &lineAdviser{adviser: &adviser{e: e, connected: byID(connected)}, resolve: resolve, schemas: NewSchemas()}
	for _, list := range []struct {
		field string
		lines []Grant
	}{{"allow", e.Allow}, {"deny", e.Deny}, {ceiling, e.Ceiling}} {
		for i, g := range list.lines {
			a.field, a.index, a.grant = list.field, i, g
			a.line()
		}
	}
	return a.found
}

type lineAdviser struct {
	*adviser
	resolve func(connector, path string) (string, error)
	schemas *Schemas

	field string
	index int
	grant Grant
}

// remark is what is odd about one place of a line for one tool.
type remark struct {
	severity Severity
	path     []string
	text     string
}

// line collects the remarks about a line for each tool that it names, and keeps
// those that hold for all of them.
func (a *lineAdviser) line() {
	if len(a.grant.Where) == 0 || len(a.grant.Faults(a.field)) > 0 {
		return
	}
	var common []remark
	first := true
	for _, id := range a.matching(a.grant) {
		c, up := a.up(id)
		tools := []task.Tool{{Name: a.grant.Tool}} // of unknown schema
		if up {
			tools = uniqueTools(c.Tools)
		}
		for _, t := range tools {
			if up && !MatchGrant(a.grant, id, t.Name) {
				continue
			}
			found := a.tool(id, t)
			if !first {
				found = slices.DeleteFunc(common, func(r remark) bool {
					return !slices.ContainsFunc(found, func(o remark) bool { return slices.Equal(o.path, r.path) && o.severity == r.severity })
				})
			}
			common, first = found, false
		}
	}
	for _, r := range common {
		a.add(
			r.severity, fmt.Sprintf("%s (%s)", a.field, layerWord(a.e, a.field)), r.text, "",
			append([]string{a.field, fmt.Sprint(a.index)}, r.path...)...,
		)
	}
}

// tool is what is odd about the line for one tool.
func (a *lineAdviser) tool(connector string, t task.Tool) (found []remark) {
	s := a.schemas.get(t)
	if s.err != nil {
		return nil
	}
	pair := connector + "/" + t.Name
	j := judge{connector: connector, origin: a.e.Connectors[connector].Origin, resolve: a.resolve}
	for _, name := range a.grant.arguments() {
		c := a.grant.Where[name]
		path := []string{"where", name}
		if !s.lists(name) {
			if name != restKey || !c.Any && !c.Absent {
				found = append(found, remark{SeverityError, path, noSuchArgument(pair, name, s.names())})
			}
			continue
		}
		found = append(found, a.argument(j, c, s.property(name), path)...)
	}
	if len(found) > 0 {
		return found // the argument that is missing may be the one that is misspelt
	}
	return a.missing(pair, s)
}

func noSuchArgument(pair, name string, known []string) string {
	text := fmt.Sprintf("%s has no argument %s", pair, quote(name))
	if near := task.Nearest(name, known); near != "" {
		return text + "; did you mean " + near + "?"
	}
	if top, _, nested := strings.Cut(name, "."); nested && slices.Contains(known, top) {
		return text + "; conditions look at whole arguments: write " + top + ": {eq: …} with its whole value, or " + top + ": any"
	}
	if len(known) == 0 {
		return text + ": it takes none"
	}
	return text + "; it has " + strings.Join(known, ", ")
}

// argument is what is odd about the conditions of one argument.
func (a *lineAdviser) argument(j judge, c Condition, p property, path []string) (found []remark) {
	add := func(severity Severity, key, format string, args ...any) {
		found = append(found, remark{severity, append(slices.Clone(path), key), fmt.Sprintf(format, args...)})
	}
	name := path[len(path)-1]
	for _, k := range c.set() {
		if types := p.types(); k.types != nil && types != nil && !slices.ContainsFunc(types, func(t string) bool { return slices.Contains(k.types, t) }) {
			add(SeverityError, k.key, "%s %s: %s is for %s, and %s is %s; %s", a.grant, a.useless(), k.key, withArticle(strings.Join(k.types, " or ")),
				name, strings.Join(types, " or "), instead(k.key, types))
			continue
		}
		if k.never != nil {
			if why, cure := k.never(j, c, p); why != "" {
				add(SeverityError, k.key, "%s %s: %s%s", a.grant, a.useless(), why, after("; ", cure))
				continue
			}
		}
		if values := p.values(); values != nil && k.key != "under" && !slices.ContainsFunc(values, func(v any) bool { return k.test(j, c, v) == yes }) {
			add(SeverityError, k.key, "%s %s: no value of the tool's schema %s%s", a.grant, a.useless(), k.phrase(c), p.wants())
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, v := range c.In {
		if !p.admits(v) {
			add(SeverityWarning, "in", "%s is no value that the tool's schema takes%s: it never matches", valueText(v), p.wants())
		}
	}
	if out := j.unreachable(p, c.In); len(out) > 0 {
		add(SeverityWarning, "in", "%s", j.noCall(out[0]))
	}
	if a.field != "allow" && c.pinned() && j.isPath(p) {
		add(SeverityWarning, c.pinKey(), "%s compares the text of a path, and the same place has other names, relative ones among them: %s", c.pinKey(), c.asUnder())
	}
	if top, outside := j.outside(c.Under); c.Under != "" && outside {
		add(SeverityWarning, "under", "relative paths of connector %s begin at its root %s, so that only absolute ones can lie under %s", j.connector, top, c.Under)
	}
	if c.Host != "" && len(p.nodes) > 0 {
		if why := p.maybeNoURL(); why != "" {
			add(SeverityWarning, "host", "host takes values with http:// or https:// only, and %s: a value such as www.example.com never matches; "+
				"write exact values with in, if they have none", why)
		}
	}
	if c.Max != "" && c.Min == "" && a.field == "allow" && !p.bounded() {
		add(SeverityWarning, "max", "max alone lets any negative %s through; say min too, for example {min: 0, max: %s}", name, c.Max)
	}
	return found
}

// useless says what becomes of a condition that no value can meet. In deny a value
// that cannot be judged is refused.
func (a *lineAdviser) useless() string {
	if a.field == "allow" {
		return "can never match"
	}
	return "does not tell calls apart"
}

// bounded tells whether the schema itself has a lower bound.
func (p property) bounded() bool {
	for _, s := range p.nodes {
		if s.Minimum != nil || s.ExclusiveMinimum != nil {
			return true
		}
	}
	return false
}

func after(sep, text string) string {
	if text == "" {
		return ""
	}
	return sep + text
}

// instead names the condition that does for the types what the other does for its
// own.
func instead(key string, types []string) string {
	switch {
	case strings.HasPrefix(key, "m") && slices.Contains(types, "string"):
		return "the length of a text is max_length"
	case strings.HasPrefix(key, "m") && slices.Contains(types, "array"):
		return "the length of a list is max_items"
	case strings.HasPrefix(key, "m") && slices.Contains(types, "number"):
		return "a number has min and max"
	}
	return "write the exact value with eq, or any"
}

// missing finds arguments that every call has and the closed line does not name.
func (a *lineAdviser) missing(pair string, s *argumentSchema) (found []remark) {
	if a.field != "allow" {
		return nil
	}
	var unnamed []string
	for _, name := range s.required() {
		c, named := a.grant.Where[name]
		if named && c.Absent && !slices.Contains(s.property(name).types(), "null") {
			found = append(found, remark{SeverityError, []string{"where", name}, fmt.Sprintf("%s can never match: every call of %s has %s", a.grant, pair, name)})
		}
		if types := s.property(name).types(); !named && !a.grant.Where[restKey].Any && !slices.Contains(types, "null") {
			unnamed = append(unnamed, name)
		}
	}
	if len(unnamed) > 0 {
		found = append(found, remark{SeverityError, []string{"where"}, fmt.Sprintf(
			"%s can never match: every call of %s has %s, which the line does not name, and a line with where is closed; add %s: any, or a condition",
			a.grant, pair, strings.Join(unnamed, " and "), strings.Join(unnamed, ": any, "))})
	}
	return found
}

// outward tells whether some line lets a call of the tool through that can carry
// data: a line that leaves no argument open, or only such as have few values, does
// not.
func (a *adviser) outward(c Connected, t task.Tool, schemas *Schemas) bool {
	return slices.ContainsFunc(a.e.Allow, func(g Grant) bool { return a.names(g, c, t.Name) && carries(g, c.Up, t, schemas) })
}

func carries(g Grant, known bool, t task.Tool, schemas *Schemas) bool {
	if len(g.Where) == 0 {
		return true
	}
	if g.Where[restKey].Any {
		return true
	}
	s := schemas.get(t)
	for name, c := range g.Where {
		pinned := c.Absent || slices.ContainsFunc(c.set(), func(k *condition) bool { return k.pins })
		if !pinned && !(known && s.property(name).narrow(c)) {
			return true
		}
	}
	return false
}
