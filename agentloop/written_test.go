package agentloop_test

import (
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/redact"
	"runnerd/task"
)

const written = `<tool_call>{"name":"mcp__desk__note","arguments":{"text":"hello"}}</tool_call>`

// C2: a call written as text has done nothing. The model is told once.
func TestCallWrittenAsText(t *testing.T) {
	cut := looptest.Say("<tool_call>\n{\"name\": \"mcp__desk__no")
	cut.Finish = llm.FinishLength
	for _, c := range []struct {
		name    string
		answers []llm.Response
		status  task.Status
		reason  string
		asked   int
		sent    string
	}{
		{"C2 mended", []llm.Response{looptest.Say(written), looptest.Ask(note, hello), looptest.Say("The note is written.")}, task.StatusOK, "", 3, "note " + hello},
		{"C2 again", []llm.Response{looptest.Say(written), looptest.Say(written)}, task.StatusFailed, "call_as_text", 2, ""},
		{"C2 again later", []llm.Response{looptest.Say(written), looptest.Ask(note, hello), looptest.Say(written)}, task.StatusFailed, "call_as_text", 3, "note " + hello},
		{"C2 cut", []llm.Response{cut, cut}, task.StatusFailed, "call_as_text", 2, ""},
		{"C2 cut, then mended", []llm.Response{cut, looptest.Say("Nothing is to be written.")}, task.StatusOK, "", 2, ""},
		{"C2 by the tool's own name", []llm.Response{looptest.Say(`{"name":"note","arguments":{"text":"hello"}}`), looptest.Say("Nothing is to be written.")}, task.StatusOK, "", 2, ""},
		{"C2 bare", []llm.Response{looptest.Say(`{"name":"mcp__desk__note","arguments":{}}`), looptest.Say("Nothing is to be written.")}, task.StatusOK, "", 2, ""},
		{"quoted", []llm.Response{looptest.Say("The log has this:\n```\n" + written + "\n```\nNothing else.")}, task.StatusOK, "", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
			w.Answers(c.answers...)
			r := w.Run("brief")
			ended(t, r, c.status, c.reason)
			if n := len(w.Requests()); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
			if r.Run.HasMark(task.MarkCallAsText) != (c.reason != "") || c.reason != "" && r.Run.Output != "" {
				t.Errorf("marks %v, output %q", r.Run.Marks, r.Run.Output)
			}
			if c.asked > 1 {
				if last := w.Requests()[1].Messages; !strings.Contains(last[len(last)-1].Text, "Nothing was run") {
					t.Errorf("the model was told %q", last[len(last)-1].Text)
				}
			}
			if c.sent != "" {
				saw(t, server, c.sent)
			} else {
				saw(t, server)
			}
		})
	}
}

// Without tools there is nothing to call.
func TestTextThatIsNoCall(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: task.ListOf[string]()})
	w.Answers(looptest.Say(written))
	ended(t, w.Run("brief"), task.StatusOK, "")
}

// JSON that the task wants is an answer.
func TestOutputThatLooksLikeACall(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief", OutputSchema: []byte(`{"type":"object","required":["name"]}`)}, policy.Fields{})
	w.Answers(looptest.Say(`{"name":"mcp__desk__note","arguments":{}}`))
	ended(t, w.Run("brief"), task.StatusOK, "")
}

// A crash between the text and what the model is told of it changes nothing.
func TestWrittenCallSurvivesACrash(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	w.Answers(looptest.Say(written), looptest.Say("Nothing is to be written."))
	run := w.Start("brief")
	if !w.Kill(run, "append assistant", 1, false) {
		t.Fatal("the crash did not come")
	}
	w.Restart()
	r := w.Resume(run)
	ended(t, r, task.StatusOK, "")
	if r.Run.Output != "Nothing is to be written." {
		t.Errorf("output %q", r.Run.Output)
	}
}

// In the fenced mode the form is another; what a model is told is that form.
func TestCallWrittenInAnotherForm(t *testing.T) {
	w := world(t)
	desk(w)
	w.Spec.ToolMode = "fenced"
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say(written), looptest.Say(written))
	ended(t, w.Run("brief"), task.StatusFailed, "call_as_text")
	last := w.Requests()[1].Messages
	if text := last[len(last)-1].Text; !strings.Contains(text, "```tool_call") {
		t.Errorf("the model was told %q", text)
	}
}

// C3: what a model thought aloud is kept with its message and delivered to nobody.
func TestReasoningIsKept(t *testing.T) {
	w := world(t)
	w.Redact.Add(redact.Secret{Name: "pin", Value: "sesame-open-1"})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	say := looptest.Say("All is well.")
	say.Reasoning = "The pin is sesame-open-1."
	w.Answers(say)
	r := w.Run("brief")
	last := r.Messages[len(r.Messages)-1]
	if r.Run.Output != "All is well." || !strings.Contains(last.Reasoning, "The pin is") || strings.Contains(last.Reasoning, "sesame") {
		t.Errorf("output %q, reasoning %q", r.Run.Output, last.Reasoning)
	}
}
