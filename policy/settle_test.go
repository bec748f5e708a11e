package policy

import (
	"testing"

	"runnerd/task"
)

// A line that was settled is not judged again, and one that was changed since is:
// nothing that is not understood comes to a decision by way of an old proof.
func TestSettledLines(t *testing.T) {
	good := line(t, `{"tool":"files/write_file","where":{"path":{"under":"/srv/reports"}},"times":2}`)
	if err := good.Settle("allow"); err != nil || !good.settledAs("allow") || good.settledAs("deny") {
		t.Fatalf("settled as %+v, %v", good.settled, err)
	}
	words := good.String()
	for name, edit := range map[string]func(*Grant){
		"connector": func(g *Grant) { g.Connector = "[f]iles" },
		"tool":      func(g *Grant) { g.Tool = "[w]rite_file" },
		"where":     func(g *Grant) { g.Where = map[string]Condition{"path": {Under: "~"}} },
		"no where":  func(g *Grant) { g.Where = map[string]Condition{} },
		"times":     func(g *Grant) { n := 0; g.Times = &n },
	} {
		g := good
		edit(&g)
		e := fixture()
		e.Allow = []Grant{g}
		d := Decide(e, call("files", "write_file", `{"path":"a"}`))
		if g.settledAs("allow") || d.Code != CodePolicyError {
			t.Errorf("%s: settled %v, %s %q (%s)", name, g.settledAs("allow"), d.Kind, d.Code, d.Rule)
		}
	}
	copied := good
	if !copied.settledAs("allow") || copied.String() != words {
		t.Error("a copy is not the line")
	}
	copied.Tool = "read_file"
	if copied.String() == words {
		t.Error("a changed line has the words of the old one")
	}
	bad := Grant{Connector: "files", Tool: "[w]rite"}
	if bad.Settle("allow") == nil || bad.settledAs("allow") {
		t.Error("a line that is not understood was settled")
	}
	e := fixture()
	e.Deny = []Grant{good} // times belongs to allow
	if d := Decide(e, call("files", "write_file", `{"path":"a"}`)); d.Code != CodePolicyError {
		t.Errorf("settled as allow, taken as deny: %s %q", d.Kind, d.Code)
	}
}

func TestSettledRules(t *testing.T) {
	for name, edit := range map[string]func(*ConnectorRules){
		"classes": func(r *ConnectorRules) {
			r.Classes = map[string]Class{"[w]rite_file": ClassRead, "a": ClassRead, "b": ClassRead}
		},
		"disabled": func(r *ConnectorRules) { r.Disabled = []string{"[w]rite_file"} },
		"flags":    func(r *ConnectorRules) { r.Flags = []Flag{{Tool: "[w]rite_file", Kind: FlagEgress}} },
	} {
		e := fixture()
		rules := e.Connectors["files"]
		if err := rules.Settle(); err != nil || !rules.isSettled() {
			t.Fatal(err)
		}
		edit(&rules)
		e.Connectors["files"], e.TaskConnectors = rules, task.ListOf("files")
		if d := Decide(e, call("files", "read_file", `{}`)); d.Code != CodePolicyError {
			t.Errorf("%s: %s %q", name, d.Kind, d.Code)
		}
	}
}
