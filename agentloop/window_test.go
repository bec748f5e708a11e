package agentloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// letters is the size of a request in the estimate's own measure: its bytes.
func letters(req *llm.Request) int {
	n := len(req.System)
	for _, tool := range req.Tools {
		n += len(tool.Description) + len(tool.InputSchema)
	}
	for _, m := range req.Messages {
		n += len(m.Text)
		for _, c := range m.Calls {
			n += len(c.Arguments)
		}
	}
	return n
}

func summaryCall(req *llm.Request) bool { return strings.HasPrefix(req.System, "Summarise") }

// talker answers every run with size letters and makes summaries, unless those are
// to fail. It refuses what is more than full letters, as a vendor does.
func talker(t *testing.T, size, full int, summary func() (*llm.Response, error)) llm.Model {
	return looptest.ModelFunc(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if err := llm.CheckHistory(req.Messages); err != nil {
			t.Errorf("history: %v", err)
		}
		if letters(req) > full {
			return nil, &llm.Error{Kind: llm.ContextOverflow, Status: 400, Message: "too many tokens"}
		}
		if summaryCall(req) {
			return summary()
		}
		r := looptest.Say(strings.Repeat("word ", size/5))
		r.Metered = true
		return &r, nil
	})
}

func fine() (*llm.Response, error) {
	r := looptest.Say("All was well so far.")
	r.Usage, r.Metered = task.Usage{Input: 50, Output: 5}, true
	return &r, nil
}

func TestLongSessionIsCompactedBeforeItOverflows(t *testing.T) {
	for name, summary := range map[string]func() (*llm.Response, error){
		"by the model": fine,
		"by rule": func() (*llm.Response, error) {
			return nil, &llm.Error{Kind: llm.ServerError, Status: 500, Message: "no"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			w.Spec.ContextTokens, w.Spec.MaxOutputTokens = 4000, 400
			w.Task(task.Task{ID: "brief"}, policy.Fields{})
			w.Use(talker(t, 1500, 16000, summary))
			compacted := 0
			for range 20 {
				r := w.Run("brief")
				ended(t, r, task.StatusOK, "")
				if r.Run.HasMark(task.MarkCompacted) {
					compacted++
				}
			}
			if compacted < 2 || compacted > 9 {
				t.Errorf("%d of 20 runs were compacted", compacted)
			}
			last := w.Requests()[len(w.Requests())-1]
			first := last.Messages[0]
			if first.Role != task.RoleSummary || strings.Contains(first.Text, "All was well") != (name == "by the model") {
				t.Errorf("the history begins with %s: %.80q", first.Role, first.Text)
			}
			if name == "by rule" && !strings.Contains(first.Text, "shortened by runnerd") {
				t.Errorf("summary %q", first.Text)
			}
		})
	}
}

func TestSummaryIsPaidFor(t *testing.T) {
	w := world(t)
	w.Spec.ContextTokens, w.Spec.MaxOutputTokens = 4000, 400
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Use(talker(t, 1500, 16000, fine))
	for range 14 {
		if r := w.Run("brief"); r.Run.HasMark(task.MarkCompacted) {
			if r.Run.Usage.Tokens() != 55 {
				t.Errorf("usage %+v, want the summary's 55 tokens", r.Run.Usage)
			}
			return
		}
	}
	t.Error("nothing was compacted")
}

// A run that is longer than the context keeps its task and never loses a call
// without its answer.
func TestLongRunIsCompactedBetweenTurns(t *testing.T) {
	w := world(t)
	w.Spec.ContextTokens, w.Spec.MaxOutputTokens = 4000, 400
	w.Server("desk", policy.Fields{Classes: deskClasses}, looptest.Tool{Name: "look", Do: func(string) (string, error) {
		return strings.Repeat("data ", 350), nil
	}})
	w.Task(task.Task{ID: "brief", Prompt: "Count the sheep."}, policy.Fields{})
	step := 0
	w.Use(looptest.ModelFunc(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if err := llm.CheckHistory(req.Messages); err != nil {
			t.Errorf("history: %v", err)
		}
		if letters(req) > 16000 {
			t.Errorf("a request of %d letters", letters(req))
		}
		if summaryCall(req) {
			return fine()
		}
		whole := ""
		for _, m := range req.Messages {
			whole += m.Text
		}
		if !strings.Contains(whole, "Count the sheep.") {
			t.Errorf("in step %d the task is gone", step)
		}
		step++
		r := looptest.Ask(look, fmt.Sprintf(`{"n":%d}`, step))
		if step == 20 {
			r = looptest.Say("done")
		}
		return &r, nil
	}))
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if n := strings.Count(roles(r), "summary"); n < 2 {
		t.Errorf("compacted %d times", n)
	}
}

func roles(r looptest.Result) string {
	var list []string
	for _, m := range r.Messages {
		list = append(list, string(m.Role))
	}
	return strings.Join(list, " ")
}

