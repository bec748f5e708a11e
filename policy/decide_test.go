package policy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"runnerd/task"
)

// decideCase changes the fixture and a call of it, and says what must come out.
type decideCase struct {
	name   string
	call   Call
	edit   func(*Effective, *Call)
	kind   task.DecisionKind
	code   Code
	rule   string
	answer string
}

func checkDecisions(t *testing.T, cases []decideCase) {
	t.Helper()
	for _, c := range cases {
		e, call := fixture(), c.call
		if c.edit != nil {
			c.edit(&e, &call)
		}
		d := Decide(e, call)
		if d.Kind != c.kind || d.Code != c.code {
			t.Errorf("%s: got %s %s (%s), want %s %s", c.name, d.Kind, d.Code, d.Rule, c.kind, c.code)
			continue
		}
		hasText(t, c.name, d.Rule, c.rule)
		hasText(t, c.name, d.Answer, c.answer)
		if d.Allowed() != (d.Answer == "") {
			t.Errorf("%s: %s with answer %q", c.name, d.Kind, d.Answer)
		}
		if !d.Allowed() {
			var told struct {
				Error    string
				ExitCode int `json:"exit_code"`
			}
			if err := json.Unmarshal([]byte(d.Answer), &told); err != nil || told.Error == "" || told.ExitCode != 1 {
				t.Errorf("%s: answer %s", c.name, d.Answer)
			}
		}
	}
}

