package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type sessionRow struct {
	bun.BaseModel `bun:"table:sessions,alias:s"`

	ID          string `bun:"id,pk"`
	LastSeq     int64  `bun:"last_seq"`
	WindowStart int64  `bun:"window_start"`
	CreatedAt   stamp  `bun:"created_at"`
}

type messageRow struct {
	bun.BaseModel `bun:"table:messages,alias:m"`

	Session string `bun:"session,pk"`
	Seq     int64  `bun:"seq,pk"`
	Run     string `bun:"run"`
	Step    int    `bun:"step"`
	Role    string `bun:"role"`
	At      stamp  `bun:"at"`
	Body    string `bun:"body"`
	Opaque  []byte `bun:"opaque"` // apart from the body, which would reformat it
}

// body is the rest of a message, as JSON: text may hold any character.
type body struct {
	Text    string      `json:"text,omitempty"`
	Thought string      `json:"reasoning,omitempty"`
	Calls   []call      `json:"calls,omitempty"`
	Slots   []task.Slot `json:"slots,omitempty"`
	Usage   *task.Usage `json:"usage,omitempty"`
	Model   string      `json:"model,omitempty"`
	Vendor  string      `json:"vendor,omitempty"`
	CallID  string      `json:"call_id,omitempty"`
	IsError bool        `json:"is_error,omitempty"`
	Notice  string      `json:"notice,omitempty"`
}

// call keeps argument bytes that are no UTF-8 beside the JSON string, which
// could not hold them.
type call struct {
	task.ToolCall
	Raw []byte `json:"raw,omitempty"`
}

func newMessageRow(m *task.Message) (messageRow, error) {
	b := body{
		Text: m.Text, Slots: m.Slots, Usage: m.Usage, Model: m.Model, Vendor: m.Vendor,
		CallID: m.CallID, IsError: m.IsError, Notice: m.Notice, Thought: m.Reasoning,
	}
	for _, c := range m.Calls {
		stored := call{ToolCall: c}
		if !utf8.ValidString(c.Arguments) {
			stored.Raw = []byte(c.Arguments)
		}
		b.Calls = append(b.Calls, stored)
	}
	data, err := json.Marshal(b)
	return messageRow{
		Session: m.Session, Seq: m.Seq, Run: m.Run, Step: m.Step, Role: string(m.Role), At: at(m.At),
		Body: string(data), Opaque: m.Opaque,
	}, err
}

func (r *messageRow) message() (task.Message, error) {
	var b body
	if err := json.Unmarshal([]byte(r.Body), &b); err != nil {
		return task.Message{}, fmt.Errorf("message %d of session %s: %w", r.Seq, r.Session, err)
	}
	m := task.Message{
		Seq: r.Seq, Session: r.Session, Run: r.Run, Step: r.Step, Role: task.Role(r.Role), At: r.At.t, Opaque: r.Opaque,
		Text: b.Text, Slots: b.Slots, Usage: b.Usage, Model: b.Model, Vendor: b.Vendor,
		CallID: b.CallID, IsError: b.IsError, Notice: b.Notice, Reasoning: b.Thought,
	}
	for _, c := range b.Calls {
		if c.Raw != nil {
			c.Arguments = string(c.Raw)
		}
		m.Calls = append(m.Calls, c.ToolCall)
	}
	return m, nil
}

// Append stores messages in one transaction, numbers them within their session,
// and books their usage to the run, to the task's day and to the total day. What a
// user says is written ahead: nothing was done or spent for it yet.
func (d *DB) Append(ctx context.Context, days task.Days, msgs ...*task.Message) error {
	write := d.writing
	if !slices.ContainsFunc(msgs, func(m *task.Message) bool { return m.Role != task.RoleUser || m.Usage != nil }) {
		write = d.writingAhead
	}
	return wrap("append message", write(ctx, func(ctx context.Context, tx bun.Tx) error {
		for _, m := range msgs {
			if err := storeMessage(ctx, tx, m); err != nil {
				return err
			}
			if m.Usage == nil {
				continue
			}
			if err := book(ctx, tx, days, m.Run, *m.Usage); err != nil {
				return err
			}
		}
		return nil
	}))
}

