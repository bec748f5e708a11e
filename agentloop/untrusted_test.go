package agentloop_test

import (
	"slices"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// A page that an earlier run read is still in the session, so the next run may not
// send anything out on its word.
func TestUntrustedTextOfAnEarlierRun(t *testing.T) {
	const once = `
  - call: [{tool: web/get, args: {url: "http://news.test/"}}]
  - say: That is all.
`
	for _, c := range []struct {
		name    string
		session task.SessionMode
		allow   []string
		codes   []policy.Code // of the second run
		marked  bool
	}{
		{"keep", task.SessionKeep, nil, []policy.Code{policy.CodeNeedsApproval}, true},
		{"last output", task.SessionLastOutput, nil, []policy.Code{policy.CodeNeedsApproval}, true},
		{"fresh", task.SessionFresh, nil, []policy.Code{""}, false},
		{"granted", task.SessionKeep, []string{"web/get"}, []policy.Code{""}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := looptest.New(t)
			w.Server("web", policy.Fields{
				Classes: map[string]policy.Class{"get": policy.ClassRead},
				Flags:   task.ListOf(policy.Flag{Kind: policy.FlagUntrusted}, policy.Flag{Kind: policy.FlagEgress}),
			}, looptest.Tool{Name: "get"})
			w.Task(task.Task{ID: "brief", Session: c.session}, policy.Fields{Allow: grants(c.allow...)})
			w.Script(once)
			if r := w.Run("brief"); !slices.Equal(r.Codes(), []policy.Code{""}) {
				t.Fatalf("first run: codes %q", r.Codes())
			}
			w.Script(once)
			r := w.Run("brief")
			if !slices.Equal(r.Codes(), c.codes) {
				t.Errorf("second run: codes %q, want %q", r.Codes(), c.codes)
			}
			inherited := w.Start("brief")
			w.Script("\n  - say: Nothing was read.\n")
			if err := w.Runner.Run(t.Context(), inherited); err != nil {
				t.Fatal(err)
			}
			if got := w.Result(inherited).Run.HasMark(task.MarkUntrusted); got != c.marked {
				t.Errorf("third run: marked %t, want %t", got, c.marked)
			}
		})
	}
}

// I18: a connector of which nothing is known counts as untrusted, private and
// egress, so a second read of it asks; its flags say otherwise.
func TestUnknownConnectorCountsAsUntrusted(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags task.List[policy.Flag]
		codes []policy.Code
	}{
		{"nothing written", task.List[policy.Flag]{}, []policy.Code{"", policy.CodeNeedsApproval, ""}},
		{"flags: []", task.ListOf[policy.Flag](), []policy.Code{"", "", ""}},
		{"flags: [untrusted]", task.ListOf(policy.Flag{Kind: policy.FlagUntrusted}), []policy.Code{"", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := looptest.New(t)
			w.Unflagged = true
			w.Server("desk", policy.Fields{Classes: deskClasses, Flags: c.flags}, deskTools()...)
			w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
			w.Answers(looptest.Ask(look, `{"n":1}`), looptest.Ask(look, `{"n":2}`, note, hello), looptest.Say("done"))
			codes(t, w.Run("brief"), c.codes...)
		})
	}
}
