package config

import (
	"maps"
	"slices"
	"strings"

	"runnerd/policy"
	"runnerd/task"
)

// Set is everything that the config directory says at one moment. Nobody
// changes a Set after it was returned.
type Set struct {
	Tasks      map[string]TaskFile
	Models     map[string]task.ModelSpec
	Connectors map[string]ConnectorFile
	Projects   map[string]ProjectFile
	Daemon     Daemon

	// Problems are errors, Warnings what is odd but in force; both sorted by
	// place.
	Problems []Problem
	Warnings []Problem

	// Accepted are the files that are good as they stand on disk now, by relative
	// path. The caller stores them; they come back through Options.LastGood.
	Accepted map[string]Revision
	// Kept are the files whose last good revision is in force instead of what is
	// on disk, sorted.
	Kept []string

	// Away says why the directory as it is does not count, so that all files are
	// those of an earlier process; nil if it does.
	Away error

	refs []fileReference
}

// TaskFile is one task with its policy.
type TaskFile struct {
	Task   task.Task
	Policy policy.Fields
	File   string
	// Stale says that the file is broken and this is its last good revision.
	Stale bool
}

// ConnectorFile is one connector with its policy.
type ConnectorFile struct {
	Connector task.Connector
	Policy    policy.Fields
	File      string
	Stale     bool
}

// ProjectFile is one project with its policy.
type ProjectFile struct {
	Project task.Project
	Policy  policy.Fields
	Stale   bool
}

// Revision is the content of an accepted file.
type Revision struct {
	Content []byte
	SHA256  string // hex
}

type fileReference struct {
	file string
	reference
}

// TaskIDs returns the ids of the tasks, sorted.
func (s *Set) TaskIDs() []string { return slices.Sorted(maps.Keys(s.Tasks)) }

// ModelNames returns the names of the models, sorted.
func (s *Set) ModelNames() []string { return slices.Sorted(maps.Keys(s.Models)) }

// ConnectorIDs returns the ids of the connectors, sorted.
func (s *Set) ConnectorIDs() []string { return slices.Sorted(maps.Keys(s.Connectors)) }

// ProjectIDs returns the ids of the projects, sorted.
func (s *Set) ProjectIDs() []string { return slices.Sorted(maps.Keys(s.Projects)) }

// AcceptedFiles returns the accepted files' paths, sorted.
func (s *Set) AcceptedFiles() []string { return slices.Sorted(maps.Keys(s.Accepted)) }

// LostConnectors are the connector files that are broken and have no last good
// revision, so that nothing of them is known, with the places that are wrong.
func (s *Set) LostConnectors() map[string]string {
	lost := map[string]string{}
	for _, p := range s.Problems {
		if kindOf(p.File) != kindConnectors || slices.Contains(s.Kept, p.File) || strings.Count(lost[p.File], "\n") == maxPlaces {
			continue
		}
		lost[p.File] += p.Error() + "\n"
	}
	for file, why := range lost {
		lost[file] = strings.ReplaceAll(strings.TrimSuffix(why, "\n"), "\n", "; ")
	}
	return lost
}

// maxPlaces bounds the places of one file that LostConnectors tells.
const maxPlaces = 3

// Place says where in the files a key stands that a task has, from its own file or
// from the defaults: "tasks/brief.md:5:3: allow[0].where.path". What is not found
// has no place.
func (s *Set) Place(task string, path ...string) (place string, ok bool) {
	if place, ok = s.placeIn(s.Tasks[task].File, kindTask, path); ok {
		return place, ok
	}
	return s.placeIn(daemonName, kindDaemon, append([]string{"defaults"}, path...))
}

// DaemonPlace is Place for a key of runnerd.yaml itself.
func (s *Set) DaemonPlace(path ...string) (place string, ok bool) {
	return s.placeIn(daemonName, kindDaemon, path)
}

func (s *Set) placeIn(rel string, k kind, path []string) (string, bool) {
	t := (&parsed{rel: rel, kind: k, content: s.Accepted[rel].Content}).places()
	if t == nil || !t.has(path...) {
		return "", false
	}
	p := t.src.problem(t.keyAt(path...), strings.TrimSuffix(where(path), ": "), "", "")
	return p.Error(), true
}

// Missing returns the references of the set that r cannot resolve now, each with
// its place, sorted. It is for `runnerd check`: a run finds out by itself.
func (s *Set) Missing(r *Resolver) []Problem {
	var out []Problem
	for _, ref := range s.refs {
		if err := r.try(ref.text, ref.purpose); err != nil {
			out = append(out, Problem{File: ref.file, Line: int(ref.at.line), Col: int(ref.at.col), What: err.Error()})
		}
	}
	return sortProblems(out)
}