func storeMessage(ctx context.Context, tx bun.Tx, m *task.Message) error {
	if m.Session == "" {
		return errors.New("a message needs a session")
	}
	if m.At.IsZero() {
		m.At = time.Now()
	}
	s := &sessionRow{ID: m.Session, LastSeq: 1, WindowStart: 1, CreatedAt: at(m.At)}
	var seq int64
	_, err := tx.NewInsert().Model(s).On("CONFLICT (id) DO UPDATE").Set("last_seq = s.last_seq + 1").
		Returning("last_seq").Exec(ctx, &seq)
	if err != nil {
		return err
	}
	m.Seq = seq
	row, err := newMessageRow(m)
	if err != nil {
		return err
	}
	if _, err := tx.NewInsert().Model(&row).Exec(ctx); err != nil {
		return err
	}
	return emit(ctx, tx, eventRow{
		At: row.At, Kind: string(EventMessage), Task: m.Session, Run: m.Run, Ref: strconv.FormatInt(m.Seq, 10),
	})
}

// StartWindow moves where the session's context begins, to just before seq.
func (d *DB) StartWindow(ctx context.Context, session string, seq int64) error {
	return wrap("move window of session "+session, d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.NewUpdate().Table("sessions").Set("window_start = ?", seq).Where("id = ?", session).Exec(ctx)
		return oneRow(res, err)
	}))
}

// Window reads the session's messages from where its context begins, oldest
// first; none of a session that does not exist yet.
func (d *DB) Window(ctx context.Context, session string) ([]task.Message, error) {
	return d.messages(ctx, "read window of session "+session, func(sel *bun.SelectQuery) {
		sel.Where("m.session = ?", session).
			Where("m.seq >= (SELECT s.window_start FROM sessions AS s WHERE s.id = ?)", session).Order("m.seq")
	})
}

// RunMessages reads the messages of a run, oldest first.
func (d *DB) RunMessages(ctx context.Context, run string) ([]task.Message, error) {
	return d.messages(ctx, "read messages of run "+run, func(sel *bun.SelectQuery) {
		sel.Where("m.run = ?", run).Order("m.seq")
	})
}

// SessionMessages reads the messages of a session after a seq, oldest first,
// whether a model still sees them or not; 100 of them unless limit says else.
func (d *DB) SessionMessages(ctx context.Context, session string, after int64, limit int) ([]task.Message, error) {
	return d.messages(ctx, "read session "+session, func(sel *bun.SelectQuery) {
		sel.Where("m.session = ? AND m.seq > ?", session, after).Order("m.seq").Limit(limitOr(limit))
	})
}

func (d *DB) messages(ctx context.Context, op string, where func(*bun.SelectQuery)) (msgs []task.Message, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []messageRow
		sel := q.NewSelect().Model(&rows)
		where(sel)
		if err := sel.Scan(ctx); err != nil {
			return err
		}
		for i := range rows {
			m, err := rows[i].message()
			if err != nil {
				return err
			}
			msgs = append(msgs, m)
		}
		return nil
	})
	return msgs, wrap(op, err)
}

// Session is a persistent conversation.
type Session struct {
	ID string `json:"id"`
	// Messages is how many were ever stored; the model sees those from
	// WindowStart on.
	Messages    int64     `json:"messages"`
	WindowStart int64     `json:"window_start"`
	CreatedAt   time.Time `json:"created_at"`
}

// Session reads one session. It answers ErrNotFound for one without messages.
func (d *DB) Session(ctx context.Context, id string) (s Session, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var row sessionRow
		err := q.NewSelect().Model(&row).Where("s.id = ?", id).Scan(ctx)
		s = Session{ID: row.ID, Messages: row.LastSeq, WindowStart: row.WindowStart, CreatedAt: row.CreatedAt.t}
		return err
	})
	return s, wrap("read session "+id, err)
}
