package agentloop

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/task"
)

const (
	// defaultContext is assumed of a model that names no context_tokens.
	defaultContext = 32768
	// summaryTokens bounds the summary itself.
	summaryTokens = 1024
)

func (a *attempt) contextTokens() int {
	if a.modelSpec.ContextTokens > 0 {
		return a.modelSpec.ContextTokens
	}
	return defaultContext
}

// history is the session as the model may see it: well formed, and within the
// context with room for the answer. head is what else the request holds.
func (a *attempt) history(ctx context.Context, head int) ([]task.Message, error) {
	msgs, err := a.window(ctx)
	if err != nil {
		return nil, err
	}
	a.room = a.contextTokens() - head - a.answerRoom()
	if a.room <= 0 && a.modelSpec.ContextTokens > 0 {
		return nil, a.fail("the instructions and tools alone need about %d of the %d tokens of model %s (context_tokens); offer fewer connectors",
			head, a.contextTokens(), a.modelSpec.Name)
	}
	if total(msgs) <= a.room {
		return msgs, nil
	}
	if _, err := a.compact(ctx, a.room/2); err != nil {
		return nil, err
	}
	return a.window(ctx)
}

func (a *attempt) answerRoom() int {
	room := a.modelSpec.MaxOutputTokens
	if room == 0 {
		room = 2048
	}
	return min(room, a.contextTokens()/4)
}

func total(msgs []task.Message) int {
	n := 0
	for i := range msgs {
		n += messageSize(&msgs[i])
	}
	return n
}

func (a *attempt) window(ctx context.Context) ([]task.Message, error) {
	msgs, err := a.Store.Window(ctx, a.run.Session)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return wellFormed(msgs), nil
}

// wellFormed makes a window that every vendor accepts: the newest summary first,
// no answer without its call, no call without its answer, and no beginning in
// the middle of a turn. It changes the view only, never what is stored.
func wellFormed(msgs []task.Message) []task.Message {
	var summary *task.Message
	answers := map[string]task.Message{}
	for i := range msgs {
		switch m := &msgs[i]; m.Role {
		case task.RoleSummary:
			summary = m
		case task.RoleTool:
			answers[m.Run+"\x00"+m.CallID] = *m
		}
	}
	var out []task.Message
	if summary != nil {
		out = append(out, *summary)
	}
	for i := range msgs {
		m := msgs[i]
		switch m.Role {
		case task.RoleUser:
			if n := len(out); n > 0 && out[n-1].Run != m.Run && (out[n-1].Role == task.RoleUser || out[n-1].Role == task.RoleTool) {
				out = append(out, task.Message{Session: m.Session, Run: out[n-1].Run, Role: task.RoleAssistant, Text: noAnswer, At: m.At})
			}
			out = append(out, m)
		case task.RoleAssistant:
			if m.Text = join(m.Text, m.Notice); blank(m.Text) && m.LastWord() {
				m.Text = noAnswer // vendors refuse an empty one as history
			}
			out = append(out, m)
			for _, c := range m.Calls {
				out = append(out, answerTo(answers, m, c))
			}
		}
	}
	return out
}

// noAnswer stands for what a run did not say, so that its prompt is not taken for
// a part of the next run's.
const noAnswer = "[runnerd] No answer was given here."

func answerTo(answers map[string]task.Message, m task.Message, c task.ToolCall) task.Message {
	if answer, ok := answers[m.Run+"\x00"+c.ID]; ok {
		return answer
	}
	return task.Message{
		Session: m.Session, Run: m.Run, Step: m.Step, Role: task.RoleTool, CallID: c.ID,
		Text: errorText("This call has no recorded answer."), IsError: true, At: m.At,
	}
}

