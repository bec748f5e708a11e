package agentloop_test

import (
	"slices"
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// The tests of policy_*_test.go carry the numbers of the project's policy cases.

const report = "report"

func find(id string) string { return "mcp__" + id + "__find" }

func TestCase01Connectors(t *testing.T) {
	cases := []struct {
		name    string
		own     task.List[string]
		project string
		want    []string
	}{
		{"absent, no project", task.List[string]{}, "", []string{find("mail"), find("web"), report}},
		{"absent, project", task.List[string]{}, "ops", []string{find("mail"), report}},
		{"empty", ids(), "ops", []string{report}},
		{"listed", ids("web"), "ops", []string{find("web"), report}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			reader(w, "mail")
			reader(w, "web")
			w.Policy(policy.ScopeProject, "ops", policy.Fields{Connectors: ids("mail")})
			w.Task(task.Task{ID: "brief", Project: c.project}, policy.Fields{Connectors: c.own})
			w.Answers(looptest.Say("done"))
			w.Run("brief")
			if got := offered(t, w, 0); !slices.Equal(got, c.want) {
				t.Errorf("offered %q, want %q", got, c.want)
			}
		})
	}
}

func TestCase02Tools(t *testing.T) {
	cases := []struct {
		name  string
		tools task.List[string]
		want  []string
	}{
		{"absent", task.List[string]{}, []string{find("mail"), find("web"), report}},
		{"empty", ids(), nil},
		{"listed", ids("web"), []string{find("web"), report}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			reader(w, "mail")
			reader(w, "web")
			w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: c.tools})
			w.Answers(looptest.Say("done"))
			w.Run("brief")
			if got := offered(t, w, 0); !slices.Equal(got, c.want) {
				t.Errorf("offered %q, want %q", got, c.want)
			}
		})
	}
}

func TestCase02StoredStringCountsAsAbsentWarnedOnce(t *testing.T) {
	w := world(t)
	logs := logged(w)
	reader(w, "mail")
	w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: ids("web")})
	damage(t, w, `UPDATE policy_rows SET tools = '"memory"' WHERE scope = 'task'`)
	w.Script(ask("mail/find", "{}", 2) + "  - say: done\n")
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if n := logs.FilterMessage("policy value ignored").Len(); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
}

func TestCase03Tiers(t *testing.T) {
	cases := []struct {
		name                   string
		own, session, project  task.List[string]
		reachable, unreachable []string
	}{
		{"task says none", ids(), ids("web"), ids("mail"), nil, []string{"mail", "web", "wiki"}},
		{"session over project", task.List[string]{}, ids("web"), ids("mail"), []string{"web"}, []string{"mail", "wiki"}},
		{"project", task.List[string]{}, task.List[string]{}, ids("mail"), []string{"mail"}, []string{"web", "wiki"}},
		{"all absent", task.List[string]{}, task.List[string]{}, task.List[string]{}, []string{"mail", "web", "wiki"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			var calls []string
			for _, id := range []string{"mail", "web", "wiki"} {
				reader(w, id)
				calls = append(calls, find(id), "{}")
			}
			w.Policy(policy.ScopeProject, "ops", policy.Fields{Connectors: c.project})
			w.Task(task.Task{ID: "brief", Project: "ops"}, policy.Fields{Connectors: c.own})
			if c.session.Declared() {
				w.Override(policy.ScopeSession, "brief", map[string]string{"connectors": `["` + strings.Join(c.session.Items(), `","`) + `"]`})
			}
			w.Answers(looptest.Ask(calls...), looptest.Say("done"))
			r := w.Run("brief")
			for _, rc := range r.Receipts {
				allowed := rc.Decision == task.DecisionAllow
				if allowed != slices.Contains(c.reachable, rc.Connector) || !allowed && rc.Code != string(policy.CodeNotReachable) {
					t.Errorf("%s: decision %s, code %q", rc.Connector, rc.Decision, rc.Code)
				}
			}
			if len(r.Receipts) != len(c.reachable)+len(c.unreachable) {
				t.Errorf("%d receipts", len(r.Receipts))
			}
		})
	}
}

