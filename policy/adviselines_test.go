package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"runnerd/task"
)

// payTool has one argument of each kind.
const payTool = `{"type":"object","required":["to"],"properties":{
	"to":{"type":"string"},"amount":{"type":"integer"},"rate":{"type":["number","null"]},"due":{"type":"string","format":"date"},
	"tags":{"type":"array","items":{"type":"string"}},"urgent":{"type":"boolean"},"kind":{"enum":["rent","power"]},"path":{"type":"string"},
	"url":{"type":"string","format":"uri"},"site":{"type":"string","description":"The web page to look at"},"page":{"$ref":"#/$defs/page"},
	"attachments":{"anyOf":[{"type":"array","items":{"type":"object"}},{"type":"null"}]},"share":{"type":"number","minimum":0}},
	"$defs":{"page":{"type":"string","examples":["www.example.com"]}},"additionalProperties":false}`

func payWorld(root string, lines ...Grant) (Effective, []Connected) {
	e := fixture()
	pay := task.Tool{Name: "pay", InputSchema: json.RawMessage(payTool)}
	pay.Hash = pay.DefinitionHash()
	e.Connectors["bank"] = ConnectorRules{Pin: PinFirstUse, Classes: map[string]Class{"pay": ClassExec}, Origin: Origin{Package: "builtin:files", Root: root}}
	e.Tools, e.Allow = task.ListOf("bank"), lines
	return e, []Connected{{ID: "bank", Up: true, Tools: []task.Tool{pay}}}
}

