package connector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

// memory is a connector's server in memory; it counts how often it was opened.
type memory struct {
	opens atomic.Int64
	lists atomic.Int64
	fail  atomic.Bool
	wait  time.Duration

	mu       sync.Mutex
	sessions []*mcp.ServerSession
}

func (m *memory) dial(ctx context.Context, _ task.Connector) (mcp.Transport, error) {
	m.opens.Add(1)
	if m.wait > 0 {
		select {
		case <-time.After(m.wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if m.fail.Load() {
		return nil, errors.New("out of order")
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "memory"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in textArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest, in textArgs) (*mcp.CallToolResult, any, error) {
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "at last"}}}, nil, nil
	})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				m.lists.Add(1)
			}
			return next(ctx, method, req)
		}
	})
	theirs, ours := mcp.NewInMemoryTransports()
	session, err := s.Connect(context.WithoutCancel(ctx), theirs, nil)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.sessions = append(m.sessions, session)
	m.mu.Unlock()
	return ours, nil
}

// crash ends all sessions from the server's side.
func (m *memory) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sessions {
		_ = s.Close()
	}
	m.sessions = nil
}

// inBubble runs f with a pool whose connectors are m, on fake time.
func inBubble(t *testing.T, m *memory, change func(*Options), f func(t *testing.T, p *Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts := Options{Dial: m.dial}
		if change != nil {
			change(&opts)
		}
		p := New(opts)
		p.Set([]task.Connector{{ID: "x", Command: "a"}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		f(t, p)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		m.crash()
	})
}

func TestSharedAndIdle(t *testing.T) {
	m := &memory{wait: time.Second}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if got := mustCall(t, p, "echo", fmt.Sprint(i)); got.Text != fmt.Sprint(i) {
					t.Errorf("call %d: %+v", i, got)
				}
			})
		}
		wg.Wait()
		if n := m.opens.Load(); n != 1 {
			t.Errorf("%d opens for 20 callers at once", n)
		}
		for range 5 {
			if tools, err := p.Tools(t.Context(), "x"); err != nil || len(tools) != 2 {
				t.Errorf("tools %v, %v", tools, err)
			}
		}
		if n := m.lists.Load(); n != 1 {
			t.Errorf("the list was fetched %d times", n)
		}
		time.Sleep(4*time.Minute + 59*time.Second)
		synctest.Wait()
		if !p.Status()[0].Up {
			t.Error("closed too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if p.Status()[0].Up {
			t.Error("not closed after 5 minutes")
		}
		mustCall(t, p, "echo", "")
		if st := p.Status()[0]; m.opens.Load() != 2 || st.Restarts != 1 || st.Err != "" {
			t.Errorf("%d opens, %+v", m.opens.Load(), st)
		}
	})
}

// One caller's end does not fail the open that others wait for.
func TestOpenOutlivesItsCaller(t *testing.T) {
	m := &memory{wait: 5 * time.Second}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var e *Error
		if err := p.Dial(ctx, "x"); !errors.As(err, &e) || !e.Timeout() || e.Sent() {
			t.Errorf("error is %v", err)
		}
		if err := p.Dial(t.Context(), "x"); err != nil || m.opens.Load() != 1 {
			t.Errorf("%v after %d opens", err, m.opens.Load())
		}
	})
}

func TestConnectDeadline(t *testing.T) {
	m := &memory{wait: time.Hour}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		begun := time.Now()
		err := p.Dial(t.Context(), "x")
		if d := time.Since(begun); err == nil || d != 10*time.Second {
			t.Errorf("%v after %s, want an error after 10s", err, d)
		}
	})
}

// Case 24: a crash loop is left alone, with one notice, and one when it is over.
func TestBreaker(t *testing.T) {
	m := &memory{}
	m.fail.Store(true)
	var notices []string
	inBubble(t, m, func(o *Options) {
		o.Notice = func(id, text string) { notices = append(notices, id+": "+text) }
	}, func(t *testing.T, p *Pool) {
		dial := func() string {
			err := p.Dial(t.Context(), "x")
			if err == nil {
				return ""
			}
			return err.Error()
		}
		dial()
		if dial(); m.opens.Load() != 2 {
			t.Errorf("%d opens, want the second at once", m.opens.Load())
		}
		if got := dial(); m.opens.Load() != 2 || !strings.Contains(got, "left alone for another 1s after 2 failures in a row, the last: out of order") {
			t.Errorf("%d opens, %s", m.opens.Load(), got)
		}
		for _, d := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			time.Sleep(d)
			dial()
		}
		if m.opens.Load() != 5 || len(notices) != 1 || !strings.Contains(notices[0], "x: failed 5 times in a row") {
			t.Errorf("%d opens, notices %q", m.opens.Load(), notices)
		}
		if st := p.Status()[0]; !st.BreakerUntil.Equal(time.Now().Add(5*time.Minute)) || st.Up || st.Err != "out of order" {
			t.Errorf("status %+v", st)
		}
		for range 3 * 300 {
			dial()
			time.Sleep(time.Second)
		}
		if m.opens.Load() != 7 || len(notices) != 1 {
			t.Errorf("%d opens, notices %q", m.opens.Load(), notices)
		}
		m.fail.Store(false)
		time.Sleep(5 * time.Minute)
		mustCall(t, p, "echo", "")
		if len(notices) != 2 || notices[1] != "x: works again" {
			t.Errorf("notices %q", notices)
		}
	})
}

