package agentloop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

func TestCase09NeverOffered(t *testing.T) {
	w := world(t)
	server := desk(w)
	reader(w, "mail")
	w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: ids("mail"), Allow: grants("desk/*")})
	w.Answers(looptest.Ask(note, hello), looptest.Say("done"))
	r := w.Run("brief")
	codes(t, r, policy.CodeNotOffered)
	ended(t, r, task.StatusDenied, "does not list connector desk")
	told(t, r, 0, "NOT run")
	saw(t, server)
}

// A tool that was not shown and is asked for by name gets its own code, and the run
// is denied. Only what nobody lists is an unknown tool.
func TestRefusedByName(t *testing.T) {
	odd := looptest.Tool{Name: "wipe.all"}
	cases := []struct {
		name   string
		rules  policy.Fields // of the connector, beside its classes
		task   policy.Fields
		ask    string
		code   policy.Code
		status task.Status
	}{
		{"B1 denied", policy.Fields{}, policy.Fields{Deny: grants("desk/wipe")}, wipe, policy.CodeDenied, task.StatusDenied},
		{"B1 denied, granted too", policy.Fields{}, policy.Fields{Deny: grants("desk/*"), Allow: grants("desk/*")}, wipe, policy.CodeDenied, task.StatusDenied},
		{"B1 disabled", policy.Fields{DisabledTools: ids("wi*")}, policy.Fields{Allow: grants("desk/*")}, wipe, policy.CodeDisabled, task.StatusDenied},
		{"B1 left out by tools", policy.Fields{}, policy.Fields{Tools: ids("mail"), Allow: grants("desk/*")}, wipe, policy.CodeNotOffered, task.StatusDenied},
		{"B1 no tools", policy.Fields{}, policy.Fields{Tools: ids()}, look, policy.CodeNotOffered, task.StatusDenied},
		{"B1 out of reach", policy.Fields{}, policy.Fields{Connectors: ids("mail")}, wipe, policy.CodeNotReachable, task.StatusDenied},
		{"B1 nothing read, left out by default", policy.Fields{Classes: map[string]policy.Class{"*": policy.ClassWrite}}, policy.Fields{Allow: grants("desk/*")}, wipe, policy.CodeNotOffered, task.StatusDenied},
		{"B1 odd name by its alias", policy.Fields{}, policy.Fields{Deny: grants("desk/wipe.*")}, policy.Alias("desk", "wipe.all"), policy.CodeDenied, task.StatusDenied},
		{"B1 odd name as it is", policy.Fields{}, policy.Fields{Deny: grants("desk/wipe.*")}, "mcp__desk__wipe.all", policy.CodeDenied, task.StatusDenied},
		{"B1 as the operator writes it", policy.Fields{}, policy.Fields{Deny: grants("desk/wipe")}, "desk/wipe", policy.CodeDenied, task.StatusDenied},
		{"B1 bare", policy.Fields{}, policy.Fields{Deny: grants("desk/wipe")}, "wipe", policy.CodeDenied, task.StatusDenied},
		{"I13 strict pins", policy.Fields{Pin: looptest.Ptr(policy.PinStrict)}, policy.Fields{Allow: grants("desk/*")}, wipe, policy.CodeQuarantined, task.StatusDenied},
		{"I13 strict pins, odd name", policy.Fields{Pin: looptest.Ptr(policy.PinStrict)}, policy.Fields{}, policy.Alias("desk", "wipe.all"), policy.CodeQuarantined, task.StatusDenied},
		{"nobody lists it", policy.Fields{}, policy.Fields{Deny: grants("desk/*")}, "mcp__desk__burn", policy.CodeUnknownTool, task.StatusOK},
		{"no such connector", policy.Fields{}, policy.Fields{}, "mcp__ghost__wipe", policy.CodeUnknownTool, task.StatusOK},
		{"offered, by another name", policy.Fields{}, policy.Fields{}, "desk/look", policy.CodeUnknownTool, task.StatusOK},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			if c.rules.Classes == nil {
				c.rules.Classes = deskClasses
			}
			server := w.Server("desk", c.rules, append(deskTools(), odd)...)
			reader(w, "mail")
			w.Task(task.Task{ID: "brief"}, c.task)
			w.Answers(looptest.Ask(c.ask, "{}"), looptest.Say("Nothing unusual."))
			r := w.Run("brief")
			codes(t, r, c.code)
			ended(t, r, c.status, "")
			if c.code != policy.CodeNotReachable { // its wording is fixed
				told(t, r, 0, "NOT run")
			}
			saw(t, server)
			if refused := r.Run.Refused(); (refused == 1) != (c.status == task.StatusDenied) {
				t.Errorf("marks %v", r.Run.Marks)
			}
		})
	}
}

