package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"runnerd/task"
)

// Advice is a remark about a policy that cannot do what its author meant. `check`
// prints all; a run takes the marks.
type Advice struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"` // the field, for example "allow (task file)"
	Text     string   `json:"text"`
	Mark     string   `json:"mark,omitempty"` // a task.Mark* value; empty if none fits
	// Path leads from the task to the place in a line of allow or deny that it is
	// about: allow, 0, where, path. It is empty for what is about no line.
	Path []string `json:"path,omitempty"`
}

// Severity says whether check fails.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Advise looks for rules that match nothing, classes that a server's hint
// contradicts, connectors that the default leaves out, overrides that hide a file's
// value, and tasks that can read untrusted text, see private data and send outward
// without asking. What cannot be known because a connector is down is not judged.
func Advise(e Effective, connected []Connected) []Advice {
	a := &adviser{e: e, connected: byID(connected)}
	a.rules("allow", e.Allow)
	a.rules("deny", e.Deny)
	a.rules(ceiling, e.Ceiling)
	for _, c := range a.connected {
		if rules, ok := e.Connectors[c.ID]; ok && c.Up {
			a.toolNames(c, rules)
			a.hints(c, rules)
			a.leftOut(c)
		}
	}
	for _, hidden := range e.Hidden {
		a.add(SeverityWarning, hidden, "an override hides the value of the file; runnerd policy unset gives the file its word back", "")
	}
	a.trifecta()
	a.askingReads()
	return a.found
}

type adviser struct {
	e         Effective
	connected []Connected
	found     []Advice
}

func (a *adviser) add(severity Severity, where, text, mark string, path ...string) {
	a.found = append(a.found, Advice{severity, where, text, mark, path})
}

// rules finds lines of allow or deny that match no tool, and lines of allow that
// something else takes the use from. A deny line that matches nothing is as bad as a
// grant: its author believes that something is refused.
func (a *adviser) rules(field string, rules []Grant) {
	for i, g := range rules {
		if field == ceiling && isGlob(g.Connector) {
			continue // it may be there for a connector to come
		}
		ids := a.matching(g)
		if len(ids) == 0 {
			a.unused(SeverityError, field, i, g, "names no configured connector (there are: "+strings.Join(a.ids(), ", ")+")")
		} else if why := a.barred(g, ids); field == "allow" && why != "" {
			a.unused(SeverityWarning, field, i, g, "can never be used: "+why)
		} else if a.matchesNone(g, ids) {
			a.unused(SeverityError, field, i, g, "matches no tool of connector "+strings.Join(ids, ", ")+a.nearest(g, ids))
		}
	}
}

func (a *adviser) unused(severity Severity, field string, i int, g Grant, why string) {
	a.add(severity, fmt.Sprintf("%s (%s)", field, layerWord(a.e, field)), fmt.Sprintf("%s %s", g, why),
		task.MarkUnusedRule+":"+g.Connector+"/"+g.Tool, field, fmt.Sprint(i))
}

// barred says what refuses every call that the line could permit, by the words of
// files and overrides; "" if one may get past them.
func (a *adviser) barred(g Grant, ids []string) (why string) {
	for _, id := range ids {
		r := a.barredAt(g, id)
		if r == nil {
			return ""
		}
		why = cmp.Or(why, r.rule)
	}
	return why
}

func (a *adviser) barredAt(g Grant, id string) *refusal {
	d := &decider{e: &a.e, slot: task.Slot{Connector: id}, rules: a.e.Connectors[id]}
	r := d.first((*decider).reach, (*decider).offered)
	if r != nil {
		return r
	}
	for _, d.slot.Tool = range a.named(g, id) {
		if r = d.first((*decider).enabled, (*decider).deniedOutright); r == nil {
			return nil
		}
	}
	return r
}

// named are the tools of the connector that the line names; where its tools are not
// known, the one that the line writes out.
func (a *adviser) named(g Grant, id string) (names []string) {
	c, up := a.up(id)
	if !up && !isGlob(g.Tool) {
		return []string{g.Tool}
	}
	for _, t := range uniqueTools(c.Tools) {
		if MatchGlob(g.Tool, t.Name) {
			names = append(names, t.Name)
		}
	}
	return names
}

