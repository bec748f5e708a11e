package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

type connectorsFile struct {
	Servers map[string]connectorKeys `json:"mcpServers,omitempty" title:"MCP servers" jsonschema:"MCP servers by name, as other MCP hosts write them, plus runnerd's own keys"`

	// names maps a connector's id to its name in the file, which differs in JSON
	// that was written for another host.
	names map[string]string
}

type connectorKeys struct {
	Type             string              `json:"type,omitempty" enum:"stdio,http,streamable-http,streamableHttp,sse" jsonschema:"transport, as other hosts write it; runnerd tells it from command and url"`
	Builtin          string              `json:"builtin,omitempty" enum:"files,fetch,shell,memory" jsonschema:"a server that the binary itself brings"`
	Command          string              `json:"command,omitempty" example:"npx" jsonschema:"program of a server that speaks MCP over its standard input and output"`
	Args             *[]string           `json:"args,omitempty" empty:"ok" jsonschema:"its arguments"`
	Env              map[string]string   `json:"env,omitempty" empty:"ok" title:"Environment" jsonschema:"variables given to it beside a short allowlist"`
	Cwd              string              `json:"cwd,omitempty" title:"Working directory" jsonschema:"directory it starts in; default: its own HOME"`
	URL              string              `json:"url,omitempty" title:"URL" example:"https://mcp.example.com/mcp" jsonschema:"endpoint of a server that speaks streamable HTTP"`
	Headers          map[string]string   `json:"headers,omitempty" empty:"ok" jsonschema:"HTTP headers, sent to that origin only"`
	Root             string              `json:"root,omitempty" pattern:"^(/|\\$\\{)" example:"/srv/reports" jsonschema:"directory that the files builtin serves; relative paths in grants start here"`
	AllowPrivate     bool                `json:"allow_private,omitempty" default:"false" jsonschema:"whether the URL's name may resolve to a private address"`
	TrustAnnotations *bool               `json:"trust_annotations,omitempty" default:"false" jsonschema:"whether the server's readOnlyHint makes a tool read, and its absence write"`
	Classes          map[string]string   `json:"classes,omitempty" enum:"read,write,exec" example:"{\"delete_*\": \"exec\"}" jsonschema:"class by tool name; * and ? match; final"`
	DisabledTools    *[]string           `json:"disabled_tools,omitempty" jsonschema:"tools that are hidden and refused, by name; * and ? match"`
	Flags            *[]string           `json:"flags,omitempty" enum:"untrusted,private,egress" jsonschema:"what all its tools do: bring in untrusted text, show private data, send data out"`
	ToolFlags        map[string][]string `json:"tool_flags,omitempty" enum:"untrusted,private,egress" example:"{\"get_page\": [\"untrusted\"]}" jsonschema:"the same for single tools, by name; * and ? match"`
	Pin              string              `json:"pin,omitempty" enum:"first-use,strict" default:"first-use" jsonschema:"whether definitions are accepted on first use or only by a person"`
	Timeout          *timeoutKeys        `json:"timeout,omitempty" jsonschema:"deadlines"`
	Disabled         bool                `json:"disabled,omitempty" default:"false" jsonschema:"keeps the entry without using it"`
}

type timeoutKeys struct {
	Connect *duration `json:"connect,omitempty" default:"30s" jsonschema:"for start and handshake"`
	Call    *duration `json:"call,omitempty" default:"60s" jsonschema:"for one call; progress cannot extend it"`
}

const (
	rootPattern           = `^(/|\$\{)`
	defaultConnectTimeout = 30 * time.Second
	defaultCallTimeout    = 60 * time.Second
)

// hostName makes an id of a name written for another host: lower case, every
// other character a dash, none at the ends, "mcp-" before a digit, 31 at most.
func hostName(name string) string {
	id := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-")
	if id != "" && id[0] <= '9' {
		id = "mcp-" + id
	}
	return strings.TrimRight(id[:min(len(id), maxConnectorID)], "-")
}

const maxConnectorID = 31

func (p *parsed) checkConnectors() {
	f := p.connectors
	f.names = make(map[string]string, len(f.Servers))
	foreign := isHostFile(p.rel)
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		id, at := name, []string{"mcpServers", name}
		if foreign {
			id = hostName(name)
			f.Servers[name] = f.Servers[name].fromHostForm()
		}
		if !task.ValidConnectorID(id) {
			p.complainKey(at, "bad connector name "+quoted(name), expectedConnectorID, "rename the entry")
			continue
		}
		if other, taken := f.names[id]; taken {
			p.complainKey(at, fmt.Sprintf("%s and %s are both named %s here", quoted(other), quoted(name), id), "distinct names", "rename one of them")
			continue
		}
		f.names[id] = name
		p.checkConnector(at, f.Servers[name])
	}
}

// fromHostForm rewrites ${VAR} as other hosts write it.
func (k connectorKeys) fromHostForm() connectorKeys {
	k.Command, k.Cwd, k.URL, k.Root = fromHostForm(k.Command), fromHostForm(k.Cwd), fromHostForm(k.URL), fromHostForm(k.Root)
	if k.Args != nil {
		args := slices.Clone(*k.Args)
		for i := range args {
			args[i] = fromHostForm(args[i])
		}
		k.Args = &args
	}
	for _, m := range []map[string]string{k.Env, k.Headers} {
		for name, v := range m {
			m[name] = fromHostForm(v)
		}
	}
	return k
}