func TestDecideSteps(t *testing.T) {
	read := call("files", "read_file", `{"path":"a"}`)
	write := call("files", "write_file", `{"path":"a.md"}`)
	send := call("mail", "send_message", `{}`)
	named := func(name string) Call { c := read; c.Name = name; return c }
	allow := func(s string) func(*Effective, *Call) {
		return func(e *Effective, _ *Call) { e.Allow = append(e.Allow, mustGrant(t, s)) }
	}
	checkDecisions(t, []decideCase{
		{"a read passes", read, nil, task.DecisionAllow, "", "read: classes entry read_file", ""},
		{"a tool whose name has __", call("browser", "x__y__z", `{}`), nil, task.DecisionAllow, "", "read", ""},

		// Resolving the name.
		{"never offered, exact alias", named("mcp__mail__search"), nil, task.DecisionDeny, CodeNotOffered, "mail/search was not offered in this step", "NOT run"},
		{"made up", named("do_it"), nil, task.DecisionDeny, CodeUnknownTool, "do_it", "no tool named"},
		{"foreign name of an unreachable connector", named("mcp__mail__search"),
			func(e *Effective, _ *Call) { e.TaskConnectors = task.ListOf("files") },
			task.DecisionDeny, CodeNotReachable, "does not list mail", `{"error":"Connector mail is not enabled for this task","exit_code":1}`},
		{"foreign name of no connector", named("mcp__ghost__x"), nil, task.DecisionDeny, CodeUnknownTool, "ghost", ""},
		{"empty name", named(""), func(_ *Effective, c *Call) {
			c.Slots = append(c.Slots, task.Slot{Connector: "files", Tool: "read_file"})
		},
			task.DecisionDeny, CodeUnknownTool, "", ""},
		{"no table", read, func(_ *Effective, c *Call) { c.Slots = nil }, task.DecisionDeny, CodeNotOffered, "", ""},

		// Reachable, offered, disabled.
		{"became unreachable", read, func(e *Effective, _ *Call) { e.TaskConnectors = task.ListOf[string]() },
			task.DecisionDeny, CodeNotReachable, "connectors of the task", `{"error":"Connector files is not enabled for this task","exit_code":1}`},
		{"no longer configured", read, func(e *Effective, _ *Call) { delete(e.Connectors, "files") }, task.DecisionDeny, CodeNotReachable, "not configured", ""},
		{"no longer selected", read, func(e *Effective, _ *Call) { e.Tools = task.ListOf("mail") }, task.DecisionDeny, CodeNotOffered, "tools", ""},
		{"tools emptied", read, func(e *Effective, _ *Call) { e.Tools = task.ListOf[string]() }, task.DecisionDeny, CodeNotOffered, "", ""},
		{"selected", read, func(e *Effective, _ *Call) { e.Tools = task.ListOf("files") }, task.DecisionAllow, "", "", ""},
		{"disabled", read, func(e *Effective, _ *Call) {
			r := e.Connectors["files"]
			r.Disabled = []string{"read_file"}
			e.Connectors["files"] = r
		},
			task.DecisionDeny, CodeDisabled, "disabled_tools of connector files", ""},

		// Deny, grants, asks.
		{"write without a grant", write, nil, task.DecisionDeny, CodeNeedsApproval, `allow: [{tool: files/write_file, where: {path: {eq: "a.md"}}}]`, "NOT run"},
		{"write with a grant", write, allow("files/write_file"), task.DecisionAllow, "", "allow: files/write_file (task file)", ""},
		{"glob grant", send, allow("mail/send_*"), task.DecisionAllow, "", "allow: mail/send_*", ""},
		{"grant of another connector", write, allow("mail/*"), task.DecisionDeny, CodeNeedsApproval, "class write", ""},
		{"deny beats allow", write, func(e *Effective, _ *Call) { allow("files/*")(e, nil); e.Deny = []Grant{mustGrant(t, "files/write_*")} },
			task.DecisionDeny, CodeDenied, "deny: files/write_* (task file)", "NOT run"},
		{"deny beats read", read, func(e *Effective, _ *Call) { e.Deny = []Grant{mustGrant(t, "*/read_*")} }, task.DecisionDeny, CodeDenied, "deny", ""},
		{"park", write, func(e *Effective, _ *Call) { e.OnAsk = OnAskPark }, task.DecisionPark, CodeNeedsApproval, "approval", "NOT run"},
		{"on_ask of no known value", write, func(e *Effective, _ *Call) { e.OnAsk = "ask" }, task.DecisionDeny, CodeNeedsApproval, "", ""},
		{"approved", write, func(_ *Effective, c *Call) { c.Approved = true }, task.DecisionAllow, "", "approved by a person", ""},
		{"approved but denied since", write, func(e *Effective, c *Call) { c.Approved = true; e.Deny = []Grant{mustGrant(t, "files/*")} },
			task.DecisionDeny, CodeDenied, "deny", ""},
		{"approved but over the limit", write, func(_ *Effective, c *Call) { c.Approved, c.ToolCalls = true, 50 }, task.DecisionAbort, CodeLimit, "tool_calls is 50", ""},

		// Limits and repeats.
		{"last call", read, func(_ *Effective, c *Call) { c.ToolCalls = 49 }, task.DecisionAllow, "", "", ""},
		{"one too many", read, func(_ *Effective, c *Call) { c.ToolCalls = 50 }, task.DecisionAbort, CodeLimit, "tool_calls", "NOT run"},
		{"no limit", read, func(e *Effective, c *Call) { e.Limits, c.ToolCalls = Limits{}, 9999 }, task.DecisionAllow, "", "", ""},
		{"third time", read, func(_ *Effective, c *Call) { c.Repeats = 2 }, task.DecisionAllow, "", "", ""},
		{"fourth time", read, func(_ *Effective, c *Call) { c.Repeats = 3 }, task.DecisionAbort, CodeRepeatedCall, "3 times", ""},
		{"fourth time malformed", read, func(_ *Effective, c *Call) { c.Arguments, c.Repeats = "[]", 3 }, task.DecisionAbort, CodeRepeatedCall, "also refused", ""},
		{"over the limit while asking", write, func(e *Effective, c *Call) { e.OnAsk, c.ToolCalls = OnAskPark, 50 }, task.DecisionAbort, CodeLimit, "", ""},
		{"I8 the last that is asked for", write, func(e *Effective, c *Call) { e.OnAsk, c.Waiting = OnAskPark, MaxWaiting-1 }, task.DecisionPark, CodeNeedsApproval, "", ""},
		{"I8 one more", write, func(e *Effective, c *Call) { e.OnAsk, c.Waiting = OnAskPark, MaxWaiting }, task.DecisionDeny, CodeNeedsApproval, "wait for a person already", "NOT run"},
		{"not granted and over the limit: the ask comes first", write, func(_ *Effective, c *Call) { c.ToolCalls = 50 }, task.DecisionDeny, CodeNeedsApproval, "", ""},
	})
}

