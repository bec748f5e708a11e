package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"runnerd/task"
)

// Grant is one line of allow or deny: a pair, where both parts may be patterns, and
// conditions on arguments. In allow a line with conditions is closed: an argument
// that it does not name must have no value, unless Where[rest] is any.
type Grant struct {
	Connector string               `json:"connector"`
	Tool      string               `json:"tool"`
	Where     map[string]Condition `json:"where,omitempty"` // by argument name
	// Times is how many calls of one run the line permits; nil: see Limit.
	Times *int `json:"times,omitempty"`

	faults  []Fault      // what could not be decoded
	settled *settledLine // see Settle
}

var connectorGlob = regexp.MustCompile(`^[a-z*?][a-z0-9*?-]{0,30}$`)

// ParseGrant reads "connector/tool", where both parts may be patterns. The tool's
// name may itself hold a "/".
func ParseGrant(s string) (Grant, error) {
	g := pairOf(s)
	return g, g.Check()
}

func pairOf(s string) Grant {
	connector, tool, found := strings.Cut(s, "/")
	if !found {
		return Grant{Tool: s}
	}
	return Grant{Connector: connector, Tool: tool}
}

// pair is the line's first half, as it stands in a file.
func (g Grant) pair() string {
	if g.Connector == "" {
		return g.Tool
	}
	return g.Connector + "/" + g.Tool
}

func (g Grant) pairFault() *Fault {
	pair := g.pair()
	if connector, tool, ok := ParseToolName(pair); ok {
		return &Fault{What: quote(pair) + " is the name that a model sees", Expected: "connector/tool", Hint: "write " + connector + "/" + tool}
	}
	if g.Connector == "" || g.Tool == "" {
		f := &Fault{What: quote(pair) + " names no tool", Expected: "connector/tool"}
		if id := strings.TrimSuffix(pair, "/"); task.ValidConnectorID(id) {
			f.Hint = "for every tool of a connector write " + id + "/*"
		}
		return f
	}
	if glob := isGlob(g.Connector); glob && !connectorGlob.MatchString(g.Connector) || !glob && !task.ValidConnectorID(g.Connector) {
		return &Fault{What: "bad connector name " + quote(g.Connector), Expected: expectedConnector}
	}
	return PatternFault(g.Tool)
}

const expectedConnector = "1 to 31 of a-z, 0-9 and '-', beginning with a letter; * and ? match"

// MatchGrant tells whether the grant names the pair. Its conditions are another
// matter: see Decide.
func MatchGrant(g Grant, connector, tool string) bool {
	return g.Connector != "" && g.Tool != "" && MatchGlob(g.Connector, connector) && MatchGlob(g.Tool, tool)
}

// Faults is all that is wrong with a line of the field, allow or deny, by itself.
func (g Grant) Faults(field string) []Fault {
	found := slices.Clone(g.faults)
	if f := g.pairFault(); f != nil {
		found = append(found, f.at("tool"))
	}
	if g.Where != nil && len(g.Where) == 0 {
		found = append(found, Fault{[]string{"where"}, "nothing is said here", "a condition on an argument",
			"a call without arguments is {rest: absent}; leave where out to permit any"})
	}
	for _, name := range g.arguments() {
		for _, f := range g.Where[name].check() {
			found = append(found, f.at("where", name))
		}
	}
	switch {
	case g.Times == nil:
	case field != "allow":
		found = append(found, Fault{[]string{"times"}, "times on a line of " + field, "times on lines of allow only", ""})
	case *g.Times < 1:
		found = append(found, Fault{[]string{"times"}, fmt.Sprintf("%d is too small", *g.Times), "at least 1", "remove the line, or deny it"})
	}
	return found
}

// Check says what is first wrong with a line of allow.
func (g Grant) Check() error { return g.CheckAs("allow") }

