package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"runnerd/config"
	"runnerd/control"
	"runnerd/deliver"
	"runnerd/llm/scripted"
	"runnerd/procgroup"
	"runnerd/task"
)

// faults is everything but the files' own problems that keeps a daemon with these
// files from doing what they say. check prints it and the daemon reports it, from
// this one function, so that neither is green where the other is not.
func faults(set *config.Set, secrets *config.Resolver) []config.Problem {
	return slices.Concat(set.Missing(secrets), brokenScripts(set), absentModels(set), undeliverable(set), unknownNames(set))
}

// brokenScripts finds models whose script cannot be played.
func brokenScripts(set *config.Set) (problems []config.Problem) {
	for _, name := range slices.Sorted(maps.Keys(set.Models)) {
		if path := set.Models[name].Script; path != "" {
			if _, err := scripted.Open(path); err != nil {
				problems = append(problems, config.Problem{File: "models.yaml", What: fmt.Sprintf("models.%s.script: %v", name, err)})
			}
		}
	}
	return problems
}

// absentModels finds models whose program is not there.
func absentModels(set *config.Set) (problems []config.Problem) {
	for _, name := range slices.Sorted(maps.Keys(set.Models)) {
		argv := set.Models[name].Command
		if len(argv) == 0 || strings.Contains(argv[0], "${") {
			continue
		}
		if _, err := procgroup.Find(argv[0], "/", nil); err != nil {
			problems = append(problems, config.Problem{File: "models.yaml", What: fmt.Sprintf("models.%s.command: %v", name, err)})
		}
	}
	return problems
}

// undeliverable finds destinations that no result and no notice can reach, without
// trying them.
func undeliverable(set *config.Set) (problems []config.Problem) {
	d := deliver.New(deliver.Options{})
	look := func(file, where string, to task.Delivery) {
		if err := cmp.Or(d.Check(to), d.Startable(to)); err != nil {
			problems = append(problems, config.Problem{File: file, What: where + ": " + strings.TrimPrefix(err.Error(), "deliver: ")})
		}
	}
	for _, id := range set.TaskIDs() {
		for n, to := range set.Tasks[id].Task.Deliver {
			look(set.Tasks[id].File, fmt.Sprintf("deliver[%d]", n), to)
		}
	}
	for n, to := range set.Daemon.Notify {
		look("runnerd.yaml", fmt.Sprintf("notify[%d]", n), to.To)
	}
	return problems
}

// unknownNames finds names of `access:` that nobody has here.
func unknownNames(set *config.Set) []config.Problem {
	if _, err := control.DefaultRights(control.RightsOptions{UID: os.Getuid(), Access: control.Access(set.Daemon.Access)}); err != nil {
		return []config.Problem{{File: "runnerd.yaml", What: err.Error()}}
	}
	return nil
}
