package control

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

func TestApprove(t *testing.T) {
	r := newRig(t)
	run := r.running("brief")
	r.parks(run, askFor("a1", `{"path":"/srv/x","text":"one\ntwo"}`), askFor("b2", `{}`))
	c := r.as(operator)
	list := must[[]ApprovalRow](t)(c.Approvals(ctx, "", ""))
	if len(list) != 2 {
		t.Fatalf("approvals %+v", list)
	}
	v := must[ApprovalView](t)(c.Approval(ctx, "a")) // a beginning is enough
	if v.ID != "a1" || v.Arguments != `{"path":"/srv/x","text":"one\ntwo"}` || v.ArgsHash != task.ArgsHash(v.Arguments) || v.State != task.ApprovalPending {
		t.Errorf("approval %+v", v)
	}
	d := must[DecisionView](t)(c.Approve(ctx, Verdict{ID: "a1", Task: "brief", Reason: "fine", ArgsHash: v.ArgsHash}))
	if !d.Decided || d.Approval.State != task.ApprovalApproved || d.Approval.DecidedBy != "root" || d.Approval.Reason != "fine" {
		t.Errorf("decision %+v", d)
	}
	if d.Always != `allow: [{tool: files/write_file, where: {path: {eq: "/srv/x"}, text: {eq: "one\ntwo"}}}]` || len(d.AlwaysOpen) != 0 {
		t.Errorf("always %s, open %v", d.Always, d.AlwaysOpen)
	}
	if r.woken() != 1 {
		t.Error("the workers were not woken")
	}
	if again := must[DecisionView](t)(c.Deny(ctx, Verdict{ID: "a1"})); again.Decided || again.Approval.State != task.ApprovalApproved {
		t.Errorf("a duplicate: %+v, want the first decision", again)
	}
	if d := must[DecisionView](t)(c.Deny(ctx, Verdict{ID: "b2"})); !d.Decided || d.Approval.State != task.ApprovalDenied || d.Always != "" {
		t.Errorf("denied %+v", d)
	}
	if got := must[RunView](t)(c.Run(ctx, run.ID)); got.Run.Status != task.StatusQueued {
		t.Errorf("the run is %s after its last approval", got.Run.Status)
	}
	if list := must[[]ApprovalRow](t)(c.Approvals(ctx, "", "")); len(list) != 0 {
		t.Errorf("still pending: %+v", list)
	}
	if list := must[[]ApprovalRow](t)(c.Approvals(ctx, "approved,denied", "brief")); len(list) != 2 {
		t.Errorf("decided: %+v", list)
	}
	if list := must[[]ApprovalRow](t)(c.Approvals(ctx, "all", "backup")); list == nil || len(list) != 0 {
		t.Errorf("another task's: %+v", list)
	}
}

func askFor(id, arguments string) task.Approval {
	return task.Approval{ID: id, Arguments: arguments, Preview: "path=/srv/x", Definition: "def"}
}

// Case 25: an id of another task looks as if it were not there, and is not touched.
func TestApprovalOfAnotherTask(t *testing.T) {
	r := newRig(t)
	r.parks(r.running("brief"), askFor("a1", `{}`))
	c := r.as(operator)
	_, other := c.Approve(ctx, Verdict{ID: "a1", Task: "backup"})
	_, none := c.Approve(ctx, Verdict{ID: "zz", Task: "backup"})
	a, b := refusedWith(t, other, http.StatusNotFound, CodeNotFound), refusedWith(t, none, http.StatusNotFound, CodeNotFound)
	if strings.ReplaceAll(a.Error(), "a1", "zz") != b.Error() {
		t.Errorf("%q and %q differ", a, b)
	}
	if v := must[ApprovalView](t)(c.Approval(ctx, "a1")); v.State != task.ApprovalPending {
		t.Errorf("it is %s", v.State)
	}
}

// Cases 24 and 28, and a person who looked at something else.
func TestApprovalMovedOn(t *testing.T) {
	r := newRig(t)
	late := askFor("late", `{}`)
	late.ExpiresAt = time.Now().Add(-time.Second)
	r.parks(r.running("brief"), late)
	run := r.running("backup")
	r.parks(run, askFor("gone", `{}`))
	c := r.as(operator)
	_, err := c.Approve(ctx, Verdict{ID: "gone", ArgsHash: task.ArgsHash("{ }")})
	refusedWith(t, err, http.StatusConflict, CodeConflict)
	if v := must[ApprovalView](t)(c.Approval(ctx, "gone")); v.State != task.ApprovalPending {
		t.Errorf("another hash: it is %s", v.State)
	}
	must[RunRow](t)(c.Cancel(ctx, run.ID, "no"))
	for id, state := range map[string]string{"late": "expired", "gone": "cancelled"} {
		for range 2 {
			_, err := c.Approve(ctx, Verdict{ID: id})
			if e := refusedWith(t, err, http.StatusConflict, CodeConflict); e.State != state {
				t.Errorf("%s: %+v, want state %s", id, e, state)
			}
		}
	}
	if got := must[RunView](t)(c.Run(ctx, run.ID)); got.Run.Status != task.StatusCancelled {
		t.Errorf("the cancelled run is %s", got.Run.Status)
	}
}

