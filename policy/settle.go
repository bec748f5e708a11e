package policy

import "reflect"

// Lines and rules are judged where they are read, once; each decision then takes them
// as found in order. The proof goes with the value and holds only for what it was
// made of: a copy that was changed since, and whatever was never settled, is judged
// at the decision. Maps and slices of a settled value must not be changed in place.

// settledLine is the proof for one line: the line as it was, and its words, which are
// asked for again and again.
type settledLine struct {
	line  Grant
	allow bool // it was judged as a line of allow
	words string
}

// Settle is CheckAs, once: a decision does not repeat it.
func (g *Grant) Settle(field string) error {
	if err := g.CheckAs(field); err != nil {
		return err
	}
	g.settled = nil
	g.settled = &settledLine{*g, field == "allow", g.String()}
	return nil
}

// proof is what Settle found, nil if the line is not the one that it looked at.
func (g Grant) proof() *settledLine {
	s := g.settled
	if s == nil || g.faults != nil || s.line.Connector != g.Connector || s.line.Tool != g.Tool || s.line.Times != g.Times || !sameMap(s.line.Where, g.Where) {
		return nil
	}
	return s
}

func (g Grant) settledAs(field string) bool {
	s := g.proof()
	return s != nil && s.allow == (field == "allow")
}

// Settle is Check, once: a decision does not repeat it.
func (r *ConnectorRules) Settle() error {
	if err := r.Check(); err != nil {
		return err
	}
	r.settled = nil
	was := *r
	r.settled = &was
	return nil
}

func (r ConnectorRules) isSettled() bool {
	s := r.settled
	return s != nil && sameMap(s.Classes, r.Classes) && sameSlice(s.Disabled, r.Disabled) && sameSlice(s.Flags, r.Flags)
}

func sameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() && len(a) == len(b)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