func TestCase10Unreachable(t *testing.T) {
	w := world(t)
	logs := logged(w)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Connectors: ids()})
	w.Answers(looptest.Ask(look, "{}"), looptest.Say("I could not look."))
	r := w.Run("brief")
	codes(t, r, policy.CodeNotReachable)
	if got, want := r.Answers()[0].Text, `{"error":"Connector desk is not enabled for this task","exit_code":1}`; got != want {
		t.Errorf("the model was told %s, want %s", got, want)
	}
	if r.Run.Output != "I could not look." {
		t.Errorf("the run did not go on: output %q", r.Run.Output)
	}
	ended(t, r, task.StatusDenied, "desk/look was refused")
	saw(t, server)
	if logs.FilterMessage("call refused").Len() != 1 {
		t.Error("no warning was logged")
	}
}

// Case 11: whatever a decision reads may change between two calls of one run, and
// counts on the very next one.
func TestCase11LiveEdits(t *testing.T) {
	allowed := policy.Fields{Allow: grants("desk/note")}
	rules := policy.Fields{Classes: deskClasses}
	with := func(f policy.Fields, change func(*policy.Fields)) policy.Fields {
		change(&f)
		return f
	}
	cases := []struct {
		name   string
		change func(w *looptest.World)
		want   policy.Code
	}{
		{"grant taken away", func(w *looptest.World) { w.Policy(policy.ScopeTask, "brief", policy.Fields{}) }, policy.CodeNeedsApproval},
		{"deny", func(w *looptest.World) {
			w.Policy(policy.ScopeTask, "brief", with(allowed, func(f *policy.Fields) { f.Deny = grants("desk/note") }))
		}, policy.CodeDenied},
		{"B5 deny of the daemon", func(w *looptest.World) {
			w.Ceiling = grants("desk/note")
			if err := w.Sync(); err != nil {
				w.T.Fatal(err)
			}
		}, policy.CodeDenied},
		{"task connectors", func(w *looptest.World) {
			w.Policy(policy.ScopeTask, "brief", with(allowed, func(f *policy.Fields) { f.Connectors = ids() }))
		}, policy.CodeNotReachable},
		{"task tools", func(w *looptest.World) {
			w.Policy(policy.ScopeTask, "brief", with(allowed, func(f *policy.Fields) { f.Tools = ids() }))
		}, policy.CodeNotOffered},
		{"tool calls limit", func(w *looptest.World) {
			w.Policy(policy.ScopeTask, "brief", with(allowed, func(f *policy.Fields) { f.Limits = &policy.Limits{ToolCalls: looptest.Ptr(1)} }))
		}, policy.CodeLimit},
		{"session connectors", func(w *looptest.World) {
			w.Override(policy.ScopeSession, "brief", map[string]string{"connectors": `[]`})
		}, policy.CodeNotReachable},
		{"project connectors", func(w *looptest.World) {
			w.Policy(policy.ScopeProject, "ops", policy.Fields{Connectors: ids()})
		}, policy.CodeNotReachable},
		{"override hides the grant", func(w *looptest.World) {
			w.Override(policy.ScopeTask, "brief", map[string]string{"allow": `[]`})
		}, policy.CodeNeedsApproval},
		{"override of the connector", func(w *looptest.World) {
			w.Override(policy.ScopeConnector, "desk", map[string]string{"disabled_tools": `["note"]`})
		}, policy.CodeDisabled},
		{"class", func(w *looptest.World) {
			w.Policy(policy.ScopeTask, "brief", policy.Fields{})
			w.Policy(policy.ScopeConnector, "desk", with(rules, func(f *policy.Fields) { f.Classes = map[string]policy.Class{"note": policy.ClassRead} }))
		}, ""},
		{"disabled", func(w *looptest.World) {
			w.Policy(policy.ScopeConnector, "desk", with(rules, func(f *policy.Fields) { f.DisabledTools = ids("note") }))
		}, policy.CodeDisabled},
		{"unrelated edit", func(w *looptest.World) {
			w.Policy(policy.ScopeTask, "brief", with(allowed, func(f *policy.Fields) { f.Deny = grants("mail/*") }))
		}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Policy(policy.ScopeProject, "ops", policy.Fields{})
			w.Task(task.Task{ID: "brief", Project: "ops"}, allowed)
			// Both calls are of one turn: nothing is read in between but for the call.
			w.Answers(looptest.Ask(note, hello, note, `{"text":"again"}`), looptest.Say("done"))
			between(w, func() { c.change(w) })
			r := w.Run("brief")
			codes(t, r, "", c.want)
			want := []string{"note " + hello}
			if c.want == "" {
				want = append(want, `note {"text":"again"}`)
			}
			saw(t, server, want...)
		})
	}
}

