package policy

import (
	"fmt"
	"slices"
	"strings"

	"runnerd/task"
)

// standing says what refuses every call of the tool that the name means, whatever
// its arguments; `deny` comes later, since it may look at them. Dispatch and
// explain both ask it, for names of the step's table and for others.
func (d *decider) standing() *refusal {
	return d.first((*decider).understood, (*decider).reach, (*decider).offered, (*decider).enabled, (*decider).pinned)
}

// outright is what refuses every call of the tool: standing, the lines of `deny`
// that look at no argument, and the default selection.
func (d *decider) outright() *refusal {
	return d.first((*decider).standing, (*decider).deniedOutright, (*decider).byDefault)
}

// deniedOutright refuses by a line of deny that looks at no argument.
func (d *decider) deniedOutright() *refusal {
	return d.deniedIf(func(g Grant) bool { return len(g.Where) == 0 })
}

// foreign says what a name gets that is not in the step's table. One of a listed
// tool gets what a call of that tool would be refused with; where nothing refuses
// it, the model asked for what it was not given, or for what it has by another
// name. Everything else is an unknown tool.
func (d *decider) foreign() *refusal {
	var first *decider
	var refused *refusal
	for _, s := range d.meant() {
		one := &decider{e: d.e, call: d.call}
		one.mean(s)
		r := one.outright()
		if r == nil {
			*d = *one
			return d.notInTable()
		}
		if first == nil {
			first, refused = one, r
		}
	}
	if first != nil {
		*d = *first
		return refused
	}
	r := deny(CodeUnknownTool, "no tool %s was offered in this step", quote(d.call.Name))
	r.told = fmt.Sprintf("There is no tool named %s. Use only the tools that you were given", quote(d.call.Name))
	return r
}

// notInTable refuses a tool that nothing else refuses: the step offered it by
// another name, which is the model's mistake, or did not offer it.
func (d *decider) notInTable() *refusal {
	for _, s := range d.call.Slots {
		if s.Connector == d.slot.Connector && s.Tool == d.slot.Tool && s.Alias != "" {
			r := deny(CodeUnknownTool, "no tool %s was offered in this step; %s/%s is called %s", quote(d.call.Name), s.Connector, s.Tool, s.Alias)
			r.told = fmt.Sprintf("There is no tool named %s. The tool's name is %s", quote(d.call.Name), s.Alias)
			return r
		}
	}
	return deny(CodeNotOffered, "%s/%s was not offered in this step", d.slot.Connector, d.slot.Tool)
}

// Named is the connector that a name means: by the step's own table, else by its
// form, mcp__connector__tool or connector/tool. It is "" for a name of neither
// form; such a one may be the bare name of a tool.
func Named(slots []task.Slot, name string) string {
	if s, ok := slotOf(slots, name); ok {
		return s.Connector
	}
	connector, _ := splitName(name)
	return connector
}

// Concerns lists the connectors whose tools a decision about the name has to know:
// the one that it means, or all that the task selects; none that it may not use.
func Concerns(e Effective, slots []task.Slot, name string) []string {
	id := Named(slots, name)
	if id == "" {
		return Selection(e)
	}
	if Reachable(e, id) && Selected(e, id) {
		return []string{id}
	}
	return nil
}

func splitName(name string) (connector, tool string) {
	if connector, tool, ok := ParseToolName(name); ok {
		return connector, tool
	}
	if connector, tool, ok := strings.Cut(name, "/"); ok && tool != "" {
		return connector, tool
	}
	return "", ""
}

// meant are the tools that a name outside the step's table may mean, by what is
// connected: the one of the connector that it names, or all that are called so on
// connectors that the task selects.
func (d *decider) meant() []task.Slot {
	connector, tool := splitName(d.call.Name)
	if connector == "" {
		return d.bare()
	}
	if _, configured := d.e.Connectors[connector]; !configured {
		return nil
	}
	s := task.Slot{Connector: connector, Tool: tool}
	if c, ok := connectedAs(d.call.Connected, connector); ok && !lists(c, tool) {
		for _, t := range c.Tools {
			if aliasOf(d.call.Name, connector, t.Name) {
				s.Tool = t.Name
			}
		}
	}
	return []task.Slot{s}
}

func (d *decider) bare() []task.Slot {
	var slots []task.Slot
	for _, c := range byID(d.call.Connected) {
		if Reachable(*d.e, c.ID) && Selected(*d.e, c.ID) && lists(c, d.call.Name) {
			slots = append(slots, task.Slot{Connector: c.ID, Tool: d.call.Name})
		}
	}
	return slots
}

// mean makes the slot the one that the call is about.
func (d *decider) mean(s task.Slot) {
	d.slot, d.found = s, true
	d.rules = d.e.Connectors[s.Connector]
	t := task.Tool{Name: s.Tool}
	if c, ok := d.connected(); ok && c.Up {
		tools := uniqueTools(c.Tools)
		if i := slices.IndexFunc(tools, func(t task.Tool) bool { return t.Name == s.Tool }); i >= 0 {
			t, d.tool = tools[i], &tools[i]
		}
	}
	if d.tool != nil && d.slot.Definition == "" {
		d.slot.Definition = definition(*d.tool)
	}
	d.class, d.from = Classify(d.rules, t)
}

// connected is the connector of the slot as it stands now.
func (d *decider) connected() (Connected, bool) {
	return connectedAs(d.call.Connected, d.slot.Connector)
}

func connectedAs(all []Connected, id string) (Connected, bool) {
	i := slices.IndexFunc(all, func(c Connected) bool { return c.ID == id })
	if i < 0 {
		return Connected{}, false
	}
	return all[i], true
}

func lists(c Connected, tool string) bool {
	return slices.ContainsFunc(c.Tools, func(t task.Tool) bool { return t.Name == tool })
}

func slotOf(slots []task.Slot, alias string) (task.Slot, bool) {
	i := slices.IndexFunc(slots, func(s task.Slot) bool { return s.Alias == alias && alias != "" })
	if i < 0 {
		return task.Slot{}, false
	}
	return slots[i], true
}

func downText(connector, why string) string {
	if why == "" {
		why = "not connected"
	}
	return fmt.Sprintf("connector %s is down: %s", connector, clip(why, 200))
}
