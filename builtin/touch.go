package builtin

import (
	"context"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

type touchKey struct{}

// touching is where a handler notes what its call read and changed; the daemon
// keeps by it which entries untrusted text may have gone into.
func touching(ctx context.Context) *task.Touched {
	t, ok := ctx.Value(touchKey{}).(*task.Touched)
	if !ok {
		return &task.Touched{} // nobody asked
	}
	return t
}

func touchedMeta(t *task.Touched) mcp.Meta {
	if len(t.Read) == 0 && !t.Changed() {
		return nil
	}
	return mcp.Meta{task.TouchedMeta: t}
}

// entry is a name below the root as the daemon knows it: absolute, without links.
// A name that does not exist stays as it is below its nearest parent that does.
func (f *files) entry(name string) string {
	path := filepath.Join(f.real, name)
	for dir, rest := path, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// link is the entry of a name whose last element may be a link.
func (f *files) link(name string) string {
	if name == "." {
		return f.real
	}
	return filepath.Join(f.entry(filepath.Dir(name)), filepath.Base(name))
}

// newDirs are the entries of the directories that making name will make.
func (f *files) newDirs(name string) (dirs []string) {
	for ; name != "." && name != "/"; name = filepath.Dir(name) {
		if _, err := f.root.Stat(name); err == nil {
			break
		}
		dirs = append(dirs, f.entry(name))
	}
	return dirs
}

// entries of a memory file: one of its notes, and any.
func (m *memory) entry(key string) string { return m.file + "#" + key }

func (m *memory) readEntries(notes []note) []string {
	list := []string{m.file}
	for _, n := range notes {
		list = append(list, m.entry(n.Key))
	}
	return list
}
