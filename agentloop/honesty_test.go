package agentloop_test

import (
	"context"
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

func TestReport(t *testing.T) {
	cases := []struct {
		args   string
		status task.Status
		reason string
	}{
		{`{"outcome":"ok"}`, task.StatusOK, ""},
		{`{"outcome":"nothing_to_do","summary":"no mail"}`, task.StatusOK, ""},
		{`{"outcome":"failed","summary":"the disk is\nfull"}`, task.StatusFailed, "the agent reported failed: the disk is full"},
		{`{"outcome":"needs_attention"}`, task.StatusFailed, "the agent reported needs_attention"},
	}
	for _, c := range cases {
		t.Run(c.args, func(t *testing.T) {
			w := world(t)
			w.Task(task.Task{ID: "brief"}, policy.Fields{})
			w.Answers(looptest.Ask(report, c.args), looptest.Say("That is all."))
			r := w.Run("brief")
			ended(t, r, c.status, c.reason)
			if len(r.Receipts) != 0 || !strings.Contains(c.args, string(r.Run.Outcome)) {
				t.Errorf("outcome %s, receipts %v", r.Run.Outcome, r.Receipts)
			}
		})
	}
}

func TestBadReports(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask(report, `{"outcome":"great"}`), looptest.Ask(report, `nonsense`), looptest.Ask(report, `{}`))
	r := w.Run("brief")
	ended(t, r, task.StatusFailed, "3 calls in a row could not be made")
	told(t, r, 0, "expected ok, nothing_to_do, failed or needs_attention")
	if r.Run.Outcome != task.OutcomeNone {
		t.Errorf("outcome %s", r.Run.Outcome)
	}
}

func TestCase33Claims(t *testing.T) {
	const claim = "I've saved the note. Let me know if you need more."
	cases := []struct {
		name   string
		calls  []string
		say    string
		marked bool
	}{
		{"no receipt", nil, claim, true},
		{"a write", []string{note, hello}, claim, false},
		{"only a read", []string{look, "{}"}, claim, true},
		{"a failed write", []string{"mcp__desk__fail", "{}"}, claim, true},
		{"a refused write", []string{wipe, "{}"}, claim, true},
		{"a promise", nil, "I will save it.", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			fail := looptest.Tool{Name: "fail", Do: func(string) (string, error) { return "", context.DeadlineExceeded }}
			w.Server("desk", policy.Fields{Classes: deskClasses}, append(deskTools(), fail)...)
			w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note", "desk/fail")})
			w.Answers(looptest.Ask(c.calls...), looptest.Say(c.say))
			if c.calls == nil {
				w.Answers(looptest.Say(c.say))
			}
			r := w.Run("brief")
			if r.Run.HasMark(task.MarkUnverifiedClaims) != c.marked || (r.Run.Output != c.say) != c.marked {
				t.Errorf("marks %v, output %q", r.Run.Marks, r.Run.Output)
			}
			if c.marked && r.Run.Status() == task.StatusOK {
				t.Error("the run is ok")
			}
		})
	}
}

func TestCase34TextOnlyModel(t *testing.T) {
	for name, c := range map[string]struct {
		rules  policy.Fields
		marked bool
	}{"explicit": {policy.Fields{Connectors: ids("desk")}, true}, "default": {policy.Fields{}, false}} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			w.Spec.ToolMode = "none"
			desk(w)
			w.Task(task.Task{ID: "brief"}, c.rules)
			w.Answers(looptest.Say("Hello."))
			r := w.Run("brief")
			last := r.Messages[len(r.Messages)-1]
			if r.Run.HasMark(task.MarkToolsUnsupported) != c.marked || strings.Contains(last.Notice, "cannot call tools") != c.marked {
				t.Errorf("marks %v, notice %q", r.Run.Marks, last.Notice)
			}
			if len(w.Requests()[0].Tools) != 0 || last.Model != "default" {
				t.Errorf("tools %v, model %s", w.Requests()[0].Tools, last.Model)
			}
		})
	}
}