// CheckAs says what is first wrong with a line of the field, allow or deny.
func (g Grant) CheckAs(field string) error {
	faults := g.Faults(field)
	if len(faults) == 0 {
		return nil
	}
	f := faults[0]
	if slices.Equal(f.Path, []string{"tool"}) {
		f.Path = nil // the rule's own name says it
	}
	return fmt.Errorf("rule %s: %w", quote(g.pair()), &f)
}

func (g Grant) arguments() []string {
	names := make([]string, 0, len(g.Where))
	for name := range g.Where {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Limit is how many calls of one run the line permits, 0 for any number: Times, or
// one where every argument has one value only.
func (g Grant) Limit() int {
	switch {
	case g.Times != nil:
		return *g.Times
	case len(g.Where) == 0:
		return 0
	}
	for _, c := range g.Where {
		if c.Eq == nil && !c.Absent {
			return 0
		}
	}
	return 1
}

func (g Grant) limitWords() string {
	switch n := g.Limit(); n {
	case 0:
		return ""
	case 1:
		return ", once a run"
	default:
		return fmt.Sprintf(", %d times a run", n)
	}
}

// UnmarshalJSON reads "connector/tool", {"tool": "connector/tool", "where": …} as
// in a task file, or {"connector": …, "tool": …, "where": …} as it is stored, and
// checks it.
func (g *Grant) UnmarshalJSON(data []byte) error {
	*g = DecodeGrant(data)
	return g.Check()
}

// DecodeGrant reads what UnmarshalJSON does and leaves its faults to Faults.
func DecodeGrant(data []byte) Grant {
	var text string
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] == '"' && json.Unmarshal(t, &text) == nil {
		return pairOf(text)
	}
	type plain Grant
	var p plain
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Grant{Tool: p.Tool, Connector: p.Connector, faults: []Fault{{What: oneLine(err), Expected: `"connector/tool" or {tool: connector/tool, where: {argument: condition}, times: N}`}}}
	}
	if p.Connector == "" {
		pair := pairOf(p.Tool)
		p.Connector, p.Tool = pair.Connector, pair.Tool
	}
	var said map[string]json.RawMessage
	if p.Where == nil && json.Unmarshal(data, &said) == nil && said["where"] != nil {
		p.Where = map[string]Condition{} // a null is no open line
	}
	return Grant(p)
}

// String words the grant for a person: "files/write_file where path under
// /srv/reports". Receipts keep these words, by which the calls of a line are
// counted.
func (g Grant) String() string {
	if s := g.proof(); s != nil {
		return s.words
	}
	pair := g.Connector + "/" + g.Tool
	if len(g.Where) == 0 {
		return pair
	}
	parts := make([]string, 0, len(g.Where))
	for _, name := range g.arguments() {
		shown := name
		if !plainName.MatchString(name) {
			shown = valueText(name)
		}
		parts = append(parts, shown+" "+g.Where[name].String())
	}
	return pair + " where " + strings.Join(parts, " and ")
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

var plainYAML = regexp.MustCompile(`^[a-z][A-Za-z0-9_./*?-]*$`)

// YAML is the grant as an item of a flow list in a task file: files/write_file or
// {tool: files/write_file, where: {path: {under: /srv/reports}, content: any}}.
func (g Grant) YAML() string {
	pair := yamlText(g.Connector + "/" + g.Tool)
	if len(g.Where) == 0 && g.Times == nil {
		return pair
	}
	text := "{tool: " + pair
	if len(g.Where) > 0 {
		parts := make([]string, 0, len(g.Where))
		for _, name := range g.arguments() {
			parts = append(parts, yamlText(name)+": "+g.Where[name].yaml())
		}
		text += ", where: {" + strings.Join(parts, ", ") + "}"
	}
	if g.Times != nil {
		text += fmt.Sprintf(", times: %d", *g.Times)
	}
	return text + "}"
}

// AllowLine is the grant as a line of a task file.
func (g Grant) AllowLine() string { return "allow: [" + g.YAML() + "]" }

// yamlText writes a string as YAML: plain where that is safe, else in the JSON
// form, which YAML reads too.
func yamlText(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, s) {
		return s
	}
	return jsonText(s)
}
