package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each entry of another host's file is judged alone: whatever stands beside it, a
// good one lives, and an odd one is mended or named.
func TestHostFileEntryIsJudgedAlone(t *testing.T) {
	type want struct {
		ids   []string // beside good
		warns []string // parts, one for each warning
		about func(*testing.T, *Set)
	}
	stays := want{ids: []string{"odd"}}
	out := func(why string) want { return want{warns: []string{"connector odd is left out: " + why}} }
	tests := []struct {
		name, entry string // entry stands beside good; whole, if it begins with a brace
		want        want
	}{
		{"F1 a timeout in milliseconds", `"odd": {"command": "x", "timeout": 60000}`, want{ids: []string{"odd"}, about: func(t *testing.T, s *Set) {
			if got := s.Connectors["odd"].Connector.CallTimeout; got != time.Minute {
				t.Errorf("call timeout %v, want 1m", got)
			}
		}}},
		{"F1 a timeout that can only be seconds", `"odd": {"command": "x", "timeout": 90}`, want{ids: []string{"odd"}, about: func(t *testing.T, s *Set) {
			if got := s.Connectors["odd"].Connector.CallTimeout; got != 90*time.Second {
				t.Errorf("call timeout %v, want 90s", got)
			}
		}}},
		{"F1 a scope in the name", `"@acme-dev/magic": {"command": "x"}`, want{ids: []string{"acme-dev-magic"}}},
		{"F1 a digit first", `"@21st-dev/magic": {"command": "x"}`, want{ids: []string{"mcp-21st-dev-magic"}}},
		{"F1 a long name", `"` + strings.Repeat("n", 40) + `": {"command": "x"}`, want{ids: []string{strings.Repeat("n", 31)}}},
		{"F1 no name that can be mended", `"---": {"command": "x"}`, want{warns: []string{`connector  is left out: bad connector name "---"`}}},
		{"F1 numbers and booleans as text", `"odd": {"command": "x", "args": ["-p", 3000], "env": {"PORT": 3000, "RATE": 0.50, "DEBUG": true, "NONE": null}}`,
			want{ids: []string{"odd"}, about: func(t *testing.T, s *Set) {
				c := s.Connectors["odd"].Connector
				if c.Env["PORT"] != "3000" || c.Env["RATE"] != "0.50" || c.Env["DEBUG"] != "true" || len(c.Env) != 3 || !slices.Equal(c.Args, []string{"-p", "3000"}) {
					t.Errorf("env %v, args %v", c.Env, c.Args)
				}
			}}},
		{"F1 no way to reach it", `"odd": {"env": {"A": "b"}}`, out("mcpServers.odd: nothing says how to reach it")},
		{"F1 httpUrl", `"odd": {"httpUrl": "https://x.example.com/mcp"}`, stays},
		{"F1 serverUrl", `"odd": {"serverUrl": "https://x.example.com/mcp"}`, want{ids: []string{"odd"}, about: func(t *testing.T, s *Set) {
			if got := s.Connectors["odd"].Connector.URL; got != "https://x.example.com/mcp" {
				t.Errorf("url %q", got)
			}
		}}},
		{"F1 two urls", `"odd": {"serverUrl": "https://x.example.com", "url": "https://y.example.com"}`, out(`duplicate key "url"`)},
		{"F1 a comment as a key", `"_comment": "mine", "odd": {"command": "x", "_note": 1, "//": "why"}`, want{ids: []string{"odd"}, warns: []string{"mcpServers._comment is taken for a comment"}}},
		{"F1 a command as a list", `"odd": {"command": ["npx", "-y", "x"], "args": ["z"]}`, want{ids: []string{"odd"}, about: func(t *testing.T, s *Set) {
			if c := s.Connectors["odd"].Connector; c.Command != "npx" || !slices.Equal(c.Args, []string{"-y", "x", "z"}) {
				t.Errorf("%s %v", c.Command, c.Args)
			}
		}}},
		{"F1 an unknown transport", `"odd": {"command": "x", "type": "pipe"}`, want{ids: []string{"odd"}, warns: []string{`mcpServers.odd.type: "pipe" is ignored`}}},
		{"F1 another word for a transport", `"odd": {"url": "https://x.example.com", "transport": "streamable_http"}`, stays},
		{"F1 no mapping", `"odd": "npx x"`, out("the entry is no mapping of keys")},
		{"F1 null", `"odd": null`, out("the entry is no mapping of keys")},
		{"F1 null values", `"odd": {"command": "x", "args": null, "disabledTools": null}`, stays},
		{"F1 an input that the editor asks for", `"odd": {"command": "x", "env": {"K": "${input:key}"}}`, out(`mcpServers.odd.env.K: unknown reference "${input:key}"`)},
		{"F1 the same name twice", `"odd": {"command": "x"}, "odd": {"command": "y", "disabled": true}`,
			want{warns: []string{`connector odd is left out: duplicate key "odd"`, `connector odd is left out: duplicate key "odd"`}}},
		{"F1 two names that become one", `"Odd": {"command": "x"}, "odd": {"command": "y"}`, want{ids: []string{"odd"}, warns: []string{`"Odd" and "odd" are both named odd here`}}},
		{"F1 a name of connectors.yaml", `"memory": {"command": "x"}`, want{warns: []string{`connector "memory" is already defined in connectors.yaml`}}},
		{"F1 nested too deep", `"odd": {"command": "x", "x": ` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`, want{ids: []string{}}},
		{"F1 comments and trailing commas", "// mine\n \"odd\": {\"command\": \"x\", /* two\nlines */ \"args\": [\"a//b\", \"c,]\",],},", want{ids: []string{"odd"}, about: func(t *testing.T, s *Set) {
			if got := s.Connectors["odd"].Connector.Args; !slices.Equal(got, []string{"a//b", "c,]"}) {
				t.Errorf("args %q", got)
			}
		}}},
		{"F2 servers of an editor", `{"inputs": [], "servers": {"good": {"command": "g"}, "odd": {"type": "stdio", "command": "x"}}}`, want{ids: []string{"odd"}, warns: []string{`unknown key "inputs" is ignored`}}},
		{"F2 mcp.servers", `{"mcp": {"servers": {"good": {"command": "g"}, "odd": {"command": "x"}}}}`, stays},
		{"F2 both", `{"mcpServers": {"good": {"command": "g"}}, "servers": {"odd": {"command": "x"}}}`, stays},

		{"B4 disabledTools", `"odd": {"command": "x", "disabledTools": ["look"], "disabled_tools": ["peek"]}`, want{ids: []string{"odd"}, about: hasDisabled("look", "peek")}},
		{"B4 excludeTools", `"odd": {"command": "x", "excludeTools": ["look"]}`, want{ids: []string{"odd"}, about: hasDisabled("look")}},
		{"B4 one name", `"odd": {"command": "x", "disallowedTools": "look"}`, want{ids: []string{"odd"}, about: hasDisabled("look")}},
		{"B4 names that are none", `"odd": {"command": "x", "disabledTools": {"look": true}}`, out(`key "disabledTools" is no list of names`)},
		{"B4 enabled", `"odd": {"command": "x", "enabled": true}`, stays},
		{"B4 not enabled", `"odd": {"command": "x", "enabled": false, "disabled": false}`, want{}},
		{"B4 not active", `"odd": {"command": "x", "isActive": false}`, want{}},
		{"B4 disabled", `"odd": {"command": "x", "disabled": true}`, want{}},
		{"B4 perhaps enabled", `"odd": {"command": "x", "enabled": "no"}`, out(`key "enabled" is neither true nor false`)},
		{"B4 a list of what may be used", `"odd": {"command": "x", "includeTools": ["look"]}`, out(`key "includeTools" may restrict it and is not understood`)},
		{"B4 a list of all tools", `"odd": {"command": "x", "tools": ["*"]}`, stays},
		{"B4 a list of none", `"odd": {"command": "x", "allowedTools": []}`, out(`key "allowedTools" may restrict it and is not understood`)},
		{"B4 rules for single tools", `"odd": {"command": "x", "tools": {"look": {"enabled": false}}}`, out(`key "tools" may restrict it and is not understood`)},
		{"B4 read only", `"odd": {"command": "x", "readOnly": true}`, out(`key "readOnly" may restrict it and is not understood`)},
		{"B4 wider is passed over", `"odd": {"command": "x", "alwaysAllow": ["*"], "autoApprove": ["y"]}`, want{ids: []string{"odd"}, warns: []string{`"alwaysAllow" is ignored`, `"autoApprove" is ignored`}}},
		{"B4 a server that is switched off beside", `{"mcpServers": {"good": {"command": "g"}, "odd": {"command": "x"}}, "disabledMcpjsonServers": ["odd"]}`, want{}},
		{"B4 a server that is not among those switched on", `{"mcpServers": {"good": {"command": "g"}, "odd": {"command": "x"}}, "enabledMcpjsonServers": ["good"]}`, want{}},
		{"B4 excluded beside", `{"mcpServers": {"good": {"command": "g"}, "odd": {"command": "x"}}, "mcp": {"excluded": ["odd"]}}`, want{}},
		{"B4 nothing is allowed beside", `{"mcpServers": {"good": {"command": "g"}, "odd": {"command": "x"}}, "mcp": {"allowed": ["good"]}}`, want{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := tt.entry
			if !strings.HasPrefix(text, "{") {
				text = "{\"mcpServers\": {\n \"good\": {\"command\": \"g\"},\n " + text + "\n}}"
			}
			for _, file := range []string{".mcp.json", "connectors.d/x.json"} {
				s := load(t, newDir(t, base(map[string]string{file: text})).loader())
				if tt.name == "F1 nested too deep" {
					if len(s.Problems) != 1 {
						t.Errorf("problems %q, want one", texts(s.Problems))
					}
					continue
				}
				if len(s.Problems) != 0 {
					t.Fatalf("problems %q, want none", texts(s.Problems))
				}
				ids := slices.Sorted(slices.Values(append([]string{"files", "good", "mail", "memory"}, tt.want.ids...)))
				if got := s.ConnectorIDs(); !slices.Equal(got, ids) {
					t.Errorf("connectors %v, want %v; warnings %q", got, ids, texts(s.Warnings))
				}
				checkWarnings(t, s, file, tt.want.warns)
				if tt.want.about != nil && s.Connectors["odd"].File != "" {
					tt.want.about(t, s)
				}
			}
		})
	}
}

func hasDisabled(want ...string) func(*testing.T, *Set) {
	return func(t *testing.T, s *Set) {
		if got := s.Connectors["odd"].Policy.DisabledTools.Items(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("disabled tools %v, want %v", got, want)
		}
	}
}

func checkWarnings(t *testing.T, s *Set, file string, want []string) {
	t.Helper()
	if len(s.Warnings) != len(want) {
		t.Errorf("warnings %q, want %d", texts(s.Warnings), len(want))
	}
	for _, part := range want {
		if !slices.ContainsFunc(s.Warnings, func(p Problem) bool { return p.File == file && p.Line > 0 && strings.Contains(p.What, part) }) {
			t.Errorf("warnings %q, want one in %s with %q", texts(s.Warnings), file, part)
		}
	}
}

// A task that names an entry that was left out is told where and why.
func TestLeftOutEntryIsNamedWhereItIsUsed(t *testing.T) {
	s := load(t, newDir(t, base(map[string]string{
		".mcp.json":    "{\"mcpServers\": {\n  \"odd\": {\"comand\": \"x\"}}}",
		"tasks/t.yaml": "prompt: p\nconnectors: [odd]\n",
	})).loader())
	want := `tasks/t.yaml:2:14: connectors[0]: unknown connector "odd"; expected a connector of connectors.yaml; .mcp.json:2 leaves it out: mcpServers.odd: nothing says how to reach it`
	if got := texts(s.Problems); len(got) != 1 || got[0] != want {
		t.Errorf("problems %q", got)
	}
}

func TestPlainJSONKeepsPlaces(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": 1, }`:                   `{"a": 1  }`,
		`[1, /* c */ ]`:                `[1          ]`,
		"{// c\n\"a\": \"//\" , \n}":   "{    \n\"a\": \"//\"   \n}",
		`{"a": "\"/*", "b": [",]",],}`: `{"a": "\"/*", "b": [",]" ] }`,
		`/`:                            `/`,
		`{"a": 1 /* open`:              `{"a": 1        `,
		`"open \`:                      `"open \`,
		`[1,,]`:                        `[1, ]`,
	} {
		if got := string(plainJSON([]byte(in))); got != want {
			t.Errorf("plainJSON(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestRestrictionBesideTheEntries (B4): what another host's file says beside its
// entries may restrict them; what is not understood leaves them out, by name.
func TestRestrictionBesideTheEntries(t *testing.T) {
	for _, c := range []struct {
		name, beside string
		out          bool
	}{
		{"permissions", `"permissions": {"deny": ["mcp__good__x"]}`, true},
		{"tools", `"disabledTools": ["x"]`, true},
		{"servers", `"excludedServers": ["good"]`, true},
		{"an empty one", `"disabledTools": [], "permissions": {}`, false},
		{"what widens", `"autoApprove": ["x"]`, false},
		{"what says nothing of it", `"inputs": [], "globalShortcut": "", "$schema": "x"`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t, newDir(t, base(map[string]string{".mcp.json": `{"mcpServers": {"good": {"command": "g"}}, ` + c.beside + `}`})).loader())
			if got := slices.Contains(s.ConnectorIDs(), "good"); got == c.out || len(s.Problems) > 0 {
				t.Errorf("good is used: %v, want %v; problems %q", got, !c.out, texts(s.Problems))
			}
			if told := slices.ContainsFunc(s.Warnings, func(p Problem) bool { return strings.Contains(p.What, "connector good is left out") }); told != c.out {
				t.Errorf("warnings %q", texts(s.Warnings))
			}
		})
	}
	s := load(t, newDir(t, base(map[string]string{".mcp.json": `{"mcpServers": {"good": {"command": "g", "permissions": {"deny": ["x"]}}}}`})).loader())
	if slices.Contains(s.ConnectorIDs(), "good") {
		t.Errorf("an entry's own permissions were passed over: %q", texts(s.Warnings))
	}
}
