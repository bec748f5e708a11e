package agentloop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"runnerd/db"
	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// parking is what a task file says that lets a person decide.
func parking(f policy.Fields) policy.Fields {
	f.OnAsk = looptest.Ptr(policy.OnAskPark)
	return f
}

// parked runs a task until it waits for a person, and answers its run.
func parked(t *testing.T, w *looptest.World, id string) looptest.Result {
	t.Helper()
	r := w.Run(id)
	ended(t, r, task.StatusWaiting, "waiting for approval")
	return r
}

// parkedNote is a world in which a call of desk/note waits.
func parkedNote(t *testing.T) (*looptest.World, *looptest.Server, looptest.Result) {
	t.Helper()
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief", Retry: task.Retry{Attempts: 3, Backoff: time.Millisecond}}, parking(policy.Fields{}))
	w.Script("  - call: [{tool: desk/note, raw: '{ \"z\": 1.0, \"text\": \"hello\" }'}]\n  - say: I am done.\n")
	return w, server, parked(t, w, "brief")
}

// spacedHello is what then reaches the server: the order of keys and the form of
// numbers stay; white space is the wire's.
const spacedHello = `note {"z":1.0,"text":"hello"}`

func state(t *testing.T, w *looptest.World, id string) task.ApprovalState {
	t.Helper()
	a, err := w.Main.Approval(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a.State
}

func TestCase26ParkRestartApprove(t *testing.T) {
	w, server, r := parkedNote(t)
	if len(r.Approvals) != 1 || r.Approvals[0].ArgsHash != r.Receipts[0].ArgsHash {
		t.Fatalf("approvals %+v", r.Approvals)
	}
	id := r.Approvals[0].ID
	w.Restart()
	if got := w.Result(r.Run.ID).Run.Execution; got != task.Waiting {
		t.Fatalf("after a restart the run is %s", got)
	}
	if _, ok, _ := w.Main.ClaimRun(context.Background(), r.Run.ID, time.Now()); ok {
		t.Fatal("a worker may hold a run that waits")
	}
	saw(t, server)
	verdict(t, w, id, task.ApprovalApproved)
	r = w.Resume(r.Run.ID)
	ended(t, r, task.StatusOK, "")
	saw(t, server, spacedHello) // the exact bytes, once
	if got := state(t, w, id); got != task.ApprovalDone {
		t.Errorf("approval is %s", got)
	}
	if r.Run.Attempt != 1 || r.Run.Calls != 1 || r.Receipts[1].ApprovalID != id || r.Receipts[1].Rule != "approved by a person" {
		t.Errorf("run %+v, receipt %+v", r.Run, r.Receipts[1])
	}
	if n := len(w.Requests()); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
	}
}