func TestCase11GrantAddedBetweenCalls(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask(look, "{}", note, hello), looptest.Say("done"))
	between(w, func() {
		w.Override(policy.ScopeTask, "brief", map[string]string{"allow": `[{"connector":"desk","tool":"note"}]`})
	})
	ended(t, w.Run("brief"), task.StatusOK, "")
	saw(t, server, "look {}", "note "+hello)
}

func TestCase12UnderscoresInNames(t *testing.T) {
	w := world(t)
	server := w.Server("browser", policy.Fields{Classes: map[string]policy.Class{"look": policy.ClassRead}},
		looptest.Tool{Name: "x__y__z"}, looptest.Tool{Name: "x__y"}, looptest.Tool{Name: "look"})
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("browser/x__y__z")})
	w.Answers(looptest.Ask("mcp__browser__x__y__z", "{}", "mcp__browser__x__y", "{}"), looptest.Say("done"))
	r := w.Run("brief")
	codes(t, r, "", policy.CodeNeedsApproval)
	saw(t, server, "x__y__z {}")
}

func TestCase13SameToolOnTwoConnectors(t *testing.T) {
	w := world(t)
	web, mail := reader(w, "web"), reader(w, "mail")
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask(find("mail"), `{"q":1}`, find("web"), `{"q":2}`), looptest.Say("done"))
	w.Run("brief")
	saw(t, mail, `find {"q":1}`)
	saw(t, web, `find {"q":2}`)
}

func TestCase14LongAlias(t *testing.T) {
	w := world(t)
	long := strings.Repeat("a", 70)
	server := w.Server("desk", policy.Fields{Classes: map[string]policy.Class{"*": policy.ClassRead}},
		looptest.Tool{Name: long + "1"}, looptest.Tool{Name: long + "2"})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask(policy.Alias("desk", long+"2"), "{}"), looptest.Say("done"))
	ended(t, w.Run("brief"), task.StatusOK, "")
	saw(t, server, long+"2 {}")
	for _, name := range offered(t, w, 0) {
		if len(name) > 64 {
			t.Errorf("alias %s is too long", name)
		}
	}
}

func TestCase15InvalidArguments(t *testing.T) {
	for name, args := range map[string]string{
		"malformed": `{"text":`, "an array": `["hello"]`, "a string": `"hello"`, "missing": `{}`, "wrong type": `{"text":7}`,
		"duplicate key": `{"text":"a","text":"b"}`, "empty": ``,
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
			w.Answers(looptest.Ask(note, args), looptest.Ask(note, hello), looptest.Say("done"))
			r := w.Run("brief")
			ended(t, r, task.StatusOK, "")
			codes(t, r, policy.CodeInvalidArguments, "")
			told(t, r, 0, "NOT run")
			saw(t, server, "note "+hello)
		})
	}
}

func TestCase15BoundedRepeats(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	w.Answers(looptest.Ask(note, `{"a":1}`), looptest.Ask(note, `{"a":2}`), looptest.Ask("mcp__desk__nota", "{}"), looptest.Say("done"))
	r := w.Run("brief")
	ended(t, r, task.StatusFailed, "3 calls in a row could not be made")
	saw(t, server)
}