// A refusal says that an allow line for the tool is there, and which argument
// misses it by which value.
func TestRefusalNamesTheMiss(t *testing.T) {
	line := Grant{Connector: "files", Tool: "write_file", Where: map[string]Condition{"path": {Under: "/srv/reports"}, "content": {Any: true}}}
	write := func(args string) Call { return call("files", "write_file", args) }
	granted := func(e *Effective, _ *Call) { e.Allow = []Grant{mustGrant(t, "mail/*"), line} }
	const there = "the line files/write_file where content is anything and path under /srv/reports (task file) is there, but "
	miss := func(name, args, why string) decideCase {
		return decideCase{"friction 2: " + name, write(args), granted, task.DecisionDeny, CodeNeedsApproval, there + why, "NOT run"}
	}
	checkDecisions(t, []decideCase{
		miss("elsewhere", `{"path":"/etc/x","content":"a"}`, `path is "/etc/x"`),
		miss("missing", `{"content":"a"}`, "path is missing"),
		miss("another type", `{"path":["/srv/reports/a"],"content":"a"}`, `path is ["/srv/reports/a"]`),
		miss("one argument more", `{"path":"a","content":"a","mode":"create"}`, "mode is not named in it"),
		{"friction 2: no line for the tool", call("files", "delete_file", `{"path":"a"}`), granted, task.DecisionDeny, CodeNeedsApproval, "no allow line matches this call; this line", ""},
	})
}

func TestDecideDefinition(t *testing.T) {
	read := call("files", "read_file", `{}`)
	hash := read.Slots[0].Definition
	pins := func(mode PinMode, pins map[string]string) func(*Effective, *Call) {
		return func(e *Effective, _ *Call) {
			r := e.Connectors["files"]
			r.Pin, r.Pins = mode, pins
			e.Connectors["files"] = r
		}
	}
	checkDecisions(t, []decideCase{
		{"first use", read, pins(PinFirstUse, nil), task.DecisionAllow, "", "", ""},
		{"pinned", read, pins(PinFirstUse, map[string]string{"read_file": hash}), task.DecisionAllow, "", "", ""},
		{"changed", read, pins(PinFirstUse, map[string]string{"read_file": "other"}), task.DecisionDeny, CodeQuarantined, "changed since it was accepted; review it and run: runnerd connectors accept files", "a person has to review"},
		{"new on a pinned connector", read, pins(PinFirstUse, map[string]string{"write_file": hash}), task.DecisionDeny, CodeQuarantined, "appeared after", ""},
		{"nothing left accepted", read, pins(PinFirstUse, map[string]string{}), task.DecisionDeny, CodeQuarantined, "accepted", ""},
		{"strict without a pin", read, pins(PinStrict, nil), task.DecisionDeny, CodeQuarantined, "runnerd connectors accept files", ""},
		{"strict with a pin", read, pins(PinStrict, map[string]string{"read_file": hash}), task.DecisionAllow, "", "", ""},
		{"no mode counts as strict", read, pins("", nil), task.DecisionDeny, CodeQuarantined, "accepted", ""},
		{"changed since the offer", read, func(_ *Effective, c *Call) {
			c.Slots = []task.Slot{{Alias: c.Name, Connector: "files", Tool: "read_file", Definition: "older"}}
		}, task.DecisionDeny, CodeQuarantined, "after it was offered", ""},
		{"tool gone", read, func(_ *Effective, c *Call) {
			c.Connected = []Connected{{ID: "files", Up: true, Tools: []task.Tool{tool("look")}}}
		},
			task.DecisionDeny, CodeUnknownTool, "lists no tool", ""},
		{"only exec left", read, func(e *Effective, c *Call) {
			e.Connectors["files"] = rulesWith(nil)
		}, task.DecisionDeny, CodeNotOffered, "none of its tools is classed read", ""},
		{"tool gone, its siblings there", read, func(e *Effective, c *Call) {
			e.Tools = task.ListOf("files")
			c.Connected = []Connected{{ID: "files", Up: true, Tools: []task.Tool{tool("look")}}}
		}, task.DecisionDeny, CodeUnknownTool, "lists no tool", ""},
		{"connector down", read, func(_ *Effective, c *Call) { c.Connected = []Connected{{ID: "files", Down: "exit 1"}} }, task.DecisionDeny, CodeUnknownTool, "down: exit 1", "NOT run"},
		{"connector not asked", read, func(_ *Effective, c *Call) { c.Connected = nil }, task.DecisionDeny, CodeUnknownTool, "down: not connected", "NOT run"},
		{"listed twice", read, func(_ *Effective, c *Call) {
			other := annotated("read_file", true, false)
			c.Connected = []Connected{{ID: "files", Up: true, Tools: []task.Tool{tool("read_file"), other}}}
		}, task.DecisionDeny, CodeUnknownTool, "lists no tool", ""},
	})
	if e := fixture(); Decide(e, Call{}).Allowed() || (Decision{}).Allowed() || Decide(Effective{}, read).Allowed() {
		t.Error("a zero value allows")
	}
}

