package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode"
)

const maxGrantBytes = 256

var connectorGlob = regexp.MustCompile(`^[a-z*?][a-z0-9*?-]{0,30}$`)

// ParseGrant reads "connector/tool", where both parts may be globs of "*" and
// "?". The tool's name may itself hold a "/".
func ParseGrant(s string) (Grant, error) {
	g, err := parsePair(s)
	if err != nil {
		return Grant{}, fmt.Errorf("rule %s: %w", quote(s), err)
	}
	return g, nil
}

func parsePair(s string) (Grant, error) {
	if len(s) > maxGrantBytes {
		return Grant{}, fmt.Errorf("longer than %d bytes", maxGrantBytes)
	}
	if connector, tool, ok := ParseToolName(s); ok {
		return Grant{}, fmt.Errorf("this is the name that a model sees; write %s/%s", connector, tool)
	}
	connector, tool, found := strings.Cut(s, "/")
	switch {
	case !found:
		return Grant{}, errors.New("want connector/tool, for example files/write_file; every tool of a connector is connector/*")
	case !connectorGlob.MatchString(connector):
		return Grant{}, fmt.Errorf("%s is no connector's name: want lower-case letters, digits and '-', or a glob", quote(connector))
	case tool == "" || strings.TrimSpace(tool) != tool || strings.ContainsFunc(tool, unicode.IsControl):
		return Grant{}, fmt.Errorf("%s is no tool's name; every tool is %s/*", quote(tool), connector)
	}
	return Grant{Connector: connector, Tool: tool}, nil
}

// MatchGrant tells whether the grant names the pair. Its conditions are another
// matter: see Decide.
func MatchGrant(g Grant, connector, tool string) bool {
	return g.Connector != "" && g.Tool != "" && MatchGlob(g.Connector, connector) && MatchGlob(g.Tool, tool)
}

// Check says what is wrong with a grant that did not come from ParseGrant alone:
// the pair, and each condition.
func (g Grant) Check() error {
	if _, err := ParseGrant(g.Connector + "/" + g.Tool); err != nil {
		return err
	}
	for _, name := range g.arguments() {
		if err := g.Where[name].check(); err != nil {
			return fmt.Errorf("rule %s/%s: where %s: %w", g.Connector, g.Tool, quote(name), err)
		}
	}
	return nil
}

func (g Grant) arguments() []string {
	names := make([]string, 0, len(g.Where))
	for name := range g.Where {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// UnmarshalJSON reads "connector/tool", {"tool": "connector/tool", "where": …} as
// in a task file, or {"connector": …, "tool": …, "where": …} as it is stored.
func (g *Grant) UnmarshalJSON(data []byte) error {
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] == '"' {
		var s string
		if err := json.Unmarshal(t, &s); err != nil {
			return err
		}
		parsed, err := ParseGrant(s)
		*g = parsed
		return err
	}
	type plain Grant
	var p plain
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	dec.UseNumber() // a large integer in eq must not lose its last digits
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("rule: %w (want \"connector/tool\" or {tool: connector/tool, where: {argument: {eq|in|under|host|max: …}}})", err)
	}
	if p.Connector == "" {
		pair, err := ParseGrant(p.Tool)
		if err != nil {
			return err
		}
		p.Connector, p.Tool = pair.Connector, pair.Tool
	}
	if err := Grant(p).Check(); err != nil {
		return err
	}
	*g = Grant(p)
	return nil
}

// String words the grant for a person: "files/write_file where path under
// /srv/reports".
func (g Grant) String() string {
	pair := g.Connector + "/" + g.Tool
	if len(g.Where) == 0 {
		return pair
	}
	parts := make([]string, 0, len(g.Where))
	for _, name := range g.arguments() {
		parts = append(parts, name+" "+g.Where[name].String())
	}
	return pair + " where " + strings.Join(parts, " and ")
}

var plainYAML = regexp.MustCompile(`^[a-z][A-Za-z0-9_./*?-]*$`)

// YAML is the grant as an item of a flow list in a task file: files/write_file or
// {tool: files/write_file, where: {path: {under: /srv/reports}}}.
func (g Grant) YAML() string {
	pair := yamlText(g.Connector + "/" + g.Tool)
	if len(g.Where) == 0 {
		return pair
	}
	parts := make([]string, 0, len(g.Where))
	for _, name := range g.arguments() {
		parts = append(parts, yamlText(name)+": "+g.Where[name].yaml())
	}
	return "{tool: " + pair + ", where: {" + strings.Join(parts, ", ") + "}}"
}

// yamlText writes a string as YAML: plain where that is safe, else in the JSON
// form, which YAML reads too.
func yamlText(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, s) {
		return s
	}
	data, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(data)
}

// allowLine is the line of a task file that permits the pair.
func allowLine(connector, tool string) string {
	literal := strings.ReplaceAll(tool, "*", "?") // as narrow as a glob can name it
	return "allow: [" + Grant{Connector: connector, Tool: literal}.YAML() + "]"
}
