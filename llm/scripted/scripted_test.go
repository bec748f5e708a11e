package scripted_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/scripted"
	"runnerd/task"
)

func TestConformance(t *testing.T) {
	llmtest.Conformance(t, llmtest.Subject{New: fromTurns, Lacks: []llmtest.Feature{llmtest.Reasoning}})
}

// fromTurns writes a script file and opens it, so that the format is tested too.
func fromTurns(t llmtest.TB, script []llmtest.Turn) llm.Model {
	t.Helper()
	var turns []any
	for _, turn := range script {
		m := map[string]any{"say": turn.Text(), "usage": map[string]any{
			"input": turn.Usage.Input, "output": turn.Usage.Output, "cache_read": turn.Usage.CacheRead}}
		var calls []any
		for _, c := range turn.Calls {
			calls = append(calls, map[string]any{"id": c.ID, "tool": c.Name, "raw": c.Arguments})
		}
		if calls != nil {
			m["call"] = calls
		}
		if turn.Finish != "" {
			m["finish"] = string(turn.Finish)
		}
		if turn.Hang {
			m["delay"] = "1h"
		}
		turns = append(turns, m)
	}
	data, err := yaml.Marshal(map[string]any{"turns": turns})
	if err != nil {
		t.Fatalf("marshal script: %v", err)
	}
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatalf("write script: %v", err)
	}
	m, err := scripted.Open(path)
	if err != nil {
		t.Fatalf("open script: %v", err)
	}
	return m
}

