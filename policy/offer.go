package policy

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"runnerd/task"
)

// BuildOffer says what a model is shown in one step: selection ∩ reachable ∩
// connected, less what would be refused outright (disabled, denied, quarantined).
// The order depends on names alone. Visibility is never permission: Decide decides
// every call again.
//
// Without a declared selection, a reachable connector that is not up counts as
// down too: the run should not pass over it in silence.
func BuildOffer(e Effective, connected []Connected) Offer {
	b := &offerBuilder{e: e, offer: Offer{Down: map[string]string{}, LeftOut: map[string]string{}, Bare: map[string]string{}, Report: !e.Tools.Declared() || e.Tools.Len() > 0}}
	b.missing(connected)
	var shown []Connected
	for _, c := range byID(connected) {
		if tools := b.connector(c); tools != nil {
			shown = append(shown, Connected{ID: c.ID, Up: true, Tools: tools})
		}
	}
	tools := map[[2]string]task.Tool{}
	for _, c := range shown {
		for _, t := range c.Tools {
			tools[[2]string{c.ID, t.Name}] = t
		}
	}
	for _, s := range Slots(shown) {
		t := tools[[2]string{s.Connector, s.Tool}]
		class, from := Classify(e.Connectors[s.Connector], t)
		b.offer.Tools = append(b.offer.Tools, Offered{Slot: s, Tool: t, Class: class, From: from})
	}
	return b.offer
}

type offerBuilder struct {
	e     Effective
	offer Offer
}

// byID sorts by id; of two with the same id the first stays.
func byID(connected []Connected) []Connected {
	sorted := slices.Clone(connected)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].ID < sorted[j].ID })
	return slices.CompactFunc(sorted, func(a, b Connected) bool { return a.ID == b.ID })
}

// missing tells of listed connectors that cannot be offered.
func (b *offerBuilder) missing(connected []Connected) {
	for _, id := range b.e.TaskConnectors.Items() {
		if _, configured := b.e.Connectors[id]; !configured && Selected(b.e, id) {
			b.down(id, id+" is not configured")
		}
	}
	for _, id := range b.e.Tools.Items() {
		if _, configured := b.e.Connectors[id]; !configured {
			b.down(id, id+" is not configured")
		} else if !Reachable(b.e, id) {
			b.offer.Bare[id] = whyUnreachable(b.e, id)
			b.note("", "tools lists %s, but %s", id, whyUnreachable(b.e, id))
		} else if !slices.ContainsFunc(connected, func(c Connected) bool { return c.ID == id }) {
			b.down(id, "not connected")
		}
	}
}

func (b *offerBuilder) note(mark, format string, args ...any) {
	if mark != "" && !slices.Contains(b.offer.Marks, mark) {
		b.offer.Marks = append(b.offer.Marks, mark)
	}
	b.offer.Notices = append(b.offer.Notices, fmt.Sprintf(format, args...))
}

func (b *offerBuilder) down(id, why string) {
	if why == "" {
		why = "not connected"
	}
	b.offer.Down[id] = why
	b.note(task.MarkConnectorDown+":"+id, "connector %s is down: %s", id, why)
}

// connector answers the tools of one connector that may be shown, nil if it is not
// selected.
func (b *offerBuilder) connector(c Connected) []task.Tool {
	if !Reachable(b.e, c.ID) || !Selected(b.e, c.ID) {
		return nil
	}
	if !c.Up {
		b.down(c.ID, c.Down)
		return nil
	}
	rules := b.e.Connectors[c.ID]
	if leftOut(b.e, c) {
		b.offer.LeftOut[c.ID] = noReadText(c.ID)
		b.note(task.MarkNoReadTools+":"+c.ID, "connector %s is %s", c.ID, b.offer.LeftOut[c.ID])
		return nil
	}
	if !b.e.Tools.Declared() && len(c.Tools) == 0 {
		b.offer.LeftOut[c.ID] = "without a tool: " + noTool
	}
	shown := b.shown(rules, c)
	if len(c.Tools) == 0 {
		b.offer.Bare[c.ID] = noTool
	} else if len(shown) == 0 {
		b.offer.Bare[c.ID] = "each of its tools is " + strings.Join(b.barred(rules, c), " or ")
	}
	return shown
}

const noTool = "it lists no tool that can be used"

// shown are the tools of a connector less those that would be refused outright.
func (b *offerBuilder) shown(rules ConnectorRules, c Connected) []task.Tool {
	shown := []task.Tool{}
	for _, t := range uniqueTools(c.Tools) {
		if disabled(rules, t.Name) != "" || deniedOutright(b.e, c.ID, t.Name) {
			continue
		}
		if why := quarantine(rules, c.ID, t); why != "" {
			b.note(task.MarkQuarantined+":"+c.ID+"/"+t.Name, "%s", why)
			continue
		}
		shown = append(shown, t)
	}
	return shown
}

// barred says in words what keeps the tools of a connector from being shown.
func (b *offerBuilder) barred(rules ConnectorRules, c Connected) (words []string) {
	for _, t := range c.Tools {
		word := "quarantined (see runnerd connectors diff " + c.ID + ")"
		if disabled(rules, t.Name) != "" {
			word = "disabled"
		} else if deniedOutright(b.e, c.ID, t.Name) {
			word = "denied"
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// hasRead tells whether the default selection takes the connector: one tool that
// is classed read and not disabled.
func hasRead(rules ConnectorRules, tools []task.Tool) bool {
	return slices.ContainsFunc(tools, func(t task.Tool) bool {
		class, _ := Classify(rules, t)
		return class == ClassRead && disabled(rules, t.Name) == ""
	})
}

// leftOut tells whether the default selection leaves out a connector that has
// tools.
func leftOut(e Effective, c Connected) bool {
	return !e.Tools.Declared() && len(c.Tools) > 0 && !hasRead(e.Connectors[c.ID], c.Tools)
}

// noReadText says why the default selection leaves a connector out.
func noReadText(id string) string {
	return fmt.Sprintf("not offered by default: none of its tools is classed read; "+
		"list it in tools, or see runnerd connectors tools %s --suggest for classes", id)
}

// deniedOutright tells whether a deny line refuses every call of the tool.
func deniedOutright(e Effective, connector, tool string) bool {
	outright := func(g Grant) bool { return len(g.Where) == 0 && MatchGrant(g, connector, tool) }
	return slices.ContainsFunc(e.Ceiling, outright) || slices.ContainsFunc(e.Deny, outright)
}
