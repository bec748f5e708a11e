package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func TestParseGrant(t *testing.T) {
	for _, c := range []struct{ text, wantErr string }{
		{"calendar/create_event", ""},
		{"mail/send_*", ""},
		{"*/*", ""},
		{"m?il/a/b", ""},
		{"mail", "write mail/*"},
		{"", "expected connector/tool"},
		{"/x", "names no tool"},
		{"mail/", "names no tool"},
		{"mail/ x", "blank"},
		{"Mail/x", "bad connector name"},
		{"mail/a\nb", "not understood"},
		{"mcp__mail__send", "write mail/send"},
		{"mail/" + strings.Repeat("x", 300), "too long"},
	} {
		g, err := ParseGrant(c.text)
		switch {
		case c.wantErr == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.wantErr == "" && g.String() != c.text:
			t.Errorf("%q: reads as %q", c.text, g)
		case c.wantErr != "" && err == nil:
			t.Errorf("%q: accepted", c.text)
		case c.wantErr != "":
			hasText(t, c.text, err.Error(), c.wantErr)
		}
	}
}

func TestMatchGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a*", "ab", true}, {"a*", "b", false}, {"*b", "aab", true}, {"a?c", "aüc", true},
		{"a?c", "ac", false}, {"*a*b*", "xxaxxbxx", true}, {"*a*b*", "xxbxxaxx", false}, {"", "", true}, {"", "a", false},
		{"[a]", "a", false}, {"[a]", "[a]", true}, {"a.c", "abc", false}, {"**", "x", true}, {`\*`, "*", false},
	} {
		if got := MatchGlob(c.pattern, c.name); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.name, got)
		}
	}
	start := time.Now()
	MatchGlob(strings.Repeat("a*", 100)+"b", strings.Repeat("a", 5000))
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("a hostile pattern takes %v", took)
	}
}

func TestMatchGrantZeroMatchesNothing(t *testing.T) {
	if MatchGrant(Grant{}, "", "") || MatchGrant(Grant{Connector: "*"}, "a", "b") {
		t.Error("an empty grant matches")
	}
}

func TestGrantJSON(t *testing.T) {
	want := Grant{Connector: "files", Tool: "write_file", Where: map[string]Condition{"path": {Under: "/srv/reports"}}}
	for _, text := range []string{
		`{"connector":"files","tool":"write_file","where":{"path":{"under":"/srv/reports"}}}`,
		`{"tool":"files/write_file","where":{"path":{"under":"/srv/reports"}}}`,
	} {
		var g Grant
		if err := json.Unmarshal([]byte(text), &g); err != nil || g.String() != want.String() {
			t.Errorf("%s: %v %v", text, g, err)
		}
	}
	var g Grant
	if err := json.Unmarshal([]byte(`"mail/send_*"`), &g); err != nil || g.Tool != "send_*" {
		t.Errorf("string form: %v %v", g, err)
	}
	stored, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(stored, &g); err != nil || g.String() != want.String() {
		t.Errorf("stored form: %s %v", stored, err)
	}
	for _, text := range []string{
		`5`, `null x`, `"mail"`, `{"tool":"mail"}`, `{"tool":"a/b","where":{"x":{}}}`, `{"tool":"a/b","wher":{}}`,
		`{"tool":"a/b","where":{"x":{"equals":1}}}`, `{"tool":"a/b","where":{"x":{"host":"https://x"}}}`,
	} {
		if err := json.Unmarshal([]byte(text), &g); err == nil {
			t.Errorf("accepted %s", text)
		}
	}
}

func TestGrantWords(t *testing.T) {
	g := Grant{Connector: "files", Tool: "write_file", Where: map[string]Condition{
		"path": {Under: "/srv/reports"}, "body": {Max: "10"}, "mode": {In: []any{"a", 1}},
	}}
	want := `files/write_file where body is at most 10 and mode is in ["a",1] and path under /srv/reports`
	if g.String() != want {
		t.Errorf("words: %s", g)
	}
	for _, g := range []Grant{g, {Connector: "*", Tool: "*"}, {Connector: "a", Tool: "b c: d"}, {Connector: "a", Tool: "b", Where: map[string]Condition{"x": {Eq: "yes"}, "y": {Host: "*.x.org"}}}} {
		var list []any
		if err := yaml.Unmarshal([]byte("["+g.YAML()+"]"), &list); err != nil || len(list) != 1 {
			t.Errorf("%s: %v %v", g.YAML(), list, err)
			continue
		}
		data, err := json.Marshal(list[0])
		if err != nil {
			t.Fatal(err)
		}
		var back Grant
		if err := json.Unmarshal(data, &back); err != nil || back.String() != g.String() {
			t.Errorf("%s reads back as %s (%v)", g.YAML(), back, err)
		}
	}
}

func TestLimitsJSON(t *testing.T) {
	var l Limits
	if err := json.Unmarshal([]byte(`{"steps":20,"cost":0.5,"wall":"10m","cost_per_day":2}`), &l); err != nil {
		t.Fatal(err)
	}
	if *l.Steps != 20 || *l.Cost != 500_000 || *l.Wall != 10*time.Minute || *l.CostPerDay != 2_000_000 || l.Tokens != nil {
		t.Errorf("%+v", l)
	}
	data, err := json.Marshal(l)
	if err != nil || string(data) != `{"steps":20,"cost":0.5,"wall":"10m0s","cost_per_day":2}` {
		t.Errorf("%s %v", data, err)
	}
	for _, bad := range []string{`{"step":1}`, `{"steps":-1}`, `{"wall":10}`, `{"wall":"long"}`, `[]`, `{"cost":"1"}`} {
		if err := json.Unmarshal([]byte(bad), &l); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
	d := Limits{Steps: l.Steps}.Or(DefaultLimits())
	if *d.Steps != 20 || *d.ToolCalls != 50 || *d.Tokens != 500_000 || *d.Wall != 15*time.Minute || d.Cost != nil {
		t.Errorf("defaults: %+v", d)
	}
	less := 5
	if tight := d.Tighter(Limits{Steps: &less, Cost: l.Cost}); *tight.Steps != 5 || *tight.Cost != 500_000 || *tight.ToolCalls != 50 {
		t.Errorf("tighter: %+v", tight)
	}
}
