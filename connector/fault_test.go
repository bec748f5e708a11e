package connector

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"runnerd/task"
)

// patience is the longest that a call may take beside whatever load; without a
// deadline of its own it would take for ever.
const patience = time.Minute

// Cases 21 to 24 and 28 of the faults: whatever a server does, the caller gets a
// clear error in time.
func TestBadServers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		spec    func(*task.Connector)
		limits  func(*Limits)
		tool    string // called; empty: tools are listed
		want    []string
		sent    bool
		timeout bool
	}{
		{name: "command not found", spec: func(c *task.Connector) { c.Command = "no-such-command-here" },
			want: []string{"connector x: open:", "no-such-command-here not found in PATH", "install no-such-command-here or fix command in connectors.yaml"}},
		{name: "path not found", spec: func(c *task.Connector) { c.Command = "/nowhere/server" },
			want: []string{"/nowhere/server not found", "fix command"}},
		{name: "cwd missing", spec: func(c *task.Connector) { c.Dir = "/nowhere" }, want: []string{"cwd /nowhere"}},
		{name: "exits at once", spec: mode("exit"), want: []string{"exit code 7", "Error: no configuration"}},
		{name: "never answers initialize", spec: mode("mute"), limits: func(l *Limits) { l.Connect = 300 * time.Millisecond },
			want: []string{"no answer in time", "raise timeout.connect"}, timeout: true},
		{name: "never reads", spec: mode("deaf"), limits: func(l *Limits) { l.Connect = 300 * time.Millisecond },
			want: []string{"no answer in time"}, timeout: true},
		{name: "never lists", spec: mode("nolist"), limits: func(l *Limits) { l.List = 300 * time.Millisecond },
			want: []string{"list tools", "no list within 300ms"}, timeout: true},
		{name: "endless line", spec: mode("hugeline"), limits: func(l *Limits) { l.LineBytes = 1 << 20 },
			want: []string{"a line on its standard output is longer than 1 MiB"}},
		{name: "endless pages", spec: mode("pages"), want: []string{"more than 64 pages"}},
		{name: "too many tools", spec: mode("pages"), limits: func(l *Limits) { l.Tools = 10 },
			want: []string{"lists more than 10 tools"}},
		{name: "never answers a call", spec: mode("good"), limits: func(l *Limits) { l.Call = 300 * time.Millisecond }, tool: "hang",
			want: []string{"connector x: call hang: no answer within 300ms"}, sent: true, timeout: true},
		{name: "spec's own deadline", spec: func(c *task.Connector) { mode("good")(c); c.CallTimeout = 200 * time.Millisecond }, tool: "hang",
			want: []string{"no answer within 200ms"}, sent: true, timeout: true},
		{name: "cap above the spec", spec: func(c *task.Connector) { mode("good")(c); c.CallTimeout = time.Hour },
			limits: func(l *Limits) { l.CallCap = 100 * time.Millisecond }, tool: "hang",
			want: []string{"no answer within 100ms"}, sent: true, timeout: true},
		{name: "progress for ever", spec: mode("progress"), limits: func(l *Limits) { l.Call = 300 * time.Millisecond }, tool: "slow",
			want: []string{"no answer within 300ms"}, sent: true, timeout: true},
		{name: "dies in a call", spec: mode("good"), tool: "die",
			want: []string{"exit code 3", "something broke"}, sent: true},
		{name: "huge result", spec: mode("good"), limits: func(l *Limits) { l.LineBytes = 1 << 20 }, tool: "big",
			want: []string{"longer than 1 MiB"}, sent: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := stdioSpec(t, "good")
			tt.spec(&spec)
			p := testPool(t, func(o *Options) {
				if tt.limits != nil {
					tt.limits(&o.Limits)
				}
			}, spec)
			begun := time.Now()
			var err error
			if tt.tool == "" {
				_, err = p.Tools(t.Context(), "x")
			} else {
				_, err = p.Call(t.Context(), "x", tt.tool, textArg("2000000"))
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error is %T %v", err, err)
			}
			for _, w := range tt.want {
				if !strings.Contains(e.Error(), w) {
					t.Errorf("%q lacks %q", e, w)
				}
			}
			if e.Sent() != tt.sent || e.Timeout() != tt.timeout {
				t.Errorf("sent %v timeout %v, want %v %v", e.Sent(), e.Timeout(), tt.sent, tt.timeout)
			}
			if d := time.Since(begun); d > patience {
				t.Errorf("took %s", d)
			}
			if st := p.Status()[0]; tt.tool == "" && (st.Up || st.Err == "") {
				t.Errorf("status: %+v", st)
			}
		})
	}
}

// mode makes a spec run the test server so.
func mode(m string) func(*task.Connector) {
	return func(c *task.Connector) { c.Args[1] = m }
}

// A session survives a call that timed out, and the server hears of it.
func TestCallTimeoutCancels(t *testing.T) {
	t.Parallel()
	p := testPool(t, func(o *Options) { o.Limits.Call = 3 * time.Second }, stdioSpec(t, "good"))
	before := mustCall(t, p, "pid", "").Text
	if _, err := p.Call(t.Context(), "x", "hang", textArg("")); err == nil {
		t.Fatal("no error")
	}
	waitFor(t, "the server hears of it", func() bool { return strings.Contains(p.Status()[0].Stderr, "call was cancelled") })
	if after := mustCall(t, p, "pid", "").Text; after != before {
		t.Errorf("another server: %s, %s", before, after)
	}
}

