package agentloop_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// priced is a world whose model costs 1 per million tokens in and 2 out.
func priced(t *testing.T) *looptest.World {
	w := world(t)
	w.Spec.Price = &task.Price{Input: 1, Output: 2}
	return w
}

func limits(l policy.Limits) policy.Fields { return policy.Fields{Limits: &l} }

const spender = `
  - call: [{tool: desk/look, args: {n: 1}}]
    usage: {input: 4000, output: 1000}
  - call: [{tool: desk/look, args: {n: 2}}]
    usage: {input: 4000, output: 1000}
  - say: I am done.
    usage: {input: 4000, output: 1000}
`

func TestLimits(t *testing.T) {
	cases := []struct {
		name   string
		limits policy.Limits
		calls  int // of the model
		status task.Status
		reason string
	}{
		{"none reached", policy.Limits{}, 3, task.StatusOK, ""},
		{"steps", policy.Limits{Steps: looptest.Ptr(2)}, 2, task.StatusBudget, "limit of 2 steps"},
		{"tokens", policy.Limits{Tokens: looptest.Ptr(int64(10000))}, 2, task.StatusBudget, "limits.tokens of 10000: 10000 are spent"},
		{"cost", policy.Limits{Cost: looptest.Ptr(task.MoneyOf(0.006))}, 1, task.StatusBudget, "limits.cost of 0.01"},
		{"cost per day", policy.Limits{CostPerDay: looptest.Ptr(task.MoneyOf(0.006))}, 1, task.StatusBudget, "limits.cost_per_day"},
		{"tokens per day", policy.Limits{TokensPerDay: looptest.Ptr(int64(5000))}, 1, task.StatusBudget, "limits.tokens_per_day"},
		{"not even one call", policy.Limits{Tokens: looptest.Ptr(int64(10))}, 0, task.StatusBudget, "limits.tokens of 10: 0 are spent"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := priced(t)
			desk(w)
			w.Task(task.Task{ID: "brief"}, limits(c.limits))
			w.Script(spender)
			r := w.Run("brief")
			ended(t, r, c.status, c.reason)
			if n := len(w.Requests()); n != c.calls {
				t.Errorf("the model was asked %d times, want %d", n, c.calls)
			}
			if want := int64(c.calls) * 5000; r.Run.Usage.Tokens() != want {
				t.Errorf("%d tokens, want %d", r.Run.Usage.Tokens(), want)
			}
		})
	}
}