// A session that dies young without an answer counts; one that worked does not.
func TestCrash(t *testing.T) {
	m := &memory{}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		for i := range 10 {
			mustCall(t, p, "echo", "")
			m.crash()
			synctest.Wait()
			if st := p.Status()[0]; st.Up || st.Err == "" {
				t.Fatalf("after crash %d: %+v", i, st)
			}
		}
		var err error
		for range 3 {
			if err = p.Dial(t.Context(), "x"); err != nil {
				break
			}
			m.crash()
			synctest.Wait()
		}
		if err == nil || !strings.Contains(err.Error(), "after 2 failures in a row") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestDiesInCall(t *testing.T) {
	m := &memory{}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		go func() {
			time.Sleep(time.Second)
			m.crash()
		}()
		_, err := p.Call(t.Context(), "x", "slow", textArg(""))
		var e *Error
		if !errors.As(err, &e) || !e.Sent() || e.Timeout() {
			t.Errorf("error is %#v", err)
		}
	})
}

func TestSet(t *testing.T) {
	m := &memory{}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		mustCall(t, p, "echo", "")
		p.Set([]task.Connector{{ID: "x", Command: "a", File: "moved"}})
		mustCall(t, p, "echo", "")
		if m.opens.Load() != 1 {
			t.Error("an unchanged connector was touched")
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := mustCall(t, p, "slow", ""); got.Text != "at last" {
				t.Errorf("the call under way: %+v", got)
			}
		})
		time.Sleep(time.Second)
		p.Set([]task.Connector{{ID: "x", Command: "b"}, {ID: "y", Command: "a"}})
		mustCall(t, p, "echo", "")
		if m.opens.Load() != 2 {
			t.Errorf("%d opens, want a new session for the changed one", m.opens.Load())
		}
		wg.Wait()
		p.Set([]task.Connector{{ID: "y", Command: "a"}})
		synctest.Wait()
		_, err := p.Call(t.Context(), "x", "echo", textArg(""))
		if err == nil || err.Error() != "connector x: open: no connector has this name; add it to connectors.yaml or take it out of the task" {
			t.Errorf("error is %v", err)
		}
		if st := p.Status(); len(st) != 1 || st[0].ID != "y" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestClose(t *testing.T) {
	m := &memory{}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Call(t.Context(), "x", "slow", textArg(""))
			var e *Error
			if !errors.As(err, &e) || !e.Sent() || !errors.Is(err, errStopped) {
				t.Errorf("the call under way: %v", err)
			}
		})
		time.Sleep(time.Second)
		begun := time.Now()
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("took %s", d)
		}
		for range 2 {
			if _, err := p.Call(t.Context(), "x", "echo", nil); !errors.Is(err, errStopped) {
				t.Errorf("after close: %v", err)
			}
		}
		p.Set([]task.Connector{{ID: "x"}})
		if err := p.Close(t.Context()); err != nil || len(p.Status()) != 0 {
			t.Errorf("a second close: %v", err)
		}
	})
}

func TestBadArguments(t *testing.T) {
	m := &memory{}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		_, err := p.Call(t.Context(), "x", "echo", []byte(`{"text":`))
		var e *Error
		if !errors.As(err, &e) || e.Sent() || m.opens.Load() != 0 {
			t.Errorf("%v after %d opens", err, m.opens.Load())
		}
		if got, err := p.Call(t.Context(), "x", "echo", nil); err != nil || !got.IsError {
			t.Errorf("no arguments: %+v, %v", got, err)
		}
	})
}

// Opens, calls, edits and closes at once: nothing hangs, nothing is left.
func TestStress(t *testing.T) {
	m := &memory{}
	inBubble(t, m, func(o *Options) { o.Idle = time.Millisecond }, func(t *testing.T, p *Pool) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := range 30 {
					switch (i + n) % 8 {
					case 0:
						p.Set([]task.Connector{{ID: "x", Command: fmt.Sprint(n % 3)}})
					case 1:
						m.crash()
					case 2:
						p.Status()
					case 3:
						_, _ = p.Tools(t.Context(), "x")
					default:
						_, _ = p.Call(t.Context(), "x", "echo", textArg(""))
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
	})
}

func TestTrouble(t *testing.T) {
	l := Limits{}.withDefaults()
	now := time.Unix(0, 0)
	var tr trouble
	waits := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Minute, 5 * time.Minute}
	for i, want := range waits {
		opened := tr.failed(now, l)
		if got := tr.wait(now); got != want || opened != (i == 4) {
			t.Errorf("failure %d: wait %s, opened %v", i+1, got, opened)
		}
	}
	if !tr.worked() || tr.worked() || tr.wait(now) != 0 {
		t.Error("it did not recover once")
	}
}

// A caller who waits for an open that an edit makes useless gets the new one.
func TestSetWhileOpening(t *testing.T) {
	m := &memory{wait: time.Second}
	inBubble(t, m, nil, func(t *testing.T, p *Pool) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := mustCall(t, p, "echo", "new"); got.Text != "new" {
				t.Errorf("%+v", got)
			}
		})
		time.Sleep(500 * time.Millisecond)
		p.Set([]task.Connector{{ID: "x", Command: "b"}})
		wg.Wait()
		if n := m.opens.Load(); n != 2 {
			t.Errorf("%d opens, want 2", n)
		}
	})
}
