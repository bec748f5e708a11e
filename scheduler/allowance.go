package scheduler

// Allowance is how many more runs a limit lets start. Firings under the same limit
// share it, and what each of them starts is taken from it.
type Allowance struct {
	Left int
	// Reason is recorded with the instants that find nothing left.
	Reason string
	// Spent, if set, is told when such instants have been recorded.
	Spent func()

	refused bool
}

// spent is the reason of the first limit that nothing is left of; empty if one more
// run may start.
func (p *planner) spent() string {
	for _, a := range p.Allowances {
		if a.Left <= 0 {
			a.refused = true
			return a.Reason
		}
	}
	return ""
}

func (p *planner) take() {
	for _, a := range p.Allowances {
		a.Left--
	}
}

// allowances are those of a batch as they were, to be given back if it is not
// written.
type allowances map[*Allowance]Allowance

func allowancesOf(jobs []*job) allowances {
	var were allowances
	for _, j := range jobs {
		for _, a := range j.firing.Allowances {
			if were == nil {
				were = allowances{}
			}
			were[a] = *a
		}
	}
	return were
}

func (were allowances) restore() {
	for a, was := range were {
		*a = was
	}
}

// tell tells of those that instants were refused for.
func (were allowances) tell() {
	for a := range were {
		if a.refused && a.Spent != nil {
			a.Spent()
		}
		a.refused = false
	}
}