func TestDailyLimitHoldsOverRuns(t *testing.T) {
	w := priced(t)
	w.Task(task.Task{ID: "brief"}, limits(policy.Limits{CostPerDay: looptest.Ptr(task.MoneyOf(0.001))}))
	w.Script("  - say: done\n    usage: {input: 900, output: 100}\n")
	ended(t, w.Run("brief"), task.StatusOK, "")
	ended(t, w.Run("brief"), task.StatusBudget, "limits.cost_per_day")
	if n := len(w.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestDaemonsDailyLimitHoldsOverTasks(t *testing.T) {
	w := priced(t)
	w.Day.TokensPerDay = looptest.Ptr(int64(1200))
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Task(task.Task{ID: "other"}, policy.Fields{})
	w.Script("  - say: done\n    usage: {input: 900, output: 100}\n")
	ended(t, w.Run("brief"), task.StatusOK, "")
	ended(t, w.Run("other"), task.StatusBudget, "the daemon's tokens_per_day")
}

func TestAnswerShrinksToWhatIsLeft(t *testing.T) {
	w := priced(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, limits(policy.Limits{Tokens: looptest.Ptr(int64(6000))}))
	w.Script(spender)
	ended(t, w.Run("brief"), task.StatusBudget, "")
	reqs := w.Requests()
	if len(reqs) != 2 || reqs[0].MaxOutputTokens != 1024 || reqs[1].MaxOutputTokens <= 0 || reqs[1].MaxOutputTokens >= 1000 {
		t.Errorf("answers of at most %d and %d tokens were asked for", reqs[0].MaxOutputTokens, reqs[1].MaxOutputTokens)
	}
}

func TestMoneyShrinksTheAnswer(t *testing.T) {
	w := priced(t)
	w.Task(task.Task{ID: "brief"}, limits(policy.Limits{Cost: looptest.Ptr(task.MoneyOf(0.001))}))
	w.Answers(looptest.Say("done"))
	w.Run("brief")
	if got := w.Requests()[0].MaxOutputTokens; got <= 100 || got >= 500 {
		t.Errorf("an answer of %d tokens was asked for; 0.001 buys 500 at most", got)
	}
}

func TestMoneyLimitOnUnpricedModel(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, limits(policy.Limits{Cost: looptest.Ptr(task.MoneyOf(1))}))
	w.Answers(looptest.Say("done"))
	ended(t, w.Run("brief"), task.StatusFailed, "has no price in models.yaml")
	if n := len(w.Requests()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestLimitIsRaisedUnderTheRun(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief"}, limits(policy.Limits{Steps: looptest.Ptr(1)}))
	w.Script(spender)
	between(w, func() { w.Override(policy.ScopeTask, "brief", map[string]string{"limits": `{"steps":9}`}) })
	ended(t, w.Run("brief"), task.StatusOK, "")
}

// errorsOf makes a model that fails so, for ever.
func errorsOf(e llm.Error) llm.Model {
	return looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) { failed := e; return nil, &failed })
}

func TestModelErrors(t *testing.T) {
	cases := []struct {
		err   llm.Error
		asked int
	}{
		{llm.Error{Kind: llm.NotFound, Status: 404, Message: "no such model: qwen"}, 1},
		{llm.Error{Kind: llm.Auth, Status: 401, Message: "bad key"}, 1},
		{llm.Error{Kind: llm.BadRequest, Status: 400, Message: "odd request"}, 1},
		{llm.Error{Kind: llm.ContentFilter, Message: "not nice"}, 1},
		{llm.Error{Kind: llm.Malformed, Message: "unexpected <"}, 4},
		{llm.Error{Kind: llm.CutStream, Message: "ended early"}, 4},
		{llm.Error{Kind: llm.RateLimited, Status: 429, Message: "slow down"}, 4},
		{llm.Error{Kind: llm.Overloaded, Status: 529, Message: "busy"}, 4},
	}
	for _, c := range cases {
		t.Run(string(c.err.Kind), func(t *testing.T) {
			w := world(t)
			w.Task(task.Task{ID: "brief"}, policy.Fields{})
			w.Named(task.ModelSpec{Name: "backup"}, looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
				t.Error("a model that fallback does not list was asked")
				r := looptest.Say("done")
				return &r, nil
			}))
			w.Use(errorsOf(c.err))
			ended(t, w.Run("brief"), task.StatusFailed, c.err.Message)
			if n := len(w.Requests()); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
}

func TestRetryAfterWithinTheWall(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Script("  - error: {kind: rate_limited, status: 429, retry_after: 5ms}\n    repeat: 2\n  - say: done\n")
	begun := time.Now()
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if took := time.Since(begun); r.Run.Attempt != 1 || took < 10*time.Millisecond {
		t.Errorf("attempt %d after %s; want the vendor's pauses kept", r.Run.Attempt, took)
	}
}

func TestRetryAfterBeyondTheWallQueuesTheRun(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	w.Script("  - call: [{tool: desk/look, args: {}}]\n  - error: {kind: rate_limited, status: 429, retry_after: 1h}\n  - say: done\n")
	r := w.Run("brief")
	if r.Run.Execution != task.Queued || r.Run.Attempt != 2 || time.Until(r.Run.NotBefore) < 50*time.Minute {
		t.Fatalf("run %+v", r.Run)
	}
	w.ClaimAt(r.Run.ID, time.Now().Add(2*time.Hour))
	r = w.Go(r.Run.ID)
	ended(t, r, task.StatusOK, "")
	saw(t, server, "look {}") // the retry goes on, it does not begin again
	if len(r.Messages) != 4 || r.Run.Steps != 2 {
		t.Errorf("%d messages, %d steps", len(r.Messages), r.Run.Steps)
	}
}

func TestRetriesAreCapped(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	w.Use(errorsOf(llm.Error{Kind: llm.Unreachable, Message: "connection refused"}))
	r := w.Run("brief")
	if r.Run.Execution != task.Queued {
		t.Fatalf("run is %s", r.Run.Execution)
	}
	w.ClaimAt(r.Run.ID, time.Now().Add(time.Hour))
	ended(t, w.Go(r.Run.ID), task.StatusFailed, "connection refused")
}

func TestFallbackThatIsListed(t *testing.T) {
	w := world(t)
	desk(w)
	w.Spec.Fallback = []string{"missing", "backup"}
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Named(task.ModelSpec{Name: "missing", ToolMode: "native"}, errorsOf(llm.Error{Kind: llm.Timeout, Message: "no answer"}))
	var got *llm.Request
	w.Named(task.ModelSpec{Name: "backup", ToolMode: "none"}, looptest.ModelFunc(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		got = req
		r := looptest.Say("done")
		return &r, nil
	}))
	w.Use(errorsOf(llm.Error{Kind: llm.Overloaded, Message: "busy"}))
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if last := r.Messages[len(r.Messages)-1]; last.Model != "backup" || !slices.Contains(r.Run.Marks, "fallback_model:backup") {
		t.Errorf("answered by %s, marks %v", last.Model, r.Run.Marks)
	}
	if len(got.Tools) != 0 || !strings.Contains(got.System, "You have no tools") {
		t.Errorf("a model without tools was given %v and told %q", got.Tools, got.System)
	}
}

// D4: another model answers only where the first one's trouble can pass: behind it
// a wrong key, a wrong request, an empty account or a refusal would stay unseen.
func TestFallbackOnlyForWhatCanPass(t *testing.T) {
	for kind, want := range map[llm.Kind]bool{
		llm.Overloaded: true, llm.RateLimited: true, llm.Unreachable: true, llm.Timeout: true, llm.ServerError: true,
		llm.CutStream: true, llm.Malformed: true, llm.UnknownEnd: true,
		llm.Auth: false, llm.BadRequest: false, llm.NotFound: false, llm.ContentFilter: false, llm.Quota: false,
		llm.ToolsUnsupported: false, llm.ContextOverflow: false, llm.Script: false, "a kind of tomorrow": false,
	} {
		t.Run(string(kind), func(t *testing.T) {
			w := world(t)
			w.Spec.Fallback, w.Spec.ToolMode = []string{"backup"}, "native"
			w.Task(task.Task{ID: "brief"}, policy.Fields{})
			asked := false
			w.Named(task.ModelSpec{Name: "backup"}, looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
				asked = true
				r := looptest.Say("done")
				return &r, nil
			}))
			w.Use(errorsOf(llm.Error{Kind: kind, Message: "it said so"}))
			r := w.Run("brief")
			if asked != want || r.Run.HasMark(task.MarkFallbackModel) != want {
				t.Errorf("the fallback was asked: %v, want %v; marks %v", asked, want, r.Run.Marks)
			}
			if !want {
				ended(t, r, task.StatusFailed, "it said so")
			}
		})
	}
	t.Run("refusal in the answer", func(t *testing.T) {
		w := world(t)
		w.Spec.Fallback = []string{"backup"}
		w.Task(task.Task{ID: "brief"}, policy.Fields{})
		w.Named(task.ModelSpec{Name: "backup"}, errorsOf(llm.Error{Kind: llm.Overloaded, Message: "was asked"}))
		w.Answers(llm.Response{Text: "No.", Finish: llm.FinishContentFilter})
		ended(t, w.Run("brief"), task.StatusFailed, "content filter ended the answer")
	})
}

