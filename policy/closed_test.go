package policy

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"runnerd/task"
)

// line reads one line of allow or deny as the API takes it.
func line(t *testing.T, text string) Grant {
	t.Helper()
	var g Grant
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return g
}

// bank is a connector whose one tool has a schema that leaves every type open.
func bank(allow, deny []Grant, arguments string) Decision {
	e := fixture()
	e.Connectors["bank"], e.Tools = rulesWith(map[string]Class{"update": ClassWrite}), task.ListOf("bank")
	e.Allow, e.Deny = allow, deny
	return Decide(e, call("bank", "update", arguments))
}

// A line with where is closed in allow; in deny what it does not name and what it
// cannot judge refuses too.
func TestLines(t *testing.T) {
	where := func(s string) string { return `{"tool":"bank/update","where":` + s + `}` }
	pinned := where(`{"id":{"eq":7},"amount":{"eq":1200}}`)
	for _, c := range []struct {
		name, line, arguments string
		allows, denies        bool
	}{
		{"W1 exact", pinned, `{"id":7,"amount":1200}`, true, true},
		{"W1 an argument that the line does not name", pinned, `{"id":7,"amount":1200,"recipient":"X"}`, false, true},
		{"W1 bcc", where(`{"to":{"eq":"a"}}`), `{"to":"a","bcc":["x"]}`, false, true},
		{"W1 empty list", where(`{"to":{"eq":"a"}}`), `{"to":"a","bcc":[]}`, false, true},
		{"W1 empty text", where(`{"to":{"eq":"a"}}`), `{"to":"a","bcc":""}`, false, true},
		{"W1 false", where(`{"to":{"eq":"a"}}`), `{"to":"a","draft":false}`, false, true},
		{"W1 null is no value", pinned, `{"id":7,"amount":1200,"recipient":null}`, true, true},
		{"W1 empty name", pinned, `{"id":7,"amount":1200,"":"X"}`, false, true},
		{"W1 name with a blank", pinned, `{"id":7,"amount":1200,"amount ":5}`, false, true},
		{"W1 name with a zero-width sign", pinned, `{"id":7,"amount":1200,"amount\u200b":5}`, false, true},
		{"W1 any opens one", where(`{"id":{"eq":7},"text":"any"}`), `{"id":7,"text":{"a":[1]}}`, true, true},
		{"W1 any opens one only", where(`{"id":{"eq":7},"text":"any"}`), `{"id":7,"text":"x","to":"y"}`, false, true},
		{"W1 any need not be there", where(`{"id":{"eq":7},"text":"any"}`), `{"id":7}`, true, true},
		{"W1 rest", where(`{"id":{"eq":7},"rest":"any"}`), `{"id":7,"text":"x","to":"y"}`, true, true},
		{"W1 rest opens what is not named", where(`{"id":{"eq":7},"rest":"any"}`), `{"id":8,"to":"y"}`, false, false},
		{"W1 rest as an argument's own name", where(`{"rest":{"eq":"x"}}`), `{"rest":"x","to":"y"}`, false, true},
		{"W1 absent", where(`{"id":{"eq":7},"rest":"any","bcc":"absent"}`), `{"id":7,"to":"x"}`, true, true},
		{"W1 absent is null", where(`{"id":{"eq":7},"bcc":"absent"}`), `{"id":7,"bcc":null}`, true, true},
		{"W1 absent is there", where(`{"id":{"eq":7},"rest":"any","bcc":"absent"}`), `{"id":7,"bcc":[]}`, false, false},
		{"W1 named and missing", pinned, `{"id":7}`, false, true},
		{"W1 named and null", pinned, `{"id":7,"amount":null}`, false, true},
		{"W1 without arguments", where(`{"rest":"absent"}`), `{}`, true, true},
		{"I20 an optional one added later", where(`{"rest":"absent"}`), `{"to":"x"}`, false, true},
		{"W1 a line without where is open", `"bank/update"`, `{"id":7,"recipient":"X"}`, true, true},

		{"W2 max on text", where(`{"amount":{"max":100}}`), `{"amount":"9999"}`, false, true},
		{"W2 max on short text", where(`{"amount":{"max":100}}`), `{"amount":"1"}`, false, true},
		{"W2 max on a list", where(`{"amount":{"max":100}}`), `{"amount":[9999]}`, false, true},
		{"W2 max on an object", where(`{"amount":{"max":100}}`), `{"amount":{}}`, false, true},
		{"W2 max on a boolean", where(`{"amount":{"max":100}}`), `{"amount":true}`, false, true},
		{"W2 max without min", where(`{"amount":{"max":100}}`), `{"amount":-9999}`, true, true},
		{"W2 min", where(`{"amount":{"min":0,"max":100}}`), `{"amount":-9999}`, false, false},
		{"W2 min alone", where(`{"amount":{"min":5}}`), `{"amount":5}`, true, true},
		{"W2 min on text", where(`{"amount":{"min":5}}`), `{"amount":"9"}`, false, true},
		{"W2 max_length", where(`{"text":{"max_length":3}}`), `{"text":"éé€"}`, true, true},
		{"W2 max_length over", where(`{"text":{"max_length":3}}`), `{"text":"abcd"}`, false, false},
		{"W2 max_length of a list", where(`{"text":{"max_length":3}}`), `{"text":["abcdef"]}`, false, true},
		{"W2 max_length of a number", where(`{"text":{"max_length":3}}`), `{"text":12345}`, false, true},
		{"W2 max_items", where(`{"to":{"max_items":1}}`), `{"to":["a"]}`, true, true},
		{"W2 max_items over", where(`{"to":{"max_items":1}}`), `{"to":["a","b"]}`, false, false},
		{"W2 max_items of text", where(`{"to":{"max_items":5}}`), `{"to":"abc"}`, false, true},
		{"W2 max_items 0", where(`{"to":{"max_items":0}}`), `{"to":[]}`, true, true},

		{"W3 max 19.99", where(`{"amount":{"max":19.99}}`), `{"amount":19.99}`, true, true},
		{"W3 max 0.3", where(`{"amount":{"max":0.3}}`), `{"amount":0.3}`, true, true},
		{"W3 min 0.1", where(`{"amount":{"min":0.1}}`), `{"amount":1e-1}`, true, true},
		{"W3 a hair more", where(`{"amount":{"max":0.3}}`), `{"amount":0.30000000000000004}`, false, false},
		{"W3 a hair more than a double can tell", where(`{"amount":{"max":0.3}}`), `{"amount":0.3000000000000000000001}`, false, false},
		{"W3 eq", where(`{"amount":{"eq":0.1}}`), `{"amount":0.10}`, true, true},
		{"W3 eq of many digits", where(`{"amount":{"eq":123456789012345678901234567890.1}}`), `{"amount":123456789012345678901234567890.2}`, false, false},
		{"W3 in", where(`{"amount":{"in":[19.99,0.3]}}`), `{"amount":0.3}`, true, true},

		{"eq of a list", where(`{"to":{"eq":["a","b"]}}`), `{"to":["a","b"]}`, true, true},
		{"eq of a list, order", where(`{"to":{"eq":["a","b"]}}`), `{"to":["b","a"]}`, false, false},
		{"eq of a list, one more", where(`{"to":{"eq":["a"]}}`), `{"to":["a","b"]}`, false, false},
		{"eq of a list, deep", where(`{"to":{"eq":[{"n":[1,null]}]}}`), `{"to":[{"n":[1.0,null]}]}`, true, true},
		{"eq of a list, deep and other", where(`{"to":{"eq":[{"n":[1,null]}]}}`), `{"to":[{"n":[1,false]}]}`, false, false},
		{"eq of an object, one key more", where(`{"to":{"eq":{"a":1}}}`), `{"to":{"a":1,"b":null}}`, false, false},
		{"B7 host with a port", where(`{"url":{"host":"example.com:8443"}}`), `{"url":"https://example.com:8443/x"}`, true, true},
		{"B7 other port", where(`{"url":{"host":"example.com:8443"}}`), `{"url":"https://example.com/x"}`, false, false},
		{"B7 the scheme's own port", where(`{"url":{"host":"example.com:443"}}`), `{"url":"https://example.com/x"}`, true, true},
		{"B7 zeros before a port", where(`{"url":{"host":"example.com:443"}}`), `{"url":"https://example.com:0443/"}`, true, true},
		{"B7 not the scheme's own port", where(`{"url":{"host":"example.com:443"}}`), `{"url":"http://example.com/x"}`, false, false},
	} {
		g := line(t, c.line)
		if d := bank([]Grant{g}, nil, c.arguments); d.Allowed() != c.allows {
			t.Errorf("%s: allow %s with %s: %s %s (%s)", c.name, c.line, c.arguments, d.Kind, d.Code, d.Rule)
		}
		if d := bank([]Grant{mustGrant(t, "bank/*")}, []Grant{g}, c.arguments); (d.Code == CodeDenied) != c.denies {
			t.Errorf("%s: deny %s with %s: %s %s (%s)", c.name, c.line, c.arguments, d.Kind, d.Code, d.Rule)
		}
	}
}

