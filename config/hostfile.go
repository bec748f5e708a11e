package config

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"runnerd/task"
)

// A file of another MCP host (.mcp.json, connectors.d/*.json) follows that host's
// rules, not ours. It is rewritten into our form before it is checked, and each
// entry is judged alone: an odd one is mended, or left out with a warning that
// names it, and never takes the others away (DESIGN, section 5). A key that may
// restrict is honoured, or its entry is left out: it is never passed over.

// isHostFile tells whether a file is written in another host's form.
func isHostFile(rel string) bool { return path.Ext(rel) == ".json" }

// hostEntry is one entry of such a file.
type hostEntry struct {
	key, value *yaml.Node
	id         string // its name here
}

// readHostFile rewrites the file's root in place.
func (p *parsed) readHostFile(src source, root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		return
	}
	servers, switched := p.hostServers(src, root)
	if servers == nil || servers.Kind != yaml.MappingNode {
		return
	}
	entries := p.hostEntries(src, servers)
	servers.Content = nil
	beside := restrictsAll(src, root)
	for _, e := range entries {
		if beside != nil {
			p.leaveOut(e, *beside)
			continue
		}
		if switched.off(e.key.Value) && e.value.Kind == yaml.MappingNode {
			put(e.value, "disabled", boolNode(e.value, true))
		}
		if p.mendEntry(src, e) {
			servers.Content = append(servers.Content, e.key, e.value)
		}
	}
}

// switches are the lists beside the entries with which a host turns servers off.
type switches struct{ allowed, excluded *yaml.Node }

// off tells whether the lists turn a server off. A list that is none turns off all.
func (s switches) off(name string) bool {
	lists := func(n *yaml.Node) bool {
		return n.Kind != yaml.SequenceNode || slices.ContainsFunc(n.Content, func(item *yaml.Node) bool { return item.Value == name })
	}
	return s.excluded != nil && lists(s.excluded) || s.allowed != nil && (s.allowed.Kind != yaml.SequenceNode || !lists(s.allowed))
}

// hostServers finds the mapping of servers under the names that hosts give it and
// makes it the root's mcpServers.
func (p *parsed) hostServers(src source, root *yaml.Node) (servers *yaml.Node, s switches) {
	if inner := value(root, "mcp"); inner != nil && inner.Kind == yaml.MappingNode {
		s.allowed, s.excluded = value(inner, "allowed"), value(inner, "excluded")
		if found := value(inner, "servers"); found != nil && value(root, "servers") == nil {
			put(root, "servers", found)
		}
		drop(root, "mcp")
	}
	for _, name := range []string{"enabledMcpjsonServers", "disabledMcpjsonServers"} {
		list := value(root, name)
		drop(root, name)
		switch {
		case list == nil:
		case strings.HasPrefix(name, "enabled"):
			s.allowed = list
		default:
			s.excluded = list
		}
	}
	for _, name := range []string{"servers", "context_servers"} {
		other := value(root, name)
		if other == nil {
			continue
		}
		drop(root, name)
		if servers := value(root, "mcpServers"); servers == nil {
			put(root, "mcpServers", other)
		} else if servers.Kind == yaml.MappingNode && other.Kind == yaml.MappingNode {
			servers.Content = append(servers.Content, other.Content...)
		} else {
			p.warnings = append(p.warnings, src.problem(markAt(src, other), name+" beside mcpServers is ignored", "one mapping of servers", ""))
		}
	}
	return value(root, "mcpServers"), s
}

