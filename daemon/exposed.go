package daemon

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"runnerd/confine"
	"runnerd/procgroup"
	"runnerd/task"
)

// Exposure tells what stdio connectors could change of what the daemon uses. They
// share its user and are kept from its own places alone.
type Exposure struct {
	i         *Inspection
	protected []string
	as        *procgroup.User
	fettered  bool
}

func (i *Inspection) Exposure() Exposure {
	as, fettered, _ := ConnectorUser(i.options.ConnectorUser) // settle has refused a wrong name
	return Exposure{i, confine.Real(append(i.options.Protected(), i.options.CacheDir)), as, fettered}
}

// writers are the connectors whose processes run here; fetch servers write nothing.
func (e Exposure) writers() (ids []string) {
	for _, id := range e.i.Set.ConnectorIDs() {
		if c := e.i.Set.Connectors[id].Connector; c.URL == "" && c.Builtin != "fetch" && c.Builtin != "memory" {
			ids = append(ids, id)
		}
	}
	return ids
}

// open tells whether a connector's process can write a path, or make it.
func (e Exposure) open(path string) bool {
	path = confine.Real([]string{path})[0]
	below := func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	if slices.ContainsFunc(e.protected, below) {
		return false
	}
	for ; path != "/"; path = filepath.Dir(path) {
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	if e.fettered {
		return below("/tmp") || below("/var/tmp") || slices.ContainsFunc(e.roots(), below)
	}
	if e.as != nil {
		var st unix.Stat_t
		return unix.Stat(path, &st) == nil && (st.Uid == e.as.UID && st.Mode&0o200 != 0 || st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0)
	}
	return unix.Access(path, unix.W_OK) == nil
}

// roots are the directories that the entries of connectors name.
func (e Exposure) roots() (dirs []string) {
	for _, c := range e.i.Set.Connectors {
		for _, dir := range []string{c.Connector.Root, c.Connector.Dir} {
			if real, err := e.i.secrets.ResolvePath(dir); err == nil && filepath.IsAbs(real) {
				dirs = append(dirs, confine.Real([]string{real})...)
			}
		}
	}
	return dirs
}

// Commands names programs that the daemon starts from where a connector could put
// another one.
func (e Exposure) Commands() (warnings []string) {
	if len(e.writers()) == 0 {
		return nil
	}
	look := func(where, program string) {
		program, err := e.i.secrets.ResolvePath(program)
		if program == "" || err != nil {
			return
		}
		path, err := procgroup.Find(program, "/", e.i.options.childEnviron())
		if err == nil && (e.open(path) || e.open(filepath.Dir(path))) {
			warnings = append(warnings, fmt.Sprintf("%s: connectors can write in %s, so that one of them could put another program in the place of %s; install it where only root can write",
				where, filepath.Dir(path), filepath.Base(path)))
		}
	}
	for _, id := range e.i.Set.ConnectorIDs() {
		look("connector "+id, e.i.Set.Connectors[id].Connector.Command)
	}
	for _, name := range slices.Sorted(maps.Keys(e.i.Set.Models)) {
		look("model "+name, first(e.i.Set.Models[name].Command))
	}
	for n, to := range e.i.Set.Daemon.Notify {
		look(fmt.Sprintf("notify[%d]", n), first(to.To.Command))
	}
	for _, id := range e.i.Set.TaskIDs() {
		for n, to := range e.i.Set.Tasks[id].Task.Deliver {
			look(fmt.Sprintf("task %s: deliver[%d]", id, n), first(to.Command))
		}
	}
	return warnings
}

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

// Deliveries names directories of results that connectors can write in too.
func (e Exposure) Deliveries(t task.Task) (notes []string) {
	writers := e.writers()
	for n, to := range t.Deliver {
		fixed, _, _ := strings.Cut(to.Path, "{{")
		path, err := e.i.secrets.ResolvePath(fixed)
		if len(writers) == 0 || err != nil || !filepath.IsAbs(path) {
			continue
		}
		if !strings.HasSuffix(path, "/") {
			path = filepath.Dir(path)
		}
		if e.open(path) {
			notes = append(notes, fmt.Sprintf("deliver[%d]: connectors (%s) can write in %s: links that they leave there are not followed, but what was delivered they can change",
				n, strings.Join(writers, ", "), filepath.Clean(path)))
		}
	}
	return notes
}
