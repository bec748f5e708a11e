package config

import (
	"maps"
	"slices"

	"runnerd/policy"
	"runnerd/task"
)

const (
	expectedID          = "1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
	expectedConnectorID = "1 to 31 of a-z, 0-9 and '-', beginning with a letter"
)

type projectsFile struct {
	Projects map[string]projectKeys `json:"projects,omitempty" jsonschema:"groups of tasks by name"`
}

type projectKeys struct {
	Instructions string     `json:"instructions,omitempty" example:"Be brief." jsonschema:"stated before the prompt of each task of the project"`
	Connectors   *[]string  `json:"connectors,omitempty" jsonschema:"connectors that its tasks can reach; absent: all; []: none; a task's own list wins"`
	Limits       *limitKeys `json:"limits,omitempty" jsonschema:"what the project's tasks may spend"`
}

func (p *parsed) checkProjects() {
	for _, id := range slices.Sorted(maps.Keys(p.projects.Projects)) {
		at := []string{"projects", id}
		if !task.ValidID(id) {
			p.complain(at, "bad project name "+quoted(id), expectedID, "")
		}
		keys := p.projects.Projects[id]
		p.checkList(below(at, "connectors"), keys.Connectors)
		if keys.Limits != nil && keys.Limits.Wall != nil && *keys.Limits.Wall <= 0 {
			p.complain(below(at, "limits", "wall"), "0 is too short", expectedDuration, "")
		}
		p.promptReferences(keys.Instructions, p.tree.at(below(at, "instructions")...), false)
	}
}

// policy is the project's row of the policy database.
func (k projectKeys) policy() policy.Fields {
	f := policy.Fields{Connectors: list(k.Connectors)}
	if k.Limits != nil {
		l := k.Limits.limits()
		f.Limits = &l
	}
	return f
}

func list(l *[]string) task.List[string] {
	if l == nil {
		return task.List[string]{}
	}
	return task.ListOf(*l...)
}