// hostEntries gives each entry its name here. Of two with the very same name
// neither is read, since nobody can say which is meant; one whose name becomes that
// of an earlier one is left out.
func (p *parsed) hostEntries(src source, servers *yaml.Node) (entries []hostEntry) {
	count, taken := map[string]int{}, map[string]string{}
	for i := 0; i+1 < len(servers.Content); i += 2 {
		count[servers.Content[i].Value]++
	}
	for i := 0; i+1 < len(servers.Content); i += 2 {
		e := hostEntry{servers.Content[i], servers.Content[i+1], hostName(servers.Content[i].Value)}
		name := e.key.Value
		other, clash := taken[e.id]
		switch {
		case strings.HasPrefix(name, "_"), strings.HasPrefix(name, "//"):
			p.warnings = append(p.warnings, src.problem(markAt(src, e.key), "mcpServers."+printable(name)+" is taken for a comment", "", ""))
			continue
		case count[name] > 1:
			p.leaveOut(e, src.problem(markAt(src, e.key), "duplicate key "+quoted(name), "each name once", ""))
			continue
		case clash:
			p.leaveOut(e, src.problem(markAt(src, e.key), fmt.Sprintf("%s and %s are both named %s here", quoted(other), quoted(name), e.id), "distinct names", "rename one of them"))
			continue
		case !task.ValidConnectorID(e.id):
			p.leaveOut(e, src.problem(markAt(src, e.key), "bad connector name "+quoted(name), expectedConnectorID, "rename the entry"))
			continue
		}
		taken[e.id] = name
		entries = append(entries, e)
	}
	return entries
}

// leaveOut warns of an entry that is not used and keeps the reason for whoever
// names it.
func (p *parsed) leaveOut(e hostEntry, why Problem) {
	if p.leftOut == nil {
		p.leftOut = map[string]string{}
	}
	p.leftOut[e.id] = fmt.Sprintf("%s:%d leaves it out: %s", p.rel, why.Line, why.What)
	why.What = fmt.Sprintf("connector %s is left out: %s", e.id, why.What)
	p.warnings = append(p.warnings, why)
}

// mendEntry rewrites one entry and tells whether it can be used.
func (p *parsed) mendEntry(src source, e hostEntry) bool {
	if e.value.Kind != yaml.MappingNode {
		p.leaveOut(e, src.problem(markAt(src, e.value), "the entry is no mapping of keys", "", ""))
		return false
	}
	if why := restricts(src, e.value); why != nil {
		p.leaveOut(e, *why)
		return false
	}
	p.rewrite(src, e)
	trial := &parsed{rel: p.rel, kind: p.kind}
	trial.tree = newTree(src, mappingNode("mcpServers", mappingNode(e.key.Value, e.value)))
	trial.problems = trial.tree.problems
	if !trial.tree.over {
		trial.validate()
		trial.decode(source{})
	}
	if len(trial.problems) > 0 {
		p.leaveOut(e, sortProblems(trial.problems)[0])
		return false
	}
	return true
}

// otherNames are keys of other hosts that mean one of ours.
var otherNames = map[string]string{
	"httpUrl": "url", "serverUrl": "url", "environment": "env", "workingDirectory": "cwd", "transport": "type", "transportType": "type",
	"disabledTools": "disabled_tools", "excludeTools": "disabled_tools", "excludedTools": "disabled_tools",
	"disallowedTools": "disabled_tools", "blockedTools": "disabled_tools", "denyTools": "disabled_tools",
}

var (
	// restricting are names of keys that may say what must not be done. One that
	// is not known leaves its entry out.
	restricting = regexp.MustCompile(`(?i)disab|exclu|deny|denied|block|forbid|disallow|restrict|allow|permi[ts]|only|includ|enable|filter|list|sandbox|approv|confirm|tool|root|scope|secur|guard|polic`)
	listing     = regexp.MustCompile(`(?i)allow|permit|only|includ|enable`)
	// widening are names of keys that say what may be done without asking. Here only
	// a task's allow: can, so they are passed over.
	widening = regexp.MustCompile(`(?i)^(auto|always)_?(approve|allow|accept|confirm)`)
)

// restrictsAll returns why no entry of a file can be used: a key beside them that may
// restrict them. One whose value is empty does not, unless it lists what may be done.
func restrictsAll(src source, root *yaml.Node) *Problem {
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, v := root.Content[i], root.Content[i+1]
		name := key.Value
		empty := v.Tag == "!!null" || v.Kind != yaml.ScalarNode && len(v.Content) == 0 && !listing.MatchString(name)
		if name == "mcpServers" || empty || widening.MatchString(name) || !restricting.MatchString(name) {
			continue
		}
		p := src.problem(markAt(src, key), fmt.Sprintf("key %q beside the entries may restrict them and is not understood", name), "", "write the entries in connectors.yaml, and what a task may do in its file")
		return &p
	}
	return nil
}