func (a *adviser) ids() []string {
	ids := make([]string, 0, len(a.e.Connectors))
	for id := range a.e.Connectors {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

func (a *adviser) matching(g Grant) []string {
	return slices.DeleteFunc(a.ids(), func(id string) bool { return !MatchGlob(g.Connector, id) })
}

// up answers the connector as it stands, if it is up.
func (a *adviser) up(id string) (Connected, bool) {
	i := slices.IndexFunc(a.connected, func(c Connected) bool { return c.ID == id && c.Up })
	if i < 0 {
		return Connected{}, false
	}
	return a.connected[i], true
}

// matchesNone tells whether every named connector is up and none has such a tool.
func (a *adviser) matchesNone(g Grant, ids []string) bool {
	for _, id := range ids {
		c, up := a.up(id)
		if !up || anyTool(c.Tools, g.Tool) {
			return false
		}
	}
	return true
}

func anyTool(tools []task.Tool, pattern string) bool {
	return slices.ContainsFunc(tools, func(t task.Tool) bool { return pattern == t.Name || MatchGlob(pattern, t.Name) })
}

// nearest offers the tool that a misspelt name may have meant.
func (a *adviser) nearest(g Grant, ids []string) string {
	for _, id := range ids {
		c, _ := a.up(id)
		var names []string
		for _, t := range c.Tools {
			names = append(names, t.Name)
		}
		if near := task.Nearest(g.Tool, names); near != "" {
			return "; did you mean " + id + "/" + near + "?"
		}
	}
	return ""
}

// toolNames finds entries of disabled_tools, classes and flags that match no tool.
// A misspelt disabled_tools entry leaves a tool switched on, so it is an error.
func (a *adviser) toolNames(c Connected, rules ConnectorRules) {
	for _, pattern := range rules.Disabled {
		if !anyTool(c.Tools, pattern) {
			a.add(SeverityError, "connector "+c.ID+": disabled_tools", quote(pattern)+" matches no tool of the connector", "")
		}
	}
	patterns := make([]string, 0, len(rules.Classes))
	for pattern := range rules.Classes {
		patterns = append(patterns, pattern)
	}
	sort.Strings(patterns)
	for _, pattern := range patterns {
		if !anyTool(c.Tools, pattern) {
			a.add(SeverityWarning, "connector "+c.ID+": classes", quote(pattern)+" matches no tool of the connector", "")
		}
	}
	for _, f := range rules.Flags {
		if f.Tool != "" && !anyTool(c.Tools, f.Tool) {
			a.add(SeverityWarning, "connector "+c.ID+": flags", quote(f.Tool+":"+f.Kind)+" matches no tool of the connector", "")
		}
	}
}

// hints finds tools that count as reads by the operator's or the catalogue's word
// although the server's hint or their own name says that they do something. That
// word stands.
func (a *adviser) hints(c Connected, rules ConnectorRules) {
	for _, t := range uniqueTools(c.Tools) {
		class, from, ok := statedClass(rules, t.Name)
		if !ok || class != ClassRead {
			continue
		}
		where := "connector " + c.ID + ": classes"
		if says := contradicts(t.Annotations); says != "" {
			a.add(
				SeverityWarning, where,
				fmt.Sprintf("%s is classed read by %s, but the server calls it %s; the entry stands", t.Name, from, says),
				task.MarkHintContradicts+":"+c.ID+"/"+t.Name,
			)
		} else if word := effect(t.Name); word != "" {
			a.add(
				SeverityWarning, where,
				fmt.Sprintf("%s is classed read by %s, but its name says %q; the entry stands: a read is called without a grant", t.Name, from, word), "",
			)
		}
	}
}

// contradicts says what a server's hints call a tool that counts as a read, if not
// that.
func contradicts(hints task.Annotations) string {
	switch {
	case hint(hints.ReadOnly):
		return ""
	case hint(hints.Destructive):
		return "destructive"
	case hints.ReadOnly != nil:
		return "not read-only"
	}
	return ""
}

func (a *adviser) leftOut(c Connected) {
	if !Reachable(a.e, c.ID) || !leftOut(a.e, c) {
		return
	}
	a.add(SeverityWarning, "tools (default)", "connector "+c.ID+" is "+noReadText(c.ID), task.MarkNoReadTools+":"+c.ID)
}

// trifecta finds a task in which an untrusted text could make the model send out
// private data with nobody asked. After an untrusted result a call with egress
// needs its own grant, so only granted ones count.
func (a *adviser) trifecta() {
	var untrusted, private, outward string
	schemas := NewSchemas()
	for _, c := range a.usable() {
		rules := a.e.Connectors[c.ID]
		for _, t := range toolsOrAssumed(c, rules) {
			if !a.usableTool(c, rules, t) {
				continue
			}
			class, _ := Classify(rules, t)
			granted := a.granted(c, t.Name)
			if class == ClassRead || granted || !c.Up {
				untrusted = firstText(untrusted, rules, c.ID, t.Name, FlagUntrusted)
				private = firstText(private, rules, c.ID, t.Name, FlagPrivate)
			}
			if a.outward(c, t, schemas) {
				outward = firstText(outward, rules, c.ID, t.Name, FlagEgress)
			}
		}
	}
	if untrusted == "" || private == "" || outward == "" || strings.TrimSpace(a.e.AcceptRisk) != "" {
		return
	}
	a.add(
		SeverityError, "task "+a.e.Task,
		fmt.Sprintf("it can read untrusted text (%s), see private data (%s) and send outward without asking (%s); "+
			"take one away, pin with where what could carry data, or say accept_risk: \"why\"", untrusted, private, outward), "",
	)
}

// askingReads finds reads that send data out and have no grant, in a task that can
// read untrusted text: they run until the first such text was read, in this run or
// an earlier one of its session, and ask from then on. That is safe, but its
// author may have tried the task once and seen it work.
func (a *adviser) askingReads() {
	untrusted, asking, lines := "", []string{}, []string{}
	schemas := NewSchemas()
	for _, c := range a.usable() {
		if !c.Up {
			continue
		}
		rules := a.e.Connectors[c.ID]
		for _, t := range uniqueTools(c.Tools) {
			if class, _ := Classify(rules, t); class != ClassRead || !a.usableTool(c, rules, t) {
				continue
			}
			untrusted = firstText(untrusted, rules, c.ID, t.Name, FlagUntrusted)
			if HasFlag(rules, t.Name, FlagEgress) && !a.granted(c, t.Name) {
				asking = append(asking, c.ID+"/"+t.Name)
				d := &decider{e: &a.e, slot: task.Slot{Connector: c.ID, Tool: t.Name}, rules: rules}
				if line := lineOf(c.ID, t, schemas); !d.refusesAll(line) {
					lines = append(lines, line.YAML())
				}
			}
		}
	}
	if untrusted == "" || len(asking) == 0 {
		return
	}
	how := "it needs an allow line of its own"
	if len(lines) > 0 {
		how += ": allow: [" + strings.Join(lines, ", ") + "], or narrower"
	}
	a.add(SeverityWarning, "task "+a.e.Task,
		fmt.Sprintf("%s sends data out: once %s was read, in a run or in an earlier one that its session still shows, %s", strings.Join(asking, ", "), untrusted, how), "")
}

// usable are the connectors that the task could be offered, those whose tools are
// not known included.
func (a *adviser) usable() []Connected {
	var out []Connected
	for _, id := range a.ids() {
		if !Reachable(a.e, id) || !Selected(a.e, id) {
			continue
		}
		c, up := a.up(id)
		if up && leftOut(a.e, c) {
			continue
		}
		c.ID = id
		out = append(out, c)
	}
	return out
}

// toolsOrAssumed stands one nameless tool, and one for each tool that a flag names,
// for the tools of a connector that is not up, so that its flags still count.
func toolsOrAssumed(c Connected, rules ConnectorRules) []task.Tool {
	if c.Up {
		return uniqueTools(c.Tools)
	}
	assumed := []task.Tool{{}}
	for _, f := range flagsOf(rules) {
		if f.Tool != "" {
			assumed = append(assumed, task.Tool{Name: f.Tool})
		}
	}
	return assumed
}

func (a *adviser) usableTool(c Connected, rules ConnectorRules, t task.Tool) bool {
	if !c.Up {
		return t.Name == "" || disabled(rules, t.Name) == ""
	}
	return disabled(rules, t.Name) == "" && !deniedOutright(a.e, c.ID, t.Name) && quarantine(rules, c.ID, t) == ""
}

// granted tells whether some grant lets some call of the tool through. Where the
// tools are not known, a grant and a flag that may mean the same tool do.
func (a *adviser) granted(c Connected, tool string) bool {
	return slices.ContainsFunc(a.e.Allow, func(g Grant) bool { return a.names(g, c, tool) })
}

// names tells whether the line names the tool or, where the tools are not known,
// may mean it.
func (a *adviser) names(g Grant, c Connected, tool string) bool {
	if MatchGrant(g, c.ID, tool) {
		return true
	}
	return !c.Up && MatchGlob(g.Connector, c.ID) && (tool == "" || MatchGlob(tool, g.Tool))
}

func firstText(have string, rules ConnectorRules, connector, tool, kind string) string {
	if have != "" || !HasFlag(rules, tool, kind) {
		return have
	}
	if tool == "" {
		tool = "*"
	}
	return connector + "/" + tool
}
