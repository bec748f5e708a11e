package agentloop

import (
	"context"
	"fmt"

	"runnerd/llm"
	"runnerd/policy"
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
	spent, err := a.Store.Spent(ctx, a.run.Task, a.days())
	if err != nil {
		return fmt.Errorf("read spend: %w", err)
	}
	call := task.Usage{Input: int64(size(req))}
	left := int64(a.modelSpec.MaxOutputTokens)
	tokens := []tokenLimit{{"limits.tokens", a.limits.Tokens, a.run.Usage.Tokens()}}
	money := []moneyLimit{{"limits.cost", a.limits.Cost, a.run.Usage.Cost}}
	for _, acc := range a.accounts(spent) {
		if acc.Whose == "" {
			acc.Whose = "limits."
		}
		tokens = append(tokens, tokenLimit{acc.Whose + "tokens_per_day", acc.Limits.TokensPerDay, acc.Spent.Tokens()})
		money = append(money, moneyLimit{acc.Whose + "cost_per_day", acc.Limits.CostPerDay, acc.Spent.Cost})
	}
	for _, l := range tokens {
		if left, err = l.bound(call, left); err != nil {
			return err
		}
	}
	for _, l := range money {
		if left, err = a.boundMoney(l, call, left); err != nil {
			return err
		}
	}
	req.MaxOutputTokens = int(left)
	return nil
}

// accounts are the budgets of a day that the call counts against: none for a
// rehearsal, which is not booked.
func (a *attempt) accounts(spent task.DaySpend) []policy.Account {
	if a.run.Rehearsal() {
		return nil
	}
	return policy.Accounts(a.budgets, spent)
}

type tokenLimit struct {
	name  string
	limit *int64
	spent int64
}

// bound returns how long the answer of a call may be under the limit; left is what
// other limits leave, 0 for no bound.
func (l tokenLimit) bound(call task.Usage, left int64) (int64, error) {
	if l.limit == nil {
		return left, nil
	}
	room := *l.limit - l.spent - call.Input
	if room <= 0 {
		return 0, limited("%s of %d: %d are spent and the next call needs about %d", l.name, *l.limit, l.spent, call.Input)
	}
	return tighter(left, room), nil
}

type moneyLimit struct {
	name  string
	limit *task.Money
	spent *task.Money
}

// boundMoney does the same for money. A limit on a model without a price cannot
// be kept, so it ends the run instead of being ignored.
func (a *attempt) boundMoney(l moneyLimit, call task.Usage, left int64) (int64, error) {
	if l.limit == nil {
		return left, nil
	}
	price := a.modelSpec.Price
	if price == nil {
		return 0, a.fail("%s is set but model %s has no price in models.yaml; add `price:` or remove the limit", l.name, a.modelSpec.Name)
	}
	var spent task.Money
	if l.spent != nil {
		spent = *l.spent
	}
	room := *l.limit - spent - price.Cost(call)
	if room <= 0 {
		return 0, limited("%s of %.2f: %.4f is spent and the next call needs about %.4f", l.name,
			l.limit.Float(), spent.Float(), price.Cost(call).Float())
	}
	if price.Output > 0 {
		left = tighter(left, max(int64(room.Float()/price.Output*1e6), 1))
	}
	return left, nil
}

// tighter is the smaller of two bounds; 0 is none.
func tighter(left, room int64) int64 {
	if left == 0 || room < left {
		return room
	}
	return left
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
