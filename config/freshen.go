package config

import (
	"context"
	"hash/maphash"

	"runnerd/task"
)

// Freshen looks whether a file that decides about the task has changed since the
// latest load (its own, projects.yaml, runnerd.yaml, the connectors') and, if so,
// loads at once. It returns the set in force and whether that is a new one. When
// nothing changed it costs a few stats. With an error the latest set is returned
// beside it; the caller keeps to that.
func (l *Loader) Freshen(ctx context.Context, taskID string) (changed bool, set *Set, err error) {
	before := l.state.Load()
	if before != nil && !l.moved(before, taskID) {
		return false, before.set, nil
	}
	if err := l.enter(ctx); err != nil {
		return false, l.Current(), err
	}
	defer l.leave()
	now := l.state.Load()
	if now == nil || l.moved(now, taskID) {
		if now, err = l.load(ctx); err != nil {
			return false, l.Current(), err
		}
	}
	return now != before, now.set, nil
}

func (l *Loader) moved(st *state, taskID string) bool {
	for i := range st.common {
		if lsign(st.common[i].path) != st.common[i].sig {
			return true
		}
	}
	if !task.ValidID(taskID) {
		return false
	}
	for _, ext := range [2]string{".md", ".yaml"} {
		rel := tasksDir + "/" + taskID + ext
		if lsign(l.opts.Dir+"/"+rel) != st.sig(rel) {
			return true
		}
	}
	return false
}

// printSeed makes fingerprints; they are compared within this process only.
var printSeed = maphash.MakeSeed()

// fingerprint is a file's share of the fingerprint of a directory, which is the sum
// of those of its files.
func fingerprint(rel string, sig signature) uint64 {
	return maphash.Comparable(printSeed, struct {
		rel string
		sig signature
	}{rel, sig})
}