// Conditions that no call can meet, and such as let through or keep out what their
// author did not mean, are found against the schema, with place and cure.
func TestAdviseLines(t *testing.T) {
	for _, c := range []struct {
		name, where string
		severity    Severity // empty: nothing to say
		path, text  string
	}{
		{"in order", `{"to":"any","amount":{"eq":7},"rest":"any"}`, "", "", ""},
		{"B6 W8 misspelt", `{"to":"any","amuont":{"eq":7}}`, SeverityError, "where amuont", `bank/pay has no argument "amuont"; did you mean amount?`},
		{"W8 in another case", `{"To":"any"}`, SeverityError, "where To", "did you mean to?"},
		{"W8 nested", `{"to":"any","attachments.0.file_id":{"eq":"7"}}`, SeverityError, "where attachments.0.file_id", "attachments: any"},
		{"W8 unheard of", `{"to":"any","x":"absent"}`, SeverityError, "where x", "it has amount, attachments"},
		{"W8 text on an integer", `{"to":"any","amount":{"eq":"7"}}`, SeverityError, "where amount eq", "write it without quotes"},
		{"W8 fraction on an integer", `{"to":"any","amount":{"eq":7.5}}`, SeverityError, "where amount eq", "it wants integer"},
		{"W8 outside an enum names the values", `{"to":"any","kind":{"eq":"powr"}}`, SeverityError, "where kind eq", `it wants "rent" or`},
		{"W8 max_items on text", `{"to":{"max_items":5}}`, SeverityError, "where to max_items", "is for an array"},
		{"W8 bounds beyond the schema's", `{"to":"any","share":{"min":-5,"max":-1}}`, SeverityError, "where share max", "takes nothing below 0"},
		{"W8 a condition that no value of an enum meets", `{"to":"any","kind":{"max_length":1}}`, SeverityError, "where kind max_length", "no value of the tool's schema"},
		{"W8 number on text", `{"to":{"eq":7}}`, SeverityError, "where to eq", "put it in quotes"},
		{"W8 text on a list", `{"to":"any","tags":{"in":["a","b"]}}`, SeverityError, "where tags in", `in: [["a"]]`},
		{"W8 text on a list or null", `{"to":"any","attachments":{"eq":"a"}}`, SeverityError, "where attachments eq", "array or null"},
		{"W8 outside an enum", `{"to":"any","kind":{"in":["rant","powr"]}}`, SeverityError, "where kind in", "no value that the tool's schema takes"},
		{"W8 one outside an enum", `{"to":"any","kind":{"in":["rent","powr"]}}`, SeverityWarning, "where kind in", `"powr"`},
		{"W8 list as a whole", `{"to":"any","tags":{"eq":["a"]}}`, "", "", ""},
		{"W8 max on text", `{"to":{"max":5}}`, SeverityError, "where to max", "max_length"},
		{"W8 max on a list", `{"to":"any","tags":{"max":5}}`, SeverityError, "where tags max", "max_items"},
		{"W8 max_length on a number", `{"to":"any","amount":{"max_length":5}}`, SeverityError, "where amount max_length", "min and max"},
		{"W8 under on a number", `{"to":"any","amount":{"under":"/srv"}}`, SeverityError, "where amount under", "for a string"},
		{"W8 host on a date", `{"to":"any","due":{"host":"a.org"}}`, SeverityError, "where due host", "wants format date"},
		{"W8 host on an enum", `{"to":"any","kind":{"host":"a.org"}}`, SeverityError, "where kind host", "http://"},
		{"W8 host on names without a scheme", `{"to":"any","page":{"host":"a.org"}}`, SeverityWarning, "where page host", `shows "www.example.com"`},
		{"W8 host where nothing says so", `{"to":"any","site":{"host":"a.org"}}`, SeverityWarning, "where site host", "www.example.com never matches"},
		{"host on a URL", `{"to":"any","url":{"host":"a.org:8443"}}`, "", "", ""},
		{"B6 under beside the root", `{"to":"any","path":{"under":"/srv/reports"}}`, SeverityError, "where path under", "nothing under /srv/reports can be reached: connector bank serves /data"},
		{"under the root", `{"to":"any","path":{"under":"/data/x"}}`, "", "", ""},
		{"under above the root", `{"to":"any","path":{"under":"/"}}`, "", "", ""},
		{"under, relative", `{"to":"any","path":{"under":"x"}}`, "", "", ""},
		{"B6 eq beside the root", `{"to":"any","path":{"eq":"/srv/reports/a.md"}}`, SeverityError, "where path eq", "no call reaches /srv/reports/a.md: connector bank serves /data"},
		{"B6 eq above the root", `{"to":"any","path":{"eq":"/"}}`, SeverityError, "where path eq", "no call reaches /"},
		{"B6 eq with dots", `{"to":"any","path":{"eq":"x/../a.md"}}`, SeverityError, "where path eq", "the server refuses"},
		{"B6 in, each beside the root", `{"to":"any","path":{"in":["/srv/a.md","/database"]}}`, SeverityError, "where path in", "no call reaches /srv/a.md"},
		{"B6 in, one beside the root", `{"to":"any","path":{"in":["/data/a.md","/srv/a.md"]}}`, SeverityWarning, "where path in", "no call reaches /srv/a.md"},
		{"eq below the root", `{"to":"any","path":{"eq":"/data/a.md"}}`, "", "", ""},
		{"eq, relative", `{"to":{"in":["a.md","b/c.md"]},"path":{"eq":"."}}`, "", "", ""},
		{"eq of what is no path", `{"to":"any","site":{"eq":"/srv/a.md"}}`, "", "", ""},
		{"W1 a required argument that is not named", `{"amount":{"eq":7}}`, SeverityError, "where", "add to: any"},
		{"W1 a required argument that must be absent", `{"to":"absent"}`, SeverityError, "where to", "every call of bank/pay has to"},
		{"W2 max without min", `{"to":"any","amount":{"max":100}}`, SeverityWarning, "where amount max", "{min: 0, max: 100}"},
		{"W2 max and min", `{"to":"any","amount":{"max":100,"min":0}}`, "", "", ""},
		{"W2 the schema has a minimum", `{"to":"any","share":{"max":100}}`, "", "", ""},
	} {
		e, connected := payWorld("/data", line(t, `{"tool":"bank/pay","where":`+c.where+`}`))
		found := AdviseLines(e, connected, nil)
		if c.severity == "" {
			if len(found) > 0 {
				t.Errorf("%s: %+v", c.name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Severity != c.severity || strings.Join(found[0].Path, " ") != "allow 0 "+c.path || !strings.Contains(found[0].Text, c.text) {
			t.Errorf("%s: want %s at %s: %s, have %+v", c.name, c.severity, c.path, c.text, found)
		}
	}
}

// In deny a path that is compared as text can be written otherwise: the same file has
// a relative and an absolute name.
func TestAdviseDeniedPathAsText(t *testing.T) {
	for where, text := range map[string]string{
		`{"path":{"eq":"/data/a.md"}}`:  "write {under: /data/a.md}",
		`{"to":{"in":["a.md","b.md"]}}`: "a line with {under: a.md}, one for each",
		`{"site":{"eq":"/data/a.md"}}`:  "",
		`{"path":{"under":"/data"}}`:    "",
	} {
		e, connected := payWorld("/data")
		e.Deny = []Grant{line(t, `{"tool":"bank/pay","where":`+where+`}`)}
		found := AdviseLines(e, connected, nil)
		if text == "" && len(found) > 0 || text != "" && (len(found) != 1 || found[0].Severity != SeverityWarning || !strings.Contains(found[0].Text, text)) {
			t.Errorf("%s: want %q, have %+v", where, text, found)
		}
	}
}

// A line with wildcards is judged by what holds for every tool that it names, and a
// line of deny needs no argument to be named.
func TestAdviseLinesOfPatterns(t *testing.T) {
	e, connected := payWorld("", line(t, `{"tool":"bank/p*","where":{"to":"any","note":"any"}}`))
	note := task.Tool{Name: "post", InputSchema: json.RawMessage(`{"properties":{"to":{},"note":{}},"additionalProperties":false}`)}
	connected[0].Tools = append(connected[0].Tools, note)
	e.Deny = []Grant{line(t, `{"tool":"bank/pay","where":{"amount":{"max":5}}}`)}
	if found := AdviseLines(e, connected, nil); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	e.Ceiling = []Grant{line(t, `{"tool":"bank/p*","where":{"too":"any"}}`)}
	if found := AdviseLines(e, connected, nil); len(found) != 1 || found[0].Path[0] != "ceiling" {
		t.Errorf("%+v", found)
	}
	if found := AdviseLines(e, []Connected{{ID: "bank", Down: "no"}}, nil); len(found) > 0 {
		t.Errorf("judged without a schema: %+v", found)
	}
}

func TestAdviseOutward(t *testing.T) {
	for _, c := range []struct {
		name, line string
		asks       bool
	}{
		{"W9 open", `"bank/pay"`, true},
		{"W9 pinned", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"amount":{"in":[1,2]},"tags":"absent"}}`, false},
		{"W9 no arguments", `{"tool":"bank/pay","where":{"rest":"absent"}}`, false},
		{"W9 rest", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"rest":"any"}}`, true},
		{"W9 open text", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"site":"any"}}`, true},
		{"W9 short text", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"site":{"max_length":5}}}`, true},
		{"W9 path", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"path":{"under":"/data"}}}`, true},
		{"W9 host", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"url":{"host":"a.org"}}}`, true},
		{"W9 boolean", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"urgent":"any"}}`, false},
		{"W9 enum", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"kind":"any"}}`, false},
		{"W9 number", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"amount":"any"}}`, true},
		{"W9 number with a bound", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"amount":{"max":5}}}`, true},
		{"W9 number between bounds", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"amount":{"min":0,"max":5}}}`, false},
		{"W9 of unknown schema", `{"tool":"bank/pay","where":{"to":{"eq":"ann"},"other":"any"}}`, true},
	} {
		e, connected := payWorld("", line(t, c.line))
		rules := e.Connectors["bank"]
		rules.Flags = []Flag{{Kind: FlagUntrusted}, {Kind: FlagPrivate}, {Kind: FlagEgress}}
		e.Connectors["bank"] = rules
		asks := slices.ContainsFunc(Advise(e, connected), func(a Advice) bool { return strings.Contains(a.Text, "accept_risk") })
		if asks != c.asks {
			t.Errorf("%s: asks for accept_risk: %t", c.name, asks)
		}
	}
	// While the connector is down only what is pinned counts.
	for text, want := range map[string]bool{`{"tool":"bank/pay","where":{"to":{"eq":"ann"}}}`: false, `{"tool":"bank/pay","where":{"urgent":"any"}}`: true} {
		e, _ := payWorld("", line(t, text))
		rules := e.Connectors["bank"]
		rules.Flags = []Flag{{Kind: FlagUntrusted}, {Kind: FlagPrivate}, {Kind: FlagEgress}}
		e.Connectors["bank"] = rules
		if asks := slices.ContainsFunc(Advise(e, nil), func(a Advice) bool { return strings.Contains(a.Text, "accept_risk") }); asks != want {
			t.Errorf("W9 down, %s: %t", text, asks)
		}
	}
}
