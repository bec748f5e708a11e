package agentloop_test

import (
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

func named(ids ...string) task.List[string] { return task.ListOf(ids...) }

// TestNeeds: what a task names it needs, unless optional says otherwise (A1 to A5).
func TestNeeds(t *testing.T) {
	const where = `connectors.yaml:5:11: unknown key "comand"`
	for _, c := range []struct {
		name   string
		task   task.Task
		policy policy.Fields
		down   []string // of desk and web
		status task.Status
		marks  string
		reason []string
		told   string // in the system prompt
	}{
		{name: "A1 named in connectors, not configured", policy: policy.Fields{Connectors: named("good"), Tools: named("good")},
			status: task.StatusFailed, marks: "required_down:good", reason: []string{"good", where}},
		{name: "A3 named in tools, not configured", policy: policy.Fields{Tools: named("notes")},
			status: task.StatusFailed, marks: "required_down:notes", reason: []string{"notes", where}},
		{name: "named in allow, not configured", policy: policy.Fields{Allow: grants("notes/add")},
			status: task.StatusFailed, marks: "required_down:notes", reason: []string{"notes", where}},
		{name: "required, not configured", task: task.Task{Require: []string{"notes"}},
			status: task.StatusFailed, marks: "required_down:notes", reason: []string{"notes", where}},
		{name: "A2 named in tools, down", policy: policy.Fields{Tools: named("desk")}, down: []string{"desk"},
			status: task.StatusFailed, marks: "required_down:desk", reason: []string{"desk is down", "server is down"}},
		{name: "named in connectors, down", policy: policy.Fields{Connectors: named("desk", "web")}, down: []string{"web"},
			status: task.StatusFailed, marks: "required_down:web", reason: []string{"web is down"}},
		{name: "named in allow, down", policy: policy.Fields{Allow: grants("desk/note")}, down: []string{"desk"},
			status: task.StatusFailed, marks: "required_down:desk", reason: []string{"desk is down"}},
		{name: "both down", policy: policy.Fields{Tools: named("desk", "web")}, down: []string{"desk", "web"},
			status: task.StatusFailed, marks: "required_down:desk required_down:web", reason: []string{"desk is down", "web is down"}},
		{name: "a wildcard names nothing", policy: policy.Fields{Allow: grants("w*/find")}, down: []string{"web"}, status: task.StatusOK, marks: "connector_down:web"},
		{name: "deny names no need", policy: policy.Fields{Deny: grants("web/find")}, down: []string{"web"}, status: task.StatusOK, marks: "connector_down:web"},
		{name: "not named", down: []string{"web"}, status: task.StatusOK, marks: "connector_down:web", told: "web"},
		{name: "A5 optional and down", task: task.Task{Optional: []string{"web"}}, policy: policy.Fields{Connectors: named("desk", "web")}, down: []string{"web"},
			status: task.StatusOK, marks: "connector_down:web", told: "web"},
		{name: "A5 optional and listed in tools", task: task.Task{Optional: []string{"web"}}, policy: policy.Fields{Tools: named("desk", "web")}, down: []string{"web"},
			status: task.StatusOK, marks: "connector_down:web", told: "web"},
		{name: "optional and not configured", task: task.Task{Optional: []string{"gone"}}, policy: policy.Fields{Connectors: named("desk", "gone")},
			status: task.StatusOK, marks: "connector_down:gone", told: "gone"},
		{name: "A4 every connector is down", down: []string{"desk", "web"}, status: task.StatusFailed, marks: "no_tools", reason: []string{"no_tools", "desk", "web", "server is down"}},
		{name: "every connector is down and none is wanted", policy: policy.Fields{Tools: named()}, down: []string{"desk", "web"}, status: task.StatusOK},
		{name: "every reachable one is down and optional", task: task.Task{Optional: []string{"web"}}, policy: policy.Fields{Connectors: named("web")}, down: []string{"web"},
			status: task.StatusOK, marks: "connector_down:web"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			servers := map[string]*looptest.Server{"desk": desk(w), "web": reader(w, "web")}
			for _, id := range c.down {
				servers[id].Down(true)
			}
			w.LostFiles = map[string]string{"connectors.yaml": where}
			c.task.ID = "brief"
			w.Task(c.task, c.policy)
			w.Answers(looptest.Say("Nothing unusual today."))
			r := w.Run("brief")
			ended(t, r, c.status, "")
			for _, m := range strings.Fields(c.marks) {
				if !r.Run.HasMark(m) {
					t.Errorf("marks %v lack %s", r.Run.Marks, m)
				}
			}
			for _, text := range c.reason {
				if !strings.Contains(r.Run.Reason, text) {
					t.Errorf("reason %q does not say %q", r.Run.Reason, text)
				}
			}
			if reqs := w.Requests(); c.status == task.StatusFailed && len(reqs) > 0 {
				t.Error("a token was spent")
			} else if c.told != "" && !strings.Contains(reqs[0].System, c.told) {
				t.Errorf("the model was not told of %s: %s", c.told, reqs[0].System)
			}
		})
	}
}

