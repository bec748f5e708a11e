package grounding

import "strings"

// scan looks for claims in one sentence, in one language.
type scan struct {
	*language
	s       sentence
	reading bool
	found   []Kind
}

// Marks that end a clause.
var (
	breakMarks = []string{",", ";", ":", "—", "–", "(", ")", "?"}
	hardMarks  = []string{";", ":", "—", "–", "(", ")", "?"}
)

// clause is the range of words around i up to the next marks.
func (c *scan) clause(i int) (from, to int) {
	from, to = i, i
	for from > 0 && !c.s.is(from-1, breakMarks...) {
		from--
	}
	for to < len(c.s.words) && !c.s.is(to, breakMarks...) {
		to++
	}
	return from, to
}

// asked tells whether the clause of i is a question.
func (c *scan) asked(i int) bool {
	_, to := c.clause(i)
	return c.s.is(to, "?")
}

// past tells whether a sentence speaks of an earlier time, in the clause of i or
// in a short opening like "Yesterday,".
func (c *scan) past(i int, also ...phrases) bool {
	from, to := c.clause(i)
	for _, p := range append(also, c.Past) {
		if p.in(c.s, from, to) {
			return true
		}
		if first, _ := c.clause(from - 2); from >= 2 && first == 0 && from <= 6 && p.in(c.s, 0, from) {
			return true
		}
	}
	return false
}

// conditional tells whether the clause of i, up to i, is one of "if".
func (c *scan) conditional(i int) bool {
	from, _ := c.clause(i)
	return c.Conditionals.in(c.s, from, i)
}

// quoted tells whether what begins at i are somebody else's words: "Anna wrote
// that", "Anna wrote:".
func (c *scan) quoted(i int) bool {
	if !c.s.is(i-1, ":") && c.Reporting.at(c.s, i-1) == 0 && c.Attributions.at(c.s, i-1) == 0 {
		return false
	}
	return c.attributed(i)
}

// attributed tells whether somebody else is named before i as the source.
func (c *scan) attributed(i int) bool {
	for k := range i {
		if c.Attributions.at(c.s, k) > 0 && c.FirstPerson.at(c.s, k-1) == 0 && c.Addressees.at(c.s, k-1) == 0 {
			return true
		}
	}
	return false
}

// byOther tells whether an agent that is not this one is named between from and
// to.
func (c *scan) byOther(from, to int) bool {
	for i := from; i < to; i++ {
		if n := c.Agent.at(c.s, i); n > 0 && c.OwnAgents.at(c.s, i+n) == 0 {
			return true
		}
	}
	return false
}

// negated tells whether something between from and to denies it.
func (c *scan) negated(from, to int) bool {
	for i := max(from, 0); i < to; i++ {
		if n := c.Positive.at(c.s, i); n > 0 {
			i += n - 1
			continue
		}
		if c.Negations.at(c.s, i) > 0 {
			return true
		}
	}
	return false
}

// nouns are the things that a weak verb of a kind must be about.
func (c *scan) nouns(kind Kind) phrases {
	switch kind {
	case Run:
		return c.Runs
	case Read:
		return c.Reads
	}
	return c.Things
}

// noun tells whether a noun of the list stands at i. In German the last part of a
// compound counts: Tagesbericht is a Bericht.
func (c *scan) noun(list phrases, i int) bool {
	if list.at(c.s, i) > 0 {
		return true
	}
	if !c.Suffixes || i >= len(c.s.words) {
		return false
	}
	for last := range list {
		if w := c.s.words[i].text; len(w) > len(last)+2 && len(last) > 3 && strings.HasSuffix(w, last) {
			return true
		}
	}
	return false
}

// object tells whether a thing of the list is what the words between from and to
// are about: it stands before any preposition, or it is where something went.
func (c *scan) object(list phrases, from, to int) bool {
	head, goal := true, 0
	for i := from; i < to; i++ {
		thing := c.s.words[i].path || c.noun(list, i)
		switch {
		case thing && head, goal > 0 && (c.s.words[i].path || c.noun(c.Things, i)):
			return true
		case c.To.at(c.s, i) > 0:
			head, goal = false, 5
		case c.Breaks.at(c.s, i) > 0:
			head, goal = false, 0
		case c.Determiners.at(c.s, i) > 0 && c.Breaks.at(c.s, i-1) == 0:
			head = true
		default:
			goal--
		}
	}
	return false
}

// claims decides whether a verb with the object between from and to is a claim,
// and notes it.
func (c *scan) claims(v verb, from, to int) {
	if v.weak && !c.object(c.nouns(v.kind), from, to) {
		return
	}
	if v.kind == Read && c.given(from, to) {
		return
	}
	if (v.kind == Write || v.kind == Send) && c.inline(v, from, to) {
		return
	}
	c.found = append(c.found, v.kind)
}

// given tells whether what was read is the conversation itself.
func (c *scan) given(from, to int) bool {
	for i := from; i < to; i++ {
		if c.noun(c.Given, i) {
			return true
		}
	}
	return false
}

// inline tells whether the object is in the answer itself: "shared below". A
// strong verb needs that to be the last word.
func (c *scan) inline(v verb, from, to int) bool {
	for i := from; i < to; i++ {
		if c.s.words[i].path {
			return false
		}
	}
	if !v.weak {
		from = to - 1
	}
	return c.Inline.in(c.s, from, to)
}

// reported tells whether an impersonal sentence of this verb may tell of the
// world that the run has read about, rather than of the agent's own work.
func (c *scan) reported(v verb) bool {
	return c.reading && (v.weak || (v.kind != Write && v.kind != Send))
}