// restricts returns why an entry cannot be used although all else is well: a key
// that may restrict it and is not understood.
func restricts(src source, entry *yaml.Node) *Problem {
	for i := 0; i+1 < len(entry.Content); i += 2 {
		key, v := entry.Content[i], entry.Content[i+1]
		name := key.Value
		_, renamed := otherNames[name]
		why := ""
		switch {
		case v.Tag == "!!null", renamed && otherNames[name] != "disabled_tools", connectorKeyNames[name] && name != "disabled_tools", widening.MatchString(name):
		case name == "enabled" || name == "isActive":
			if v.Tag != "!!bool" {
				why = fmt.Sprintf("key %q is neither true nor false", name)
			}
		case renamed, name == "disabled_tools":
			if !areNames(v) {
				why = fmt.Sprintf("key %q is no list of names", name)
			}
		case onlyStar(v) && strings.Contains(strings.ToLower(name), "tools"):
		case restricting.MatchString(name):
			why = fmt.Sprintf("key %q may restrict it and is not understood", name)
		}
		if why != "" {
			p := src.problem(markAt(src, key), why, "", "write the entry in connectors.yaml with disabled_tools, and what a task may do in its file")
			return &p
		}
	}
	return nil
}

// connectorKeyNames are our own keys of an entry.
var connectorKeyNames = func() map[string]bool {
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[connectorKeys]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = true
	}
	return known
}()

// rewrite brings the keys of an entry into our form.
func (p *parsed) rewrite(src source, e hostEntry) {
	entry := e.value
	keys := entry.Content
	entry.Content = nil
	for i := 0; i+1 < len(keys); i += 2 {
		key, v := keys[i], keys[i+1]
		if to, ok := otherNames[key.Value]; ok {
			key.Value = to
		}
		switch name := key.Value; {
		case v.Tag == "!!null", strings.HasPrefix(name, "_"), strings.HasPrefix(name, "//"):
		case name == "enabled" || name == "isActive":
			if v.Value == "false" {
				put(entry, "disabled", boolNode(v, true))
			}
		case onlyStar(v) && name != "disabled_tools" && strings.Contains(strings.ToLower(name), "tools"):
		case name == "disabled_tools":
			union(entry, key, v)
		case name == "disabled" && value(entry, "disabled") != nil && v.Value != "true":
		case name == "command" && v.Kind == yaml.SequenceNode:
			p.splitCommand(entry, key, v, keys)
		case name == "args" && value(entry, "args") != nil:
		case name == "type":
			p.putType(src, e, key, v)
		case name == "timeout":
			entry.Content = append(entry.Content, key, hostTimeout(v))
		default:
			entry.Content = append(entry.Content, key, asText(name, v))
		}
	}
}

// splitCommand reads a program and its arguments written as one list.
func (p *parsed) splitCommand(entry, key, v *yaml.Node, keys []*yaml.Node) {
	if len(v.Content) == 0 {
		entry.Content = append(entry.Content, key, v) // complained of as the wrong type
		return
	}
	entry.Content = append(entry.Content, key, asText("", v.Content[0]))
	args := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: v.Line, Column: v.Column, Content: slices.Clone(v.Content[1:])}
	for i := 0; i+1 < len(keys); i += 2 {
		if keys[i].Value == "args" && keys[i+1].Kind == yaml.SequenceNode {
			args.Content = append(args.Content, keys[i+1].Content...)
		}
	}
	put(entry, "args", asText("args", args))
}

// transports are the words that hosts have for the two transports.
var transports = map[string]string{
	"stdio": "stdio", "local": "stdio", "http": "http", "streamable-http": "http", "streamableHttp": "http", "streamable_http": "http",
	"streamablehttp": "http", "remote": "http", "sse": "sse",
}

// putType keeps a transport that is known and passes over another: command and url
// say what counts.
func (p *parsed) putType(src source, e hostEntry, key, v *yaml.Node) {
	known := transports[v.Value]
	if known == "" {
		p.warnings = append(p.warnings, src.problem(markAt(src, v), fmt.Sprintf("mcpServers.%s.type: %s is ignored", printable(e.key.Value), quoted(v.Value)), "", "command or url say how it is reached"))
		return
	}
	to := *v
	to.Value = known
	e.value.Content = append(e.value.Content, key, &to)
}

