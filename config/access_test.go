package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o644) }

func TestRefusedByOwnerAndMode(t *testing.T) {
	r := &reader{uid: 1000, ownGroup: func(uid uint32) (uint32, bool) { return uid, uid != 7 }}
	for _, tt := range []struct {
		name string
		sig  signature
		want string
	}{
		{"the daemon's", signature{uid: 1000, gid: 1000, mode: 0o600}, ""},
		{"root's", signature{uid: 0, gid: 5, mode: 0o644}, ""},
		{"own group writes", signature{uid: 1000, gid: 1000, mode: 0o664}, ""},
		{"another group writes", signature{uid: 1000, gid: 50, mode: 0o664}, "group 50, not the owner's own, can write it (mode 0664)"},
		{"root's, another group writes", signature{uid: 0, gid: 50, mode: 0o664}, "group 50, not the owner's own, can write it (mode 0664)"},
		{"another group reads", signature{uid: 1000, gid: 50, mode: 0o640}, ""},
		{"everyone writes", signature{uid: 1000, gid: 1000, mode: 0o666}, "everyone can write it (mode 0666)"},
		{"a stranger's", signature{uid: 1001, gid: 1001, mode: 0o600}, "owned by user 1001, neither root nor the daemon's user (1000)"},
	} {
		if what, _ := r.refused(tt.sig); what != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, what, tt.want)
		}
	}
}

func TestOwnerOnDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	d := newDir(t, base(nil))
	d.write("tasks/theirs.md", "---\n---\np\n")
	d.write("tasks/grouped.md", "---\n---\np\n")
	try(t, os.Chown(filepath.Join(d.path, "tasks/theirs.md"), 12345, 12345))
	try(t, os.Chown(filepath.Join(d.path, "tasks/grouped.md"), 0, 12345), os.Chmod(filepath.Join(d.path, "tasks/grouped.md"), 0o664))
	got := texts(load(t, d.loader()).Problems)
	want := []string{
		"tasks/grouped.md: group 12345, not the owner's own, can write it (mode 0664); chmod g-w",
		"tasks/theirs.md: owned by user 12345, neither root nor the daemon's user (0); chown it",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
}

// Links inside the directory are followed, as a mounted ConfigMap has them.
func TestLinksInside(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/..v1/linked.md": "---\n---\none\n", "tasks/..v2/linked.md": "---\n---\ntwo\n"}))
	tasks := filepath.Join(d.path, "tasks")
	try(t, os.Symlink("..v1", filepath.Join(tasks, "..data")), os.Symlink("..data/linked.md", filepath.Join(tasks, "linked.md")))
	l := d.loader()
	if s := load(t, l); len(s.Problems) > 0 || s.Tasks["linked"].Task.Prompt != "one" {
		t.Fatalf("problems %q, task %+v", texts(s.Problems), s.Tasks["linked"])
	}
	try(t, os.Symlink("..v2", filepath.Join(tasks, "tmp")), os.Rename(filepath.Join(tasks, "tmp"), filepath.Join(tasks, "..data")))
	if s := load(t, l); s.Tasks["linked"].Task.Prompt != "two" {
		t.Errorf("after the swap: %+v", s.Tasks["linked"])
	}
}

// F3: each file that looks as if it should be read is read or named.
func TestOddNames(t *testing.T) {
	d := newDir(t, base(map[string]string{
		"tasks/.#good.md": "x", "tasks/good.md~": "x", "tasks/#good.md#": "x", "tasks/.good.md.swp": "x", "tasks/notes.txt": "x",
		"tasks/sub/inner.md": "x", "tasks/late.yml": "prompt: p\n", "tasks/x.markdown": "x", "tasks/y.MD": "x", "connectors.d/a.yml": "x",
		"modles.yaml": "x", "Projects.yml": "x", "mcp.json": "{}", "task/z.md": "x", "README.md": "x", "scripts/a.yaml": "x",
	}))
	try(t, os.Chmod(filepath.Join(d.path, "tasks"), 0o777))
	s := load(t, d.loader())
	if len(s.Problems) > 0 || len(s.Tasks) != 1 {
		t.Errorf("tasks %v, problems %q", s.TaskIDs(), texts(s.Problems))
	}
	const ofTask = ": this file is not read; expected a name that ends in .md or .yaml; rename it, or move it out of tasks/"
	want := []string{
		"Projects.yml: this is not read; did you mean projects.yaml?",
		"connectors.d/a.yml: this file is not read; expected a name that ends in .yaml or .json; rename it, or move it out of connectors.d/",
		"mcp.json: this is not read; did you mean .mcp.json?",
		"modles.yaml: this is not read; did you mean models.yaml?",
		"task: this is not read; did you mean tasks?",
		"tasks: everyone can write this directory, and so remove or replace its files; chmod o-w",
		"tasks/late.yml" + ofTask, "tasks/notes.txt" + ofTask, "tasks/sub: folders are not read; move its files into tasks/", "tasks/x.markdown" + ofTask, "tasks/y.MD" + ofTask,
	}
	if got := texts(s.Warnings); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("warnings %q", got)
	}
}

// F3: of hidden names and of an editor's own, those are named that somebody may take
// for a task, or that are all that is left of one; not what lies beside its file, and
// nothing that editors keep while they work.
func TestHiddenAndBackupNames(t *testing.T) {
	files := map[string]string{}
	passed := []string{"tasks/.good.md.swp", "tasks/.#good.md", "tasks/.#new.md", "tasks/.new.md.swo", "tasks/#good.md#", "tasks/good.md~", "tasks/good.md.~2~", "tasks/._good.md",
		"tasks/.gitkeep", "tasks/.git/config", "tasks/.good.md.x1Y2z3", "tasks/notes~", "tasks/..data/x.md", "connectors.d/.keep", ".git/config", "models.yaml~", ".models.yaml", ".env"}
	named := map[string]string{
		"tasks/.x.md": "begins with a letter or digit", "tasks/.x.yaml": "", "tasks/x.md~": "x.md", "tasks/#y.md#": "y.md", "tasks/z.yaml.~1~": "z.yaml", "tasks/._w.md": "",
		"tasks/#off.md": "begins with a letter or digit", "tasks/good.md.bak": "", "tasks/good.md.orig": "", "tasks/good.md.swp": "", "connectors.d/.more.yaml": "", "connectors.d/old.json~": "old.json",
		".runnerd.yaml": "begins with a letter", "runnerd.yaml~": "runnerd.yaml",
	}
	for _, name := range passed {
		files[name] = "x"
	}
	for name := range named {
		files[name] = "x"
	}
	s := load(t, newDir(t, base(files)).loader())
	if len(s.Problems) > 0 || len(s.Tasks) != 1 {
		t.Errorf("tasks %v, problems %q", s.TaskIDs(), texts(s.Problems))
	}
	for _, p := range s.Warnings {
		word, known := named[p.File]
		if !known || !strings.Contains(p.Error(), "not read") || !strings.Contains(p.Expected+p.Hint, word) {
			t.Errorf("%v", p)
		}
		delete(named, p.File)
	}
	for name := range named {
		t.Errorf("%s is not named", name)
	}
}
