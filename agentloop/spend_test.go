package agentloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/llm/anthropic"
	"runnerd/llm/command"
	"runnerd/llm/ollama"
	"runnerd/llm/openai"
	"runnerd/policy"
	"runnerd/task"
)

// reports are what a vendor may say of the tokens that it used, true or not.
var reports = map[string]string{
	"nothing": ``, "null": `null`, "zeros": `{"prompt_tokens":0,"completion_tokens":0}`,
	"too little": `{"prompt_tokens":1,"completion_tokens":1}`, "a float too little": `{"prompt_tokens":1.5,"completion_tokens":0.5}`,
	"text": `{"prompt_tokens":"a few","completion_tokens":"1"}`, "negatives": `{"prompt_tokens":-90000,"completion_tokens":-90000}`,
	"a list": `[]`, "absurd": `{"prompt_tokens":1e300,"completion_tokens":1e300}`, "half of it": `{"completion_tokens":9}`,
	"three quarters": `{"prompt_tokens":SENT*0.75,"completion_tokens":8}`, "nearly all": `{"prompt_tokens":SENT*0.95,"completion_tokens":8}`,
	"half and a cache": `{"prompt_tokens":SENT*0.6,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":900000}}`,
	"all from a cache": `{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":900000}}`,
}

// spendthrift is a real model over a real wire whose vendor never comes to an end:
// each answer asks for one more call, and says of its usage what report is. What
// it was sent is added up in estimated tokens.
type spendthrift struct {
	mu   sync.Mutex
	sent []int64
}