func (p *parsed) checkConnector(at []string, k connectorKeys) {
	var ways []string
	for _, key := range []string{"builtin", "command", "url"} {
		if p.tree.has(below(at, key)...) {
			ways = append(ways, key)
		}
	}
	switch {
	case len(ways) == 0:
		p.complain(at, "nothing says how to reach it", "one of builtin, command and url", "")
	case len(ways) > 1:
		p.complainKey(below(at, ways[1]), strings.Join(ways, " and ")+" at once", "one of builtin, command and url", "")
	default:
		p.checkTransport(at, ways[0], k)
	}
	p.checkConnectorReferences(at, k)
	for i, pattern := range values(k.DisabledTools) {
		p.checkPattern(below(at, "disabled_tools", fmt.Sprint(i)), pattern)
	}
	for _, pattern := range slices.Sorted(maps.Keys(k.Classes)) {
		p.checkPattern(below(at, "classes", pattern), pattern)
	}
	for _, pattern := range slices.Sorted(maps.Keys(k.ToolFlags)) {
		p.checkPattern(below(at, "tool_flags", pattern), pattern)
	}
	if t := k.Timeout; t != nil {
		for name, d := range map[string]*duration{"connect": t.Connect, "call": t.Call} {
			if d != nil && *d <= 0 {
				p.complain(below(at, "timeout", name), "0 is too short", expectedDuration, "")
			}
		}
	}
}

// transportKeys are those that belong to one way of reaching a server.
var transportKeys = map[string][]string{
	"builtin": {"args", "env", "root"},
	"command": {"args", "env", "cwd", "root"},
	"url":     {"headers", "allow_private"},
}

func (p *parsed) checkTransport(at []string, way string, k connectorKeys) {
	for _, key := range []string{"args", "env", "cwd", "root", "headers", "allow_private"} {
		if here := below(at, key); p.tree.has(here...) && !slices.Contains(transportKeys[way], key) {
			what := fmt.Sprintf("key %q does not belong to a connector with %s", key, way)
			if isHostFile(p.rel) {
				p.warn(here, what+"; it is ignored", "", "")
				continue
			}
			p.complainKey(here, what, oneOf(transportKeys[way]), "")
		}
	}
	if k.Builtin == "files" && !p.tree.has(below(at, "root")...) {
		p.complain(at, "builtin files without a root", "root: the directory it may serve", "")
	}
	if remote := way == "url"; k.Type != "" && remote != (k.Type != "stdio") {
		p.complain(below(at, "type"), fmt.Sprintf("type %s with a %s", k.Type, way), "stdio with a command, http with a url", "leave type out")
	}
	if k.Type == "sse" {
		p.warn(below(at, "type"), "the old SSE transport is not spoken; streamable HTTP is tried", "", "")
	}
	p.checkURL(below(at, "url"), k.URL)
}

func (p *parsed) checkConnectorReferences(at []string, k connectorKeys) {
	p.reference(below(at, "command"), k.Command, forPath)
	p.reference(below(at, "cwd"), k.Cwd, forPath)
	p.reference(below(at, "root"), k.Root, forPath)
	p.address(below(at, "url"), k.URL)
	for i, arg := range values(k.Args) {
		p.argument(below(at, "args", fmt.Sprint(i)), arg)
	}
	for _, name := range slices.Sorted(maps.Keys(k.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			p.complain(below(at, "env", name), "bad variable name "+quoted(name), "a name without =", "")
		}
		p.reference(below(at, "env", name), k.Env[name], forSecret)
	}
	for _, name := range slices.Sorted(maps.Keys(k.Headers)) {
		p.reference(below(at, "headers", name), k.Headers[name], forSecret)
	}
}

// connector is the entry without its policy.
func (k connectorKeys) connector(id, rel string) task.Connector {
	c := task.Connector{
		ID: id, Builtin: k.Builtin, Command: k.Command, Args: values(k.Args), Env: k.Env, Dir: k.Cwd,
		URL: k.URL, Headers: k.Headers, Root: k.Root, AllowPrivate: k.AllowPrivate,
		ConnectTimeout: defaultConnectTimeout, CallTimeout: defaultCallTimeout, File: rel,
	}
	if k.Timeout != nil {
		c.ConnectTimeout = orElse(k.Timeout.Connect, c.ConnectTimeout)
		c.CallTimeout = orElse(k.Timeout.Call, c.CallTimeout)
	}
	return c
}

// policy is the connector's row of the policy database.
func (k connectorKeys) policy() policy.Fields {
	f := policy.Fields{DisabledTools: list(k.DisabledTools), TrustAnnotations: k.TrustAnnotations, Origin: k.origin()}
	for tool, class := range k.Classes {
		if f.Classes == nil {
			f.Classes = make(map[string]policy.Class, len(k.Classes))
		}
		f.Classes[tool] = policy.Class(class)
	}
	if k.Pin != "" {
		pin := policy.PinMode(k.Pin)
		f.Pin = &pin
	}
	if k.Flags != nil || k.ToolFlags != nil {
		flags := []policy.Flag{}
		if k.Flags == nil { // flags of single tools come on top of what holds without them
			flags = append(flags, policy.DefaultFlags(*f.Origin)...)
		}
		for _, kind := range values(k.Flags) {
			flags = append(flags, policy.Flag{Kind: kind})
		}
		for _, tool := range slices.Sorted(maps.Keys(k.ToolFlags)) {
			for _, kind := range k.ToolFlags[tool] {
				flags = append(flags, policy.Flag{Tool: tool, Kind: kind})
			}
		}
		f.Flags = task.ListOf(flags...)
	}
	return f
}