// TestDownIsRetried (A2): what is down now may be up later; what is not configured
// will not be by waiting.
func TestDownIsRetried(t *testing.T) {
	w := world(t)
	server := desk(w)
	server.Down(true)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{Tools: named("desk")})
	w.Answers(looptest.Say("Hello."))
	run := w.Start("brief")
	if r := w.Go(run); r.Run.Execution != task.Queued || r.Run.Attempt != 2 {
		t.Fatalf("%s, attempt %d: %s", r.Run.Execution, r.Run.Attempt, r.Run.Reason)
	}
	server.Down(false)
	w.ClaimAt(run, w.Result(run).Run.NotBefore)
	r := w.Go(run)
	ended(t, r, task.StatusOK, "")
	if r.Run.HasMark(task.MarkRequiredDown) {
		t.Errorf("marks %v", r.Run.Marks)
	}

	w.Task(task.Task{ID: "other", Retry: attempts(2)}, policy.Fields{Tools: named("notes")})
	if r := w.Run("other"); r.Run.Execution != task.Failed {
		t.Errorf("not configured: %s", r.Run.Execution)
	}
}

// TestNeededIsDownOnResume: a needed connector that is down when the run last looks
// is not ok, although it was up when the run began.
func TestNeededIsDownOnResume(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{Tools: named("desk")})
	w.Answers(looptest.Say("Nothing unusual."))
	run := w.Start("brief")
	if !w.Kill(run, "append assistant", 1, true) {
		t.Fatal("not killed")
	}
	w.Restart()
	server.Down(true)
	r := w.Resume(run)
	ended(t, r, task.StatusFailed, "desk, which the task needs, is down")
}

// TestNoReadToolIsSaid (A4): who reads the run learns which connector was left out
// and how to change that.
func TestNoReadToolIsSaid(t *testing.T) {
	w := world(t)
	w.Server("odd", policy.Fields{}, looptest.Tool{Name: "query"})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say("Hello."))
	r := w.Run("brief")
	ended(t, r, task.StatusFailed, "no_tools")
	for _, text := range []string{"odd", "connectors tools odd --suggest"} {
		if !strings.Contains(r.Run.Reason, text) {
			t.Errorf("reason %q does not say %q", r.Run.Reason, text)
		}
	}
	reader(w, "web")
	r = w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if !r.Run.HasMark(task.MarkNoReadTools + ":odd") {
		t.Errorf("marks %v", r.Run.Marks)
	}
}

// TestNoConnectorsAtAll: a task that has nothing to reach is asked for nothing.
func TestNoConnectorsAtAll(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say("Hello."))
	ended(t, w.Run("brief"), task.StatusOK, "")
}

// TestLostConnectorsFile: a task that names nothing does not go on without the
// connectors that nobody could read; beside others that work it says so.
func TestLostConnectorsFile(t *testing.T) {
	w := world(t)
	w.LostFiles = map[string]string{"connectors.yaml": "connectors.yaml:3:9: odd"}
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say("Hello."))
	ended(t, w.Run("brief"), task.StatusFailed, "connectors.yaml:3:9: odd")
	reader(w, "web")
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if !r.Run.HasMark("config_broken:connectors.yaml") {
		t.Errorf("marks %v", r.Run.Marks)
	}
	w.Task(task.Task{ID: "brief"}, policy.Fields{Connectors: named()})
	ended(t, w.Run("brief"), task.StatusOK, "")
	w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: named()})
	ended(t, w.Run("brief"), task.StatusOK, "")
}

// TestReportRequired (C11): the agent is told, reminded once, and failed without.
func TestReportRequired(t *testing.T) {
	ok := `{"outcome":"ok"}`
	for _, c := range []struct {
		name    string
		answers []string // "report", or a text
		status  task.Status
		output  string
		asked   int
	}{
		{"C11 no report", []string{"I will read the logs now.", "I will read them."}, task.StatusFailed, "I will read them.", 2},
		{"reported", []string{"report", "Done."}, task.StatusOK, "Done.", 2},
		{"reported after the reminder", []string{"The whole story.", "report", "The whole story."}, task.StatusOK, "The whole story.", 3},
		{"silent after the reminder", []string{"The whole story.", "report", ""}, task.StatusOK, "The whole story.", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			desk(w)
			w.Task(task.Task{ID: "brief", Report: task.ReportRequired}, policy.Fields{})
			w.Answers(answersOf(c.answers, ok)...)
			r := w.Run("brief")
			ended(t, r, c.status, "")
			if r.Run.HasMark(task.MarkReportMissing) != (c.status == task.StatusFailed) || r.Run.Output != c.output {
				t.Errorf("marks %v, output %q", r.Run.Marks, r.Run.Output)
			}
			reqs := w.Requests()
			if len(reqs) != c.asked || !strings.Contains(reqs[0].System, "report") || !strings.Contains(reqs[0].System, "required") {
				t.Errorf("%d requests, system %s", len(reqs), reqs[0].System)
			}
		})
	}
}