func TestCase35NotOK(t *testing.T) {
	t.Run("empty answer", func(t *testing.T) {
		w := world(t)
		w.Task(task.Task{ID: "brief"}, policy.Fields{})
		w.Answers(looptest.Say(""))
		ended(t, w.Run("brief"), task.StatusFailed, "empty answer")
		// An empty answer must not spoil the session.
		w.Script("  - say: done\n")
		ended(t, w.Run("brief"), task.StatusOK, "")
	})
	t.Run("required connector down", func(t *testing.T) {
		w := world(t)
		desk(w).Down(true)
		w.Task(task.Task{ID: "brief", Require: []string{"desk"}}, policy.Fields{})
		w.Answers(looptest.Say("done"))
		r := w.Run("brief")
		ended(t, r, task.StatusFailed, "connector desk is down")
		if got := r.Run.Status().ExitCode(); got != task.ExitFailed {
			t.Errorf("exit code %d", got)
		}
	})
}

func TestOutputSchema(t *testing.T) {
	schema := []byte(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)
	for say, want := range map[string]task.Status{
		`{"n":1}`: task.StatusOK, "```json\n{\"n\":1}\n```": task.StatusOK,
		`{"n":"x"}`: task.StatusFailed, `All is well.`: task.StatusFailed, `{"n":1} and more`: task.StatusFailed,
	} {
		t.Run(say, func(t *testing.T) {
			w := world(t)
			w.Task(task.Task{ID: "brief", OutputSchema: schema}, policy.Fields{})
			w.Answers(looptest.Say(say))
			r := w.Run("brief")
			ended(t, r, want, "")
			if want == task.StatusFailed && !strings.Contains(r.Run.Output, "output_schema") {
				t.Errorf("output %q does not say why", r.Run.Output)
			}
		})
	}
}

func TestFencedCalls(t *testing.T) {
	block := "I look.\n```tool_call\n{\"tool\":\"mcp__desk__look\",\"arguments\":{}}\n```\n"
	answer := func(req *llm.Request) (*llm.Response, error) {
		r := looptest.Say(block)
		if len(req.Messages) > 1 {
			r = looptest.Say("I looked.")
		}
		return &r, nil
	}
	t.Run("auto, after the vendor rejects tools", func(t *testing.T) {
		w := world(t)
		server := desk(w)
		w.Task(task.Task{ID: "brief"}, policy.Fields{})
		w.Use(looptest.ModelFunc(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
			if len(req.Tools) > 0 {
				return nil, &llm.Error{Kind: llm.ToolsUnsupported, Message: "does not support tools"}
			}
			return answer(req)
		}))
		r := w.Run("brief")
		ended(t, r, task.StatusOK, "")
		saw(t, server, "look {}")
		if !r.Run.HasMark(task.MarkToolsFenced) {
			t.Errorf("marks %v", r.Run.Marks)
		}
	})
	t.Run("fenced from the start", func(t *testing.T) {
		w := world(t)
		w.Spec.ToolMode = "fenced"
		server := desk(w)
		w.Task(task.Task{ID: "brief"}, policy.Fields{})
		w.Use(looptest.ModelFunc(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
			if len(req.Tools) > 0 {
				t.Error("native tools were sent")
			}
			return answer(req)
		}))
		ended(t, w.Run("brief"), task.StatusOK, "")
		saw(t, server, "look {}")
	})
	t.Run("native does not fall back", func(t *testing.T) {
		w := world(t)
		w.Spec.ToolMode = "native"
		desk(w)
		w.Task(task.Task{ID: "brief"}, policy.Fields{})
		w.Use(errorsOf(llm.Error{Kind: llm.ToolsUnsupported, Message: "does not support tools"}))
		ended(t, w.Run("brief"), task.StatusFailed, "does not support tools")
	})
}