// Case 22: of two approvers at once, exactly one decides.
func TestApproversAtOnce(t *testing.T) {
	r := newRig(t)
	r.parks(r.running("brief"), askFor("a1", `{}`))
	c := r.as(operator)
	decided := make(chan bool, 8)
	var all sync.WaitGroup
	for i := range cap(decided) {
		all.Go(func() {
			decide := c.Approve
			if i%2 == 0 {
				decide = c.Deny
			}
			d, err := decide(ctx, Verdict{ID: "a1"})
			decided <- err == nil && d.Decided
		})
	}
	all.Wait()
	close(decided)
	n := 0
	for won := range decided {
		if won {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of the decisions counted, want 1", n)
	}
}

// Case 29 at the API: what a terminal could obey is escaped, the arguments are whole.
func TestApprovalShowsNothingThatATerminalObeys(t *testing.T) {
	r := newRig(t)
	big := `{"path":"` + strings.Repeat("x", 1<<20) + `"}`
	evil, bytes := askFor("evil", big), askFor("bytes", "{}\xff")
	evil.Preview = "path=\x1b[2J\u202e\u2028ok\xffé"
	r.parks(r.running("brief"), evil, bytes)
	c := r.as(operator)
	v := must[ApprovalView](t)(c.Approval(ctx, "evil"))
	if v.Preview != `path=\x1b[2J\u202e\u2028ok`+"\uFFFDé" {
		t.Errorf("preview %q", v.Preview)
	}
	if v.Arguments != big || v.ArgumentsBytes != len(big) || v.ArgsHash != task.ArgsHash(big) || len(v.AlwaysOpen) != 1 {
		t.Errorf("arguments of %d bytes, said to be %d", len(v.Arguments), v.ArgumentsBytes)
	}
	if v := must[ApprovalView](t)(c.Approval(ctx, "bytes")); string(v.ArgumentsBase64) != "{}\xff" || v.Arguments != "" {
		t.Errorf("bytes shown as %q, %q", v.Arguments, v.ArgumentsBase64)
	}
}

// The line is one that a task file takes, and it allows the very call.
func TestAllowLine(t *testing.T) {
	for _, c := range []struct{ tool, args, want, open string }{
		{"write_file", `{}`, "allow: [{tool: files/write_file, where: {rest: absent}}]", ""},
		{"write_file", `{"count":12345678901234567890,"ok":true}`, `allow: [{tool: files/write_file, where: {count: {eq: 12345678901234567890}, ok: {eq: true}}}]`, ""},
		{"odd*tool", `{}`, `allow: [{tool: files/odd?tool, where: {rest: absent}}]`, ""},
		{"W4_lists", `{"a":null,"b":[1],"c":{"d":1},"f":"a\u0007"}`, `allow: [{tool: files/W4_lists, where: {b: {eq: [1]}, c: {eq: {"d":1}}, f: {eq: "a\u0007"}}}]`, ""},
		{"write_file", `{"body":"` + strings.Repeat("x", 5000) + `","to":["a"]}`, `allow: [{tool: files/write_file, where: {body: any, to: {eq: ["a"]}}}]`, "body"},
		{"write_file", `[1]`, "", ""},
		{"write_file", `nonsense`, "", ""},
		{" spaced", `{}`, `allow: [{tool: files/?spaced, where: {rest: absent}}]`, ""},
	} {
		line, open := AllowLine(task.Approval{Connector: "files", Tool: c.tool, Arguments: c.args})
		if line != c.want || strings.Join(open, " ") != c.open {
			t.Errorf("%s %s: %s, open %v", c.tool, c.args, line, open)
		}
	}
	args := `{"path":"/srv/x","n":1.50}`
	var g policy.Grant
	ok(t, g.UnmarshalJSON([]byte(`{"tool":"files/write_file","where":{"path":{"eq":"/srv/x"},"n":{"eq":1.50}}}`)))
	if line, _ := AllowLine(task.Approval{Connector: "files", Tool: "write_file", Arguments: args}); line != "allow: ["+g.YAML()+"]" {
		t.Errorf("line %s, want that of %s", line, g.YAML())
	}
}
