package deliver

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"runnerd/confine"
	"runnerd/task"
)

func toFile(path string) task.Delivery { return task.Delivery{To: ToFile, Path: path} }

func TestFilePath(t *testing.T) {
	dir := t.TempDir()
	d := quick(Options{ResolvePath: func(s string) (string, error) { return strings.ReplaceAll(s, "${env:D}", dir), nil }})
	for path, want := range map[string]string{
		// 23:30 UTC is the next day in Berlin.
		`/{{.Due.Format "2006-01-02"}}.md`:                      "/2026-03-02.md",
		`/{{.Task}}/{{.Run}}-{{.Attempt}}-{{.Status}}.txt`:      "/brief/r1-1-ok.txt",
		`/{{.Trigger}}{{.Outcome}}/{{.Finished.Format "1504"}}`: "/schedule/0031",
		`/x/./y//z`: "/x/y/z",
	} {
		if r := one(t, d, result(toFile("${env:D}"+path))); r.Err != nil {
			t.Errorf("%s: %v", path, r.Err)
		} else if got := content(t, dir+want); got != "All is well.\n" {
			t.Errorf("%s: %q", want, got)
		}
	}
	for path, want := range map[string]string{
		"relative/x":                          "not the absolute path",
		dir + "/":                             "not the absolute path",
		"":                                    "not the absolute path",
		dir + "/{{.Nope}}":                    "Nope",
		dir + "/{{.Due.Nope}}":                "Nope",
		dir + `/{{printf "%5000d" .Attempt}}`: "longer than",
		dir:                                   "is there and is no file",
	} {
		if r := one(t, d, result(toFile(path))); r.Err == nil || !strings.Contains(r.Err.Error(), want) || r.Attempts > 1 {
			t.Errorf("%s: %+v, want %q at once", path, r, want)
		}
	}
}

func TestManualRunHasADate(t *testing.T) {
	dir := t.TempDir()
	res := result(toFile(dir + `/{{.Due.Format "2006-01-02"}}`))
	res.Run.Due, res.Task.Schedule.Zone = time.Time{}, "nowhere"
	if r := one(t, quick(Options{}), res); r.Err != nil {
		t.Fatal(r.Err)
	}
	content(t, dir+"/2026-03-01")
}

func TestFileIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/report.md"
	must(t, os.WriteFile(file, []byte("a much longer text from yesterday"), 0o600))
	must(t, os.Symlink("report.md", dir+"/latest"))
	must(t, os.Symlink("nowhere", dir+"/dangling"))
	must(t, syscall.Mkfifo(dir+"/pipe", 0o644))
	before, err := os.Open(file)
	must(t, err)
	defer before.Close()

	d := quick(Options{})
	if r := one(t, d, result(toFile(file))); r.Err != nil {
		t.Fatal(r.Err)
	}
	info, err := os.Lstat(file)
	must(t, err)
	if content(t, file) != "All is well.\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, mode %s", content(t, file), info.Mode())
	}
	if link, err := os.Readlink(dir + "/latest"); err != nil || link != "report.md" {
		t.Errorf("the link became %q, %v", link, err)
	}
	old := make([]byte, 100)
	if n, _ := before.Read(old); string(old[:n]) != "a much longer text from yesterday" {
		t.Errorf("a reader of the old file sees %q", old[:n])
	}
	for path, want := range map[string]string{"/latest": "is a link", "/dangling": "is a link", "/pipe": "is no file"} {
		if r := one(t, d, result(toFile(dir+path))); r.Err == nil || !strings.Contains(r.Err.Error(), want) {
			t.Errorf("%s: %v", path, r.Err)
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 4 {
		t.Errorf("left behind: %v", entries)
	}
}

// F9, I1: what the daemon lives on is no place for a result, by whatever way.
func TestProtectedPlaces(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config/tasks", "state", "out"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	must(t, os.WriteFile(dir+"/config/models.yaml", []byte("mine"), 0o644))
	must(t, os.WriteFile(dir+"/runnerd.db", []byte("mine"), 0o600))
	must(t, os.Symlink("../config", dir+"/out/day"))
	must(t, os.Symlink("../config/models.yaml", dir+"/out/latest.md"))
	must(t, os.Link(dir+"/runnerd.db", dir+"/out/hard.md"))
	d := quick(Options{
		Door:        confine.New(dir+"/config", dir+"/state", dir+"/runnerd.db"),
		ResolvePath: func(s string) (string, error) { return strings.ReplaceAll(s, "${env:C}", dir+"/config"), nil },
	})
	for _, path := range []string{
		dir + "/config/models.yaml", dir + "/config", dir + "/config/tasks/new/deep.md", dir + "/state/{{.Task}}.db", dir + "/out/../config/models.yaml",
		dir + "/out/day/models.yaml", dir + "/out/latest.md", dir + "/out/hard.md", dir + "/runnerd.db", "${env:C}/models.yaml", dir + "/config/not-there/{{.Run}}",
	} {
		if err := d.Check(toFile(path)); err == nil {
			t.Errorf("%s: not seen before", path)
		}
		if r := one(t, d, result(toFile(path))); r.Err == nil || r.Attempts != 1 {
			t.Errorf("%s: %+v, want a final error", path, r)
		}
	}
	if err := d.Check(toFile(dir + "/new/{{.Task}}.md")); err != nil {
		t.Error(err)
	}
	if content(t, dir+"/config/models.yaml")+content(t, dir+"/runnerd.db") != "minemine" {
		t.Error("something was written")
	}
	if left, err := os.ReadDir(dir + "/config/tasks"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestUnwritableFileIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o644))
	if r := one(t, quick(Options{}), result(toFile(dir+"/file/below"))); r.Attempts != 3 || r.Err == nil || !strings.Contains(r.Err.Error(), "not a directory") {
		t.Errorf("%+v", r)
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{"/a", "/{{.Task}}", "/{{.Due.Format \"2006\"}}", "{{", "/{{range .Task}}{{end}}", `{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := render(path, sampleData)
		if err == nil && len(got) > maxPath {
			t.Errorf("%d bytes", len(got))
		}
		if err == nil && !strings.Contains(path, "{{") && got != path {
			t.Errorf("%q became %q", path, got)
		}
	})
}

// A template that cannot be filled in will not get better by itself.
func TestBadTemplateIsFinal(t *testing.T) {
	d := quick(Options{})
	again, err := d.Try(t.Context(), result(task.Delivery{To: ToFile, Path: "/tmp/{{.Du}}.md"}), 0)
	if err == nil || again {
		t.Errorf("again %v, %v; want a final error", again, err)
	}
}
