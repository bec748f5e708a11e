package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"

	"runnerd/task"
)

const (
	aliasPrefix = "mcp__"
	// aliasMax is the longest tool name that every vendor takes.
	aliasMax = 64
	// maxDigits are the most that an alias has of the pair's hash.
	maxDigits = 40
)

// ParseToolName splits a name of the form mcp__<connector>__<tool> on its first
// two "__"; a tool's own "__" survives. It serves only to word the refusal of a
// name that is in no alias table: calls are routed by the table alone.
func ParseToolName(name string) (connector, tool string, ok bool) {
	rest, found := strings.CutPrefix(name, aliasPrefix)
	if !found {
		return "", "", false
	}
	connector, tool, found = strings.Cut(rest, "__")
	if !found || connector == "" || tool == "" {
		return "", "", false
	}
	return connector, tool, true
}

// Alias is the name by which a model sees a tool: at most 64 characters of
// [a-zA-Z0-9_-]. A tool's name that has other characters or is too long is
// shortened and gets a hash of the pair, so that the alias depends on nothing but
// the pair.
func Alias(connector, tool string) string {
	clean := sanitise(tool)
	alias := aliasPrefix + connector + "__" + clean
	if clean == tool && tool != "" && len(alias) <= aliasMax {
		return alias
	}
	return hashedAlias(connector, clean, tool, 10)
}

// aliasOf tells whether the pair has that alias in some table: which one depends on
// the other tools of the table.
func aliasOf(alias, connector, tool string) bool {
	if alias == Alias(connector, tool) {
		return true
	}
	for digits := 20; digits <= maxDigits; digits += 10 {
		if alias == hashedAlias(connector, sanitise(tool), tool, digits) {
			return true
		}
	}
	return false
}

// hashedAlias ends the alias in digits hex digits of the pair's hash.
func hashedAlias(connector, clean, tool string, digits int) string {
	sum := sha256.Sum256([]byte(connector + "\x00" + tool))
	suffix := "_" + hex.EncodeToString(sum[:])[:digits]
	alias := aliasPrefix + sanitise(connector) + "__" + clean
	if room := aliasMax - len(suffix); len(alias) > room {
		alias = alias[:room]
	}
	return alias + suffix
}

func sanitise(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
}

// Slots builds the alias table of the given tools, sorted by pair. Aliases do not
// collide and do not depend on the order in which connectors came up. A name that
// one connector lists twice with different definitions is left out: a call could
// mean either.
func Slots(connected []Connected) []task.Slot {
	var slots []task.Slot
	for _, c := range connected {
		for _, t := range uniqueTools(c.Tools) {
			slots = append(slots, task.Slot{
				Alias: Alias(c.ID, t.Name), Connector: c.ID, Tool: t.Name, Definition: definition(t),
			})
		}
	}
	sort.Slice(slots, func(i, j int) bool { return slotLess(slots[i], slots[j]) })
	return separate(slots)
}

func slotLess(a, b task.Slot) bool {
	if a.Connector != b.Connector {
		return a.Connector < b.Connector
	}
	return a.Tool < b.Tool
}

// separate gives a longer hash to every alias that another pair has too. A tool
// whose own name looks like another's alias can cause that.
func separate(slots []task.Slot) []task.Slot {
	for digits := 20; digits <= maxDigits; digits += 10 {
		count := make(map[string]int, len(slots))
		for _, s := range slots {
			count[s.Alias]++
		}
		clash := false
		for i, s := range slots {
			if count[s.Alias] > 1 {
				clash = true
				slots[i].Alias = hashedAlias(s.Connector, sanitise(s.Tool), s.Tool, digits)
			}
		}
		if !clash {
			return slots
		}
	}
	return dropClashes(slots)
}

// dropClashes is the last resort: what still collides is not offered at all.
func dropClashes(slots []task.Slot) []task.Slot {
	count := make(map[string]int, len(slots))
	for _, s := range slots {
		count[s.Alias]++
	}
	kept := slots[:0]
	for _, s := range slots {
		if count[s.Alias] == 1 {
			kept = append(kept, s)
		}
	}
	return kept
}

// uniqueTools leaves one of equal definitions and none of unequal ones under the
// same name.
func uniqueTools(tools []task.Tool) []task.Tool {
	hashes := make(map[string]string, len(tools))
	odd := map[string]bool{}
	for _, t := range tools {
		h := definition(t)
		if first, seen := hashes[t.Name]; seen && first != h {
			odd[t.Name] = true
		}
		hashes[t.Name] = h
	}
	kept := make([]task.Tool, 0, len(tools))
	done := make(map[string]bool, len(tools))
	for _, t := range tools {
		if t.Name == "" || odd[t.Name] || done[t.Name] {
			continue
		}
		done[t.Name] = true
		kept = append(kept, t)
	}
	return kept
}

// definition is the tool's hash, computed where the connector left it out.
func definition(t task.Tool) string {
	if t.Hash != "" {
		return t.Hash
	}
	return t.DefinitionHash()
}
