package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"runnerd/task"
)

// DefaultApprovalTTL is how long an approval waits where no file says otherwise.
const DefaultApprovalTTL = 24 * time.Hour

// DefaultLimits are the limits of a task that declares none: 25 steps, 50 tool
// calls, 500,000 tokens, 15 minutes, no money limit (DESIGN, section 5).
func DefaultLimits() Limits {
	steps, calls, tokens, wall := 25, 50, int64(500_000), 15*time.Minute
	return Limits{Steps: &steps, ToolCalls: &calls, Tokens: &tokens, Wall: &wall}
}

// Or fills what l leaves open from d. A limits field that an override replaces as
// a whole still bounds every run this way.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		Steps: or(l.Steps, d.Steps), ToolCalls: or(l.ToolCalls, d.ToolCalls),
		Tokens: or(l.Tokens, d.Tokens), Cost: or(l.Cost, d.Cost), Wall: or(l.Wall, d.Wall),
		CostPerDay: or(l.CostPerDay, d.CostPerDay), TokensPerDay: or(l.TokensPerDay, d.TokensPerDay),
		RunsPerDay: or(l.RunsPerDay, d.RunsPerDay),
	}
}

// Tighter is the smaller of both limits, kind by kind. A project's limits bound
// its tasks this way: they never widen what a task's own file says.
func (l Limits) Tighter(o Limits) Limits {
	return Limits{
		Steps: least(l.Steps, o.Steps), ToolCalls: least(l.ToolCalls, o.ToolCalls),
		Tokens: least(l.Tokens, o.Tokens), Cost: least(l.Cost, o.Cost), Wall: least(l.Wall, o.Wall),
		CostPerDay: least(l.CostPerDay, o.CostPerDay), TokensPerDay: least(l.TokensPerDay, o.TokensPerDay),
		RunsPerDay: least(l.RunsPerDay, o.RunsPerDay),
	}
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func least[T ~int | ~int64](a, b *T) *T {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// wireLimits is Limits as people write them: money in the currency, durations
// as "10m".
type wireLimits struct {
	Steps        *int     `json:"steps,omitempty"`
	ToolCalls    *int     `json:"tool_calls,omitempty"`
	Tokens       *int64   `json:"tokens,omitempty"`
	Cost         *float64 `json:"cost,omitempty"`
	Wall         *string  `json:"wall,omitempty"`
	CostPerDay   *float64 `json:"cost_per_day,omitempty"`
	TokensPerDay *int64   `json:"tokens_per_day,omitempty"`
	RunsPerDay   *int     `json:"runs_per_day,omitempty"`
}

// MarshalJSON writes money as an amount of the currency and wall as a Go
// duration, as the files do.
func (l Limits) MarshalJSON() ([]byte, error) {
	w := wireLimits{
		Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens,
		Cost: amount(l.Cost), CostPerDay: amount(l.CostPerDay),
		TokensPerDay: l.TokensPerDay, RunsPerDay: l.RunsPerDay,
	}
	if l.Wall != nil {
		s := l.Wall.String()
		w.Wall = &s
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes. An unknown key, a negative value or
// another shape is an error.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var w wireLimits
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return fmt.Errorf("limits: %w (known: steps, tool_calls, tokens, cost, wall, cost_per_day, tokens_per_day, runs_per_day)", err)
	}
	out := Limits{
		Steps: w.Steps, ToolCalls: w.ToolCalls, Tokens: w.Tokens,
		Cost: money(w.Cost), CostPerDay: money(w.CostPerDay),
		TokensPerDay: w.TokensPerDay, RunsPerDay: w.RunsPerDay,
	}
	if w.Wall != nil {
		d, err := time.ParseDuration(*w.Wall)
		if err != nil {
			return fmt.Errorf("limits: wall: want a duration such as 10m, have %q", *w.Wall)
		}
		out.Wall = &d
	}
	if out.negative() {
		return errors.New("limits: a limit cannot be negative")
	}
	*l = out
	return nil
}

func (l Limits) negative() bool {
	return below(l.Steps) || below(l.ToolCalls) || below(l.Tokens) || below(l.Cost) || below(l.Wall) ||
		below(l.CostPerDay) || below(l.TokensPerDay) || below(l.RunsPerDay)
}

func below[T ~int | ~int64](v *T) bool { return v != nil && *v < 0 }

func amount(m *task.Money) *float64 {
	if m == nil {
		return nil
	}
	f := m.Float()
	return &f
}

func money(f *float64) *task.Money {
	if f == nil {
		return nil
	}
	m := task.MoneyOf(*f)
	return &m
}
