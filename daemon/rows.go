package daemon

import (
	"slices"
	"strings"
	"time"

	"runnerd/config"
	"runnerd/control"
)

// TaskRows shows the tasks of a set in order, and the broken files among them.
func TaskRows(set *config.Set, next func(string) (time.Time, bool)) []control.TaskRow {
	list := []control.TaskRow{}
	for _, id := range set.TaskIDs() {
		at, _ := next(id)
		list = append(list, control.NewTaskRow(set.Tasks[id].Task, at))
	}
	for _, p := range set.Problems {
		id := taskOf(p.File)
		if id == "" {
			continue
		}
		at, known := slices.BinarySearchFunc(list, id, func(r control.TaskRow, id string) int { return strings.Compare(r.ID, id) })
		if !known {
			list = slices.Insert(list, at, control.TaskRow{ID: id, Schedule: []string{}, File: p.File})
		}
		if list[at].Error == "" {
			list[at].Error = p.Error()
		}
	}
	return list
}

func problemLines(problems []config.Problem) []string {
	lines := make([]string, 0, len(problems))
	for _, p := range problems {
		lines = append(lines, p.Error())
	}
	return lines
}

// taskOf is the task of a file under tasks/, or "".
func taskOf(file string) string {
	name, ok := strings.CutPrefix(file, "tasks/")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSuffix(name, ".md"), ".yaml")
}