func answersOf(texts []string, reported string) (list []llm.Response) {
	for _, text := range texts {
		if text == "report" {
			list = append(list, looptest.Ask("report", reported))
			continue
		}
		list = append(list, looptest.Say(text))
	}
	return list
}

// TestNamedWithoutATool: a connector that the task names and that is up, but of which
// nothing can be offered, was not there for the answer either.
func TestNamedWithoutATool(t *testing.T) {
	for _, c := range []struct {
		name   string
		task   task.Task
		policy policy.Fields
		desk   policy.Fields
		change func(w *looptest.World, desk *looptest.Server)
		status task.Status
		reason string
	}{
		{name: "each tool changed since it was accepted", policy: policy.Fields{Tools: named("desk")}, change: changeTools, status: task.StatusFailed, reason: "quarantined"},
		{name: "named in connectors", policy: policy.Fields{Connectors: named("desk", "web")}, change: changeTools, status: task.StatusFailed, reason: "quarantined"},
		{name: "named in allow", policy: policy.Fields{Allow: grants("desk/note")}, change: changeTools, status: task.StatusFailed, reason: "quarantined"},
		{name: "not named, beside another", change: changeTools, status: task.StatusOK},
		{name: "named and optional, beside another", task: task.Task{Optional: []string{"desk"}}, policy: policy.Fields{Connectors: named("desk", "web")}, change: changeTools, status: task.StatusOK},
		{name: "lists none any more", policy: policy.Fields{Tools: named("desk")}, change: func(_ *looptest.World, s *looptest.Server) { s.Set() }, status: task.StatusFailed, reason: "lists no tool"},
		{name: "each is disabled", policy: policy.Fields{Tools: named("desk")}, desk: policy.Fields{DisabledTools: named("*")}, status: task.StatusFailed, reason: "disabled"},
		{name: "each is denied", policy: policy.Fields{Tools: named("desk"), Deny: grants("desk/*")}, status: task.StatusFailed, reason: "denied"},
		{name: "the session does not reach it", policy: policy.Fields{Tools: named("desk")}, status: task.StatusFailed, reason: "does not list desk",
			change: func(w *looptest.World, _ *looptest.Server) {
				w.Override(policy.ScopeSession, "brief", map[string]string{"connectors": "[]"})
			}},
		{name: "nothing is wanted", policy: policy.Fields{Tools: named()}, change: changeTools, status: task.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			c.desk.Classes = deskClasses
			server := w.Server("desk", c.desk, deskTools()...)
			reader(w, "web")
			c.task.ID = "brief"
			w.Task(c.task, c.policy)
			w.Answers(looptest.Say("Hello."), looptest.Say("Nothing unusual today."))
			w.Run("brief")
			if c.change != nil {
				c.change(w, server)
				w.Restart()
			}
			ended(t, w.Run("brief"), c.status, c.reason)
		})
	}
}

func changeTools(_ *looptest.World, s *looptest.Server) {
	tools := deskTools()
	for i := range tools {
		tools[i].Description = "other"
	}
	s.Set(tools...)
}

// TestNoConnectorHasATool: a task that names nothing and is offered nothing, though
// servers are up, is not ok either; a refusal by name says more and comes first.
func TestNoConnectorHasATool(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say("Hello."), looptest.Say("Nothing unusual."), looptest.Say("Good again."))
	ended(t, w.Run("brief"), task.StatusOK, "")
	changeTools(w, server)
	w.Restart()
	ended(t, w.Run("brief"), task.StatusFailed, "quarantined")
}

// TestPolicyUnreadableAtFirst: a run whose policy could not be read when it was to be
// offered tools had none, and does not end as if it had.
func TestPolicyUnreadableAtFirst(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief", Project: "gone"}, policy.Fields{Tools: named("desk")})
	w.Answers(looptest.Say("Nothing unusual."))
	ended(t, w.Run("brief"), task.StatusFailed, "policy could not be read")
}