func TestApprovalDenied(t *testing.T) {
	w, server, r := parkedNote(t)
	_, err := w.Main.DecideApproval(context.Background(), db.Verdict{ID: r.Approvals[0].ID, State: task.ApprovalDenied, By: "alice", Reason: "not today"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r = w.Resume(r.Run.ID)
	ended(t, r, task.StatusDenied, "not today")
	codes(t, r, policy.CodeNeedsApproval, policy.CodeApprovalDenied)
	told(t, r, 0, "NOT run")
	saw(t, server)
}

func TestCase24ApprovalExpires(t *testing.T) {
	w, server, r := parkedNote(t)
	ctx, id := context.Background(), r.Approvals[0].ID
	if expired, err := w.Main.ExpireApprovals(ctx, time.Now().Add(25*time.Hour)); err != nil || len(expired) != 1 {
		t.Fatalf("expired %v (%v)", expired, err)
	}
	// The clock goes back: what has expired stays so.
	if _, err := w.Main.DecideApproval(ctx, db.Verdict{ID: id, State: task.ApprovalApproved}, time.Now()); !errors.Is(err, db.ErrConflict) {
		t.Errorf("an expired approval was decided: %v", err)
	}
	w.ClaimAt(r.Run.ID, time.Now().Add(26*time.Hour))
	r = w.Go(r.Run.ID)
	ended(t, r, task.StatusDenied, "expired")
	codes(t, r, policy.CodeNeedsApproval, policy.CodeApprovalExpired)
	saw(t, server)
}

func TestApprovalTTLIsTheTasks(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, parking(policy.Fields{ApprovalTTL: looptest.Ptr(90 * time.Minute)}))
	w.Answers(looptest.Ask(note, hello))
	a := parked(t, w, "brief").Approvals[0]
	if got := a.ExpiresAt.Sub(a.CreatedAt); got != 90*time.Minute {
		t.Errorf("the approval is good for %s", got)
	}
}

func TestCase21TicketDoesNotFitOtherArguments(t *testing.T) {
	w, server, r := parkedNote(t)
	id := r.Approvals[0].ID
	verdict(t, w, id, task.ApprovalApproved)
	// Somebody changed the transcript: the call that would be sent is another one.
	raw := `UPDATE messages SET body = replace(body, 'hello', 'howdy') WHERE role = 'assistant'`
	damageMain(t, w, raw)
	w.Resume(r.Run.ID)
	saw(t, server)
	if got := state(t, w, id); got != task.ApprovalApproved {
		t.Errorf("the ticket was burnt: it is %s", got)
	}
}

func TestCase22TwoWorkersOneTicket(t *testing.T) {
	w, server, r := parkedNote(t)
	verdict(t, w, r.Approvals[0].ID, task.ApprovalApproved)
	w.Claim(r.Run.ID)
	// Both have read everything before either sends; the loser comes second.
	var both, loser sync.WaitGroup
	var mu sync.Mutex
	both.Add(2)
	loser.Add(1)
	arrivals, sent := 0, false
	w.Before = func(op string) error {
		if op != "intend" {
			return nil
		}
		mu.Lock()
		arrivals++
		second := arrivals == 2
		mu.Unlock()
		both.Done()
		both.Wait()
		if second {
			loser.Wait()
		}
		return nil
	}
	w.After = func(op string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "intend" && !sent {
			sent = true
			loser.Done()
		}
		return nil
	}
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- w.Runner.Run(context.Background(), r.Run.ID) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	saw(t, server, spacedHello)
	r = w.Result(r.Run.ID)
	ended(t, r, task.StatusOK, "")
	if len(r.Answers()) != 1 || len(r.Receipts) != 2 {
		t.Errorf("answers %v, receipts %v", r.Answers(), r.Receipts)
	}
}

func TestCase23ChangedSinceTheRequest(t *testing.T) {
	changed := looptest.Tool{Name: "note", Description: "Notes it twice.", Schema: noteSchema}
	tools := []looptest.Tool{deskTools()[0], changed, deskTools()[2]}
	accept := func(t *testing.T, w *looptest.World) {
		ctx := context.Background()
		list, err := w.Pool.Tools(ctx, "desk")
		if err == nil {
			err = w.Rules.AcceptTools(ctx, "desk", list, nil, "alice")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		name   string
		change func(t *testing.T, w *looptest.World, s *looptest.Server)
		status task.Status
		code   policy.Code // of the last receipt
		sent   bool
	}{
		{"class", func(_ *testing.T, w *looptest.World, _ *looptest.Server) {
			w.Policy(policy.ScopeConnector, "desk", policy.Fields{Classes: map[string]policy.Class{"look": policy.ClassRead, "note": policy.ClassExec}})
		}, task.StatusWaiting, policy.CodeNeedsApproval, false},
		{"definition, accepted since", func(t *testing.T, w *looptest.World, s *looptest.Server) {
			s.Set(tools...)
			w.Restart()
			accept(t, w)
		}, task.StatusWaiting, policy.CodeNeedsApproval, false},
		{"definition, not accepted", func(_ *testing.T, w *looptest.World, s *looptest.Server) {
			s.Set(tools...)
			w.Restart()
		}, task.StatusDenied, policy.CodeQuarantined, false},
		{"class, but granted by now", func(_ *testing.T, w *looptest.World, _ *looptest.Server) {
			w.Policy(policy.ScopeConnector, "desk", policy.Fields{Classes: map[string]policy.Class{"look": policy.ClassRead, "note": policy.ClassExec}})
			w.Policy(policy.ScopeTask, "brief", policy.Fields{Allow: grants("desk/note")})
		}, task.StatusOK, "", true},
		{"unrelated edit", func(_ *testing.T, w *looptest.World, _ *looptest.Server) {
			reader(w, "mail")
			w.Policy(policy.ScopeTask, "brief", parking(policy.Fields{Allow: grants("desk/wipe"), Deny: grants("mail/*")}))
		}, task.StatusOK, "", true},
		{"asks are denied by now, but this one was approved", func(_ *testing.T, w *looptest.World, _ *looptest.Server) {
			w.Policy(policy.ScopeTask, "brief", policy.Fields{})
		}, task.StatusOK, "", true},
		{"denied by now", func(_ *testing.T, w *looptest.World, _ *looptest.Server) {
			w.Policy(policy.ScopeTask, "brief", parking(policy.Fields{Deny: grants("desk/note")}))
		}, task.StatusDenied, policy.CodeDenied, false},
		{"unreachable by now", func(_ *testing.T, w *looptest.World, _ *looptest.Server) {
			w.Override(policy.ScopeSession, "brief", map[string]string{"connectors": `[]`})
		}, task.StatusDenied, policy.CodeNotReachable, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, server, r := parkedNote(t)
			first := r.Approvals[0].ID
			c.change(t, w, server)
			verdict(t, w, first, task.ApprovalApproved)
			r = w.Resume(r.Run.ID)
			ended(t, r, c.status, "")
			if got := r.Codes()[len(r.Receipts)-1]; got != c.code {
				t.Errorf("the last receipt has code %q, want %q", got, c.code)
			}
			if c.sent {
				saw(t, server, spacedHello)
			} else {
				saw(t, server)
			}
			if c.status != task.StatusWaiting {
				return
			}
			if got := state(t, w, first); got != task.ApprovalSuperseded || len(r.Approvals) != 2 {
				t.Fatalf("the first approval is %s, of %d", got, len(r.Approvals))
			}
			if n := len(w.Requests()); n != 1 {
				t.Errorf("the model was asked %d times, want once", n)
			}
			verdict(t, w, r.Approvals[1].ID, task.ApprovalApproved)
			ended(t, w.Resume(r.Run.ID), task.StatusOK, "")
			saw(t, server, spacedHello)
		})
	}
}

func TestCase19TwoParksOneRead(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, parking(policy.Fields{Allow: grants("desk/wipe")}))
	w.Answers(looptest.Ask(note, `{"text":"1"}`, look, "{}", note, `{"text":"2"}`, wipe, "{}"), looptest.Say("done"))
	r := parked(t, w, "brief")
	saw(t, server, "look {}")
	if len(r.Approvals) != 2 {
		t.Fatalf("%d approvals, want 2", len(r.Approvals))
	}
	verdict(t, w, r.Approvals[1].ID, task.ApprovalApproved)
	if got := w.Result(r.Run.ID).Run.Execution; got != task.Waiting {
		t.Fatalf("with one approval open the run is %s", got)
	}
	verdict(t, w, r.Approvals[0].ID, task.ApprovalDenied)
	r = w.Resume(r.Run.ID)
	ended(t, r, task.StatusDenied, "refused approval")
	saw(t, server, "look {}", `note {"text":"2"}`, "wipe {}")
	// The model gets every answer in the order of its calls, the read's only once.
	var answers []string
	reqs := w.Requests()
	for _, m := range reqs[len(reqs)-1].Messages {
		if m.Role == task.RoleTool {
			answers = append(answers, m.Text)
		}
	}
	if len(answers) != 4 || !strings.Contains(answers[0], "NOT run") || answers[1] != "seen" || answers[2] != "ok" || answers[3] != "ok" {
		t.Errorf("answers %q", answers)
	}
}