func parse(t *testing.T, text string) *scripted.Model {
	t.Helper()
	s, err := scripted.Parse("demo.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return scripted.New(s)
}

func tools(names ...string) []llm.Tool {
	var ts []llm.Tool
	for _, n := range names {
		ts = append(ts, llm.Tool{Name: n})
	}
	return ts
}

const rehearsal = `
loop: last
turns:
  - expect:
      last_contains: [brief, today]
      last_matches: "^Write"
      system_contains: agent
      offered: [files/write_file, report]
      not_offered: [shell/run]
    say: I write it.
    call:
      - tool: files/write_file
        args: {path: a.md, n: 007, size: 1e3, deep: {list: [1, true, null, "x<y"]}}
    usage: {input: 900, output: 40}
  - error: {kind: rate_limited, status: 429, message: slow down, retry_after: 2s}
    repeat: 2
  - expect: {results_contain: wrote}
    say: "Saved: ${last_result}"
    call:
      - {tool: mail/send, args: {body: "it said ${last_result}"}}
      - {tool: made_up, raw: "not json"}
  - say: End.
`

func TestRehearsal(t *testing.T) {
	m := parse(t, rehearsal)
	offered := tools("mcp__files__write_file", "report")
	msgs := []task.Message{
		{Run: "old", Role: task.RoleUser, Text: "Earlier."},
		{Run: "old", Role: task.RoleAssistant, Step: 1, Text: "Earlier answer."},
		{Run: "r1", Role: task.RoleUser, Text: "Write the brief for today."},
	}
	ask := func() (*llm.Response, error) {
		return m.Next(t.Context(), &llm.Request{System: "You are an agent.", Messages: msgs, Tools: offered})
	}
	add := func(r *llm.Response, step int, results ...string) {
		msgs = append(msgs, task.Message{Run: "r1", Role: task.RoleAssistant, Step: step, Text: r.Text, Calls: r.Calls})
		for i, text := range results {
			msgs = append(msgs, task.Message{Run: "r1", Role: task.RoleTool, Step: step, CallID: r.Calls[i].ID, Text: text})
		}
	}

	first, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	want := task.ToolCall{ID: "call_1_1", Name: "mcp__files__write_file",
		Arguments: `{"path":"a.md","n":7,"size":1e3,"deep":{"list":[1,true,null,"x<y"]}}`}
	if first.Text != "I write it." || len(first.Calls) != 1 || first.Calls[0] != want || first.Finish != llm.FinishToolCalls {
		t.Fatalf("turn 1: %+v", first)
	}
	if first.Usage != (task.Usage{Input: 900, Output: 40}) {
		t.Errorf("usage %+v", first.Usage)
	}
	add(first, 1, "wrote \"a.md\"\n")

	for i := range 2 {
		var e *llm.Error
		if _, err := ask(); !errors.As(err, &e) || e.Kind != llm.RateLimited || e.Status != 429 || e.RetryAfter != 2*time.Second {
			t.Fatalf("error turn %d: %v", i+1, err)
		}
	}
	second, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	if second.Text != "Saved: wrote \"a.md\"\n" {
		t.Errorf("last_result in text: %q", second.Text)
	}
	if c := second.Calls[0]; c.Name != "mcp__mail__send" || c.Arguments != `{"body":"it said wrote \"a.md\"\n"}` {
		t.Errorf("a tool that was not offered: %+v", c)
	}
	if c := second.Calls[1]; c.Name != "made_up" || c.Arguments != "not json" {
		t.Errorf("raw call: %+v", c)
	}
	add(second, 2, "no", "no")
	for step := 3; step < 6; step++ {
		r, err := ask()
		if err != nil || r.Text != "End." {
			t.Fatalf("loop: last, step %d: %+v, %v", step, r, err)
		}
		add(r, step)
		msgs = append(msgs, task.Message{Run: "r1", Role: task.RoleUser, Step: step, Text: "Go on."})
	}
}

// A resumed run finds its place by its transcript alone, with a new model.
func TestResume(t *testing.T) {
	text := "turns:\n- {say: one, call: [{tool: x}], repeat: 2}\n- say: three\n"
	call := task.ToolCall{ID: "c", Name: "x", Arguments: "{}"}
	step := func(n int) []task.Message {
		return []task.Message{
			{Run: "r", Role: task.RoleAssistant, Step: n, Calls: []task.ToolCall{call}},
			{Run: "r", Role: task.RoleTool, Step: n, CallID: "c"},
		}
	}
	opening := task.Message{Run: "r", Role: task.RoleUser, Text: "go"}
	whole := append(append([]task.Message{opening}, step(1)...), step(2)...)
	cut := append([]task.Message{{Role: task.RoleSummary, Text: "before"}}, step(2)...)
	for name, msgs := range map[string][]task.Message{"whole": whole, "opening cut from the window": cut} {
		r, err := parse(t, text).Next(t.Context(), &llm.Request{Messages: msgs})
		if err != nil || r.Text != "three" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	r, err := parse(t, text).Next(t.Context(), &llm.Request{Messages: whole[:3]})
	if err != nil || r.Text != "one" {
		t.Errorf("second of repeat: %+v, %v", r, err)
	}
}

func TestScriptEnds(t *testing.T) {
	m := parse(t, "turns:\n- say: one\n")
	_, err := m.Next(t.Context(), &llm.Request{Messages: []task.Message{
		{Role: task.RoleUser}, {Role: task.RoleAssistant}, {Role: task.RoleUser, Step: 1}}})
	if llm.ErrorKind(err) != llm.Script || !strings.Contains(err.Error(), "demo.yaml: the script has no turn 2") {
		t.Fatalf("got %v", err)
	}
}

func TestUnmet(t *testing.T) {
	tests := []struct{ expect, want string }{
		{"last_contains: [Hello, lunch]", `the last message does not contain "lunch"; it is "Hello dinner"`},
		{"last_matches: ^dinner", `does not match "^dinner"; it is "Hello dinner"`},
		{"system_contains: chef", `the system prompt does not contain "chef"; it is "sys"`},
		{"results_contain: ok", `no tool result of the last step contains "ok"; they are ""`},
		{"offered: [files/write_file]", "files/write_file should be offered; offered are: mcp__files__read_file"},
		{"offered: []", "no tool should be offered; offered are: mcp__files__read_file"},
		{"not_offered: files/read_file", "files/read_file should not be offered"},
	}
	for _, tt := range tests {
		m := parse(t, "turns:\n- say: x\n  expect:\n    "+tt.expect+"\n")
		_, err := m.Next(t.Context(), &llm.Request{System: "sys", Tools: tools("mcp__files__read_file"),
			Messages: []task.Message{{Role: task.RoleUser, Text: "Hello dinner"}}})
		if llm.ErrorKind(err) != llm.Script || !strings.Contains(err.Error(), "demo.yaml:4: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q at demo.yaml:4", tt.expect, err, tt.want)
		}
	}
}

func TestHashedAlias(t *testing.T) {
	long := "create_a_very_long_named_thing_that_goes_on_and_on_and_on_for_ever"
	short := ("mcp__db__" + long)[:53] + "_a1b2c3d4e5"
	for tool, want := range map[string]string{
		long:           short,
		"read.all now": "mcp__db__read_all_now_a1b2c3d4e5",
		"other":        "mcp__db__other",
	} {
		m := parse(t, "turns:\n- call: [{tool: db/"+tool+"}]\n")
		r, err := m.Next(t.Context(), &llm.Request{Messages: []task.Message{{Role: task.RoleUser}},
			Tools: tools("mcp__db__create", "mcp__db__other_a1b2c3d4e5_", "mcp__db__read_all_now_a1b2c3d4e5", short)})
		if err != nil || r.Calls[0].Name != want {
			t.Errorf("%s: %+v, %v, want %s", tool, r, err, want)
		}
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := parse(t, "turns:\n- {say: x, delay: 90s}\n")
		req := &llm.Request{Messages: []task.Message{{Role: task.RoleUser}}}
		begin := time.Now()
		if _, err := m.Next(t.Context(), req); err != nil || time.Since(begin) != 90*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Next(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "demo.yaml: is empty"},
		{"only a comment", "# x\n", "demo.yaml: is empty"},
		{"tab", "turns:\n\t- say: x\n", "line 2"},
		{"list", "- say: x\n", "demo.yaml:1:1: script: want a mapping"},
		{"no turns", "loop: last\n", "want at least one turn"},
		{"unknown key", "turns:\n- say: x\n  sya: y\n", `demo.yaml:3:3: turn: unknown key "sya": want one of call, delay,`},
		{"twice", "turns:\n- say: x\n  say: y\n", `demo.yaml:3:3: turn: key "say" is there twice`},
		{"neither", "turns:\n- delay: 1s\n", "want either `say` and `call`, or `error`"},
		{"both", "turns:\n- say: x\n  error: {kind: auth}\n", "want either `say` and `call`, or `error`"},
		{"bad loop", "loop: first\nturns: [{say: x}]\n", `demo.yaml:1:7: loop: "first" is not known: want one of error, last`},
		{"bad kind", "turns:\n- error: {kind: boom}\n", `"boom" is not known`},
		{"no kind", "turns:\n- error: {status: 500}\n", "error: want `kind:`"},
		{"bad delay", "turns:\n- {say: x, delay: soon}\n", "want a duration like"},
		{"bad repeat", "turns:\n- {say: x, repeat: 0}\n", "repeat: want a number from 1"},
		{"bad regexp", "turns:\n- {say: x, expect: {last_matches: '('}}\n", "last_matches: error parsing regexp"},
		{"no tool", "turns:\n- call: [{args: {}}]\n", "call: want `tool:`"},
		{"args and raw", "turns:\n- call: [{tool: x, args: {}, raw: y}]\n", "not both"},
		{"args list", "turns:\n- call: [{tool: x, args: [1]}]\n", "args: want a mapping"},
		{"infinite", "turns:\n- call: [{tool: x, args: {a: .inf}}]\n", "has no form in JSON"},
		{"alias", "turns:\n- say: &a x\n- say: *a\n", "aliases are not supported"},
		{"alias in args", "turns:\n- call: [{tool: x, args: {a: &v [1], b: *v}}]\n", "aliases are not supported"},
		{"null text", "turns:\n- say:\n", "say: want a string"},
		{"second document", "turns: [{say: x}]\n---\nturns: []\n", "demo.yaml:2: a second document"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scripted.Parse("demo.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := scripted.Parse("demo.yaml", []byte("lop: x\nturns:\n- {say: x, delay: soon}\n- {say: y, repeat: -1}\n"))
	for _, want := range []string{"demo.yaml:1:1", "demo.yaml:3:19", "demo.yaml:4:20"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := scripted.Open(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, scripted.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := scripted.Open(big); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("big file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(rehearsal))
	f.Add([]byte("turns: [{error: {kind: auth}, repeat: always}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := scripted.Parse("f.yaml", data)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = scripted.New(s).Next(ctx, &llm.Request{Messages: []task.Message{{Role: task.RoleUser}}})
		if err != nil && ctx.Err() == nil && llm.ErrorKind(err) == "" {
			t.Fatalf("an error that is not the model's: %v", err)
		}
	})
}