func TestFailureOfEveryModelNamesEach(t *testing.T) {
	w := world(t)
	w.Spec.Fallback = []string{"backup"}
	w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
	w.Named(task.ModelSpec{Name: "backup"}, errorsOf(llm.Error{Kind: llm.Auth, Message: "bad key"}))
	w.Use(errorsOf(llm.Error{Kind: llm.Overloaded, Message: "busy"}))
	r := w.Run("brief")
	for _, part := range []string{"model default: overloaded: busy", "model backup: auth: bad key"} {
		if !strings.Contains(r.Run.Reason, part) {
			t.Errorf("reason %q lacks %q", r.Run.Reason, part)
		}
	}
	if r.Run.Execution != task.Queued {
		t.Errorf("run is %s: the first model may answer later", r.Run.Execution)
	}
}

func TestModelTimeout(t *testing.T) {
	w := world(t)
	w.Spec.Timeout = time.Millisecond
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Use(looptest.ModelFunc(func(ctx context.Context, _ *llm.Request) (*llm.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	ended(t, w.Run("brief"), task.StatusFailed, "timeout: no answer within 1ms")
	if n := len(w.Requests()); n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
}

func TestContentFilterIsPaidForAndFails(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(llm.Response{Text: "half a sen", Finish: llm.FinishContentFilter, Usage: task.Usage{Input: 700, Output: 7}})
	r := w.Run("brief")
	ended(t, r, task.StatusFailed, "content filter")
	if r.Run.Usage.Tokens() != 707 || r.Run.Output != "" {
		t.Errorf("usage %+v, output %q", r.Run.Usage, r.Run.Output)
	}
}

func TestLengthFinishCutsACall(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	cut := looptest.Ask(note, `{"text":"hel`)
	cut.Finish = llm.FinishLength
	w.Answers(cut, looptest.Say("It did not fit."))
	r := w.Run("brief")
	codes(t, r, policy.CodeInvalidArguments)
	saw(t, server)
	if r.Run.Status() != task.StatusOK {
		t.Errorf("status %s (%s): a cut call that was mended later is no cut answer", r.Run.Status(), r.Run.Reason)
	}
}

func TestCutAnswerIsNotOK(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	cut := looptest.Say("The first of three points is")
	cut.Finish = llm.FinishLength
	w.Answers(cut)
	r := w.Run("brief")
	ended(t, r, task.StatusFailed, "cut the answer at its limit")
	if !strings.Contains(r.Run.Output, "[runnerd] The vendor cut this answer") {
		t.Errorf("output %q", r.Run.Output)
	}
}

func TestRequiredConnector(t *testing.T) {
	w := world(t)
	server := desk(w)
	server.Down(true)
	w.Task(task.Task{ID: "brief", Require: []string{"desk"}, Retry: attempts(2)}, policy.Fields{})
	w.Answers(looptest.Say("done"))
	r := w.Run("brief")
	if r.Run.Execution != task.Queued || len(w.Requests()) != 0 {
		t.Fatalf("run is %s after %d model calls", r.Run.Execution, len(w.Requests()))
	}
	t.Run("still down", func(t *testing.T) {
		w.ClaimAt(r.Run.ID, time.Now().Add(time.Hour))
		ended(t, w.Go(r.Run.ID), task.StatusFailed, "connector desk is down")
	})
}

func TestRequiredConnectorThatCameUp(t *testing.T) {
	w := world(t)
	server := desk(w)
	server.Down(true)
	w.Task(task.Task{ID: "brief", Require: []string{"desk"}, Retry: attempts(2)}, policy.Fields{})
	w.Answers(looptest.Say("done"))
	r := w.Run("brief")
	server.Down(false)
	w.ClaimAt(r.Run.ID, time.Now().Add(time.Hour))
	r = w.Go(r.Run.ID)
	ended(t, r, task.StatusOK, "")
	if r.Run.HasMark(task.MarkRequiredDown) {
		t.Errorf("marks %v", r.Run.Marks)
	}
}
