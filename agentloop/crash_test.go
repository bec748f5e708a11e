package agentloop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

const lookThenNote = `
  - call: [{tool: desk/look, args: {}}]
  - call: [{tool: desk/note, args: {text: hello}}]
  - say: I am done.
`

func attempts(n int) task.Retry { return task.Retry{Attempts: n, Backoff: time.Millisecond} }

// A worker is killed at every step that something durable, or something that
// reaches a server, happens; then the daemon starts again.
func TestKillAndResume(t *testing.T) {
	cases := []struct {
		op     string
		n      int
		before bool
		status task.Status
		looks  int
		notes  int
	}{
		{"append user", 1, true, task.StatusOK, 1, 1},
		{"append user", 1, false, task.StatusOK, 1, 1},
		{"append assistant", 1, true, task.StatusOK, 1, 1},
		{"append assistant", 1, false, task.StatusOK, 1, 1},
		{"intend", 1, false, task.StatusOK, 1, 1},
		{"call look", 1, false, task.StatusOK, 2, 1},
		{"settle", 1, true, task.StatusOK, 2, 1},
		{"settle", 1, false, task.StatusOK, 1, 1},
		{"append assistant", 2, true, task.StatusOK, 1, 1},
		{"append assistant", 2, false, task.StatusOK, 1, 1},
		{"intend", 2, true, task.StatusOK, 1, 1},
		{"intend", 2, false, task.StatusUnknown, 1, 0},
		{"call note", 1, true, task.StatusUnknown, 1, 0},
		{"call note", 1, false, task.StatusUnknown, 1, 1},
		{"settle", 2, true, task.StatusUnknown, 1, 1},
		{"settle", 2, false, task.StatusOK, 1, 1},
		{"append assistant", 3, true, task.StatusOK, 1, 1},
		{"append assistant", 3, false, task.StatusOK, 1, 1},
		{"update completed", 1, true, task.StatusOK, 1, 1},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %d before=%v", c.op, c.n, c.before), func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{Allow: grants("desk/note")})
			w.Script(lookThenNote)
			run := w.Start("brief")
			if !w.Kill(run, c.op, c.n, c.before) {
				t.Fatal("not killed")
			}
			w.Restart()
			r := w.Resume(run)
			ended(t, r, c.status, "")
			if got := seen(server, "look"); got != c.looks {
				t.Errorf("look reached the server %d times, want %d", got, c.looks)
			}
			if got := seen(server, "note"); got != c.notes {
				t.Errorf("note reached the server %d times, want %d", got, c.notes)
			}
			if r.Run.Output != "I am done." || r.Run.Attempt != 2 || len(r.Answers()) != 2 || r.Run.Steps != 3 {
				t.Errorf("run %+v with %d answers", r.Run, len(r.Answers()))
			}
			if c.status == task.StatusUnknown {
				told(t, r, 1, "its outcome is not known")
			}
			// The scripted model refuses a history that is not well formed.
			if next := w.Run("brief"); next.Run.Execution != task.Completed {
				t.Errorf("the next run ended %s: %s", next.Run.Status(), next.Run.Reason)
			}
		})
	}
}

func seen(s *looptest.Server, tool string) int {
	n := 0
	for _, c := range s.Calls() {
		if c.Tool == tool {
			n++
		}
	}
	return n
}

func TestKilledReadIsSentTwiceAtMost(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief", Retry: attempts(9)}, policy.Fields{})
	w.Script("  - call: [{tool: desk/look, args: {}}]\n  - say: I am done.\n")
	run := w.Start("brief")
	for range 2 {
		if !w.Kill(run, "call look", 1, false) {
			t.Fatal("not killed")
		}
		w.Restart()
		w.Claim(run)
	}
	r := w.Go(run)
	ended(t, r, task.StatusOK, "")
	saw(t, server, "look {}", "look {}")
	told(t, r, 0, "interrupted twice")
}

func TestAttemptsCapCrashes(t *testing.T) {
	for op, want := range map[string]task.Status{"append assistant": task.StatusFailed, "call note": task.StatusUnknown} {
		t.Run(op, func(t *testing.T) {
			w := world(t)
			server := desk(w)
			w.Task(task.Task{ID: "brief", Retry: attempts(1)}, policy.Fields{Allow: grants("desk/note")})
			w.Script("  - call: [{tool: desk/note, args: {text: hello}}]\n  - say: I am done.\n")
			run := w.Start("brief")
			if !w.Kill(run, op, 1, false) {
				t.Fatal("not killed")
			}
			before := len(server.Calls())
			w.Restart()
			r := w.Resume(run)
			ended(t, r, want, "gave up after 1 attempts")
			if len(server.Calls()) != before || len(w.Requests()) != 1 {
				t.Error("it went on all the same")
			}
			if len(r.Answers()) != 1 {
				t.Errorf("answers %v: the call must not stay open", r.Answers())
			}
		})
	}
}

