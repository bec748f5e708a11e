package grounding

import "unicode"

// adjacent finds claims where the verb stands right behind its subject, as in
// English.
func (c *scan) adjacent() {
	for i := range c.s.words {
		if n := c.FirstPerson.at(c.s, i); n > 0 && !c.conditional(i) && !c.quoted(i) {
			c.predicate(i + n)
		}
		c.passiveAt(i)
	}
	c.ellipsis()
}

// predicate reads what follows a first person, and the verbs joined to it by
// "and".
func (c *scan) predicate(i int) {
	i, table := c.auxiliaries(i, c.language.past)
	v, ok := table.at(c.s, i)
	if !ok {
		return
	}
	for {
		i += len(v.words)
		c.verbAt(v, i)
		if i, v, ok = c.joined(i, table); !ok {
			return
		}
	}
}

// auxiliaries skips fillers and auxiliaries and tells which form comes next.
func (c *scan) auxiliaries(i int, table verbTable) (int, verbTable) {
	for {
		switch {
		case c.Achieved.at(c.s, i) > 0:
			i += c.Achieved.at(c.s, i)
			table = c.base
		case c.Fillers.at(c.s, i) > 0:
			i += c.Fillers.at(c.s, i)
		case c.Perfect.at(c.s, i) > 0:
			i += c.Perfect.at(c.s, i)
			table = c.participle
		default:
			return i, table
		}
	}
}

// verbAt judges an active verb that ends before i.
func (c *scan) verbAt(v verb, i int) {
	if c.notWith[v.words[0]].at(c.s, i) > 0 || c.asked(i) || c.past(i-1) {
		return
	}
	_, to := c.clause(i)
	c.claims(v, i, to)
}

// joined finds the next verb that shares the subject of the one before i.
func (c *scan) joined(i int, table verbTable) (int, verb, bool) {
	for ; i < len(c.s.words); i++ {
		if c.s.is(i, hardMarks...) {
			return 0, verb{}, false
		}
		if !c.s.is(i, ",") && c.Conjunctions.at(c.s, i) == 0 {
			continue
		}
		k := i
		for c.s.is(k, ",") || c.Conjunctions.at(c.s, k) > 0 {
			k += max(1, c.Conjunctions.at(c.s, k))
		}
		k, form := c.auxiliaries(k, table)
		if v, ok := form.at(c.s, k); ok {
			return k, v, true
		}
		if c.FirstPerson.at(c.s, k) > 0 || c.NewSubjects.at(c.s, k) > 0 {
			return 0, verb{}, false
		}
	}
	return 0, verb{}, false
}

// passiveAt judges "the note has been saved" where its auxiliary stands at i.
func (c *scan) passiveAt(i int) {
	for _, p := range c.Passive {
		n := p.Aux.at(c.s, i)
		if n == 0 {
			continue
		}
		k, needed := i+n, p.Needs == nil
		for c.Fillers.at(c.s, k) > 0 || p.Needs.at(c.s, k) > 0 {
			needed = needed || p.Needs.at(c.s, k) > 0
			k += max(c.Fillers.at(c.s, k), p.Needs.at(c.s, k))
		}
		if v, ok := c.participle.at(c.s, k); ok && needed && (!p.Closing || c.closes(v, k)) {
			c.impersonal(v, c.subject(i), i, k+len(v.words))
		}
	}
}

// closes tells whether a verb that is not weak stands at the end of its clause.
func (c *scan) closes(v verb, i int) bool {
	_, to := c.clause(i)
	return !v.weak && i+len(v.words) == to
}

// subject is where the subject of the auxiliary at i begins.
func (c *scan) subject(i int) int {
	from, _ := c.clause(i)
	for k := from; k < i; k++ {
		if n := c.Conjunctions.at(c.s, k); n > 0 {
			from = k + n
		}
	}
	return from
}

// impersonal judges a claim without a person: its subject stands between from
// and to, its verb ends before end.
func (c *scan) impersonal(v verb, from, to, end int) {
	_, stop := c.clause(end)
	switch {
	case v.kind == Read, !c.artefact(v, from, to) && !c.placed(v, from, to, end):
	case c.negated(from, end), c.Conditionals.in(c.s, from, end), c.attributed(to):
	case c.byOther(end, stop), c.asked(end), c.past(to, c.datesFor(v)), c.reported(v) && !c.placed(v, from, to, end):
	case c.notWith[v.words[0]].at(c.s, end) > 0:
	default:
		c.found = append(c.found, v.kind)
	}
}