// What the matcher does not understand never loads, and a rule set that holds it
// all the same refuses.
func TestPatternsOfOneGrammar(t *testing.T) {
	bad := []string{"[w]rite_*", "{write,append}_file", `write\_file`, "write_file|x", "(write|x)_file", "+(w)rite", "!write_file", "write_file$", "^write_file", "write_%", "write,x", "a\u200bb", "a\tb", `"x"`, "<x>"}
	for _, tool := range bad {
		name := "B3 " + tool
		if _, err := ParseGrant("files/" + tool); err == nil {
			t.Errorf("%s: loads as a rule", name)
		}
		for _, g := range []string{fmt.Sprintf("%q", "files/"+tool), fmt.Sprintf(`{"connector":"files","tool":%q}`, tool)} {
			if json.Unmarshal([]byte(g), new(Grant)) == nil {
				t.Errorf("%s: %s is read", name, g)
			}
		}
		for field, edit := range map[string]func(*Effective){
			"deny":  func(e *Effective) { e.Deny = []Grant{{Connector: "files", Tool: tool}} },
			"allow": func(e *Effective) { e.Allow = append(e.Allow, Grant{Connector: "files", Tool: tool}) },
			"disabled_tools": func(e *Effective) {
				r := e.Connectors["files"]
				r.Disabled = []string{tool}
				e.Connectors["files"] = r
			},
			"classes": func(e *Effective) { e.Connectors["files"].Classes[tool] = ClassExec },
			"flags": func(e *Effective) {
				r := e.Connectors["files"]
				r.Flags = []Flag{{Tool: tool, Kind: FlagEgress}}
				e.Connectors["files"] = r
			},
		} {
			e := fixture()
			e.Allow = []Grant{mustGrant(t, "files/*")}
			edit(&e)
			if d := Decide(e, call("files", "write_file", `{}`)); d.Code != CodePolicyError {
				t.Errorf("%s in %s: %s %s (%s)", name, field, d.Kind, d.Code, d.Rule)
			}
			for _, row := range Explain(e, connectedFixture()) {
				if row.Connector == "files" && row.Code != CodePolicyError {
					t.Errorf("%s in %s: explain says %s %s of %s", name, field, row.Decision, row.Code, row.Tool)
				}
			}
		}
	}
	// A pattern that loads is one that matches what it says: each character stands
	// for itself, but for the two wildcards.
	for r := rune(1); r < 0x500; r++ {
		tool := "a" + string(r) + "b"
		g, err := ParseGrant("files/" + tool)
		if err != nil {
			continue
		}
		if !MatchGrant(g, "files", tool) || r != '*' && r != '?' && MatchGrant(g, "files", "axb") && r != 'x' {
			t.Errorf("%q loads and does not match itself alone", tool)
		}
	}
}

