package llm

import (
	"fmt"

	"runnerd/task"
)

// CheckHistory tells whether messages are a history that every vendor accepts:
// each call is answered exactly once, by the tool messages that follow its
// assistant message, no tool message answers anything else, and the last word
// is not the assistant's. The error is an *Error of kind BadRequest: sending
// such a history would only earn a rejection in the vendor's vaguer words.
func CheckHistory(msgs []task.Message) error {
	if len(msgs) == 0 {
		return badHistory("is empty: a request needs at least one user message")
	}
	var open pendingCalls
	for i, m := range msgs {
		if err := open.take(m); err != nil {
			return badHistory("message %d (%s) %w", i+1, m.Role, err)
		}
	}
	if id := open.first(); id != "" {
		return badHistory("ends before call %q was answered", id)
	}
	if last := msgs[len(msgs)-1]; last.Role == task.RoleAssistant {
		return badHistory("ends with the assistant: nothing is asked of the model")
	}
	return nil
}

func badHistory(format string, args ...any) error {
	err := fmt.Errorf("history "+format, args...)
	return &Error{Kind: BadRequest, Message: err.Error(), Err: err}
}

// pendingCalls are the calls of the last assistant message, by id, in order.
type pendingCalls []pendingCall

type pendingCall struct {
	id       string
	answered bool
}

func (p *pendingCalls) take(m task.Message) error {
	switch m.Role {
	case task.RoleTool:
		return p.answer(m.CallID)
	case task.RoleUser, task.RoleAssistant, task.RoleSummary:
	default:
		return fmt.Errorf("has no known role: want user, assistant, tool or summary")
	}
	if id := p.first(); id != "" {
		return fmt.Errorf("comes before call %q was answered", id)
	}
	*p = nil
	for _, c := range m.Calls {
		if m.Role != task.RoleAssistant {
			return fmt.Errorf("makes calls, which only an assistant message can")
		}
		if p.has(c.ID) {
			return fmt.Errorf("makes two calls with the id %q", c.ID)
		}
		*p = append(*p, pendingCall{id: c.ID})
	}
	return nil
}

func (p pendingCalls) answer(id string) error {
	for i := range p {
		if p[i].id != id {
			continue
		}
		if p[i].answered {
			return fmt.Errorf("answers call %q a second time", id)
		}
		p[i].answered = true
		return nil
	}
	return fmt.Errorf("answers call %q, which the assistant message before it did not make", id)
}

func (p pendingCalls) has(id string) bool {
	for _, c := range p {
		if c.id == id {
			return true
		}
	}
	return false
}

// first is the id of the first call without an answer; "" if there is none.
func (p pendingCalls) first() string {
	for _, c := range p {
		if !c.answered {
			if c.id == "" {
				return "(without id)"
			}
			return c.id
		}
	}
	return ""
}