// union adds names to disabled_tools: a host may have two keys for it.
func union(entry, key, v *yaml.Node) {
	list := value(entry, "disabled_tools")
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: v.Line, Column: v.Column}
		entry.Content = append(entry.Content, key, list)
	}
	if v.Kind == yaml.SequenceNode {
		list.Content = append(list.Content, v.Content...)
	} else {
		list.Content = append(list.Content, v)
	}
}

// hostTimeout reads a bare number as milliseconds, as most hosts do; below 1,000
// it can only be meant as seconds.
func hostTimeout(v *yaml.Node) *yaml.Node {
	n, err := strconv.ParseFloat(v.Value, 64)
	if v.Kind != yaml.ScalarNode || err != nil {
		return v
	}
	unit := "ms"
	if n < 1000 {
		unit = "s"
	}
	call := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strconv.FormatFloat(n, 'f', -1, 64) + unit, Line: v.Line, Column: v.Column}
	return mappingNode("call", call)
}

// asText makes text of the numbers and booleans in env, headers and args, and of a
// single value itself.
func asText(name string, v *yaml.Node) *yaml.Node {
	switch {
	case v.Kind == yaml.ScalarNode && name == "" && v.Tag != "!!null":
		v.Tag, v.Style = "!!str", yaml.DoubleQuotedStyle
	case name == "args" && v.Kind == yaml.SequenceNode:
		for _, item := range v.Content {
			asText("", item)
		}
	case (name == "env" || name == "headers") && v.Kind == yaml.MappingNode:
		kept := v.Content
		v.Content = nil
		for i := 0; i+1 < len(kept); i += 2 {
			if kept[i+1].Tag != "!!null" {
				v.Content = append(v.Content, kept[i], asText("", kept[i+1]))
			}
		}
	}
	return v
}

// areNames tells whether a node is one name or a list of names.
func areNames(v *yaml.Node) bool {
	if v.Kind == yaml.ScalarNode {
		return v.Tag == "!!str"
	}
	return v.Kind == yaml.SequenceNode && !slices.ContainsFunc(v.Content, func(item *yaml.Node) bool { return item.Tag != "!!str" })
}

// onlyStar tells whether a node is the list of everything.
func onlyStar(v *yaml.Node) bool {
	return v.Kind == yaml.SequenceNode && len(v.Content) == 1 && v.Content[0].Value == "*"
}

func value(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func drop(mapping *yaml.Node, key string) {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
		}
	}
}

func put(mapping *yaml.Node, key string, v *yaml.Node) {
	drop(mapping, key)
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: v.Line, Column: v.Column}, v)
}

func mappingNode(key string, v *yaml.Node) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: v.Line, Column: v.Column}
	put(m, key, v)
	return m
}

func boolNode(at *yaml.Node, v bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v), Line: at.Line, Column: at.Column}
}

func markAt(src source, n *yaml.Node) mark {
	return mark{int32(n.Line + src.firstLine - 1), int32(n.Column)}
}

// plainJSON blanks comments and commas that nothing follows, which some hosts
// allow; every other byte stays where it was.
func plainJSON(text []byte) []byte {
	out := slices.Clone(text)
	comma := -1 // a comma after which nothing has come yet
	for i := 0; i < len(out); {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			i = stringEnd(out, i)
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end := commentEnd(out, i)
			for ; i < end; i++ {
				if out[i] != '\n' {
					out[i] = ' '
				}
			}
		case c == ',':
			comma, i = i, i+1
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma, i = -1, i+1
		default:
			if c > ' ' {
				comma = -1
			}
			i++
		}
	}
	return out
}

func stringEnd(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(text))
}

func commentEnd(text []byte, i int) int {
	block := text[i+1] == '*'
	for i += 2; i < len(text); i++ {
		if !block && text[i] == '\n' {
			return i
		}
		if block && text[i] == '/' && text[i-1] == '*' {
			return i + 1
		}
	}
	return len(text)
}
