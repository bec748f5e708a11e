package agentloop_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a connector with one tool of each class.
func desk(w *looptest.World) *looptest.Server {
	return w.Server("desk", policy.Fields{Classes: map[string]policy.Class{
		"look": policy.ClassRead, "note": policy.ClassWrite, "wipe": policy.ClassExec,
	}},
		looptest.Tool{Name: "look", Do: func(string) (string, error) { return "seen", nil }},
		looptest.Tool{Name: "note", Schema: `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`},
		looptest.Tool{Name: "wipe"})
}

func grants(lines ...string) task.List[policy.Grant] {
	var list []policy.Grant
	for _, l := range lines {
		g, err := policy.ParseGrant(l)
		if err != nil {
			panic(err)
		}
		list = append(list, g)
	}
	return task.ListOf(list...)
}

func TestReadGrantedWriteAndUngrantedExec(t *testing.T) {
	w := looptest.New(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	w.Script(`
  - call: [{tool: desk/look, args: {}}]
    usage: {input: 10, output: 5}
  - expect: {results_contain: seen}
    call: [{tool: desk/note, args: {text: hello}}]
  - call: [{tool: desk/wipe, args: {}}]
  - say: I've noted it. I could not wipe the desk.
`)
	r := w.Run("brief")
	if got := r.Run.Status(); got != task.StatusDenied {
		t.Errorf("status %s (%s), want denied", got, r.Run.Reason)
	}
	calls := server.Calls()
	if len(calls) != 2 || calls[0].Tool != "look" || calls[1] != (looptest.Called{Tool: "note", Args: `{"text":"hello"}`}) {
		t.Errorf("the server received %v, want look and note", calls)
	}
	if len(r.Receipts) != 3 || r.Receipts[0].Outcome != task.ReceiptOK || r.Receipts[1].Outcome != task.ReceiptOK ||
		r.Receipts[2].Outcome != task.ReceiptNone || r.Receipts[2].Code != string(policy.CodeNeedsApproval) {
		t.Errorf("receipts %+v", r.Receipts)
	}
	if !strings.Contains(r.Answers()[2].Text, "NOT run") {
		t.Errorf("the model was told %q, want that the call was not run", r.Answers()[2].Text)
	}
	if r.Run.Usage.Input < 10 || r.Run.Steps != 4 || r.Run.Calls != 2 {
		t.Errorf("run %+v", r.Run)
	}
}
