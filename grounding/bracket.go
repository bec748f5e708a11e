package grounding

// bracket finds claims where auxiliary and participle stand around the rest of
// the clause, as in German.
func (c *scan) bracket() {
	for i := range c.s.words {
		c.mainClause(i)
		c.subordinate(i)
		c.simplePast(i)
		c.bracketPassive(i)
	}
	c.bracketEllipsis()
}

// mainClause judges "Ich habe … gespeichert", "Die Notiz habe ich gespeichert" and
// "Ich konnte … speichern", by the auxiliary at i.
func (c *scan) mainClause(i int) {
	table := c.participle
	if c.Achieved.at(c.s, i) > 0 {
		table = c.base
	} else if c.Perfect.at(c.s, i) == 0 {
		return
	}
	front, _ := c.clause(i)
	rest := i + 1
	switch {
	case c.FirstPerson.at(c.s, i-1) > 0:
	case c.FirstPerson.at(c.s, i+1) > 0:
		rest++
	case i == c.begin() && table != nil && !c.s.is(i, "haben", "hatten", "konnten"):
	default:
		return
	}
	if c.conditional(i) || c.quoted(front) {
		return
	}
	c.within(table, front, rest)
}

// within judges the verbs at the ends of the clauses that begin at rest; front is
// where the words before the auxiliary begin, which may hold the object.
func (c *scan) within(table verbTable, front, rest int) {
	from := front
	for k := rest; k < len(c.s.words); k++ {
		if c.s.is(k, hardMarks...) {
			return
		}
		v, ok := table.at(c.s, k)
		if !ok {
			if k > rest && (c.Finals.at(c.s, k) > 0 || c.Perfect.at(c.s, k) > 0) {
				return // another clause with a verb of its own
			}
			continue
		}
		end := k + len(v.words)
		if c.Finals.at(c.s, end) > 0 {
			k = end // the end of a subordinate clause
			from = end + 1
			continue
		}
		c.bracketVerb(v, from, k)
		from, k = end, end-1
	}
}

// bracketVerb judges a verb at position at; what it is about stands between from
// and at.
func (c *scan) bracketVerb(v verb, from, at int) {
	for i := from; i < at; i++ {
		if c.notWith[v.words[0]].at(c.s, i) > 0 {
			return
		}
	}
	if c.negated(from, at) || c.asked(at) || c.past(at) || c.Past.in(c.s, from, at) {
		return
	}
	for i := at; i > from; i-- { // the object is in the last clause, or before it
		if c.s.is(i-1, ",") && c.object(c.nouns(v.kind), i, at) {
			from = i
			break
		}
	}
	c.claims(v, from, at)
}

// subordinate judges "…, die ich gespeichert habe" by the auxiliary at i.
func (c *scan) subordinate(i int) {
	if c.Perfect.at(c.s, i) == 0 {
		return
	}
	v, ok := c.participle.at(c.s, i-1)
	if !ok {
		return
	}
	from, _ := c.clause(i)
	person := c.FirstPerson.in(c.s, from, i-1) || c.FirstPerson.at(c.s, i+1) > 0
	if !person || c.conditional(i) || c.attributed(from) {
		return
	}
	start := from
	if previous, _ := c.clause(from - 2); from >= 2 && c.s.is(from-1, ",") {
		start = previous // the noun that a relative clause is about
	}
	if c.negated(from, i) || c.asked(i) || c.past(i) {
		return
	}
	c.claims(v, start, i-1)
}

// simplePast judges "ich speicherte" and "speicherte ich".
func (c *scan) simplePast(i int) {
	v, ok := c.language.past.at(c.s, i)
	if !ok || (c.FirstPerson.at(c.s, i-1) == 0 && c.FirstPerson.at(c.s, i+1) == 0) {
		return
	}
	from, to := c.clause(i)
	if c.conditional(i) || c.quoted(from) || c.negated(from, to) || c.asked(i) || c.past(i) {
		return
	}
	c.claims(v, i+1, to)
}

// bracketPassive judges "Die Notiz wurde gespeichert" by the auxiliary at i.
func (c *scan) bracketPassive(i int) {
	for _, p := range c.Passive {
		if p.Aux.at(c.s, i) == 0 {
			continue
		}
		from, to := c.unit(i)
		for k := from; k < to; k++ {
			v, ok := c.participle.at(c.s, k)
			if !ok || (k < i && k+len(v.words) != i) {
				continue
			}
			if p.Closing && (k != i+1 || !c.closes(v, k)) {
				continue
			}
			if len(p.Needs) == 0 || p.Needs.in(c.s, i, min(to, k+len(v.words)+1)) {
				c.bracketImpersonal(v, from, to, k)
				break
			}
		}
	}
}

// unit is the clause of i, cut at each "und".
func (c *scan) unit(i int) (from, to int) {
	from, to = c.clause(i)
	for k := from; k < to; k++ {
		if n := c.Conjunctions.at(c.s, k); n > 0 && k < i {
			from = k + n
		} else if n > 0 {
			return from, k
		}
	}
	return from, to
}

func (c *scan) bracketImpersonal(v verb, from, to, at int) {
	switch {
	case v.kind == Read, !c.artefact(v, from, at) && !c.pronoun(v, from, at):
	case c.negated(from, to), c.Conditionals.in(c.s, from, to), c.attributed(at):
	case c.byOther(from, to), c.asked(at), c.past(at), c.reported(v):
	default:
		c.found = append(c.found, v.kind)
	}
}

// pronoun tells whether "Alles wurde" is what stands between from and at.
func (c *scan) pronoun(v verb, from, at int) bool {
	return !v.weak && at-from == 2 && c.Pronouns.at(c.s, from) > 0
}

// maxEllipsis is how many words a sentence without a person may have, to be read
// as "Notiz gespeichert."
const maxEllipsis = 8

// bracketEllipsis judges "Erledigt: Notiz gespeichert."
func (c *scan) bracketEllipsis() {
	from, to := c.begin(), len(c.s.words)
	for k := from; k < to; k++ {
		if c.s.is(k, breakMarks...) || c.Finals.at(c.s, k) > 0 || c.Perfect.at(c.s, k) > 0 || c.FirstPerson.at(c.s, k) > 0 {
			return
		}
	}
	if to-from < 1 || to-from > maxEllipsis {
		return
	}
	v, ok := c.participle.at(c.s, to-1)
	if !ok {
		return
	}
	if to-from == 1 && !v.weak && v.kind != Read {
		c.found = append(c.found, v.kind)
		return
	}
	c.bracketImpersonal(v, from, to, to-1)
}