func (s *spendthrift) model(t *testing.T, report string) llm.Model {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		n := s.add(body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c%d","function":{"name":"mcp__desk__look","arguments":"{\"n\":%d}"}}]},"finish_reason":"tool_calls"}]}`+"\n\n", n, n)
		if report != "" {
			fmt.Fprintf(w, `data: {"choices":[],"usage":%s}`+"\n\n", s.said(report))
		}
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	m, err := openai.New(openai.Options{Endpoint: llm.Endpoint{BaseURL: srv.URL, Model: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// add counts a request the way that the loop estimates: four bytes a token, of
// what is said in it.
func (s *spendthrift) add(body []byte) int {
	var req any
	_ = json.Unmarshal(body, &req)
	n := spoken(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, int64(n/4))
	return len(s.sent)
}

// spoken is the length of all that a request says, whatever its wire.
func spoken(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			n += spoken(x)
		}
	case map[string]any:
		for key, x := range v {
			if text, ok := x.(string); ok && (key == "content" || key == "text") {
				n += len(text)
			}
			n += spoken(x)
		}
	}
	return n
}

var ofSent = regexp.MustCompile(`SENT\*([0-9.]+)`)

// said is a report with a part of what the last request really had.
func (s *spendthrift) said(report string) string {
	_, last := s.total()
	return ofSent.ReplaceAllStringFunc(report, func(m string) string {
		part, _ := strconv.ParseFloat(ofSent.FindStringSubmatch(m)[1], 64)
		return fmt.Sprint(int64(part * float64(last)))
	})
}

func (s *spendthrift) total() (sum, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.sent {
		sum, last = sum+n, n
	}
	return sum, last
}

// spender is a world with a tool that returns much, and with limits that only
// spend can reach.
func spenders(t *testing.T) *looptest.World {
	w := world(t)
	w.Server("desk", policy.Fields{Classes: map[string]policy.Class{"look": policy.ClassRead}}, looptest.Tool{
		Name: "look", Do: func(string) (string, error) { return strings.Repeat("four ", 800), nil },
	})
	w.Spec.ContextTokens = 1 << 20
	return w
}

var roomy = policy.Limits{Steps: looptest.Ptr(200), ToolCalls: looptest.Ptr(200)}

// D1, D3: whatever a vendor reports, no limit is passed by more than the difference
// of one call, be it the run's, the task's day, the project's or the daemon's.
func TestNoReportMovesARunPastItsLimit(t *testing.T) {
	const limit = 12000
	tokens, money := looptest.Ptr(int64(limit)), looptest.Ptr(task.MoneyOf(limit/1e6))
	places := map[string]func(w *looptest.World, l *policy.Limits){
		"run":        func(_ *looptest.World, l *policy.Limits) { l.Tokens = tokens },
		"run, money": func(_ *looptest.World, l *policy.Limits) { l.Cost = money },
		"task's day": func(_ *looptest.World, l *policy.Limits) { l.TokensPerDay = tokens },
		"project": func(w *looptest.World, _ *policy.Limits) {
			w.Policy(policy.ScopeProject, "ops", limits(policy.Limits{TokensPerDay: tokens}))
		},
		"its money": func(w *looptest.World, _ *policy.Limits) {
			w.Policy(policy.ScopeProject, "ops", limits(policy.Limits{CostPerDay: money}))
		},
		"daemon":      func(w *looptest.World, _ *policy.Limits) { w.Day.TokensPerDay = tokens },
		"daemon, too": func(w *looptest.World, _ *policy.Limits) { w.Day.CostPerDay = money },
	}
	for report, usage := range reports {
		for place, set := range places {
			if report != "nothing" && report != "too little" && report != "three quarters" && report != "negatives" && place != "run" {
				continue // each report at one limit, some at all
			}
			t.Run(report+" at "+place, func(t *testing.T) {
				w := spenders(t)
				w.Spec.Price = &task.Price{Input: 1, Output: 1}
				var vendor spendthrift
				w.Use(vendor.model(t, usage))
				w.Policy(policy.ScopeProject, "ops", policy.Fields{})
				own := roomy
				set(w, &own)
				runs := []string{"brief", "other", "third"}
				if strings.HasPrefix(place, "run") || strings.HasPrefix(place, "task") {
					runs = runs[:1]
				}
				var booked int64
				for _, id := range runs {
					w.Task(task.Task{ID: id, Project: "ops"}, limits(own))
				}
				for _, id := range runs {
					r := w.Run(id)
					ended(t, r, task.StatusBudget, "")
					booked += r.Run.Usage.Tokens()
					if r.Run.Usage.Tokens() > 0 && !r.Run.HasMark(task.MarkUsageEstimated) {
						t.Errorf("%s is not marked: %v", id, r.Run.Marks)
					}
				}
				sum, last := vendor.total()
				if sum > limit+last {
					t.Errorf("about %d tokens were sent under a limit of %d; the last call had %d", sum, limit, last)
				}
				if sum < limit/3 || booked < sum {
					t.Errorf("%d tokens were sent and %d booked under a limit of %d", sum, booked, limit)
				}
			})
		}
	}
}

// A vendor's honest count stays as it is and is no estimate.
func TestHonestCountIsKept(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	say := looptest.Say("done")
	say.Usage = task.Usage{Input: 900, Output: 3, CacheRead: 700}
	w.Answers(say)
	r := w.Run("brief")
	ended(t, r, task.StatusOK, "")
	if r.Run.Usage != say.Usage || r.Run.HasMark(task.MarkUsageEstimated) {
		t.Errorf("usage %+v, marks %v", r.Run.Usage, r.Run.Marks)
	}
}

// D2: a command counts nothing, so what it is given is estimated; its day ends too.
func TestCommandsDayEnds(t *testing.T) {
	w := world(t)
	w.Spec.ToolMode = "none"
	m, err := command.New(command.Options{Argv: []string{"/bin/sh", "-c", "cat >/dev/null; echo All is well."}})
	if err != nil {
		t.Fatal(err)
	}
	w.Use(m)
	w.Task(task.Task{ID: "brief", Session: task.SessionFresh}, limits(policy.Limits{TokensPerDay: looptest.Ptr(int64(600))}))
	spent, ok := int64(0), 0
	for range 5 {
		r := w.Run("brief")
		spent += r.Run.Usage.Tokens()
		if r.Run.Status() == task.StatusOK {
			ok++
			if !r.Run.HasMark(task.MarkUsageEstimated) || r.Run.Usage.Input == 0 || r.Run.Usage.Output != 3 {
				t.Errorf("usage %+v, marks %v", r.Run.Usage, r.Run.Marks)
			}
			continue
		}
		ended(t, r, task.StatusBudget, "limits.tokens_per_day")
	}
	if ok == 0 || ok == 5 || spent > 600 {
		t.Errorf("%d runs ended ok and spent %d of 600", ok, spent)
	}
}

// What a failed call cost is spent too: a stream that is cut, an error in its
// middle, an end that is none. It is booked although it left no message.
func TestFailedCallsAreSpent(t *testing.T) {
	const half = `data: {"choices":[{"delta":{"content":"` + "0123456789abcdef" + `"}}]}` + "\n\n"
	for name, rest := range map[string]string{
		"cut":         "",
		"error":       `data: {"error":{"code":500,"message":"broken"}}` + "\n\n",
		"unknown end": `data: {"choices":[{"delta":{},"finish_reason":"WHO_KNOWS"}]}` + "\n\ndata: [DONE]\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			n := 0
			srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rw.Header().Set("Content-Type", "text/event-stream")
				if n++; n == 1 {
					io.WriteString(rw, half+rest)
					return
				}
				io.WriteString(rw, `data: {"choices":[{"delta":{"content":"Done."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":2}}`+"\n\n")
			}))
			defer srv.Close()
			m, err := openai.New(openai.Options{Endpoint: llm.Endpoint{BaseURL: srv.URL, Model: "m"}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			w.Use(m)
			w.Task(task.Task{ID: "brief"}, policy.Fields{})
			r := w.Run("brief")
			ended(t, r, task.StatusOK, "")
			if u := r.Run.Usage; u.Output != 2+4 || u.Input <= 1000 || !r.Run.HasMark(task.MarkUsageEstimated) {
				t.Errorf("usage %+v, marks %v; want the failed call in it", u, r.Run.Marks)
			}
		})
	}
}

