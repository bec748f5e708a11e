package agentloop_test

import (
	"context"
	"errors"
	"testing"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// storing is a world with an untrusted source and a files store, whose server may
// fail to answer.
func storing(t *testing.T, write func(args string) (string, error)) *looptest.World {
	w := world(t)
	w.Server("web", policy.Fields{
		Classes: map[string]policy.Class{"get": policy.ClassRead}, Flags: task.ListOf(policy.Flag{Kind: policy.FlagUntrusted}),
	}, looptest.Tool{Name: "get"})
	w.Server("files", policy.Fields{Origin: &policy.Origin{Package: policy.StoreFiles, Root: "/srv"}},
		looptest.Tool{Name: "write_file", Do: write}, looptest.Tool{Name: "read_file"})
	w.Resolve = func(_, path string) (string, error) { return "/srv/" + path, nil }
	w.Task(task.Task{ID: "brief", Session: task.SessionFresh}, policy.Fields{Allow: grants("files/*")})
	return w
}

func tainted(t *testing.T, w *looptest.World, entry string) bool {
	t.Helper()
	run, err := w.Main.Tainted(context.Background(), []string{entry})
	if err != nil {
		t.Fatal(err)
	}
	return run != ""
}

// I19: what a tainted run is about to write counts as written before the call is
// sent, so that a crash or a lost answer forgets nothing.
func TestTaintComesBeforeTheWrite(t *testing.T) {
	const put = "mcp__files__write_file"
	at := false
	var w *looptest.World
	w = storing(t, func(string) (string, error) {
		at = tainted(t, w, "/srv/a.md")
		return "", errors.New("half written")
	})
	w.Answers(looptest.Ask(put, `{"path":"clean.md"}`, "mcp__web__get", "{}", put, `{"path":"a.md"}`), looptest.Say("done"))
	w.Run("brief")
	if !at || !tainted(t, w, "/srv/a.md") {
		t.Errorf("tainted at the call %t, after it %t", at, tainted(t, w, "/srv/a.md"))
	}
	if tainted(t, w, "/srv/clean.md") {
		t.Error("what was written before anything untrusted was read is tainted")
	}
}

// A server that is none of ours is not believed what it touched, and a run says
// which sources it read.
func TestUntrustedSourcesAreNamed(t *testing.T) {
	w := storing(t, nil)
	w.Answers(looptest.Ask("mcp__web__get", "{}"), looptest.Say("done"))
	if r := w.Run("brief"); !r.Run.HasMark(task.MarkUntrusted + ":web/get") {
		t.Errorf("marks %v: the last read counts too", r.Run.Marks)
	}
}
