package agentloop_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun/driver/sqliteshim"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"runnerd/db"
	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func world(t *testing.T) *looptest.World {
	t.Helper()
	t.Parallel()
	return looptest.New(t)
}

// classes of the desk, which every test knows.
var deskClasses = map[string]policy.Class{"look": policy.ClassRead, "note": policy.ClassWrite, "wipe": policy.ClassExec}

const noteSchema = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`

// desk is a connector with one tool of each class.
func desk(w *looptest.World) *looptest.Server {
	return w.Server("desk", policy.Fields{Classes: deskClasses}, deskTools()...)
}

func deskTools() []looptest.Tool {
	return []looptest.Tool{
		{Name: "look", Do: func(string) (string, error) { return "seen", nil }},
		{Name: "note", Schema: noteSchema},
		{Name: "wipe"},
	}
}

// Aliases of the desk's tools and a call of note.
const (
	look  = "mcp__desk__look"
	note  = "mcp__desk__note"
	wipe  = "mcp__desk__wipe"
	hello = `{"text":"hello"}`
)

// reader is a connector with one read tool, find.
func reader(w *looptest.World, id string) *looptest.Server {
	return w.Server(id, policy.Fields{Classes: map[string]policy.Class{"find": policy.ClassRead}}, looptest.Tool{Name: "find"})
}

func grants(lines ...string) task.List[policy.Grant] {
	var list []policy.Grant
	for _, l := range lines {
		g, err := policy.ParseGrant(l)
		if err != nil {
			panic(err)
		}
		list = append(list, g)
	}
	return task.ListOf(list...)
}

func ids(list ...string) task.List[string] { return task.ListOf(list...) }

// saw compares what reached a server with lines of the form "tool arguments".
func saw(t *testing.T, s *looptest.Server, want ...string) {
	t.Helper()
	var got []string
	for _, c := range s.Calls() {
		got = append(got, c.Tool+" "+c.Args)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the server received %q, want %q", got, want)
	}
}

// ended compares status and a part of the reason.
func ended(t *testing.T, r looptest.Result, status task.Status, reason string) {
	t.Helper()
	if got := r.Run.Status(); got != status || !strings.Contains(r.Run.Reason, reason) {
		t.Errorf("run ended %s (%q; marks %v), want %s with %q", got, r.Run.Reason, r.Run.Marks, status, reason)
	}
	for _, rc := range r.Receipts {
		if rc.Outcome == task.ReceiptPending && r.Run.Execution != task.Running {
			t.Errorf("receipt %d has no outcome although the run is %s", rc.Seq, r.Run.Execution)
		}
	}
}

// codes compares the codes of a run's receipts.
func codes(t *testing.T, r looptest.Result, want ...policy.Code) {
	t.Helper()
	if got := r.Codes(); !slices.Equal(got, want) {
		t.Errorf("receipts have the codes %q, want %q", got, want)
	}
}

// told tells whether the answer to the nth call (from 0) holds text.
func told(t *testing.T, r looptest.Result, n int, text string) {
	t.Helper()
	answers := r.Answers()
	if n >= len(answers) {
		t.Fatalf("the run has %d answers to calls, want at least %d", len(answers), n+1)
	}
	if !strings.Contains(answers[n].Text, text) {
		t.Errorf("answer %d is %q, want it to hold %q", n, answers[n].Text, text)
	}
}

// offered are the names of the tools of the nth request (from 0).
func offered(t *testing.T, w *looptest.World, n int) []string {
	t.Helper()
	reqs := w.Requests()
	if n >= len(reqs) {
		t.Fatalf("the model was asked %d times, want at least %d", len(reqs), n+1)
	}
	var names []string
	for _, tool := range reqs[n].Tools {
		names = append(names, tool.Name)
	}
	return names
}

// verdict decides an approval as a person would.
func verdict(t *testing.T, w *looptest.World, id string, state task.ApprovalState) {
	t.Helper()
	if _, err := w.Main.DecideApproval(context.Background(), db.Verdict{ID: id, State: state, By: "alice"}, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// damage changes the policy database behind its owner's back, damageMain the other.
func damage(t *testing.T, w *looptest.World, statement string) {
	t.Helper()
	change(t, filepath.Join(w.Dir, "task_policies.db"), statement)
}

func damageMain(t *testing.T, w *looptest.World, statement string) {
	t.Helper()
	change(t, filepath.Join(w.Dir, "runnerd.db"), statement)
}

func change(t *testing.T, file, statement string) {
	t.Helper()
	raw, err := sql.Open(sqliteshim.ShimName, "file:"+file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// logged makes the world log into memory from its next Open on.
func logged(w *looptest.World) *observer.ObservedLogs {
	core, logs := observer.New(zap.InfoLevel)
	w.Log = zap.New(core)
	w.Close()
	w.Open()
	return logs
}

// between makes a change right after the outcome of the first call was stored, as a
// person would who edits while a run is under way.
func between(w *looptest.World, change func()) {
	done := false
	w.After = func(op string) error {
		if op == "settle" && !done {
			done = true
			change()
		}
		return nil
	}
}

// heard waits until the session has heard of a change of the server's list, which
// is announced on its own time.
func heard(t *testing.T, w *looptest.World, id string, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		tools, err := w.Pool.Tools(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
		if slices.Sort(names); slices.Equal(names, want) {
			return
		}
	}
}

func count[T comparable](list []T, v T) int {
	n := 0
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}

func ask(name, args string, n int) string {
	return strings.Repeat(fmt.Sprintf("  - call: [{tool: %s, args: %s}]\n", name, args), n)
}

func TestReadGrantedWriteAndUngrantedExec(t *testing.T) {
	w := world(t)
	server := desk(w)
	w.Task(task.Task{ID: "brief"}, policy.Fields{Allow: grants("desk/note")})
	w.Script(`
  - call: [{tool: desk/look, args: {}}]
    usage: {input: 10, output: 5}
  - expect: {results_contain: seen}
    call: [{tool: desk/note, args: {text: hello}}]
  - call: [{tool: desk/wipe, args: {}}]
  - say: I've noted it. I could not wipe the desk.
`)
	r := w.Run("brief")
	ended(t, r, task.StatusDenied, "desk/wipe was refused")
	saw(t, server, "look {}", "note "+hello)
	codes(t, r, "", "", policy.CodeNeedsApproval)
	told(t, r, 2, "NOT run")
	if r.Run.Usage.Input < 10 || r.Run.Steps != 4 || r.Run.Calls != 2 {
		t.Errorf("run %+v", r.Run)
	}
}
