package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stored plays the caller's table of accepted revisions.
type stored map[string][]byte

func (s stored) keep(set *Set) {
	for rel, r := range set.Accepted {
		s[rel] = r.Content
	}
}

func (s stored) lastGood(o *Options) {
	o.LastGood = func(rel string) ([]byte, bool) { c, ok := s[rel]; return c, ok }
}

// Each way of breaking a file is reported and leaves the old revision in force,
// in the same process and after a restart.
func TestLastGood(t *testing.T) {
	good := base(map[string]string{
		"runnerd.yaml": "defaults: {limits: {steps: 7}}\n", "connectors.d/more.yaml": "mcpServers:\n  extra: {command: x}\n",
		"tasks/good.md": "---\nproject: ops\nconnectors: [extra]\n---\nDo it.\n",
	})
	tests := []struct {
		name  string
		file  string
		spoil func(d dir, full string)
		want  string // of the first problem
	}{
		{"bad task", "tasks/good.md", func(d dir, _ string) { d.write("tasks/good.md", "---\nshedule: x\n---\np") }, "unknown key"},
		{"emptied task", "tasks/good.md", func(d dir, _ string) { d.write("tasks/good.md", "") }, "file is empty"},
		{"half-written task", "tasks/good.md", func(d dir, _ string) { d.write("tasks/good.md", "---\nproject: o") }, "without an end"},
		{"too large", "tasks/good.md", func(d dir, _ string) { d.write("tasks/good.md", strings.Repeat("x", maxFile+1)) }, "file has 1048577 bytes"},
		{"second file of the name", "tasks/good.md", func(d dir, _ string) { d.write("tasks/good.yaml", "prompt: other\n") }, "two files define"},
		{"world-writable", "tasks/good.md", func(d dir, f string) { try(d.t, os.Chmod(f, 0o646)) }, "everyone can write it (mode 0646)"},
		{"dangling link", "tasks/good.md", func(d dir, f string) { try(d.t, os.Remove(f), os.Symlink("nowhere.md", f)) }, "the link leads to nothing"},
		{"link out", "tasks/good.md", func(d dir, f string) {
			out := filepath.Join(d.t.TempDir(), "x.md")
			try(d.t, os.WriteFile(out, []byte("---\n---\nevil\n"), 0o644), os.Remove(f), os.Symlink(out, f))
		}, "the link leads out of the config directory"},
		{"link up and out", "tasks/good.md", func(d dir, f string) {
			out := filepath.Join(filepath.Dir(d.path), "x.md")
			try(d.t, os.WriteFile(out, []byte("---\n---\nevil\n"), 0o644), os.Remove(f), os.Symlink("../../x.md", f))
		}, "the link leads out of the config directory"},
		{"named pipe", "tasks/good.md", func(d dir, f string) { try(d.t, os.Remove(f), mkfifo(f)) }, "not a regular file"},
		{"name gone elsewhere", "connectors.d/more.yaml", func(d dir, _ string) { d.write("connectors.d/more.yaml", "mcpServers:\n  other: {command: x}\n") }, "unknown connector \"extra\""},
		{"models", "models.yaml", func(d dir, _ string) { d.write("models.yaml", "models: [") }, "not valid YAML"},
		{"connectors", "connectors.yaml", func(d dir, _ string) { d.write("connectors.yaml", "mcpServers: {files: {bultin: files}}\n") }, "nothing says how to reach it"},
		{"connectors.d", "connectors.d/more.yaml", func(d dir, _ string) { d.write("connectors.d/more.yaml", "mcpServers: 5\n") }, "wrong type"},
		{"projects", "projects.yaml", func(d dir, _ string) { d.write("projects.yaml", "projects: {ops: {connectors: files}}\n") }, "wrong type"},
		{"daemon", "runnerd.yaml", func(d dir, _ string) { d.write("runnerd.yaml", "\x00") }, "not valid YAML"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDir(t, good)
			l, rows := d.loader(), stored{}
			before := load(t, l)
			if len(before.Problems) > 0 || len(before.Kept) > 0 {
				t.Fatal(texts(before.Problems))
			}
			rows.keep(before)
			tt.spoil(d, filepath.Join(d.path, tt.file))
			for name, loader := range map[string]*Loader{"same process": l, "restarted": d.loader(rows.lastGood)} {
				after := load(t, loader)
				if len(after.Problems) == 0 || !strings.Contains(after.Problems[0].Error(), tt.want) {
					t.Errorf("%s: problems %q, want %q", name, texts(after.Problems), tt.want)
				}
				checkUnharmed(t, name, after)
				wantKept := tt.file
				if tt.name == "name gone elsewhere" {
					wantKept = "tasks/good.md"
				}
				if !slices.Contains(after.Kept, wantKept) {
					t.Errorf("%s: kept %v", name, after.Kept)
				}
				if _, ok := after.Accepted[wantKept]; ok {
					t.Errorf("%s: the broken file is accepted", name)
				}
			}
		})
	}
}