func TestCallerCancels(t *testing.T) {
	p := testPool(t, nil, stdioSpec(t, "good"))
	mustCall(t, p, "echo", "")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := p.Call(ctx, "x", "hang", textArg(""))
	var e *Error
	if !errors.As(err, &e) || !e.Sent() {
		t.Errorf("error is %v", err)
	}
}

// A server whose input pipe is full cannot hold a caller.
func TestServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	p := testPool(t, func(o *Options) { o.Limits.Call = 3 * time.Second }, stdioSpec(t, "progress"))
	if err := p.Dial(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	_, server := guardOf(p)
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, err := p.Call(t.Context(), "x", "slow", textArg(strings.Repeat("x", 1<<20)))
	var e *Error
	if !errors.As(err, &e) || !e.Sent() || !e.Timeout() {
		t.Errorf("error is %v", err)
	}
	if d := time.Since(begun); d > patience {
		t.Errorf("took %s", d)
	}
}

func TestNoiseOnStdout(t *testing.T) {
	p := testPool(t, nil, stdioSpec(t, "noisy"))
	if got := mustCall(t, p, "echo", "still"); got.Text != "still" {
		t.Errorf("echo: %+v", got)
	}
	if n := p.Status()[0].Noise; n != 6 {
		t.Errorf("%d lines dropped, want 6", n)
	}
}

func TestStderr(t *testing.T) {
	t.Parallel()
	flood := testPool(t, nil, stdioSpec(t, "flood"))
	if got := mustCall(t, flood, "echo", "still"); got.Text != "still" {
		t.Errorf("echo: %+v", got)
	}
	if n := len(flood.Status()[0].Stderr); n == 0 || n > stderrBytes {
		t.Errorf("%d bytes kept", n)
	}
	secret := testPool(t, func(o *Options) {
		o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2hunter2", "[redacted]") }
	}, stdioSpec(t, "secret"))
	mustCall(t, secret, "echo", "")
	waitFor(t, "the line is kept", func() bool { return secret.Status()[0].Stderr == "token is [redacted]" })
	_, err := secret.Call(t.Context(), "x", "die", textArg(""))
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "[redacted]") {
		t.Errorf("error is %v", err)
	}
}

func TestResultCap(t *testing.T) {
	p := testPool(t, func(o *Options) { o.Limits.ResultBytes = 1000 }, stdioSpec(t, "good"))
	got := mustCall(t, p, "big", "5000")
	if !got.Cut || len(got.Text) > 1100 || !strings.Contains(got.Text, "4000 bytes left out") {
		t.Errorf("cut %v, %d bytes: %s", got.Cut, len(got.Text), got.Text)
	}
}

// The handshakes of servers that are older than the SDK's first question.
func TestOlderServers(t *testing.T) {
	t.Parallel()
	for m, n := range map[string]int{"legacy": 1, "silent-discover": 1, "slow": 15} {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			p := testPool(t, nil, stdioSpec(t, m))
			tools, err := p.Tools(t.Context(), "x")
			if err != nil || len(tools) != n {
				t.Errorf("tools %v, %v", tools, err)
			}
		})
	}
}

func TestListChanged(t *testing.T) {
	t.Parallel()
	p := testPool(t, nil, stdioSpec(t, "good"))
	before, err := p.Tools(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	mustCall(t, p, "grow", "")
	waitFor(t, "the new list", func() bool {
		after, err := p.Tools(t.Context(), "x")
		return err == nil && len(after) == len(before)+1
	})
	storm := testPool(t, nil, stdioSpec(t, "storm"))
	for range 10 {
		if tools, err := storm.Tools(t.Context(), "x"); err != nil || len(tools) != 1 {
			t.Fatalf("in a storm: %v, %v", tools, err)
		}
	}
}

// Nothing is offered to servers and nothing answered that they ask for.
func TestServerAsksForMore(t *testing.T) {
	t.Parallel()
	p := testPool(t, nil, stdioSpec(t, "shameless"))
	res, err := p.Call(t.Context(), "x", "ask", textArg(""))
	if err != nil {
		t.Fatal(err)
	}
	var init string
	answers := map[string]string{}
	for line := range strings.Lines(res.Text) {
		if strings.Contains(line, `"method":"initialize"`) {
			init = line
		}
		for _, id := range []string{"q0", "q1", "q2"} {
			if strings.Contains(line, `"id":"`+id+`"`) {
				answers[id] = line
			}
		}
	}
	if !strings.Contains(init, `"capabilities":{}`) {
		t.Errorf("initialize offers something: %s", init)
	}
	for _, id := range []string{"q0", "q1"} {
		if !strings.Contains(answers[id], `"error"`) {
			t.Errorf("%s is answered with %q", id, answers[id])
		}
	}
	if strings.Contains(answers["q2"], "file:") {
		t.Errorf("roots: %q", answers["q2"])
	}
}