func TestCase17GrantsOnPaths(t *testing.T) {
	root := "/srv/reports"
	// resolve stands for a file system with one symlink, out.
	resolve := func(_, path string) (string, error) {
		switch {
		case path == root+"/../etc/x":
			return "/srv/etc/x", nil
		case strings.HasPrefix(path, root+"/out/"):
			return "/etc/x", nil
		}
		return path, nil
	}
	cases := map[string]bool{
		`{"path":"/srv/reports/../etc/x"}`: false, `{"path":"/srv/reports-evil/x"}`: false, `{"path":"/srv/reports/out/x"}`: false,
		`{"path":["/srv/reports/x"]}`: false, `{}`: false, `{"path":"/srv/reports/new.md"}`: true,
	}
	w := world(t)
	w.Resolve = resolve
	server := w.Server("files", policy.Fields{Classes: map[string]policy.Class{"write_file": policy.ClassWrite, "ls": policy.ClassRead}, Origin: &policy.Origin{Root: root}},
		looptest.Tool{Name: "write_file"}, looptest.Tool{Name: "ls"})
	g, err := policy.ParseGrant("files/write_file")
	if err != nil {
		t.Fatal(err)
	}
	g.Where = map[string]policy.Condition{"path": {Under: root}}
	for args, want := range cases {
		id := fmt.Sprintf("t%d", len(args))
		w.Task(task.Task{ID: id}, policy.Fields{Allow: task.ListOf(g)})
		before := len(server.Calls())
		w.Answers(looptest.Ask("mcp__files__write_file", args), looptest.Say("done"))
		r := w.Run(id)
		if sent := len(server.Calls()) > before; sent != want {
			t.Errorf("%s: sent %v, want %v (%s)", args, sent, want, r.Receipts[0].Rule)
		}
	}
}

func TestCase19ParallelCallsAreCountedBeforeEachIsSent(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Limits: &policy.Limits{ToolCalls: looptest.Ptr(2)}})
	w.Answers(looptest.Ask(look, `{"n":1}`, note, hello, look, `{"n":2}`, look, `{"n":3}`, look, `{"n":4}`), looptest.Say("done"))
	r := w.Run("brief")
	ended(t, r, task.StatusBudget, "tool_calls is 2")
	// The refused write fails none of its siblings and costs nothing.
	codes(t, r, "", policy.CodeNeedsApproval, "", policy.CodeLimit)
	saw(t, server, `look {"n":1}`, `look {"n":2}`)
	told(t, r, 4, "the run ended before it")
}

func TestCase20RepeatedCall(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	spaced := []string{`{"a":1,"b":2}`, `{"b":2,"a":1}`, `{ "a" : 1.0, "b":2 }`, `{"a":1,"b":2}`}
	var turns string
	for _, args := range spaced {
		turns += "  - call: [{tool: desk/look, raw: '" + args + "'}]\n"
	}
	w.Script(turns + "  - say: done\n")
	r := w.Run("brief")
	ended(t, r, task.StatusFailed, "made 3 times before")
	if len(server.Calls()) != 3 || r.Codes()[3] != policy.CodeRepeatedCall || !r.Run.HasMark(task.MarkRepeatedCall) {
		t.Errorf("calls %v, codes %q, marks %v", server.Calls(), r.Codes(), r.Run.Marks)
	}
}