// A limit counts what failed calls cost: retries cannot spend past it.
func TestFailedCallsCountAgainstTheLimit(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, limits(policy.Limits{Tokens: looptest.Ptr(int64(700))}))
	w.Use(looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
		return nil, &llm.Spent{Err: &llm.Error{Kind: llm.CutStream, Message: "cut"}, Bytes: 40}
	}))
	r := w.Run("brief")
	ended(t, r, task.StatusBudget, "limits.tokens of 700")
	if n := len(w.Requests()); n < 1 || n > 3 || r.Run.Usage.Tokens() > 700 {
		t.Errorf("%d requests, usage %+v", n, r.Run.Usage)
	}
}

// What cannot be booked is not tried again.
func TestUnbookedCallEndsTheRun(t *testing.T) {
	w := world(t)
	w.Task(task.Task{ID: "brief"}, policy.Fields{})
	w.Use(looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
		return nil, &llm.Spent{Err: &llm.Error{Kind: llm.CutStream, Message: "cut"}}
	}))
	w.Before = func(op string) error {
		if op == "book" {
			return looptest.ErrDisk
		}
		return nil
	}
	run := w.Start("brief")
	if err := w.Runner.Run(context.Background(), run); err == nil {
		t.Error("the run's error was lost")
	}
	if n := len(w.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// What no vendor's report moves holds on every wire: three runs of one day, whose
// vendor counts nothing, too little or nonsense, stay within the task's limit.
func TestNoReportMovesALimitOnAnyWire(t *testing.T) {
	const limit = 12000
	for name, wire := range wires {
		for _, count := range []string{`"x"`, `1`, `1.5`, `-7`, `[]`, `{}`, `null`, `SENT*0.6`, `SENT*0.95`} {
			t.Run(name+" "+count, func(t *testing.T) {
				w := spenders(t)
				var vendor spendthrift
				srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err == nil {
						n := vendor.add(body)
						_, _ = io.WriteString(rw, strings.ReplaceAll(strings.ReplaceAll(wire.answer, "COUNT", vendor.said(count)), "N", strconv.Itoa(n)))
					}
				}))
				t.Cleanup(srv.Close)
				w.Use(wire.open(t, llm.Endpoint{BaseURL: srv.URL, Model: "m"}))
				own := roomy
				own.TokensPerDay = looptest.Ptr(int64(limit))
				w.Task(task.Task{ID: "brief", Session: task.SessionFresh}, limits(own))
				var booked int64
				for range 3 {
					r := w.Run("brief")
					ended(t, r, task.StatusBudget, "")
					booked += r.Run.Usage.Tokens()
				}
				if sum, last := vendor.total(); sum > limit+last || sum < limit/3 || booked < sum {
					t.Errorf("%d tokens were sent and %d booked under a limit of %d; the last call had %d", sum, booked, limit, last)
				}
			})
		}
	}
}

// wires are the vendors, and how each asks for a call and says what it counted.
var wires = map[string]struct {
	answer string
	open   func(*testing.T, llm.Endpoint) llm.Model
}{
	"openai": {
		`{"choices":[{"message":{"tool_calls":[{"id":"cN","function":{"name":"mcp__desk__look","arguments":"{\"n\":N}"}}]},"finish_reason":"tool_calls"}],` +
			`"usage":{"prompt_tokens":COUNT,"completion_tokens":COUNT}}`,
		func(t *testing.T, e llm.Endpoint) llm.Model {
			m, err := openai.New(openai.Options{Endpoint: e})
			return opened(t, m, err)
		},
	},
	"anthropic": {
		`{"type":"message","content":[{"type":"tool_use","id":"cN","name":"mcp__desk__look","input":{"n":N}}],"stop_reason":"tool_use",` +
			`"usage":{"input_tokens":COUNT,"output_tokens":COUNT,"cache_read_input_tokens":"x"}}`,
		func(t *testing.T, e llm.Endpoint) llm.Model {
			m, err := anthropic.New(anthropic.Options{Endpoint: e})
			return opened(t, m, err)
		},
	},
	"ollama": {
		`{"message":{"tool_calls":[{"id":"cN","function":{"name":"mcp__desk__look","arguments":{"n":N}}}]},"done":true,"done_reason":"stop","prompt_eval_count":COUNT,"eval_count":COUNT}`,
		func(t *testing.T, e llm.Endpoint) llm.Model {
			m, err := ollama.New(ollama.Options{Endpoint: e})
			return opened(t, m, err)
		},
	},
}

func opened(t *testing.T, m interface {
	llm.Model
	io.Closer
}, err error) llm.Model {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}