func checkUnharmed(t *testing.T, name string, s *Set) {
	t.Helper()
	g := s.Tasks["good"]
	if g.Task.Prompt != "Do it." || g.Task.Instructions != "Be brief." || *g.Policy.Limits.Steps != 7 {
		t.Errorf("%s: task = %+v", name, g)
	}
	if len(s.Models) != 2 || s.Connectors["files"].Connector.Builtin != "files" || s.Projects["ops"].Policy.Connectors.Len() != 2 {
		t.Errorf("%s: models %v, connectors %v, projects %v", name, s.ModelNames(), s.ConnectorIDs(), s.ProjectIDs())
	}
}

func TestStaleIsSaid(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader()
	if s := load(t, l); s.Tasks["good"].Stale || s.Connectors["files"].Stale || s.Projects["ops"].Stale {
		t.Error("stale from the start")
	}
	for _, f := range []string{"tasks/good.md", "connectors.yaml", "projects.yaml"} {
		d.write(f, "}")
	}
	if s := load(t, l); !s.Tasks["good"].Stale || !s.Connectors["files"].Stale || !s.Projects["ops"].Stale {
		t.Error("not stale after the break")
	}
	d.write("tasks/good.md", "---\n---\nBetter.\n")
	if s := load(t, l); s.Tasks["good"].Stale || s.Tasks["good"].Task.Prompt != "Better." {
		t.Errorf("after the repair: %+v", s.Tasks["good"])
	}
}

// What is gone is gone, and comes back as it was.
func TestGoneIsRetired(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/other.md": "---\n---\nStays.\n"}))
	rows := stored{}
	l := d.loader(rows.lastGood)
	rows.keep(load(t, l))
	d.remove("tasks/good.md")
	s := load(t, l)
	if len(s.Tasks) != 1 || len(s.Problems) != 0 {
		t.Errorf("tasks %v, problems %q", s.TaskIDs(), texts(s.Problems))
	}
	d.write("tasks/good.md", "---\n---\nBack.\n")
	if s := load(t, l); s.Tasks["good"].Task.Prompt != "Back." {
		t.Errorf("restored task = %+v", s.Tasks["good"])
	}
}

// What was gone is not brought back from memory by a file that is broken.
func TestGoneAndBackBroken(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/other.md": "---\n---\nStays.\n"}))
	l := d.loader()
	load(t, l)
	d.remove("tasks/good.md")
	load(t, l)
	d.write("tasks/good.md", "---\nshedule: x\n---\np\n")
	if s := load(t, l); len(s.Tasks) != 1 || len(s.Problems) != 1 {
		t.Errorf("tasks %v, problems %q", s.TaskIDs(), texts(s.Problems))
	}
}

// A stored revision that is itself no good is not used, and nothing of a file
// that was never good is.
func TestNothingToFallBackOn(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/new.md": "---\nshedule: x\n---\np\n", "connectors.yaml": "mcpServers: {files: {bultin: x}}\n"}))
	rows := stored{"tasks/new.md": []byte("---\nalso: bad\n---\np\n")}
	d.write("tasks/uses.yaml", "prompt: p\nconnectors: [files]\n")
	s := load(t, d.loader(rows.lastGood))
	if _, ok := s.Tasks["new"]; ok || len(s.Connectors) != 0 {
		t.Errorf("tasks %v, connectors %v", s.TaskIDs(), s.ConnectorIDs())
	}
	if _, ok := s.Tasks["uses"]; !ok {
		t.Error("a good task is gone because a connectors file is broken")
	}
	for _, p := range s.Problems {
		if p.File == "tasks/uses.yaml" {
			t.Errorf("follow-on complaint: %s", p.Error())
		}
	}
}

func TestDirectoryUnreadable(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader()
	before := load(t, l)
	moved := d.path + "-moved"
	try(t, os.Rename(d.path, moved))
	if _, err := l.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "open config directory") {
		t.Errorf("err = %v", err)
	}
	if l.Current() != before {
		t.Error("the set in force changed")
	}
	try(t, os.Rename(moved, d.path))
}

func try(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
