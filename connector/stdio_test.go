package connector

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"runnerd/task"
)

// stdioSpec is a connector whose server is this test binary.
func stdioSpec(t testing.TB, mode string, args ...string) task.Connector {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return task.Connector{ID: "x", Command: exe, Args: append([]string{serverVerb, mode}, args...)}
}

// testPool is a pool over real children that must leave none behind.
func testPool(t testing.TB, change func(*Options), specs ...task.Connector) *Pool {
	t.Helper()
	opts := Options{
		StateDir: t.TempDir(),
		Environ:  []string{"PATH=" + os.Getenv("PATH"), "LANG=C"},
		Limits:   Limits{Close: 200 * time.Millisecond, Kill: 200 * time.Millisecond},
	}
	if tt, ok := t.(*testing.T); ok {
		opts.Logger = zaptest.NewLogger(tt)
	}
	if change != nil {
		change(&opts)
	}
	p := New(opts)
	p.Set(specs)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := marked(p); len(left) > 0 {
			t.Errorf("processes are left behind: %v", left)
		}
	})
	return p
}

func textArg(s string) json.RawMessage {
	data, _ := json.Marshal(map[string]string{"text": s})
	return data
}

func mustCall(t testing.TB, p *Pool, tool, arg string) task.ToolResult {
	t.Helper()
	res, err := p.Call(t.Context(), "x", tool, textArg(arg))
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	return res
}

func TestCall(t *testing.T) {
	p := testPool(t, nil, stdioSpec(t, "good"))
	if got := mustCall(t, p, "echo", "<hallo> & \u2028 ü"); got.Text != "<hallo> & \u2028 ü" || got.IsError || got.Cut {
		t.Errorf("echo: %+v", got)
	}
	if got := mustCall(t, p, "fail", ""); !got.IsError || !strings.Contains(got.Text, "did not work") {
		t.Errorf("fail: %+v", got)
	}
	if got := mustCall(t, p, "no_such_tool", ""); !got.IsError || !strings.Contains(got.Text, "no_such_tool") {
		t.Errorf("unknown tool: %+v", got)
	}
	st := p.Status()
	if len(st) != 1 || !st[0].Up || st[0].PID == 0 || st[0].Server != "test" || st[0].ServerVersion != "1.2.3" || st[0].Tools == 0 || st[0].Kind != "stdio" {
		t.Errorf("status: %+v", st)
	}
}