func TestCase28ApproveAfterCancel(t *testing.T) {
	w, server, r := parkedNote(t)
	ctx := context.Background()
	if done, err := w.Main.Cancel(ctx, r.Run.ID, "by alice", time.Now()); err != nil || !done {
		t.Fatalf("cancel: %v %v", done, err)
	}
	_, err := w.Main.DecideApproval(ctx, db.Verdict{ID: r.Approvals[0].ID, State: task.ApprovalApproved}, time.Now())
	if !errors.Is(err, db.ErrConflict) {
		t.Errorf("approved after the run was cancelled: %v", err)
	}
	ended(t, w.Result(r.Run.ID), task.StatusCancelled, "by alice")
	// The unanswered call must not spoil the session: the next run parks as well.
	parked(t, w, "brief")
	saw(t, server)
	msgs := w.Requests()[1].Messages
	if len(msgs) != 5 || !strings.Contains(msgs[3].Text, "it was cancelled") || msgs[2].Role != task.RoleTool || !strings.Contains(msgs[2].Text, "no recorded answer") {
		t.Errorf("the next run's history is %+v", msgs)
	}
}

func TestCase27CrashBetweenConsumeAndResult(t *testing.T) {
	for _, op := range []string{"intend", "call note"} {
		t.Run(op, func(t *testing.T) {
			w, server, r := parkedNote(t)
			id := r.Approvals[0].ID
			verdict(t, w, id, task.ApprovalApproved)
			w.Claim(r.Run.ID)
			if !w.Kill(r.Run.ID, op, 1, false) {
				t.Fatal("not killed")
			}
			sent := len(server.Calls())
			w.Restart()
			r = w.Resume(r.Run.ID)
			ended(t, r, task.StatusUnknown, "outcome is not known")
			told(t, r, 0, "its outcome is not known")
			if len(server.Calls()) != sent {
				t.Errorf("the call was sent again: %v", server.Calls())
			}
			if got := state(t, w, id); got != task.ApprovalUnknown {
				t.Errorf("approval is %s", got)
			}
			if r.Run.Output != "I am done." {
				t.Errorf("the run did not go on: %q", r.Run.Output)
			}
		})
	}
}

