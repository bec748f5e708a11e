package policy

import (
	"slices"

	"runnerd/task"
)

// Reach is the set of connectors that the task may reach and the tier that said
// so. The most specific tier that declared anything wins: task, session, project,
// else all (an absent list). An empty list is never upgraded (DESIGN, section 6).
func Reach(e Effective) (task.List[string], Source) {
	switch {
	case e.TaskConnectors.Declared():
		return e.TaskConnectors, SourceTask
	case e.SessionConnectors.Declared():
		return e.SessionConnectors, SourceSession
	case e.ProjectConnectors.Declared():
		return e.ProjectConnectors, SourceProject
	}
	return task.List[string]{}, SourceAll
}

// Reachable tells whether the task may reach the connector. One that is not
// configured does not exist and is never reachable.
func Reachable(e Effective, connector string) bool {
	if _, configured := e.Connectors[connector]; !configured {
		return false
	}
	list, _ := Reach(e)
	return !list.Declared() || slices.Contains(list.Items(), connector)
}

// Selected tells whether the task's `tools` lets the connector be offered. Absent
// leaves that to BuildOffer's default, which knows the tools.
func Selected(e Effective, connector string) bool {
	return !e.Tools.Declared() || slices.Contains(e.Tools.Items(), connector)
}

// Selection lists the connectors that may be offered, sorted: configured,
// reachable and not left out by the task's own selection.
func Selection(e Effective) []string {
	var ids []string
	for id := range e.Connectors {
		if Reachable(e, id) && Selected(e, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
