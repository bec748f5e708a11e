package policy

import "slices"

// Needed lists the connectors that the task cannot do without, sorted: what it
// requires, and what it names in connectors, in tools, or without a wildcard in an
// allow line, less those that it calls optional. An allow line for a
// connector that the lists keep out names no need: it can do nothing.
func Needed(e Effective, require, optional []string) []string {
	names := slices.Concat(require, e.TaskConnectors.Items(), e.Tools.Items())
	for _, g := range e.Allow {
		listed, _ := Reach(e)
		inReach := !listed.Declared() || slices.Contains(listed.Items(), g.Connector)
		if !isGlob(g.Connector) && inReach && Selected(e, g.Connector) {
			names = append(names, g.Connector)
		}
	}
	names = slices.DeleteFunc(names, func(id string) bool { return slices.Contains(optional, id) })
	slices.Sort(names)
	return slices.Compact(names)
}

// Bare tells, of an offer, which connectors are there without a tool for a task
// that counts on them, and why: it needs them, or it is offered nothing at all.
func Bare(e Effective, offer Offer, require, optional []string) map[string]string {
	needed, why := Needed(e, require, optional), map[string]string{}
	for id, reason := range offer.Bare {
		if slices.Contains(needed, id) || len(offer.Tools) == 0 && !slices.Contains(optional, id) {
			why[id] = reason
		}
	}
	return why
}

// WithoutTools tells, of an offer to a task that names no tools, why each connector
// that it could have used is not in it: left out, or down. It is empty if one of
// them is offered, if there is none at all, or if one that is down may be.
func WithoutTools(e Effective, offer Offer, optional []string) map[string]string {
	if e.Tools.Declared() {
		return nil
	}
	why := map[string]string{}
	for _, id := range Selection(e) {
		down, isDown := offer.Down[id]
		left, isLeft := offer.LeftOut[id]
		switch {
		case isDown && !slices.Contains(optional, id):
			why[id] = "down: " + down
		case isLeft:
			why[id] = left
		default:
			return nil
		}
	}
	return why
}