func TestVendorOverflow(t *testing.T) {
	// What the vendor takes is less than context_tokens says.
	w := world(t)
	w.Spec.ContextTokens = 100_000
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Use(talker(t, 4000, 1<<30, fine))
	for range 5 {
		ended(t, w.Run("brief"), task.StatusOK, "")
	}
	t.Run("compacted once", func(t *testing.T) {
		w.Spec.ContextTokens = 12000
		w.Use(talker(t, 400, 16000, fine))
		r := w.Run("brief")
		ended(t, r, task.StatusOK, "")
		if !r.Run.HasMark(task.MarkCompacted) {
			t.Errorf("marks %v", r.Run.Marks)
		}
	})
	t.Run("then a clear failure, once", func(t *testing.T) {
		before := len(w.Requests())
		w.Use(talker(t, 400, 1, fine))
		ended(t, w.Run("brief"), task.StatusFailed, "too many tokens; lower context_tokens")
		if n := len(w.Requests()) - before; n > 4 {
			t.Errorf("%d model calls", n)
		}
	})
	t.Run("and the session stays usable", func(t *testing.T) {
		w.Use(talker(t, 400, 16000, fine))
		ended(t, w.Run("brief"), task.StatusOK, "")
	})
}

func TestToolsThatLeaveNoRoom(t *testing.T) {
	w := world(t)
	w.Spec.ContextTokens = 500
	w.Server("desk", policy.Fields{Classes: deskClasses}, looptest.Tool{Name: "look", Description: strings.Repeat("long ", 1000)})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Say("done"))
	ended(t, w.Run("brief"), task.StatusFailed, "offer fewer connectors")
}

func TestSessionModes(t *testing.T) {
	cases := []struct {
		mode   task.SessionMode
		before int // messages of earlier runs that the second run sees
		output bool
	}{{task.SessionKeep, 2, false}, {task.SessionFresh, 0, false}, {task.SessionLastOutput, 0, true}}
	for _, c := range cases {
		t.Run(string(c.mode), func(t *testing.T) {
			w := world(t)
			w.Task(task.Task{ID: "brief", Session: c.mode, Retry: attempts(2)}, policy.Fields{})
			w.Answers(looptest.Say("First output."), looptest.Say("Second output."))
			w.Run("brief")
			// A crash between the opening message and the move of the window.
			run := w.Start("brief")
			if !w.Kill(run, "append user", 1, false) {
				t.Fatal("not killed")
			}
			w.Restart()
			ended(t, w.Resume(run), task.StatusOK, "")
			msgs := w.Requests()[1].Messages
			if len(msgs) != c.before+1 || strings.Contains(msgs[len(msgs)-1].Text, "First output.") != c.output {
				t.Errorf("%d messages, the last %q", len(msgs), msgs[len(msgs)-1].Text)
			}
		})
	}
}

func TestLastOutputSkipsARunWithoutOne(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief", Session: task.SessionLastOutput}, policy.Fields{})
	w.Answers(looptest.Say("First output."), looptest.Say(""), looptest.Say("Third output."))
	for range 3 {
		w.Run("brief")
	}
	if msgs := w.Requests()[2].Messages; !strings.HasSuffix(msgs[0].Text, "First output.") {
		t.Errorf("the third run is told %q", msgs[0].Text)
	}
}

func TestHugeOutputIsCutAndKept(t *testing.T) {
	w := world(t)
	huge := "HEAD " + strings.Repeat("x", 300_000) + " TAIL"
	w.Server("desk", policy.Fields{Classes: deskClasses}, looptest.Tool{Name: "look", Do: func(string) (string, error) { return huge, nil }})
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Answers(looptest.Ask(look, "{}"), looptest.Say("done"))
	r := w.Run("brief")
	text := r.Answers()[0].Text
	if len(text) > 20_000 || !strings.HasPrefix(text, "HEAD") || !strings.HasSuffix(text, "TAIL") || !strings.Contains(text, "bytes left out by runnerd") {
		t.Errorf("the model read %d bytes: %.60q…", len(text), text)
	}
	spool, err := w.Main.Spool(context.Background(), r.Receipts[0].Seq)
	if err != nil || spool.Text != huge {
		t.Errorf("%d bytes were kept (%v), want %d", len(spool.Text), err, len(huge))
	}
}

func TestTheSameCallIDTwice(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	ask := looptest.Ask(look, `{"n":1}`, look, `{"n":2}`)
	ask.Calls[0].ID, ask.Calls[1].ID = "same", "same"
	again := looptest.Ask(look, `{"n":3}`)
	again.Calls[0].ID = "same"
	w.Answers(ask, again, looptest.Say("done"))
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	saw(t, server, `look {"n":1}`, `look {"n":2}`, `look {"n":3}`)
	for i, req := range w.Requests() {
		if err := llm.CheckHistory(req.Messages); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

func TestSystemPromptIsStableOverARun(t *testing.T) {
	w := world(t)
	desk(w)
	w.Task(task.Task{ID: "brief", Instructions: "Be brief."}, policy.Fields{})
	w.Script(spender)
	w.Run("brief")
	w.Run("brief")
	first, err := json.Marshal(w.Requests()[0].Tools)
	if err != nil {
		t.Fatal(err)
	}
	for i, req := range w.Requests() {
		tools, _ := json.Marshal(req.Tools)
		if req.System != w.Requests()[0].System || string(tools) != string(first) || !strings.Contains(req.System, "Be brief.") {
			t.Errorf("request %d begins otherwise", i)
		}
	}
}