func TestCase03UnreadableIsNotUnrestricted(t *testing.T) {
	for name, statement := range map[string]string{
		"row gone":       `DELETE FROM policy_rows WHERE scope = 'task'`,
		"wrong type":     `UPDATE policy_rows SET connectors = '"desk"' WHERE scope = 'task'`,
		"missing column": `ALTER TABLE policy_rows RENAME COLUMN allow TO allowed`, // case 31
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Task(task.Task{ID: "brief"}, policy.Fields{})
			w.Script(ask("desk/look", "{}", 2) + "  - say: done\n")
			between(w, func() { damage(t, w, statement) })
			r := w.Run("brief")
			ended(t, r, task.StatusDenied, "policy could not be read")
			codes(t, r, "", policy.CodePolicyError)
			saw(t, server, "look {}")
			if got, want := offered(t, w, 1), offered(t, w, 0); !slices.Equal(got, want) {
				t.Errorf("then offered %q, want what was known last: %q", got, want)
			}
			if !r.Run.HasMark(task.MarkPolicyUnreadable) {
				t.Errorf("marks %v", r.Run.Marks)
			}
		})
	}
}

func TestCase06DefaultSelection(t *testing.T) {
	w := world(t)
	class := func(id string, classes map[string]policy.Class) *looptest.Server {
		var tools []looptest.Tool
		for name := range classes {
			tools = append(tools, looptest.Tool{Name: name})
		}
		return w.Server(id, policy.Fields{Classes: classes}, tools...)
	}
	class("r", map[string]policy.Class{"a": policy.ClassRead})
	class("rw", map[string]policy.Class{"a": policy.ClassRead, "b": policy.ClassWrite})
	class("w", map[string]policy.Class{"a": policy.ClassWrite})
	class("x", map[string]policy.Class{"a": policy.ClassExec})
	class("none", nil)
	class("down", map[string]policy.Class{"a": policy.ClassRead}).Down(true)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask("mcp__rw__b", "{}"), looptest.Say("done"))
	r := w.Run("brief")
	if got, want := offered(t, w, 0), []string{"mcp__r__a", "mcp__rw__a", "mcp__rw__b", report}; !slices.Equal(got, want) {
		t.Errorf("offered %q, want %q", got, want)
	}
	for _, mark := range []string{"no_read_tools:w", "no_read_tools:x", "connector_down:down"} {
		if !slices.Contains(r.Run.Marks, mark) {
			t.Errorf("marks %v lack %s", r.Run.Marks, mark)
		}
	}
	codes(t, r, policy.CodeNeedsApproval) // case 8: shown is not permitted
}

func TestCase07ListedConnectorThatIsDown(t *testing.T) {
	w := world(t)
	desk(w).Down(true)
	w.Task(task.Task{ID: "brief", Optional: []string{"desk"}}, policy.Fields{Tools: ids("desk")})
	w.Answers(looptest.Say("I could do nothing."))
	r := w.Run("brief")
	if system := w.Requests()[0].System; !strings.Contains(system, "they are down: desk") {
		t.Errorf("the prompt does not say that desk is down: %q", system)
	}
	if !slices.Contains(r.Run.Marks, "connector_down:desk") {
		t.Errorf("marks %v", r.Run.Marks)
	}
}

func TestCase16AnnotationsAreNoBoundary(t *testing.T) {
	w := world(t)
	yes := looptest.Ptr(true)
	w.Server("wild", policy.Fields{Classes: map[string]policy.Class{"peek": policy.ClassRead}},
		looptest.Tool{Name: "delete_all", ReadOnly: yes}, looptest.Tool{Name: "peek", Destructive: yes})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask("mcp__wild__delete_all", "{}", "mcp__wild__peek", "{}"), looptest.Say("done"))
	r := w.Run("brief")
	codes(t, r, policy.CodeNeedsApproval, "")
	if r.Receipts[0].Class != string(policy.ClassExec) || r.Receipts[1].Class != string(policy.ClassRead) {
		t.Errorf("classes %s and %s, want exec and read", r.Receipts[0].Class, r.Receipts[1].Class)
	}
	if !slices.Contains(r.Run.Marks, "hint_contradicts:wild/peek") {
		t.Errorf("marks %v lack the contradicted hint", r.Run.Marks)
	}
}

func TestCase18GrantThatMatchesNothingWarnsTheRun(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/nota")})
	w.Answers(looptest.Say("done"))
	r := w.Run("brief")
	if !slices.Contains(r.Run.Marks, "unused_rule:desk/nota") {
		t.Errorf("marks %v", r.Run.Marks)
	}
	ended(t, r, task.StatusOK, "")
}

func TestReportIsThereOnlyWhereToolsAre(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: ids()})
	w.Answers(looptest.Ask(report, `{"outcome":"ok"}`), looptest.Say("done"))
	r := w.Run("brief")
	codes(t, r, policy.CodeUnknownTool)
	if r.Run.Outcome != task.OutcomeNone {
		t.Errorf("outcome %s", r.Run.Outcome)
	}
	if system := w.Requests()[0].System; !strings.Contains(system, "You have no tools in this run") { // case 34
		t.Errorf("the prompt does not say that there are no tools: %q", system)
	}
}
