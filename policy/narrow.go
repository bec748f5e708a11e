package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"runnerd/task"
)

// maxLineBytes is how long a line for a person to paste may be.
const maxLineBytes = 4 << 10

// LineFor is the narrowest line that permits the call: the pair, closed, with the
// exact value of every argument, free texts excepted, which are opened and named in
// open. Where that would be too long to paste, so are the longest values. Arguments that no line can match are an
// error.
func LineFor(connector, tool, arguments string) (g Grant, open []string, err error) {
	args, err := parseArguments(arguments)
	if err != nil {
		return Grant{}, nil, err
	}
	g, open = narrowest(connector, tool, args)
	if len(g.YAML()) > maxLineBytes {
		return Grant{}, nil, fmt.Errorf("no line of %d bytes can name these arguments", maxLineBytes)
	}
	return g, open, g.Check()
}

func narrowest(connector, tool string, args map[string]any) (g Grant, open []string) {
	g = Grant{Connector: connector, Tool: patternOf(tool), Where: map[string]Condition{}}
	for name, value := range args {
		switch {
		case value == nil:
		case free(value) && name != restKey:
			g.Where[name] = Condition{Any: true}
			open = append(open, name)
		default:
			g.Where[name] = Condition{Eq: value}
		}
	}
	if len(g.Where) == 0 {
		g.Where[restKey] = Condition{Absent: true}
	}
	for len(g.YAML()) > maxLineBytes {
		longest, size := "", 0
		for _, name := range g.arguments() {
			if n := len(g.Where[name].yaml()); n > size && !g.Where[name].Any {
				longest, size = name, n
			}
		}
		if longest == "" || longest == restKey { // any would open all the others
			break
		}
		g.Where[longest] = Condition{Any: true}
		open = append(open, longest)
	}
	slices.Sort(open)
	return g, open
}

// freeText is from how many bytes on words are taken for a text that is written anew
// for each call, as the content of a file or a message: a line that names it whole
// permits no second call. What has no space in it, as a path or a URL, never is.
const freeText = 100

func free(value any) bool {
	text, ok := value.(string)
	return ok && len(text) >= freeText && strings.ContainsAny(strings.TrimSpace(text), " \n")
}

// lineOf is the narrowest line that can permit some call of the tool, before any
// was made: the arguments that every call has, open for a person to narrow. Where
// the schema names none at all it is the tool alone.
func lineOf(connector string, t task.Tool, schemas *Schemas) Grant {
	g := Grant{Connector: connector, Tool: patternOf(t.Name)}
	s := schemas.get(t)
	names := s.required()
	if len(names) == 0 {
		names = s.names()
	}
	for _, name := range names {
		if name == restKey {
			continue
		}
		if g.Where == nil {
			g.Where = map[string]Condition{}
		}
		g.Where[name] = Condition{Any: true}
	}
	return g
}

// hint is the line that would permit the call at hand, ready to paste: of what was
// made so far as many times more as are needed. It is empty where no line is short
// enough, or where deny would refuse whatever it lets through.
func (d *decider) hint() string {
	if d.args == nil && d.tool != nil {
		g := lineOf(d.slot.Connector, *d.tool, d.call.Schemas)
		if d.refusesAll(g) {
			return ""
		}
		return g.AllowLine()
	}
	g, _ := narrowest(d.slot.Connector, d.slot.Tool, d.args)
	if len(g.YAML()) > maxLineBytes {
		return ""
	}
	if most := g.Limit(); most > 0 && d.used(g) >= most {
		times := d.used(g) + 1
		g.Times = &times
	}
	return g.AllowLine()
}

// refusesAll tells whether a line of deny refuses every call that the line of allow
// lets through.
func (d *decider) refusesAll(allow Grant) bool {
	whole := cmp.Or(d.whole, d.e)
	return slices.ContainsFunc(slices.Concat(whole.Ceiling, whole.Deny), func(deny Grant) bool {
		if !MatchGrant(deny, d.slot.Connector, d.slot.Tool) {
			return false
		}
		for name, c := range deny.Where {
			if !d.judge().always(c, allow, name) {
				return false
			}
		}
		return true
	})
}

// always tells whether a condition of deny holds for the argument in every call that
// the line of allow lets through.
func (j judge) always(c Condition, allow Grant, name string) bool {
	said, named := allow.Where[name]
	switch closed := len(allow.Where) > 0 && !allow.Where[restKey].Any; {
	case c.Any:
		return true
	case named && said.pinned():
		return !slices.ContainsFunc(said.values(), func(v any) bool { return j.test(c, v, true) == no })
	case named && said.Absent, !named && closed:
		return j.test(c, nil, false) != no
	}
	return false
}

// allowRule is how an allow line that lets a call through is recorded.
func (d *decider) allowRule(g Grant) string {
	return fmt.Sprintf("allow: %s (%s)", g, layerWord(*d.e, "allow"))
}

// used is how many calls of this run the line has let through.
func (d *decider) used(g Grant) int {
	if d.call.Used == nil {
		return 0
	}
	return d.call.Used(d.allowRule(g))
}

// granted finds the line of allow that lets the call through. Where lines match but
// have been used as often as they may, spent names the first.
func (d *decider) granted() (rule, spent string) {
	d.grant = nil
	for i, g := range d.e.Allow {
		if !MatchGrant(g, d.slot.Connector, d.slot.Tool) || !d.judge().allows(g, d.args) {
			continue
		}
		most := g.Limit()
		if most == 0 || d.used(g) < most {
			d.grant = &d.e.Allow[i]
			return d.allowRule(g), ""
		}
		if spent == "" {
			spent = fmt.Sprintf("%s is permitted%s, and was made", g, strings.TrimPrefix(g.limitWords(), ","))
		}
	}
	return "", spent
}