func TestDecideArguments(t *testing.T) {
	with := func(arguments string) Call { return call("files", "read_file", arguments) }
	bad := func(name, arguments, rule string) decideCase {
		return decideCase{name, with(arguments), nil, task.DecisionDeny, CodeInvalidArguments, rule, "NOT run"}
	}
	checkDecisions(t, []decideCase{
		bad("empty", "", "written {}"), bad("an array", `[1]`, "an array"), bad("a string", `"x"`, "a string"), bad("null", `null`, "null"),
		bad("cut", `{"path":"a`, "does not end"), bad("cut object", `{"a":1`, "want ','"), bad("two values", `{}{}`, "follows"),
		bad("no JSON", `path=a`, "unexpected"), bad("single quotes", `{'a':1}`, "double quotes"), bad("trailing comma", `{"a":1,}`, "double quotes"),
		bad("duplicate key", `{"a":1,"a":2}`, `duplicate key "a"`), bad("duplicate by escape", `{"a":1,"\u0061":2}`, "duplicate key"),
		bad("duplicate deep inside", `{"a":[{"b":{"c":1,"c":2}}]}`, "duplicate key"), bad("keys that differ by case", `{"path":"a","PATH":"b"}`, "by case only"),
		bad("not UTF-8", "{\"a\":\"\xff\"}", "UTF-8"), bad("half a surrogate", `{"a":"\ud800"}`, "surrogate"), bad("wrong half", `{"a":"\udc00\ud800"}`, "surrogate"),
		bad("control character", "{\"a\":\"\n\"}", "control character"), bad("bad escape", `{"a":"\x"}`, "escape"),
		bad("huge exponent", `{"a":1e999999999}`, "out of range"), bad("bad number", `{"a":01}`, "bad number"), bad("NaN", `{"a":NaN}`, "unexpected"),
		bad("too deep", `{"a":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`, "nested"),
		bad("too long", `{"a":"`+strings.Repeat("x", MaxArgumentBytes)+`"}`, "more than"),
		{"a pair of surrogates", with(`{"a":"\ud83d\ude00 \\ud800"}`), nil, task.DecisionAllow, "", "", ""},
		{"white space", with(" {\n\t\"a\" : [ 1 , -2.5e3, true, null ] } \r"), nil, task.DecisionAllow, "", "", ""},
		{"the same key in two objects", with(`{"a":{"x":1},"b":{"x":1}}`), nil, task.DecisionAllow, "", "", ""},
	})
}

