package agentloop

import (
	"context"
	"fmt"

	"runnerd/llm"
	"runnerd/task"
)

// checkSteps bounds the model calls of a run.
func (a *attempt) checkSteps() error {
	if a.limits.Steps != nil && a.steps() >= *a.limits.Steps {
		return limited("limit of %d steps reached (limits.steps)", *a.limits.Steps)
	}
	return nil
}

func limited(format string, args ...any) error {
	return &stop{task.Limited, fmt.Sprintf(format, args...)}
}

// bound refuses a model call that could not be paid for and shrinks the answer
// to what is left (DESIGN, section 9). Input is estimated, before it is spent.
func (a *attempt) bound(ctx context.Context, req *llm.Request) error {
	own, total, err := a.Store.Spent(ctx, a.run.Task, a.days())
	if err != nil {
		return fmt.Errorf("read spend: %w", err)
	}
	input := int64(size(req))
	left := int64(a.modelSpec.MaxOutputTokens)
	for _, l := range []struct {
		name  string
		limit *int64
		spent int64
	}{
		{"limits.tokens", a.limits.Tokens, a.run.Usage.Tokens()},
		{"limits.tokens_per_day", a.limits.TokensPerDay, own.Tokens()},
		{"the daemon's tokens_per_day", a.day.TokensPerDay, total.Tokens()},
	} {
		if l.limit == nil {
			continue
		}
		room := *l.limit - l.spent - input
		if room <= 0 {
			return limited("%s of %d: %d are spent and the next call needs about %d", l.name, *l.limit, l.spent, input)
		}
		if left == 0 || room < left {
			left = room
		}
	}
	if left, err = a.boundMoney(own, total, input, left); err != nil {
		return err
	}
	req.MaxOutputTokens = int(left)
	return nil
}

// boundMoney does the same for money. A limit on a model without a price cannot
// be kept, so it ends the run instead of being ignored.
func (a *attempt) boundMoney(own, total task.Usage, input, left int64) (int64, error) {
	for _, l := range []struct {
		name  string
		limit *task.Money
		spent *task.Money
	}{
		{"limits.cost", a.limits.Cost, a.run.Usage.Cost},
		{"limits.cost_per_day", a.limits.CostPerDay, own.Cost},
		{"the daemon's cost_per_day", a.day.CostPerDay, total.Cost},
	} {
		if l.limit == nil {
			continue
		}
		price := a.modelSpec.Price
		if price == nil {
			return 0, a.fail("%s is set but model %s has no price in models.yaml; add `price:` or remove the limit", l.name, a.modelSpec.Name)
		}
		var spent task.Money
		if l.spent != nil {
			spent = *l.spent
		}
		room := *l.limit - spent - price.Cost(task.Usage{Input: input})
		if room <= 0 {
			return 0, limited("%s of %.2f: %.4f is spent and the next call needs about %.4f", l.name,
				l.limit.Float(), spent.Float(), price.Cost(task.Usage{Input: input}).Float())
		}
		if price.Output > 0 {
			if affordable := max(int64(room.Float()/price.Output*1e6), 1); left == 0 || affordable < left {
				left = affordable
			}
		}
	}
	return left, nil
}

// size estimates the tokens of a request: four bytes each, and a little for
// every message and tool. It errs on the high side for English, on the low side
// for scripts of three bytes a letter, where a token is often one letter.
func size(req *llm.Request) int {
	n := len(req.System)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.InputSchema) + 16
	}
	n = (n + 3) / 4
	for i := range req.Messages {
		n += messageSize(&req.Messages[i])
	}
	return n
}

func messageSize(m *task.Message) int {
	n := len(m.Text) + len(m.Notice) + len(m.Opaque)
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Arguments) + 16
	}
	return (n+3)/4 + 4
}
