package agentloop_test

import (
	"slices"
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/redact"
	"runnerd/task"
)

// A server that knows a secret cannot show it to the model in a description.
func TestDescriptionsAreRedacted(t *testing.T) {
	w := looptest.New(t)
	w.Redact.Replace([]redact.Secret{{Name: "credential:key", Value: "hunter2-hunter2"}})
	w.Server("desk", policy.Fields{Classes: map[string]policy.Class{"look": policy.ClassRead}}, looptest.Tool{
		Name: "look", Description: "use hunter2-hunter2",
		Schema: `{"type":"object","properties":{"a":{"description":"hunter2-hunter2","type":"string"}}}`,
	})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say("Seen."))
	if r := w.Run("brief"); r.Run.Status() != task.StatusOK {
		t.Fatalf("status %s: %s", r.Run.Status(), r.Run.Reason)
	}
	i := slices.IndexFunc(w.Requests()[0].Tools, func(t llm.Tool) bool { return strings.HasSuffix(t.Name, "look") })
	if i < 0 {
		t.Fatal("the tool was not offered")
	}
	shown := w.Requests()[0].Tools[i]
	if text := shown.Description + string(shown.InputSchema); strings.Contains(text, "hunter2") || strings.Count(text, "[redacted:credential:key]") != 2 {
		t.Errorf("the model was shown %s", text)
	}
}

// A run under a last good revision says so.
func TestStaleFilesAreMarked(t *testing.T) {
	w := looptest.New(t)
	w.StaleFiles = []string{"tasks/brief.md"}
	w.Task(task.Task{ID: "brief", Instructions: "Be brief."}, policy.Fields{})
	w.Answers(looptest.Say("Hello."))
	if r := w.Run("brief"); !r.Run.HasMark(task.MarkConfigKeptOld + ":tasks/brief.md") {
		t.Errorf("marks %v, want that the last good revision was in force", r.Run.Marks)
	}
	if system := w.Requests()[0].System; !strings.Contains(system, "Be brief.") {
		t.Errorf("the system prompt lacks the project's instructions: %s", system)
	}
}

// White space is no answer.
func TestBlankAnswerIsEmpty(t *testing.T) {
	w := looptest.New(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say(" \n\t"), looptest.Say("Hello."))
	r := w.Run("brief")
	if r.Run.Status() != task.StatusFailed || !r.Run.HasMark(task.MarkEmptyAnswer) {
		t.Errorf("status %s, marks %v; want failed for an empty answer", r.Run.Status(), r.Run.Marks)
	}
	if r = w.Run("brief"); r.Run.Status() != task.StatusOK {
		t.Errorf("the session's next run is %s: %s", r.Run.Status(), r.Run.Reason)
	}
	for _, m := range w.Requests()[1].Messages {
		if m.Role == task.RoleAssistant && strings.TrimSpace(m.Text) == "" {
			t.Errorf("the blank answer was sent back as history: %q", m.Text)
		}
	}
}