// compact makes room: older messages are summarised by the model, or where that
// fails by rule, and the window begins at the recent ones, of which about keep
// tokens stay. It never cuts into a turn. done is false if nothing is older than
// the last turn; the vendor then has the last word on whether it fits.
func (a *attempt) compact(ctx context.Context, keep int) (done bool, err error) {
	msgs, err := a.Store.Window(ctx, a.run.Session)
	if err != nil {
		return false, fmt.Errorf("read session: %w", err)
	}
	from := tailStart(msgs, keep)
	if from == 0 {
		return false, nil
	}
	text, usage := a.summarise(ctx, older(msgs, from))
	if ctx.Err() != nil && usage == nil {
		return false, ctx.Err()
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel() // what was spent is booked, although the run may be cancelled meanwhile
	if len(a.msgs) > 0 && a.msgs[0].Seq < msgs[from].Seq {
		text += "\n\n[the task of this run, word for word]\n" + a.msgs[0].Text
	}
	msg := &task.Message{
		Session: a.run.Session, Run: a.run.ID, Role: task.RoleSummary, Text: a.Redact.Text(text),
		Usage: usage, Model: a.modelSpec.Name, At: time.Now(),
	}
	if err := a.Store.Append(final, a.days(), msg); err != nil {
		return false, fmt.Errorf("store summary: %w", err)
	}
	if err := a.Store.StartWindow(final, a.run.Session, msgs[from].Seq); err != nil {
		return false, fmt.Errorf("move window: %w", err)
	}
	a.run.Mark(task.MarkCompacted)
	a.log.Info("session compacted", zap.Int("messages", from))
	return true, nil
}

// tailStart finds where the recent messages begin that fit into room tokens: at
// a user message, or else at an assistant message, so that no turn is cut.
func tailStart(msgs []task.Message, room int) int {
	n, user, turn := 0, 0, 0
	for i := len(msgs) - 1; i > 0; i-- {
		if n += messageSize(&msgs[i]); n > room && (user > 0 || turn > 0) {
			break
		}
		switch msgs[i].Role {
		case task.RoleUser:
			user = i
		case task.RoleAssistant:
			turn = i
		}
	}
	if user > 0 {
		return user
	}
	return turn
}

// older is what a compaction replaces: the messages before from, and an earlier
// summary wherever it stands.
func older(msgs []task.Message, from int) []task.Message {
	var list []task.Message
	for i := range msgs {
		if i < from || msgs[i].Role == task.RoleSummary {
			list = append(list, msgs[i])
		}
	}
	return list
}

// summarise asks the model, and falls back to a rule that needs none: the last
// words of each run.
func (a *attempt) summarise(ctx context.Context, msgs []task.Message) (string, *task.Usage) {
	const order = "Summarise the conversation so far for your own later use: facts, decisions, open points. At most 400 words. Call no tools."
	req := &llm.Request{System: order}
	req.Messages = append(wellFormed(msgs[tailStart(msgs, a.contextTokens()/2):]), task.Message{
		Session: a.run.Session, Run: a.run.ID, Role: task.RoleUser, Text: order,
	})
	if a.bound(ctx, req) != nil {
		return ruleSummary(msgs), nil
	}
	if req.MaxOutputTokens == 0 || req.MaxOutputTokens > summaryTokens {
		req.MaxOutputTokens = summaryTokens
	}
	resp, err := a.next(ctx, req)
	if err != nil {
		return ruleSummary(msgs), nil
	}
	a.run.Usage = a.run.Usage.Add(resp.Usage)
	if blank(resp.Text) {
		return ruleSummary(msgs), &resp.Usage
	}
	return "[summary of earlier messages]\n" + cut(a.Redact.Text(resp.Text), 4*summaryTokens), &resp.Usage
}

func ruleSummary(msgs []task.Message) string {
	var b strings.Builder
	for i := range msgs {
		m := &msgs[i]
		switch {
		case m.Role == task.RoleSummary:
			fmt.Fprintf(&b, "%s\n", cut(m.Text, summaryTokens))
		case m.Role == task.RoleAssistant && len(m.Calls) == 0 && m.Text != "":
			fmt.Fprintf(&b, "- %s: %s\n", m.At.UTC().Format(time.DateTime), cut(m.Text, 300))
		}
	}
	text := b.String()
	if keep := 4 * summaryTokens; len(text) > keep {
		text = text[len(text)-keep:]
	}
	return "[earlier answers, shortened by runnerd]\n" + strings.ToValidUTF8(text, "")
}