func TestCase29Preview(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, parking(policy.Fields{}))
	args := `{"a\u001b[31m":"\u202evil","text":"` + strings.Repeat("x", 1<<20) + `"}`
	w.Answers(looptest.Ask(note, args))
	a := parked(t, w, "brief").Approvals[0]
	if strings.ContainsAny(a.Preview, "\x1b\u202e\n") {
		t.Errorf("preview %q holds control characters", a.Preview)
	}
	if n := len([]rune(a.Preview)); n > 400 || !strings.Contains(a.Preview, "cut; ") || !strings.Contains(a.Preview, a.ArgsHash) {
		t.Errorf("preview of %d characters does not say that it is cut: %q", n, a.Preview)
	}
	if a.Arguments != args || a.ArgsHash != task.ArgsHash(args) {
		t.Error("the approval is not for the exact bytes")
	}
}

func TestLimitsAreCheckedAgainOnResume(t *testing.T) {
	w, server, r := parkedNote(t)
	verdict(t, w, r.Approvals[0].ID, task.ApprovalApproved)
	w.Policy(policy.ScopeTask, "brief", parking(policy.Fields{Limits: &policy.Limits{ToolCalls: looptest.Ptr(0)}}))
	ended(t, w.Resume(r.Run.ID), task.StatusBudget, "tool_calls is 0")
	saw(t, server)
}

func TestApprovalThatIsDecidedBeforeTheRunWaits(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, parking(policy.Fields{}))
	w.Answers(looptest.Ask(note, hello), looptest.Say("done"))
	w.Before = func(op string) error {
		if op == "update waiting" {
			open, err := w.Main.Approvals(context.Background(), db.ApprovalFilter{})
			if err != nil || len(open) != 1 {
				t.Errorf("approvals %v (%v)", open, err)
				return nil
			}
			verdict(t, w, open[0].ID, task.ApprovalApproved)
		}
		return nil
	}
	r := w.Run("brief")
	if r.Run.Execution != task.Queued {
		t.Fatalf("the run is %s, want queued: nobody would wake it", r.Run.Execution)
	}
	ended(t, w.Resume(r.Run.ID), task.StatusOK, "")
	saw(t, server, "note "+hello)
}

// Parked calls are calls: they count for tool_calls, and a run asks for a bounded
// number of approvals.
func TestParkedCallsAreBounded(t *testing.T) {
	flood := func(n int) (calls []string) {
		for i := range n {
			calls = append(calls, note, fmt.Sprintf(`{"text":"%d"}`, i))
		}
		return calls
	}
	t.Run("I8 limit", func(t *testing.T) {
		w := world(t)
		server := desk(w)
		w.Task(task.Task{ID: "brief"}, parking(policy.Fields{Limits: &policy.Limits{ToolCalls: looptest.Ptr(5)}}))
		w.Answers(looptest.Ask(flood(200)...), looptest.Say("done"))
		r := w.Run("brief")
		ended(t, r, task.StatusBudget, "tool_calls is 5")
		if len(r.Approvals) != 5 {
			t.Errorf("%d approvals, want 5", len(r.Approvals))
		}
		saw(t, server)
	})
	t.Run("I8 within the limit, resumed", func(t *testing.T) {
		w := world(t)
		server := desk(w)
		w.Task(task.Task{ID: "brief"}, parking(policy.Fields{Limits: &policy.Limits{ToolCalls: looptest.Ptr(3)}}))
		w.Answers(looptest.Ask(append(flood(2), look, "{}")...), looptest.Ask(look, `{"again":1}`), looptest.Say("done"))
		r := w.Run("brief")
		ended(t, r, task.StatusWaiting, "")
		for _, ask := range r.Approvals {
			verdict(t, w, ask.ID, task.ApprovalApproved)
		}
		r = w.Resume(r.Run.ID)
		ended(t, r, task.StatusBudget, "tool_calls is 3")
		saw(t, server, "look {}", `note {"text":"0"}`, `note {"text":"1"}`)
		if r.Run.Calls != 3 {
			t.Errorf("%d calls, want 3: an approved one counts once", r.Run.Calls)
		}
	})
	t.Run("I8 list", func(t *testing.T) {
		w := world(t)
		desk(w)
		w.Task(task.Task{ID: "brief"}, parking(policy.Fields{Limits: &policy.Limits{ToolCalls: looptest.Ptr(500)}}))
		w.Answers(looptest.Ask(flood(22)...), looptest.Say("done"))
		r := w.Run("brief")
		ended(t, r, task.StatusWaiting, "")
		if len(r.Approvals) != 20 || r.Run.Refused() != 2 {
			t.Errorf("%d approvals, marks %v", len(r.Approvals), r.Run.Marks)
		}
		told(t, r, 0, "20 calls of this run wait for a person already")
	})
}