// Load and match agree: over random patterns, what loads matches as a plain reading
// of the grammar does, and nothing else loads.
func TestLoadAcceptsWhatTheMatcherUnderstands(t *testing.T) {
	seed := rand.Int63()
	r := rand.New(rand.NewSource(seed))
	signs := []rune("aab_-./:@# *?*?[]{}\\^$+|()!,é%\"'\u200b")
	text := func(n int) string {
		out := make([]rune, r.Intn(n))
		for i := range out {
			out[i] = signs[r.Intn(len(signs))]
		}
		return string(out)
	}
	loaded := 0
	for range 20000 {
		pattern, name := text(6), text(8)
		strange := pattern == "" || strings.TrimSpace(pattern) != pattern || strings.ContainsAny(pattern, "[]{}\\^$+|()!,%\"'\u200b")
		if _, err := ParseGrant("files/" + pattern); (err != nil) != strange {
			t.Fatalf("seed %d: B3 pattern %q: %v", seed, pattern, err)
		}
		if strange {
			continue
		}
		loaded++
		plain := regexp.MustCompile("(?s)^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern)) + "$")
		if MatchGlob(pattern, name) != plain.MatchString(name) {
			t.Fatalf("seed %d: B3 pattern %q on %q", seed, pattern, name)
		}
	}
	if loaded < 1000 {
		t.Errorf("seed %d: only %d patterns load", seed, loaded)
	}
}

func TestHostsOfOneGrammar(t *testing.T) {
	for _, c := range []struct {
		host string
		ok   bool
	}{
		{"example.com", true}, {"example.com:8443", true}, {"*.example.com", true}, {"*.example.com:8443", true}, {"EXAMPLE.com", true}, {"127.0.0.1", true},
		{"127.0.0.1:80", true}, {"::1", true}, {"[::1]", true}, {"[::1]:80", true}, {"a_b.example.com", true}, {"localhost", true},
		{"https://example.com", false}, {"example.com/x", false}, {"*", false}, {"*.*", false}, {"ex*.com", false}, {"?.com", false}, {"[a-z].com", false}, {"{a,b}.com", false},
		{"example.com:", false}, {"example.com:0", false}, {"example.com:99999", false}, {"example.com:*", false}, {"a@b.com", false}, {"a b", false}, {".com", false}, {"*.", false},
		{"bücher.de", false}, {"127.1", false}, {"0x7f000001", false}, {"2130706433", false}, {"[::1", false}, {"0:0:0:0:0:0:0:1", false}, {`a\.com`, false}, {"example.com.", false}, {"-", true},
	} {
		var g Grant
		err := json.Unmarshal(fmt.Appendf(nil, `{"tool":"web/get","where":{"url":{"host":%q}}}`, c.host), &g)
		if (err == nil) != c.ok {
			t.Errorf("B7 host %q: %v", c.host, err)
			continue
		}
		if name := strings.TrimPrefix(c.host, "*."); c.ok {
			if name != c.host {
				name = "www." + name
			} else if strings.Count(name, ":") > 1 && !strings.HasPrefix(name, "[") {
				name = "[" + name + "]"
			}
			if got := testHost(c.host, "https://"+name+"/x"); got != yes {
				t.Errorf("B7 host %q loads and does not match https://%s/x: %v", c.host, name, got)
			}
		}
	}
}

// For random closed lines and calls: the narrowest line of a call admits that call,
// and no change to an argument that is not opened.
func TestClosedLinesRefuseMutations(t *testing.T) {
	seed := rand.Int63()
	r := rand.New(rand.NewSource(seed))
	for range 3000 {
		args := map[string]any{}
		for range r.Intn(5) {
			args[randomName(r)] = randomValue(r, 2)
		}
		text := mustJSON(t, args)
		g, open, err := LineFor("bank", "update", text)
		if err != nil || len(open) > 0 {
			t.Fatalf("seed %d: no line for %s: %v, open %v", seed, text, err, open)
		}
		opened := map[string]bool{}
		for name := range g.Where {
			if r.Intn(4) == 0 && name != restKey {
				g.Where[name], opened[name] = Condition{Any: true}, true
			}
		}
		if d := bank([]Grant{g}, nil, text); !d.Allowed() {
			if isNonsense(d) {
				continue
			}
			t.Fatalf("seed %d: W4 %s does not admit %s: %s", seed, g.YAML(), text, d.Rule)
		}
		changed, name := mutate(r, args)
		if opened[name] || mustJSON(t, changed) == text {
			continue
		}
		if d := bank([]Grant{g}, nil, mustJSON(t, changed)); d.Allowed() {
			t.Fatalf("seed %d: W1 %s admits %s", seed, g.YAML(), mustJSON(t, changed))
		}
	}
}

// isNonsense tells whether the call was refused before any line was asked.
func isNonsense(d Decision) bool { return d.Code == CodeInvalidArguments }

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func randomName(r *rand.Rand) string {
	return []string{"id", "to", "bcc", "amount", "text", "rest", "any", "a.b", "", "Ünder", "x y", "<<", "null", "0"}[r.Intn(14)]
}

func randomValue(r *rand.Rand, depth int) any {
	switch n := r.Intn(9); {
	case n == 0:
		return nil
	case n == 1:
		return r.Intn(2) == 0
	case n < 4:
		return json.Number([]string{"0", "-1", "7", "19.99", "0.3", "12345678901234567890", "1e5", "1E-7", "-0.0"}[r.Intn(9)])
	case n < 7 || depth == 0:
		return []string{"", "a", "A", "any", "7", "true", " a", "é", "zero\u200bwidth", "line\nbreak", "nel\u0085", "tab\t", "\"q\"", "#c", "*", "{x}", "ls\u2028", "😀", "\U000E0001", "bom\ufeff", "del\u007f"}[r.Intn(21)]
	case n == 7:
		list := []any{}
		for range r.Intn(3) {
			list = append(list, randomValue(r, depth-1))
		}
		return list
	}
	m := map[string]any{}
	for range r.Intn(3) {
		m[randomName(r)] = randomValue(r, depth-1)
	}
	return m
}

// mutate changes one argument to a value that is another one, adds one or, where it
// had a value, takes one away.
func mutate(r *rand.Rand, args map[string]any) (changed map[string]any, name string) {
	changed = map[string]any{}
	names := []string{}
	for n, v := range args {
		changed[n] = v
		if v != nil {
			names = append(names, n)
		}
	}
	if len(names) > 0 && r.Intn(3) > 0 {
		name = names[r.Intn(len(names))]
		if r.Intn(4) == 0 {
			delete(changed, name)
			return changed, name
		}
	} else {
		name = "new" + randomName(r)
	}
	for {
		v := randomValue(r, 2)
		if v != nil && !equalValues(v, args[name]) {
			changed[name] = v
			return changed, name
		}
	}
}

// The call's own line, written into a file or sent over the API, is read as the
// line that it was.
func FuzzLineFor(f *testing.F) {
	for _, s := range []string{`{}`, `{"to":["a","b"],"body":"x"}`, `{"a":{"b":[1e-7,null]}}`, `{"":"\u0085\u2028"}`, `{"rest":"any"}`, `{"n":1e308}`} {
		f.Add("update", s)
	}
	f.Fuzz(func(t *testing.T, tool, arguments string) {
		g, open, err := LineFor("bank", tool, arguments)
		if err != nil {
			return
		}
		data, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		var back Grant
		if err := json.Unmarshal(data, &back); err != nil || back.String() != g.String() || back.YAML() != g.YAML() {
			t.Fatalf("%s reads back as %s: %v", data, back, err)
		}
		args, err := parseArguments(arguments)
		if err != nil {
			t.Fatalf("a line for arguments that never parse: %q", arguments)
		}
		if !MatchGrant(g, "bank", tool) || !(judge{}).allows(back, args) {
			t.Fatalf("%s (open %v) does not admit %q", g.YAML(), open, arguments)
		}
	})
}

func TestTimes(t *testing.T) {
	pinned := line(t, `{"tool":"bank/update","where":{"id":{"eq":7}}}`)
	e := fixture()
	e.Connectors["bank"], e.Tools = rulesWith(map[string]Class{"update": ClassWrite}), task.ListOf("bank")
	for _, c := range []struct {
		name, line, arguments string
		made                  int
		want                  bool
	}{
		{"W6 first of a pinned line", `{"tool":"bank/update","where":{"id":{"eq":7}}}`, `{"id":7}`, 0, true},
		{"W6 second of a pinned line", `{"tool":"bank/update","where":{"id":{"eq":7}}}`, `{"id":7}`, 1, false},
		{"W6 no arguments", `{"tool":"bank/update","where":{"rest":"absent"}}`, `{}`, 1, false},
		{"W6 an open argument: no limit", `{"tool":"bank/update","where":{"id":{"eq":7},"text":"any"}}`, `{"id":7}`, 9, true},
		{"W6 in is a choice: no limit", `{"tool":"bank/update","where":{"id":{"in":[7]}}}`, `{"id":7}`, 9, true},
		{"W6 rest: no limit", `{"tool":"bank/update","where":{"id":{"eq":7},"rest":"any"}}`, `{"id":7}`, 9, true},
		{"W6 without where: no limit", `"bank/update"`, `{"id":7}`, 9, true},
		{"W6 times 3", `{"tool":"bank/update","where":{"id":{"eq":7}},"times":3}`, `{"id":7}`, 2, true},
		{"W6 times 3 made", `{"tool":"bank/update","where":{"id":{"eq":7}},"times":3}`, `{"id":7}`, 3, false},
		{"W6 times without where", `{"tool":"bank/update","times":2}`, `{"id":7}`, 2, false},
	} {
		e.Allow = []Grant{line(t, c.line)}
		k := call("bank", "update", c.arguments)
		asked := ""
		k.Used = func(rule string) int { asked = rule; return c.made }
		d := Decide(e, k)
		if d.Allowed() != c.want {
			t.Errorf("%s: %s %s (%s)", c.name, d.Kind, d.Code, d.Rule)
		}
		if c.want && asked != "" && d.Rule != asked {
			t.Errorf("%s: counted by %q, recorded as %q", c.name, asked, d.Rule)
		}
		if !c.want {
			hasText(t, c.name, d.Rule, "a run", "this line in the task file would permit it: allow: [{tool: bank/update", "times: "+fmt.Sprint(c.made+1))
		}
	}
	// A further line that matches goes on where the first is used up.
	e.Allow = []Grant{pinned, mustGrant(t, "bank/*")}
	k := call("bank", "update", `{"id":7}`)
	k.Used = func(rule string) int { return 5 }
	if d := Decide(e, k); d.Rule != "allow: bank/* (task file)" {
		t.Errorf("W6 second line: %s", d.Rule)
	}
	if d := Decide(e, func() Call { k.Repeats = MaxRepeats; return k }()); d.Kind != task.DecisionAbort || d.Code != CodeRepeatedCall {
		t.Errorf("W6 the fourth same call: %+v", d)
	}
}
