package agentloop_test

import (
	"encoding/json"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// lines reads lines of allow as they stand in a file.
func lines(t *testing.T, text string) task.List[policy.Grant] {
	t.Helper()
	var list task.List[policy.Grant]
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

const pay = "mcp__bank__pay"

func bank(w *looptest.World) *looptest.Server {
	return w.Server("bank", policy.Fields{Classes: map[string]policy.Class{"pay": policy.ClassExec, "balance": policy.ClassRead}},
		looptest.Tool{Name: "pay"}, looptest.Tool{Name: "balance"})
}

// I6, W1: what a line does not name does not go through; W4: the refusal names the
// narrowest line, lists included.
func TestClosedLineInARun(t *testing.T) {
	w := world(t)
	server := bank(w)
	w.Task(task.Task{ID: "rent"}, policy.Fields{Allow: lines(t, `[{"tool":"bank/pay","where":{"id":{"eq":7},"amount":{"eq":1200}}}]`)})
	w.Answers(looptest.Ask(pay, `{"id":7,"amount":1200,"recipient":"X"}`), looptest.Ask(pay, `{"id":7,"amount":1200,"cc":["a","b"]}`),
		looptest.Ask(pay, `{"amount":1200.0,"id":7,"recipient":null}`), looptest.Say("done"))
	r := w.Run("rent")
	codes(t, r, policy.CodeNeedsApproval, policy.CodeNeedsApproval, "")
	saw(t, server, `pay {"amount":1200.0,"id":7,"recipient":null}`)
	told(t, r, 1, `allow: [{tool: bank/pay, where: {amount: {eq: 1200}, cc: {eq: [\"a\",\"b\"]}, id: {eq: 7}}}]`)
}

// W6: a line permits as many calls of a run as it says, once where it pins all.
func TestTimesInARun(t *testing.T) {
	for name, c := range map[string]struct {
		allow string
		want  []policy.Code
	}{
		"W6 pinned":            {`[{"tool":"bank/pay","where":{"to":{"eq":"ann"}}}]`, []policy.Code{"", policy.CodeNeedsApproval, policy.CodeNeedsApproval}},
		"W6 times":             {`[{"tool":"bank/pay","where":{"to":{"eq":"ann"}},"times":2}]`, []policy.Code{"", "", policy.CodeNeedsApproval}},
		"W6 times of any call": {`[{"tool":"bank/*","times":1}]`, []policy.Code{"", policy.CodeNeedsApproval, policy.CodeNeedsApproval}},
		"W6 two lines":         {`[{"tool":"bank/pay","where":{"to":{"eq":"ann"}}},{"tool":"bank/p?y","where":{"to":{"eq":"ann"}}}]`, []policy.Code{"", "", policy.CodeNeedsApproval}},
		"W6 no limit":          {`["bank/pay"]`, []policy.Code{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			bank(w)
			w.Task(task.Task{ID: "rent"}, policy.Fields{Allow: lines(t, c.allow)})
			w.Answers(looptest.Ask(pay, `{"to":"ann"}`), looptest.Ask(pay, `{"to": "ann"}`), looptest.Ask(pay, `{"to":  "ann"}`), looptest.Say("done"))
			codes(t, w.Run("rent"), c.want...)
		})
	}
}

// W6: a call whose outcome a crash lost counts, in the resumed run too; the count
// starts anew with the next run.
func TestTimesCountFromTheIntent(t *testing.T) {
	w := world(t)
	server := bank(w)
	w.Task(task.Task{ID: "rent", Retry: attempts(2)}, policy.Fields{Allow: lines(t, `[{"tool":"bank/pay","where":{"to":{"eq":"ann"}}}]`)})
	w.Script("  - call: [{tool: bank/pay, args: {to: ann}}]\n  - call: [{tool: bank/pay, args: {to: ann}}]\n  - say: I am done.\n")
	run := w.Start("rent")
	if !w.Kill(run, "call pay", 1, false) {
		t.Fatal("not killed")
	}
	w.Restart()
	r := w.Resume(run)
	codes(t, r, "", policy.CodeNeedsApproval)
	told(t, r, 1, "is permitted once a run, and was made")
	if seen(server, "pay") != 1 {
		t.Errorf("the server saw %v", server.Calls())
	}
	w.Script("  - call: [{tool: bank/pay, args: {to: ann}}]\n  - say: I am done.\n")
	codes(t, w.Run("rent"), "")
}

// A call that waits for a person is no call of the line: what was approved does not
// use it up, and what the line lets through needs nobody.
func TestTimesAndApprovals(t *testing.T) {
	w := world(t)
	bank(w)
	park := policy.OnAskPark
	w.Task(task.Task{ID: "rent"}, policy.Fields{OnAsk: &park, Allow: lines(t, `[{"tool":"bank/pay","where":{"to":{"eq":"ann"}}}]`)})
	w.Answers(looptest.Ask(pay, `{"to":"ann"}`), looptest.Ask(pay, `{"to":"ann"}`), looptest.Say("done"))
	r := w.Run("rent")
	if r.Run.Status() != task.StatusWaiting || len(r.Receipts) != 2 || r.Receipts[1].Decision != task.DecisionPark {
		t.Errorf("run %s, receipts %+v", r.Run.Status(), r.Receipts)
	}
}
