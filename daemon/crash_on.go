//go:build crashtest

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"runnerd/agentloop"
	"runnerd/dispatch"
	"runnerd/scheduler"
	"runnerd/task"
)

// breakable kills the process, as kill -9 would, just before or just after the
// durable step that RUNNERD_CRASH_AT names: "before intend 1", "after settle 2" …
func breakable(s stores, getenv func(string) string) stores {
	s = onClock(s, getenv)
	at := getenv("RUNNERD_CRASH_AT")
	if at == "" {
		return s
	}
	c := &crash{}
	if _, err := fmt.Sscanf(at, "%s %s %d", &c.when, &c.step, &c.left); err != nil {
		panic(at + ": want WHEN STEP COUNT")
	}
	return stores{crashClock{s.clock, c}, crashQueue{s.queue, c}, crashLoop{s.loop, c}, crashTools{s.tools, c}}
}

// crash is the place where the process ends: before or after the left-th time of
// a step.
type crash struct {
	when, step string
	left       int
	mu         sync.Mutex
}

func (c *crash) at(when, step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.when != when || c.step != step {
		return
	}
	if c.left--; c.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

// around runs do between the two places where the process can end.
func around[T any](c *crash, step string, do func() (T, error)) (T, error) {
	c.at("before", step)
	v, err := do()
	c.at("after", step)
	return v, err
}

func (c *crash) do(step string, do func() error) error {
	_, err := around(c, step, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

type crashClock struct {
	scheduler.Store
	*crash
}

func (s crashClock) Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	fired := false
	runs, err := s.Store.Fire(ctx, tasks, func(st task.FireState) task.FirePlan {
		plan := decide(st)
		if len(plan.Runs) > 0 {
			s.at("before", "fire")
			fired = true
		}
		return plan
	})
	if fired {
		s.at("after", "fire")
	}
	return runs, err
}

func (s crashClock) Cursors(ctx context.Context) (map[string]task.Cursor, error) {
	return around(s.crash, "cursors", func() (map[string]task.Cursor, error) { return s.Store.Cursors(ctx) })
}

type crashQueue struct {
	dispatch.Store
	*crash
}

func (s crashQueue) Claim(ctx context.Context, now time.Time) (task.Run, bool, error) {
	run, ok, err := s.Store.Claim(ctx, now)
	if ok {
		s.at("after", "claim")
	}
	return run, ok, err
}

func (s crashQueue) Recover(ctx context.Context, now time.Time) ([]task.Run, error) {
	return around(s.crash, "recover", func() ([]task.Run, error) { return s.Store.Recover(ctx, now) })
}

type crashLoop struct {
	agentloop.Store
	*crash
}

func (s crashLoop) Append(ctx context.Context, days task.Days, msgs ...*task.Message) error {
	return s.do("append", func() error { return s.Store.Append(ctx, days, msgs...) })
}

func (s crashLoop) Intend(ctx context.Context, r *task.Receipt, approval string) error {
	return s.do("intend", func() error { return s.Store.Intend(ctx, r, approval) })
}

func (s crashLoop) Settle(ctx context.Context, r *task.Receipt, msg *task.Message, raw string) error {
	return s.do("settle", func() error { return s.Store.Settle(ctx, r, msg, raw) })
}

func (s crashLoop) Refuse(ctx context.Context, r *task.Receipt, msg *task.Message, ask *task.Approval) error {
	return s.do("refuse", func() error { return s.Store.Refuse(ctx, r, msg, ask) })
}

func (s crashLoop) Update(ctx context.Context, r task.Run) error {
	return s.do("update", func() error { return s.Store.Update(ctx, r) })
}

type crashTools struct {
	agentloop.Connectors
	*crash
}

func (s crashTools) Call(ctx context.Context, connector, tool string, args json.RawMessage) (task.ToolResult, error) {
	return around(s.crash, "call", func() (task.ToolResult, error) { return s.Connectors.Call(ctx, connector, tool, args) })
}
