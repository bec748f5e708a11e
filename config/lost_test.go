package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// contents are the files of a set as a store would have them.
func contents(s *Set) map[string][]byte {
	files := map[string][]byte{}
	for rel, r := range s.Accepted {
		files[rel] = r.Content
	}
	return files
}

// U4: what takes all tasks away at once keeps what was in force, within a process and
// over its end, until it is put right or somebody says that it is meant.
func TestLosingAllTasks(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(d dir)
		says string
		// back: an empty load is refused too, since nothing can be read.
		unreadable bool
	}{
		{"U4 tasks moved away", func(d dir) { try(d.t, os.Rename(filepath.Join(d.path, "tasks"), filepath.Join(d.path, "away"))) }, "tasks is gone", false},
		{"U4 every file of it gone", func(d dir) { d.remove("tasks/good.md"); d.remove("tasks/two.yaml") }, "holds no task any more, which had 2", false},
		{"U4 all renamed to what is not read", func(d dir) {
			try(d.t, os.Rename(filepath.Join(d.path, "tasks/good.md"), filepath.Join(d.path, "tasks/good.txt")))
			try(d.t, os.Rename(filepath.Join(d.path, "tasks/two.yaml"), filepath.Join(d.path, "tasks/.two.yaml")))
		}, "holds no task any more", false},
		{"U4 an empty directory, as of a volume not mounted", func(d dir) {
			try(d.t, os.Rename(d.path, d.path+".real"))
			try(d.t, os.Mkdir(d.path, 0o755))
		}, "tasks is gone", false},
		{"U4 half a checkout", func(d dir) {
			try(d.t, os.RemoveAll(filepath.Join(d.path, "tasks")))
			d.remove("connectors.yaml")
		}, "tasks is gone", false},
		{"U4 tasks is a file (ENOTDIR)", func(d dir) {
			try(d.t, os.RemoveAll(filepath.Join(d.path, "tasks")))
			d.write("tasks", "no directory")
		}, "not a directory", true},
		{"U4 tasks is a link in a circle (ELOOP)", func(d dir) {
			try(d.t, os.RemoveAll(filepath.Join(d.path, "tasks")))
			try(d.t, os.Symlink("tasks", filepath.Join(d.path, "tasks")))
		}, "too many levels", true},
		{"U5 the config directory is gone", func(d dir) { try(d.t, os.Rename(d.path, d.path+".real")) }, "no such file", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDir(t, base(map[string]string{"tasks/two.yaml": "prompt: Two.\n"}))
			l := d.loader()
			before := load(t, l)
			c.lose(d)
			if _, err := l.Load(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) || l.Current() != before {
				t.Errorf("load: %v, want %q and the set before", err, c.says)
			}
			if changed, s, err := l.Freshen(t.Context(), "good"); err == nil || changed || s != before {
				t.Errorf("freshen: changed %v, %v", changed, err)
			}
			if _, moved := l.differs(); !moved {
				t.Error("a look does not see that the directory is not the one that was read")
			}

			stored := func(o *Options) { o.Stored = func() map[string][]byte { return contents(before) } }
			next := d.loader(stored)
			s := load(t, next)
			if s.Away == nil || !strings.Contains(s.Away.Error(), c.says) || len(s.Tasks) != 2 || len(s.Connectors) != 3 || len(s.Kept) != len(before.Accepted) {
				t.Errorf("after a restart: away %v, tasks %v, connectors %v, kept %v", s.Away, s.TaskIDs(), s.ConnectorIDs(), s.Kept)
			}
			if _, err := next.Load(t.Context()); err == nil {
				t.Error("after a restart, once more: no error")
			}

			s, err := next.LoadEmpty(t.Context())
			if c.unreadable != (err != nil) || err == nil && (len(s.Tasks) != 0 || s.Away != nil) {
				t.Errorf("said to be meant: %+v, %v", s, err)
			}
			if _, err := next.Load(t.Context()); c.unreadable != (err != nil) {
				t.Errorf("after it was said: %v", err)
			}
		})
	}
}

// U5: the directory is back as it was, and that is seen.
func TestBackUnchanged(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader()
	load(t, l)
	time.Sleep(2 * restTime) // until the files are at rest, so that nothing differs
	load(t, l)
	if _, moved := l.differs(); moved {
		t.Fatal("the files changed by themselves")
	}
	try(t, os.Rename(d.path, d.path+".real"))
	if _, err := l.Load(t.Context()); err == nil {
		t.Fatal("a directory that is gone was read")
	}
	try(t, os.Rename(d.path+".real", d.path))
	if _, moved := l.differs(); !moved {
		t.Error("nobody would read it again")
	}
	if s := load(t, l); len(s.Tasks) != 1 || s.Away != nil {
		t.Errorf("back: %v, %v", s.TaskIDs(), s.Away)
	}
	if _, moved := l.differs(); moved {
		t.Error("read again for ever")
	}
}

// A directory without tasks that never had any is none that lost them.
func TestNoTasksToBeginWith(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/good.md": ""}))
	l := d.loader(func(o *Options) { o.Stored = func() map[string][]byte { return map[string][]byte{"models.yaml": nil} } })
	if s := load(t, l); len(s.Tasks) != 0 || s.Away != nil {
		t.Errorf("%+v", s)
	}
	load(t, l)
	missing := dir{t, filepath.Join(t.TempDir(), "none")}
	if _, err := missing.loader().Load(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