func TestDecideSchema(t *testing.T) {
	schemas := NewSchemas()
	with := func(schema, arguments string) Call {
		c := call("files", "read_file", arguments)
		d := task.Tool{Name: "read_file", InputSchema: json.RawMessage(schema)}
		d.Hash = d.DefinitionHash()
		c.Connected, c.Slots[0].Definition, c.Schemas = []Connected{{ID: c.Slots[0].Connector, Up: true, Tools: []task.Tool{d}}}, d.Hash, schemas
		return c
	}
	path := `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`
	doubling := `{"$defs":{"d30":{"type":"string"}`
	for i := range 30 {
		n := string(rune('0'+(i+1)/10)) + string(rune('0'+(i+1)%10))
		doubling += `,"d` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `":{"anyOf":[{"$ref":"#/$defs/d` + n + `"},{"$ref":"#/$defs/d` + n + `"}]}`
	}
	doubling += `},"not":{"$ref":"#/$defs/d00"}}`
	refuse := func(name, schema string) decideCase {
		return decideCase{name, with(schema, `{"path":"x"}`), nil, task.DecisionDeny, CodePolicyError, "connector files", "NOT run"}
	}
	checkDecisions(t, []decideCase{
		{"fits", with(path, `{"path":"a"}`), nil, task.DecisionAllow, "", "", ""},
		{"missing", with(path, `{}`), nil, task.DecisionDeny, CodeInvalidArguments, "missing property 'path'", "missing property 'path'"},
		{"wrong type", with(path, `{"path":["a"]}`), nil, task.DecisionDeny, CodeInvalidArguments, "got array, want string", ""},
		{"unknown property", with(path, `{"path":"a","x":1}`), nil, task.DecisionDeny, CodeInvalidArguments, "'x' not allowed", ""},
		{"null schema", with(`null`, `{"x":1}`), nil, task.DecisionAllow, "", "", ""},
		{"no schema", with(``, `{"x":1}`), nil, task.DecisionAllow, "", "", ""},
		{"draft 7", with(`{"$schema":"http://json-schema.org/draft-07/schema#","required":["path"]}`, `{"path":1}`), nil, task.DecisionAllow, "", "", ""},
		{"a look-ahead is left to the server", with(`{"properties":{"path":{"pattern":"^(?!x)"}}}`, `{"path":"a"}`), nil, task.DecisionAllow, "", "", ""},
		refuse("remote reference", `{"$ref":"https://example.com/s.json"}`), refuse("file reference", `{"$ref":"file:///etc/passwd"}`),
		refuse("unknown meta-schema", `{"$schema":"https://example.com/s.json"}`), refuse("no schema at all", `{"type":5}`), refuse("an array", `[]`),
		refuse("broken JSON", `{"type":`), refuse("broken pattern", `{"properties":{"path":{"pattern":"["}}}`),
		refuse("bottomless", strings.Repeat(`{"not":`, 500)+`{}`+strings.Repeat(`}`, 500)),
		refuse("refers to itself for ever", `{"$ref":"#"}`),
		refuse("doubles thirty times", doubling),
	})
	if c := with(path, `{"path":"a"}`); schemas.byHash[c.Connected[0].Tools[0].Hash] == nil || schemas.byHash[c.Connected[0].Tools[0].Hash] != schemas.get(c.Connected[0].Tools[0]) {
		t.Error("compiled schemas are not kept")
	}
	for i := range maxSchemas + 10 {
		schemas.get(task.Tool{Name: "x", Hash: strings.Repeat("x", i+1)})
	}
	if len(schemas.byHash) > maxSchemas {
		t.Errorf("the cache holds %d", len(schemas.byHash))
	}
}

func TestDecideSecrets(t *testing.T) {
	c := call("files", "read_file", `{"path":"p","note":"say \u0068unter2-long"}`)
	c.Secret = func(text string) string {
		if strings.Contains(text, "hunter2-long") {
			return "openai"
		}
		return ""
	}
	d := Decide(fixture(), c)
	if d.Kind != task.DecisionDeny || d.Code != CodeSecretInArguments || strings.Contains(d.Rule+d.Answer, "hunter2") {
		t.Errorf("%+v", d)
	}
	hasText(t, "rule", d.Rule, "openai")
	c.Arguments = `{"path":"p"}`
	if d := Decide(fixture(), c); !d.Allowed() {
		t.Errorf("%+v", d)
	}
}