func TestMarksOfTheAnswerSurviveACrash(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief", Retry: attempts(2), OutputSchema: []byte(`{"type":"object"}`)}, policy.Fields{})
	w.Script("  - say: I've saved the note.\n")
	run := w.Start("brief")
	if !w.Kill(run, "append assistant", 1, false) {
		t.Fatal("not killed")
	}
	w.Restart()
	r := w.Resume(run)
	ended(t, r, task.StatusFailed, "")
	for _, m := range []string{task.MarkUnverifiedClaims, task.MarkInvalidOutput} {
		if !r.Run.HasMark(m) {
			t.Errorf("marks %v lack %s", r.Run.Marks, m)
		}
	}
	if n := strings.Count(r.Run.Output, "automatic check"); n != 1 {
		t.Errorf("the notice stands %d times in %q", n, r.Run.Output)
	}
}

// hanging is a world whose desk answers nothing until the test ends, and a context
// that stop ends with a cause once a call has arrived.
func hanging(t *testing.T, cause error) (*looptest.World, *looptest.Server, context.Context) {
	w := world(t)
	ctx, stop := context.WithCancelCause(context.Background())
	release := make(chan struct{})
	t.Cleanup(func() { close(release); stop(nil) })
	first := true
	hang := func(string) (string, error) {
		if first {
			first = false
			stop(cause)
			<-release
		}
		return "ok", nil
	}
	server := w.Server("desk", policy.Fields{Classes: deskClasses}, looptest.Tool{Name: "look", Do: hang}, looptest.Tool{Name: "note", Do: hang})
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{Allow: grants("desk/note")})
	return w, server, ctx
}

func goCtx(ctx context.Context, t *testing.T, w *looptest.World, run string) looptest.Result {
	t.Helper()
	if err := w.Runner.Run(ctx, run); err != nil {
		t.Fatal(err)
	}
	return w.Result(run)
}

func TestShutdownInARead(t *testing.T) {
	w, server, ctx := hanging(t, task.ErrShutdown)
	w.Answers(looptest.Ask(look, "{}"), looptest.Say("I am done."))
	run := w.Start("brief")
	r := goCtx(ctx, t, w, run)
	ended(t, r, task.StatusInterrupted, "shutting down")
	if len(r.Answers()) != 0 {
		t.Errorf("answers %v: the read is to be made again", r.Answers())
	}
	r = w.Resume(run)
	ended(t, r, task.StatusOK, "")
	saw(t, server, "look {}", "look {}")
}

func TestShutdownInAWrite(t *testing.T) {
	w, server, ctx := hanging(t, task.ErrShutdown)
	w.Answers(looptest.Ask(note, hello), looptest.Say("I am done."))
	run := w.Start("brief")
	r := goCtx(ctx, t, w, run)
	if r.Run.Execution != task.Interrupted || !r.Run.HasMark(task.MarkUnknownEffect) {
		t.Errorf("run %s, marks %v", r.Run.Execution, r.Run.Marks)
	}
	r = w.Resume(run)
	ended(t, r, task.StatusUnknown, "outcome is not known")
	told(t, r, 0, "its outcome is not known")
	saw(t, server, "note "+hello)
}

func TestCancelInACall(t *testing.T) {
	for name, want := range map[string]task.Status{look: task.StatusCancelled, note: task.StatusUnknown} {
		t.Run(name, func(t *testing.T) {
			w, _, ctx := hanging(t, &task.CancelledError{Reason: "cancelled by alice"})
			w.Answers(looptest.Ask(name, hello))
			r := goCtx(ctx, t, w, w.Start("brief"))
			ended(t, r, want, "cancelled by alice")
			if r.Run.Execution != task.Cancelled || len(r.Answers()) != 1 {
				t.Errorf("run %s with %d answers", r.Run.Execution, len(r.Answers()))
			}
			if r.Run.HasMark(task.MarkConnectorDown) {
				t.Errorf("marks %v: the connector was not down", r.Run.Marks)
			}
		})
	}
}

