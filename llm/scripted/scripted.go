// Package scripted is a model that plays a YAML file of turns: deterministic, at
// no cost, for rehearsing a task before it is trusted to a real model and for
// tests. The wiring opens it for `provider: scripted`.
//
// Which turn is next is read from the run's own transcript, the number of
// assistant messages since its opening user message, so a resumed run goes on
// at the right turn. Only turns that play an error are counted in memory, since
// an error leaves no message: after a restart they are played again.
//
//	loop: last               # error (default): asking beyond the last turn fails
//	turns:
//	  - expect:              # unmet: the run fails, naming this line
//	      last_contains: report
//	      offered: [files/write_file]
//	    call:
//	      - {tool: files/write_file, args: {path: a.md, content: hello}}
//	    usage: {input: 900, output: 40}
//	  - error: {kind: rate_limited, status: 429, retry_after: 2s}
//	    repeat: 2
//	  - expect: {results_contain: wrote}
//	    say: "Saved. The tool said: ${last_result}"
package scripted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"runnerd/llm"
	"runnerd/task"
)

// MaxSize bounds a script file, in bytes.
const MaxSize = 1 << 20

// Model plays a script. It is safe for concurrent use.
type Model struct {
	path string // of a model that follows its file

	mu     sync.Mutex
	script *Script
	read   string              // content of the file when it was looked at last
	played map[string]failures // by run
}

// failures counts the errors that were played before one answer of a run.
type failures struct{ step, n int }

// maxRuns bounds how many runs' errors are remembered; beyond it all are
// forgotten, and an error turn may play once more.
const maxRuns = 4096

// New returns a model that plays script.
func New(script *Script) *Model {
	return &Model{script: script, played: map[string]failures{}}
}

// Open reads and parses a script. Its error names each place that is wrong. The
// model plays the file as it is at each call: an edit counts at the next turn, and a
// file that cannot be played leaves the last one that could in force.
func Open(path string) (*Model, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	script, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	m := New(script)
	m.path, m.read = path, string(data)
	return m, nil
}

// Read reads the file of a script, which is no longer than MaxSize.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read script %s: %w", path, err)
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("read script %s: at most %d bytes are allowed", path, MaxSize)
	}
	return data, nil
}

// newest is the script as its file is now, or the last one that could be played.
func (m *Model) newest() *Script {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path == "" {
		return m.script
	}
	data, err := Read(m.path)
	if err != nil || string(data) == m.read {
		return m.script
	}
	m.read = string(data)
	if script, err := Parse(m.path, data); err == nil {
		m.script = script
	}
	return m.script
}

// Next plays the turn that the transcript calls for.
func (m *Model) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("play script: %w", err)
	}
	if err := llm.CheckHistory(req.Messages); err != nil {
		return nil, err
	}
	run, step := position(req.Messages)
	script := m.newest()
	t, err := m.turn(script, run, step)
	if err != nil {
		return nil, err
	}
	if err := script.check(t, req); err != nil {
		return nil, err
	}
	if err := wait(ctx, t.Delay); err != nil {
		return nil, err
	}
	if t.Error != nil {
		m.count(run, step)
		failed := *t.Error
		return nil, &failed
	}
	return t.answer(step, req), nil
}

// position finds the run that a request belongs to, by its last message, and how
// many assistant messages it has so far. Where the run's opening message was
// cut from the window, the step of its last assistant message tells.
func position(msgs []task.Message) (run string, step int) {
	run = msgs[len(msgs)-1].Run
	for i := len(msgs) - 1; i >= 0; i-- {
		m := msgs[i]
		if m.Run != run {
			break
		}
		if m.Role == task.RoleAssistant {
			step++
		}
		if m.Role == task.RoleUser && m.Step == 0 {
			return run, step
		}
	}
	for i := len(msgs) - 1; i >= 0 && msgs[i].Run == run; i-- {
		if msgs[i].Role == task.RoleAssistant && msgs[i].Step > 0 {
			return run, msgs[i].Step
		}
	}
	return run, step
}

// turn is what comes after step answers, with the errors that stand before that
// answer played first.
func (m *Model) turn(script *Script, run string, step int) (*Turn, error) {
	m.mu.Lock()
	failed := m.played[run]
	m.mu.Unlock()
	if failed.step != step {
		failed.n = 0
	}
	if t := script.at(step, failed.n); t != nil {
		return t, nil
	}
	return nil, &llm.Error{Kind: llm.Script, Message: fmt.Sprintf(
		"%s: the script has no turn %d: add one, or say `loop: last`", script.File, step+1)}
}

func (m *Model) count(run string, step int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.played[run]; !known && len(m.played) >= maxRuns {
		clear(m.played)
	}
	f := m.played[run]
	if f.step != step {
		f = failures{step: step}
	}
	f.n++
	m.played[run] = f
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("play script: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}

// answer turns a turn into a response, streaming its text word by word.
func (t *Turn) answer(step int, req *llm.Request) *llm.Response {
	result := lastResult(req.Messages)
	r := &llm.Response{Text: fill(t.Say, result), Finish: t.Finish, Usage: t.Usage, Metered: true}
	for i, c := range t.Calls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", step+1, i+1)
		}
		r.Calls = append(r.Calls, task.ToolCall{ID: id, Name: alias(c.Tool, req.Tools), Arguments: c.arguments(result)})
	}
	if r.Finish == "" {
		r.Finish = llm.FinishStop
		if len(r.Calls) > 0 {
			r.Finish = llm.FinishToolCalls
		}
	}
	if req.OnText != nil {
		for _, word := range strings.SplitAfter(r.Text, " ") {
			if word != "" {
				req.OnText(word)
			}
		}
	}
	return r
}

// lastResult is the text of the newest tool message; "" if there is none.
func lastResult(msgs []task.Message) string {
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Role == task.RoleTool {
			return msgs[i].Text
		}
	}
	return ""
}

// alias turns connector/tool into the name that was offered for it. A tool that
// was not offered is called all the same, so that refusals can be rehearsed.
func alias(name string, offered []llm.Tool) string {
	connector, tool, pair := strings.Cut(name, "/")
	if !pair {
		return name
	}
	full := "mcp__" + connector + "__" + tool
	for _, t := range offered {
		if t.Name == full {
			return full
		}
	}
	return hashed(full, offered)
}

// maxAlias is the longest name that vendors take (DESIGN, section 6).
const maxAlias = 64

var (
	hashedName = regexp.MustCompile(`^(.+)_[0-9a-f]{6,}$`)
	oddChar    = regexp.MustCompile(`[^a-zA-Z0-9_-]`)
)

// hashed finds the offered alias of a name that cannot be one itself, since it is
// too long or has odd characters: it is what fits of the name, and a hash.
func hashed(full string, offered []llm.Tool) string {
	clean := oddChar.ReplaceAllString(full, "_")
	for _, t := range offered {
		m := hashedName.FindStringSubmatch(t.Name)
		if m != nil && strings.HasPrefix(clean, m[1]) && (m[1] == clean || len(t.Name) == maxAlias) {
			return t.Name
		}
	}
	return full
}