// A refused call is answered and the run goes on; what a poisoned text makes a
// model try costs it none of its own work.
func TestRefusalsEndARunOnlyWhenTheyRepeat(t *testing.T) {
	many := func(n int) (calls []string) {
		for i := range n {
			calls = append(calls, wipe, fmt.Sprintf(`{"n":%d}`, i))
		}
		return calls
	}
	cases := []struct {
		name    string
		turns   [][]string
		refused int
		reason  string // "" if the run went on to its end
		mark    bool
	}{
		{"W5 three different in a row", [][]string{many(3), {note, hello}}, 3, "", false},
		{"W5 seven", [][]string{many(4), many(3), {note, hello}}, 7, "", false},
		{"W5 the eighth ends it", [][]string{many(7), {note, hello, wipe, `{"n":99}`}}, 8, "8 calls were refused", true},
		{"W5 two hundred in one answer", [][]string{many(200)}, 8, "8 calls were refused", true},
		{"W5 the same twice", [][]string{{wipe, "{}"}, {wipe, "{ }"}, {note, hello}}, 2, "", false},
		{"W5 the same a third time, in canonical form", [][]string{{wipe, `{"a":1,"b":2}`}, {note, hello}, {wipe, `{"b":2,"a":1}`}, {wipe, `{"a":1.0,"b":2}`}},
			3, "the same call was refused 3 times", true},
		{"W5 the same by other names", [][]string{{"mcp__mail__find", "{}"}, {"mail/find", "{}"}, {"mcp__mail__find", "{ }"}}, 3, "the same call was refused 3 times", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			desk(w)
			reader(w, "mail")
			w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: ids("desk"), Allow: grants("desk/note")})
			var turns []llm.Response
			for _, calls := range c.turns {
				turns = append(turns, looptest.Ask(calls...))
			}
			w.Answers(append(turns, looptest.Say("done"))...)
			r := w.Run("brief")
			if r.Run.Refused() != c.refused || r.Run.Status() != task.StatusDenied || r.Run.HasMark(task.MarkRepeatedDenial) != c.mark {
				t.Errorf("%s, marks %v, want denied with %d refused", r.Run.Status(), r.Run.Marks, c.refused)
			}
			if went := r.Run.Execution == task.Completed; went != (c.reason == "") || !strings.Contains(r.Run.Reason, c.reason) {
				t.Errorf("ended %s: %q, want %q", r.Run.Execution, r.Run.Reason, c.reason)
			}
		})
	}
}

// What makes no sense still ends a run soon, and a refusal between is none of that.
func TestSenselessCallsInARow(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	nota := func(n int) []string { return []string{"mcp__desk__nota", fmt.Sprintf(`{"n":%d}`, n)} }
	w.Answers(looptest.Ask(nota(1)...), looptest.Ask(nota(2)...), looptest.Ask(wipe, "{}"), looptest.Ask(nota(3)...), looptest.Ask(nota(4)...), looptest.Ask(nota(5)...))
	r := w.Run("brief")
	ended(t, r, task.StatusDenied, "3 calls in a row could not be made")
	if len(r.Receipts) != 6 {
		t.Errorf("codes %q", r.Codes())
	}
}

func TestCase30DeniedAskNamesTheLine(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{OnAsk: looptest.Ptr(policy.OnAskDeny)})
	w.Answers(looptest.Ask(note, hello), looptest.Say("It was not noted."))
	r := w.Run("brief")
	told(t, r, 0, "NOT run")
	line := "allow: [desk/note]"
	if !strings.Contains(r.Run.Reason, line) && !strings.Contains(r.Run.Reason, "desk/note") {
		t.Errorf("reason %q does not name the line", r.Run.Reason)
	}
	if len(r.Approvals) != 0 {
		t.Errorf("an approval was asked for: %v", r.Approvals)
	}
}

func TestRemovedToolIsRefusedAndNewOnesWaitForTheNextOffer(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	extra := looptest.Tool{Name: "list"}
	w.Policy(policy.ScopeConnector, "desk", policy.Fields{Classes: map[string]policy.Class{"*": policy.ClassRead}})
	changed := looptest.Tool{Name: "wipe", Description: "Wipes everything, gladly."}
	w.Answers(looptest.Ask(look, "{}", "mcp__desk__list", "{}", note, hello, wipe, "{}"), looptest.Say("done"))
	between(w, func() {
		server.Set(deskTools()[0], extra, changed)
		heard(t, w, "desk", "list", "look", "wipe")
	})
	r := w.Run("brief")
	// list was not in this turn's table; note is gone; wipe has changed.
	codes(t, r, "", policy.CodeQuarantined, policy.CodeUnknownTool, policy.CodeQuarantined)
	saw(t, server, "look {}")
	if got, want := offered(t, w, 1), []string{look, report}; !slices.Equal(got, want) {
		t.Errorf("then offered %q, want %q: what is new or changed waits for a person", got, want)
	}
	for _, mark := range []string{"quarantined:desk/list", "quarantined:desk/wipe"} {
		if !slices.Contains(r.Run.Marks, mark) {
			t.Errorf("marks %v lack %s", r.Run.Marks, mark)
		}
	}
}
