package config

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

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
	ctx, cancel := context.WithTimeout(ctx, l.opts.LoadTimeout)
	defer cancel()
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
		if lsign(l.opts.Dir+"/"+rel) != st.files[rel] {
			return true
		}
	}
	return false
}

// fingerprint sums up all signatures.
func fingerprint(files map[string]signature) uint64 {
	h := fnv.New64a()
	for _, rel := range slices.Sorted(maps.Keys(files)) {
		h.Write([]byte(rel))
		s := files[rel]
		_ = binary.Write(h, binary.LittleEndian, []uint64{s.dev, s.ino, uint64(s.size), uint64(s.mtime), uint64(s.ctime), uint64(s.mode), uint64(s.errno)})
	}
	return h.Sum64()
}