// placed tells whether a text is said to have gone somewhere: "the report has
// been written to /srv/a.md".
func (c *scan) placed(v verb, from, to, end int) bool {
	_, stop := c.clause(end)
	for i := from; i < to; i++ {
		if c.noun(c.Texts, i) && v.kind == Write {
			return c.object(nil, end, stop)
		}
	}
	return false
}

// datesFor are the dates that make a sentence a report of the past; what is
// scheduled has a date by its nature.
func (c *scan) datesFor(v verb) phrases {
	if v.kind == Schedule {
		return nil
	}
	return c.Dates
}

// artefact tells whether the words between from and to name something that an
// agent makes.
func (c *scan) artefact(v verb, from, to int) bool {
	if !v.weak && to-from == 1 && c.Pronouns.at(c.s, from) > 0 {
		return true
	}
	for i := from; i < to; i++ {
		if c.s.words[i].path || c.noun(c.nouns(v.kind), i) || (!v.weak && c.noun(c.Texts, i)) {
			return true
		}
	}
	return false
}

// ellipsis judges sentences that leave out who did it: "Saved the note.", "Done:
// email sent to Bob."
func (c *scan) ellipsis() {
	i := c.begin()
	if v, ok := c.participle.at(c.s, i); ok {
		c.opening(v, i)
	} else {
		c.headline(i)
	}
}

// opening judges "Saved the note.", and "Read the log and saved a copy." A form
// that is the infinitive too, like "set", may be an order.
func (c *scan) opening(v verb, i int) {
	end := i + len(v.words)
	if !c.opensObject(end) {
		return
	}
	if _, order := c.base.at(c.s, i); !order {
		c.unnamed(v, end)
	}
	for {
		at, next, ok := c.joined(end, c.participle)
		if !ok {
			return
		}
		end = at + len(next.words)
		c.unnamed(next, end)
	}
}

// unnamed judges a verb without a subject that ends before end.
func (c *scan) unnamed(v verb, end int) {
	_, stop := c.clause(end)
	if !c.byOther(end, stop) && !c.past(end-1, c.datesFor(v)) && !c.asked(end) {
		c.claims(v, end, stop)
	}
}

// headline judges "Note saved to notes.md."
func (c *scan) headline(i int) {
	for k := i + 1; k < min(i+5, len(c.s.words)); k++ {
		v, ok := c.participle.at(c.s, k)
		if !ok {
			continue
		}
		end := k + len(v.words)
		if end == len(c.s.words) || c.Endings.at(c.s, end) > 0 || c.s.words[end].path {
			last := k
			for last > i && c.Fillers.at(c.s, last-1) > 0 {
				last--
			}
			if c.artefact(v, last-1, last) {
				c.impersonal(v, i, last, end)
			}
		}
		return
	}
}

// begin skips "Done:", "OK," and the like at the beginning of a sentence.
func (c *scan) begin() int {
	i := 0
	for i < len(c.s.words) {
		switch {
		case c.Opening.at(c.s, i) > 0:
			i += c.Opening.at(c.s, i)
		case c.Fillers.at(c.s, i) > 0:
			i += c.Fillers.at(c.s, i)
		case i > 0 && c.s.is(i, breakMarks...):
			i++
		default:
			return i
		}
	}
	return i
}

// opensObject tells whether what stands at i can be the object of a verb that
// begins a sentence, and not the noun of "saved searches".
func (c *scan) opensObject(i int) bool {
	if i >= len(c.s.words) {
		return true
	}
	w := c.s.words[i]
	numbered := func(i int) bool {
		return i < len(c.s.words) && (c.s.is(i, string(maskQuote)) || unicode.IsDigit([]rune(c.s.words[i].text)[0]))
	}
	return w.path || numbered(i) || c.Determiners.at(c.s, i) > 0 || (c.noun(c.Things, i) && numbered(i+1))
}