func TestShutdownInAModelCall(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	ctx, stop := context.WithCancelCause(context.Background())
	w.Use(looptest.ModelFunc(func(ctx context.Context, _ *llm.Request) (*llm.Response, error) {
		stop(task.ErrShutdown)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	run := w.Start("brief")
	ended(t, goCtx(ctx, t, w, run), task.StatusInterrupted, "shutting down")
	w.Answers(looptest.Say("I am done."))
	r := w.Resume(run)
	ended(t, r, task.StatusOK, "")
	if n := len(r.Messages); n != 2 {
		t.Errorf("%d messages: the resumed run must not begin again", n)
	}
}

func TestAnswerThatComesWithTheShutdownIsBooked(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	ctx, stop := context.WithCancelCause(context.Background())
	w.Use(looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
		stop(task.ErrShutdown)
		r := looptest.Ask(look, "{}")
		r.Usage = task.Usage{Input: 1000, Output: 10}
		return &r, nil
	}))
	r := goCtx(ctx, t, w, w.Start("brief"))
	ended(t, r, task.StatusInterrupted, "")
	if r.Run.Usage.Tokens() != 1010 {
		t.Errorf("booked %d tokens, want 1010", r.Run.Usage.Tokens())
	}
}

func TestDiskFullBeforeTheIntent(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	w.Answers(looptest.Ask(note, hello))
	w.Before = func(op string) error {
		if op == "intend" {
			return looptest.ErrDisk
		}
		return nil
	}
	run := w.Start("brief")
	if err := w.Runner.Run(context.Background(), run); !errors.Is(err, looptest.ErrDisk) {
		t.Errorf("error %v", err)
	}
	ended(t, w.Result(run), task.StatusFailed, "disk is full")
	saw(t, server)
}

func TestOutcomeIsStoredOnceTheDiskHasSpaceAgain(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	w.Answers(looptest.Ask(note, hello), looptest.Say("done"))
	failed := 0
	w.Before = func(op string) error {
		if op == "settle" && failed < 2 {
			failed++
			return looptest.ErrDisk
		}
		return nil
	}
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	told(t, r, 0, "ok")
}

func TestSentCallWithoutItsOutcomeIsNeverSaidNotToHaveRun(t *testing.T) {
	w := world(t)
	w.FinalWrites = time.Second
	w.Close()
	w.Open()
	desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	w.Answers(looptest.Ask(note, hello))
	failed := 0
	w.Before = func(op string) error {
		if op == "settle" && failed < 5 {
			failed++
			return looptest.ErrDisk
		}
		return nil
	}
	run := w.Start("brief")
	if err := w.Runner.Run(context.Background(), run); !errors.Is(err, looptest.ErrDisk) {
		t.Errorf("error %v", err)
	}
	r := w.Result(run)
	ended(t, r, task.StatusUnknown, "disk is full")
	told(t, r, 0, "its outcome is not known")
}

func TestWallLimit(t *testing.T) {
	wait := looptest.ModelFunc(func(ctx context.Context, _ *llm.Request) (*llm.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	wall := func(d time.Duration) policy.Fields { return policy.Fields{Limits: &policy.Limits{Wall: &d}} }
	t.Run("reached", func(t *testing.T) {
		w := world(t)
		w.Task(task.Task{ID: "brief"}, wall(30*time.Millisecond))
		w.Use(wait)
		ended(t, w.Run("brief"), task.StatusBudget, "wall limit of 30ms")
	})
	t.Run("edited under the run", func(t *testing.T) {
		w := world(t)
		desk(w)
		w.Task(task.Task{ID: "brief"}, wall(time.Hour))
		step := 0
		w.Use(looptest.ModelFunc(func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
			if step++; step == 1 {
				r := looptest.Ask(look, "{}")
				return &r, nil
			}
			return wait(ctx, req)
		}))
		between(w, func() { w.Policy(policy.ScopeTask, "brief", wall(time.Millisecond)) })
		ended(t, w.Run("brief"), task.StatusBudget, "wall limit of 1ms")
	})
	t.Run("spent by earlier attempts", func(t *testing.T) {
		w := world(t)
		w.Task(task.Task{ID: "brief"}, wall(time.Minute))
		w.Use(wait)
		run := w.Start("brief")
		damageMain(t, w, "UPDATE runs SET wall = 60000000")
		ended(t, w.Go(run), task.StatusBudget, "wall limit of 1m0s")
	})
}

func TestRunIsNotExecutedUnclaimed(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	run := w.Queue("brief")
	if err := w.Runner.Run(context.Background(), run); err == nil || len(w.Result(run).Messages) > 0 {
		t.Errorf("an unclaimed run was executed (%v)", err)
	}
}

// A worker that lost its run to another attempt writes nothing any more.
func TestLostRunIsLeftAlone(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief", Retry: attempts(3)}, policy.Fields{Allow: grants("desk/note")})
	w.Answers(looptest.Ask(note, hello))
	w.Before = func(op string) error {
		if op == "intend" {
			if _, err := w.Main.Recover(context.Background(), time.Now()); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	run := w.Start("brief")
	r := w.Go(run)
	if r.Run.Execution != task.Interrupted || len(r.Receipts) != 0 || len(r.Answers()) != 0 {
		t.Errorf("run %s, receipts %v, answers %v", r.Run.Execution, r.Receipts, r.Answers())
	}
	saw(t, server)
}
