package config

import (
	"maps"
	"slices"
)

// A task whose file and everything around it are as they were needs no second
// judgement: what the last load made of it is taken over, and of the file itself
// little more than its content is kept in between. There may be very many tasks.

// ground is what tasks are judged against: the revisions in force of all other
// files, and which kinds are broken or lost.
type ground struct {
	files        []*parsed
	broken, lost map[kind]bool
}

func (g *ground) equal(other *ground) bool {
	return other != nil && slices.Equal(g.files, other.files) && maps.Equal(g.broken, other.broken) && maps.Equal(g.lost, other.lost)
}

// survey notes the ground before the first task is judged.
func (a *assembly) survey() {
	g := &ground{files: a.inForce, broken: maps.Clone(a.broken), lost: maps.Clone(a.lost)}
	a.sameGround = g.equal(a.l.ground)
	a.l.ground = g
}

// takeOver takes a task from the latest set, if nothing can have changed about it.
func (a *assembly) takeOver(id, rel string) bool {
	c := a.l.cache[rel]
	if !a.sameGround || c.access != nil || c.parsed == nil || !c.parsed.spare || a.l.accepted[rel] != c.parsed {
		return false
	}
	t, ok := a.l.Current().Tasks[id]
	if !ok || t.Stale || t.File != rel {
		return false
	}
	a.accept(c.parsed)
	a.set.Tasks[id] = t
	return true
}

// giveUp lets go of what can be read from the content again.
func (p *parsed) giveUp() {
	p.task, p.entries, p.tree, p.spare = nil, nil, nil, true
}

// keys are those of a task file, read again if they were given up.
func (p *parsed) keys() *taskFile {
	if p.task == nil && p.spare {
		again := parse(p.rel, p.kind, p.content)
		p.task, p.entries = again.task, again.entries
	}
	return p.task
}
