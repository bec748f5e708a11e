package looptest

import (
	"context"
	"encoding/json"

	"runnerd/agentloop"
	"runnerd/policy"
	"runnerd/task"
)

// Hook is called around what the loop does, with the name of the operation. An
// error makes the operation fail; before it, so that it does not happen. The
// names: "run", "append ROLE", "intend", "settle", "refuse", "park", "supersede",
// "update EXECUTION", "retry", "window", "start window", "spent", "book", "effective",
// "tools CONNECTOR" and "call TOOL".
type Hook func(op string) error

// gate stands between the loop and everything durable.
type gate struct {
	*World
	store agentloop.Store
}

func (g *gate) around(op string, do func() error) error {
	if g.Before != nil {
		if err := g.Before(op); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if g.After != nil {
		return g.After(op)
	}
	return nil
}

func through[T any](g *gate, op string, do func() (T, error)) (v T, err error) {
	err = g.around(op, func() (err error) {
		v, err = do()
		return err
	})
	return v, err
}

// storeGate, ruleGate and poolGate are the three doors.
type (
	storeGate struct{ g *gate }
	ruleGate  struct{ g *gate }
	poolGate  struct{ g *gate }
)

func (s storeGate) Run(ctx context.Context, id string) (task.Run, error) {
	return through(s.g, "run", func() (task.Run, error) { return s.g.store.Run(ctx, id) })
}

func (s storeGate) Revision(ctx context.Context, hash string) (task.Task, error) {
	return s.g.store.Revision(ctx, hash)
}

func (s storeGate) Window(ctx context.Context, session string) ([]task.Message, error) {
	return through(s.g, "window", func() ([]task.Message, error) { return s.g.store.Window(ctx, session) })
}

func (s storeGate) RunMessages(ctx context.Context, run string) ([]task.Message, error) {
	return s.g.store.RunMessages(ctx, run)
}

func (s storeGate) RunReceipts(ctx context.Context, run string) ([]task.Receipt, error) {
	return s.g.store.RunReceipts(ctx, run)
}

func (s storeGate) RunApprovals(ctx context.Context, run string) ([]task.Approval, error) {
	return s.g.store.RunApprovals(ctx, run)
}

func (s storeGate) Append(ctx context.Context, days task.Days, msgs ...*task.Message) error {
	op := "append"
	if len(msgs) > 0 {
		op += " " + string(msgs[0].Role)
	}
	return s.g.around(op, func() error { return s.g.store.Append(ctx, days, msgs...) })
}

func (s storeGate) Intend(ctx context.Context, r *task.Receipt, approval string) error {
	return s.g.around("intend", func() error { return s.g.store.Intend(ctx, r, approval) })
}

func (s storeGate) Settle(ctx context.Context, r *task.Receipt, msg *task.Message, raw string) error {
	return s.g.around("settle", func() error { return s.g.store.Settle(ctx, r, msg, raw) })
}

func (s storeGate) Refuse(ctx context.Context, r *task.Receipt, msg *task.Message, ask *task.Approval) error {
	op := "refuse"
	if ask != nil {
		op = "park"
	}
	return s.g.around(op, func() error { return s.g.store.Refuse(ctx, r, msg, ask) })
}

func (s storeGate) Supersede(ctx context.Context, old string, ask *task.Approval) error {
	return s.g.around("supersede", func() error { return s.g.store.Supersede(ctx, old, ask) })
}

func (s storeGate) Update(ctx context.Context, r task.Run) error {
	return s.g.around("update "+string(r.Execution), func() error { return s.g.store.Update(ctx, r) })
}

func (s storeGate) Retry(ctx context.Context, r task.Run) error {
	return s.g.around("retry", func() error { return s.g.store.Retry(ctx, r) })
}

func (s storeGate) StartWindow(ctx context.Context, session string, seq int64) error {
	return s.g.around("start window", func() error { return s.g.store.StartWindow(ctx, session, seq) })
}

func (s storeGate) Tainted(ctx context.Context, entries []string) (string, error) {
	return through(s.g, "tainted", func() (string, error) { return s.g.store.Tainted(ctx, entries) })
}

func (s storeGate) Touch(ctx context.Context, run string, tainted bool, t task.Touched) error {
	return s.g.around("touch", func() error { return s.g.store.Touch(ctx, run, tainted, t) })
}

func (s storeGate) Spent(ctx context.Context, taskID string, days task.Days) (task.DaySpend, error) {
	return through(s.g, "spent", func() (task.DaySpend, error) { return s.g.store.Spent(ctx, taskID, days) })
}

func (s storeGate) Book(ctx context.Context, days task.Days, run string, u task.Usage) error {
	return s.g.around("book", func() error { return s.g.store.Book(ctx, days, run, u) })
}

func (r ruleGate) Effective(ctx context.Context, taskID, session, project string) (policy.Effective, error) {
	return through(r.g, "effective", func() (policy.Effective, error) {
		return r.g.Rules.Effective(ctx, taskID, session, project)
	})
}

func (r ruleGate) Accept(ctx context.Context, connector string, tools []task.Tool, by string) error {
	return r.g.Rules.Accept(ctx, connector, tools, by)
}

func (p poolGate) Tools(ctx context.Context, connector string) ([]task.Tool, error) {
	return through(p.g, "tools "+connector, func() ([]task.Tool, error) { return p.g.Pool.Tools(ctx, connector) })
}

func (p poolGate) Call(ctx context.Context, connector, tool string, args json.RawMessage) (task.ToolResult, error) {
	return through(p.g, "call "+tool, func() (task.ToolResult, error) { return p.g.Pool.Call(ctx, connector, tool, args) })
}