// The cases are those of the symlink, the traversal and the near-miss prefix.
func TestDecideUnder(t *testing.T) {
	grant := Grant{Connector: "files", Tool: "write_file", Where: map[string]Condition{"path": {Under: "/srv/reports"}}}
	for _, c := range []struct {
		arguments    string
		allow, denyW bool // allowed by an allow line; refused by the same as a deny line
	}{
		{`{"path":"/srv/reports/new.md"}`, true, true},
		{`{"path":"new.md"}`, true, true},
		{`{"path":"sub/../new.md"}`, false, true},
		{`{"path":"/srv/reports"}`, true, true},
		{`{"path":"/srv/reports/../etc/x"}`, false, true},
		{`{"path":"../etc/x"}`, false, true},
		{`{"path":"/srv/reports/a..b"}`, true, true},
		{`{"path":"/srv/reports-evil/x"}`, false, false},
		{`{"path":"/srv/reports/link/x"}`, false, false},
		{`{"path":["/srv/reports/x"]}`, false, true},
		{`{"path":5}`, false, true},
		{`{"path":null}`, false, true},
		{`{}`, false, true},
		{`{"path":""}`, false, true},
		{`{"path":"broken/x"}`, false, true},
		{`{"path":"~/x"}`, false, true},
		{`{"path":" /etc/x"}`, false, true},
		{`{"path":"\"/etc/x\""}`, false, true},
		{`{"path":"file:///etc/x"}`, false, true},
		{`{"path":"..\\etc"}`, false, true},
		{`{"path":"a\u0000b"}`, false, true},
	} {
		e := fixture()
		e.Allow = []Grant{grant}
		if got := Decide(e, call("files", "write_file", c.arguments)); got.Allowed() != c.allow {
			t.Errorf("allow %s: %s %s (%s)", c.arguments, got.Kind, got.Code, got.Rule)
		} else if c.allow {
			hasText(t, c.arguments, got.Rule, "allow: files/write_file where path under /srv/reports (task file)")
		}
		e.Allow, e.Deny = []Grant{mustGrant(t, "files/*")}, []Grant{grant}
		if got := Decide(e, call("files", "write_file", c.arguments)); (got.Code == CodeDenied) != c.denyW {
			t.Errorf("deny %s: %s %s (%s)", c.arguments, got.Kind, got.Code, got.Rule)
		}
	}
	e := fixture()
	e.Allow = []Grant{grant}
	for name, edit := range map[string]func(*ConnectorRules, *Call){
		"URL connector": func(r *ConnectorRules, _ *Call) { r.Origin = Origin{URL: "https://files.example.com"} },
		"no root":       func(r *ConnectorRules, c *Call) { r.Origin = Origin{}; c.Arguments = `{"path":"new.md"}` },
		"no resolver":   func(_ *ConnectorRules, c *Call) { c.Resolve = nil },
		"no error but nonsense": func(_ *ConnectorRules, c *Call) {
			c.Resolve = func(_, p string) (string, error) { return "relative", nil }
		},
	} {
		c := call("files", "write_file", `{"path":"/srv/reports/x"}`)
		rules := e.Connectors["files"]
		edit(&rules, &c)
		changed := fixture()
		changed.Allow, changed.Connectors["files"] = e.Allow, rules
		if d := Decide(changed, c); d.Allowed() {
			t.Errorf("%s: allowed", name)
		}
	}
}

