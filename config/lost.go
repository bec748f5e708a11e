package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
)

// LostError says that a directory which held tasks holds none any more, as after a
// half checkout or where a volume is not mounted. Nobody removes all of them by an
// edit, so it is taken for a loss until a person says otherwise.
type LostError struct {
	Dir   string
	Tasks int // files of tasks that were in force
	// Gone: there is no tasks directory at all.
	Gone bool
}

func (e *LostError) Error() string {
	what := "holds no task any more"
	if e.Gone {
		what = "is gone"
	}
	return fmt.Sprintf("%s %s, which had %d in force: put the files back; if it is to have no tasks, `runnerd reload --empty` says so",
		filepath.Join(e.Dir, tasksDir), what, e.Tasks)
}

// lost compares a listing with the files that were in force before.
func (l *Loader) lost(found *scan) error {
	if l.empty || slices.ContainsFunc(found.files, func(f file) bool { return f.kind == kindTask }) {
		return nil
	}
	before := 0
	if st := l.state.Load(); st != nil {
		before = taskFiles(maps.Keys(st.files))
	} else {
		before = taskFiles(maps.Keys(l.stored()))
	}
	if before == 0 {
		return nil
	}
	return &LostError{Dir: l.opts.Dir, Tasks: before, Gone: !sign(filepath.Join(l.opts.Dir, tasksDir)).exists()}
}

func taskFiles(names func(yield func(string) bool)) (n int) {
	for name := range names {
		if kindOf(name) == kindTask {
			n++
		}
	}
	return n
}

// stored are the files that were in force when an earlier process ended. They are
// asked for once, and not any more after the first load.
func (l *Loader) stored() map[string][]byte {
	if l.before == nil {
		l.before = map[string][]byte{}
		if l.opts.Stored != nil {
			l.before = l.opts.Stored()
		}
	}
	return l.before
}

// fromStore is the first load of a process where the directory cannot be believed:
// the files that were in force last are so again, until it can be. It is nil where
// none are known.
func (l *Loader) fromStore(why error) *state {
	if l.state.Load() != nil || taskFiles(maps.Keys(l.stored())) == 0 {
		return nil
	}
	found := &scan{}
	l.cache = map[string]*cached{}
	for _, rel := range slices.Sorted(maps.Keys(l.stored())) {
		k := kindOf(rel)
		found.files = append(found.files, file{rel: rel, kind: k})
		l.cache[rel] = &cached{sig: unsettled, parsed: parse(rel, k, l.stored()[rel])}
	}
	st := &state{set: l.assemble(found), files: l.cache}
	st.set.Away = why
	st.set.Kept = slices.Sorted(maps.Keys(st.files))
	l.watchCommon(st, found, time.Now())
	l.state.Store(st)
	l.log.Warn("config directory not read; what was in force last is in force", zap.Error(why), zap.Int("tasks", len(st.set.Tasks)))
	return st
}