func TestConditions(t *testing.T) {
	ten, length := Number("10"), 10
	for _, c := range []struct {
		name  string
		cond  Condition
		value string
		want  verdict
	}{
		{"eq", Condition{Eq: "a"}, `"a"`, yes}, {"eq not", Condition{Eq: "a"}, `"A"`, no}, {"eq other type", Condition{Eq: 1}, `"1"`, odd},
		{"eq list of it", Condition{Eq: "a"}, `["a"]`, odd}, {"eq null", Condition{Eq: "a"}, `null`, odd}, {"in list of it", Condition{In: []any{"a", "b"}}, `["a"]`, odd}, {"in other", Condition{In: []any{"a", 1}}, `2`, no},
		{"eq number", Condition{Eq: 1}, `1.0`, yes}, {"eq big", Condition{Eq: json.Number("9007199254740993")}, `9007199254740992`, no},
		{"eq bool", Condition{Eq: false}, `false`, yes}, {"eq list", Condition{Eq: []any{"a", 1}}, `["a",1]`, yes}, {"eq object", Condition{Eq: map[string]any{"a": 1}}, `{"a":1,"b":2}`, no},
		{"in", Condition{In: []any{"a", "b"}}, `"b"`, yes}, {"in none", Condition{In: []any{}}, `"b"`, no},
		{"max", Condition{Max: ten}, `10`, yes}, {"max over", Condition{Max: ten}, `10.5`, no}, {"max length", Condition{MaxLength: &length}, `"éééééééééé"`, yes},
		{"max long", Condition{MaxLength: &length}, `"12345678901"`, no}, {"max list", Condition{MaxItems: &length}, `[1,2]`, yes}, {"max of what", Condition{Max: ten}, `{}`, odd}, {"max bool", Condition{Max: ten}, `true`, odd},
		{"host", Condition{Host: "example.com"}, `"https://EXAMPLE.com/x"`, yes}, {"host with port", Condition{Host: "127.0.0.1"}, `"http://127.0.0.1:8080/x"`, yes},
		{"host other port", Condition{Host: "127.0.0.1:80"}, `"http://127.0.0.1:8080/x"`, no}, {"host prefix", Condition{Host: "example.com"}, `"https://example.com.evil.org/"`, no},
		{"host user", Condition{Host: "example.com"}, `"https://example.com@evil.org/"`, odd}, {"host backslash", Condition{Host: "example.com"}, `"https://evil.org\\@example.com/"`, odd},
		{"host wildcard", Condition{Host: "*.example.com"}, `"https://a.b.example.com"`, yes}, {"host apex", Condition{Host: "*.example.com"}, `"https://example.com"`, no},
		{"host near", Condition{Host: "*.example.com"}, `"https://badexample.com"`, no}, {"host scheme", Condition{Host: "example.com"}, `"ftp://example.com"`, odd},
		{"host none", Condition{Host: "example.com"}, `"example.com"`, odd}, {"host opaque", Condition{Host: "example.com"}, `"https:example.com"`, odd},
		{"host space", Condition{Host: "example.com"}, `" https://example.com"`, odd}, {"host IPv6", Condition{Host: "[::1]:80"}, `"http://[::1]:80/"`, yes},
		{"host IPv6 bare", Condition{Host: "::1"}, `"http://[::1]:99/"`, yes}, {"host trailing dot", Condition{Host: "example.com"}, `"https://example.com./"`, yes},
		{"host hides a slash", Condition{Host: "*.example.com"}, `"https://evil.org%EF%BC%8F.example.com/"`, odd}, {"host with a comma", Condition{Host: "*.example.com"}, `"https://evil.org,.example.com/"`, odd},
		{"host decimal", Condition{Host: "169.254.169.254"}, `"http://2852039166/"`, odd}, {"host hex", Condition{Host: "169.254.169.254"}, `"http://0xa9fea9fe/"`, odd},
		{"host octal", Condition{Host: "169.254.169.254"}, `"http://0251.0376.0251.0376/"`, odd}, {"host short", Condition{Host: "169.254.169.254"}, `"http://169.254.43518/"`, odd},
		{"host mapped", Condition{Host: "169.254.169.254"}, `"http://[::ffff:a9fe:a9fe]/"`, odd}, {"host other address", Condition{Host: "169.254.169.254"}, `"http://10.0.0.1/"`, no},
		{"host long IPv6", Condition{Host: "::1"}, `"http://[0:0:0:0:0:0:0:1]/"`, odd}, {"host with underscore", Condition{Host: "a_b.example.com"}, `"http://a_b.example.com/"`, yes},
		{"both", Condition{MaxLength: &length, Host: "a.org"}, `"https://a.org/a/long/path"`, no}, {"one of them odd", Condition{Max: ten, Host: "a.org"}, `"https://a.org/"`, odd}, {"empty", Condition{}, `"x"`, odd},
	} {
		v, err := parseJSON(c.value)
		if err != nil {
			t.Fatal(c.name, err)
		}
		if got := (judge{}).test(c.cond, v, true); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDecideUntrusted(t *testing.T) {
	fetch := call("web", "fetch", `{"url":"https://a.org"}`)
	web := func(e *Effective, c *Call) {
		e.Connectors["web"] = ConnectorRules{Pin: PinFirstUse, Origin: Origin{Package: "builtin:fetch"}}
	}
	exposed := func(e *Effective, c *Call) { web(e, c); c.Untrusted = true }
	checkDecisions(t, []decideCase{
		{"before", fetch, web, task.DecisionAllow, "", "read: catalogue", ""},
		{"after", fetch, exposed, task.DecisionDeny, CodeNeedsApproval, "untrusted text was read", "allow: [{tool: web/fetch, where: {url: {eq:"},
		{"after, parked", fetch, func(e *Effective, c *Call) { exposed(e, c); e.OnAsk = OnAskPark }, task.DecisionPark, CodeNeedsApproval, "", ""},
		{"after, own grant", fetch, func(e *Effective, c *Call) {
			exposed(e, c)
			e.Allow = []Grant{{Connector: "web", Tool: "fetch", Where: map[string]Condition{"url": {Host: "a.org"}}}}
		}, task.DecisionAllow, "", "has host a.org", ""},
		{"after, flags taken off", fetch, func(e *Effective, c *Call) {
			exposed(e, c)
			r := e.Connectors["web"]
			r.Flags = []Flag{}
			e.Connectors["web"] = r
		}, task.DecisionAllow, "", "", ""},
		{"after, a read without egress", call("mail", "search", `{}`), exposed, task.DecisionAllow, "", "", ""},
	})
}

func TestUnreadable(t *testing.T) {
	c := call("files", "read_file", `{}`)
	d := Unreadable(c.Name, c.Slots, errors.New("database is\nlocked"))
	if d.Kind != task.DecisionDeny || d.Code != CodePolicyError || d.Connector != "files" || d.Tool != "read_file" || d.Definition == "" {
		t.Errorf("%+v", d)
	}
	hasText(t, "rule", d.Rule, "database is locked")
	hasText(t, "answer", d.Answer, "NOT run")
	if d := Unreadable("mcp__mail__x", nil, nil); d.Connector != "mail" || d.Kind != task.DecisionDeny {
		t.Errorf("%+v", d)
	}
	if d := Unreadable("x", nil, nil); d.Connector != "" || d.Code != CodePolicyError {
		t.Errorf("%+v", d)
	}
}

func TestDecisionGrantIsReady(t *testing.T) {
	d := Decide(fixture(), call("files", "write_file", `{}`))
	if d.Grant != "allow: [{tool: files/write_file, where: {rest: absent}}]" || d.Class != ClassWrite {
		t.Errorf("%+v", d)
	}
}

func FuzzDecide(f *testing.F) {
	for _, s := range []string{`{"path":"/srv/reports/x"}`, `{"path":"/srv/reports/../x"}`, `[]`, `{"path":{"a":[1e5]}}`, `{"Path":"a","path":"b"}`, "\xff", `{"a":"\ud800"}`} {
		f.Add("mcp__files__write_file", s, 0)
	}
	schemas := NewSchemas()
	f.Fuzz(func(t *testing.T, name, arguments string, repeats int) {
		e := fixture()
		e.Allow = []Grant{{Connector: "files", Tool: "write_file", Where: map[string]Condition{"path": {Under: "/srv/reports"}, "content": {Any: true}}}}
		c := call("files", "write_file", arguments)
		c.Name, c.Repeats, c.Schemas = name, repeats, schemas
		d := Decide(e, c)
		if d.Answer != "" && !json.Valid([]byte(d.Answer)) || !utf8.ValidString(d.Rule) {
			t.Fatalf("answer %q rule %q", d.Answer, d.Rule)
		}
		if !d.Allowed() {
			return
		}
		var args map[string]any
		if err := json.Unmarshal([]byte(arguments), &args); err != nil {
			t.Fatalf("allowed what is no object: %q", arguments)
		}
		path, _ := args["path"].(string)
		real, err := c.Resolve("files", path)
		if err != nil || real != "/srv/reports" && !strings.HasPrefix(real, "/srv/reports/") || c.Name != c.Slots[0].Alias {
			t.Fatalf("allowed without a grant: %q", arguments)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.0,"\u00e9"]}`, `{}`, `[`, `1e300`, `"\ud83d\ude00"`, `-0`, `5e-324`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := Canonical(text)
		if err != nil {
			return
		}
		twice, err := Canonical(once)
		if err != nil || once != twice {
			t.Fatalf("%q → %q → %q %v", text, once, twice, err)
		}
	})
}

func TestCanonical(t *testing.T) {
	a, errA := Canonical(`{"b": 1.0, "a": "\u0065"}`)
	b, errB := Canonical(`{"a":"e","b":1}`)
	if errA != nil || errB != nil || a != b || a != `{"a":"e","b":1}` {
		t.Errorf("%q %v, %q %v", a, errA, b, errB)
	}
	for _, bad := range []string{"", "{", `{"a":1,"a":1}`, strings.Repeat("[", 5000)} {
		if _, err := Canonical(bad); err == nil {
			t.Errorf("canonical form of %.20q", bad)
		}
	}
}

// BenchmarkDecide decides a call by the last of many lines.
func BenchmarkDecide(b *testing.B) {
	e := fixture()
	where := map[string]Condition{"path": {Under: "/srv/reports"}, "content": {Any: true}}
	for range 60 {
		e.Allow = append(e.Allow, Grant{Connector: "mail", Tool: "send_*", Where: where})
	}
	e.Allow = append(e.Allow, Grant{Connector: "files", Tool: "write_file", Where: where})
	for i := range e.Allow { // as whoever reads them does
		if err := e.Allow[i].Settle("allow"); err != nil {
			b.Fatal(err)
		}
	}
	c := call("files", "write_file", `{"path":"/srv/reports/2026-01-01.md","content":"`+strings.Repeat("text ", 200)+`"}`)
	c.Schemas = NewSchemas()
	b.ReportAllocs()
	for b.Loop() {
		if !Decide(e, c).Allowed() {
			b.Fatal("refused")
		}
	}
}
