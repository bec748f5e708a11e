package procgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGrants(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a/secret", "a/open", "b"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "a/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	g, err := (&Walls{
		Protected: []string{base + "/link/secret", "relative", base + "/a/none/yet"}, Allowed: []string{base + "/a/secret/mine", base},
	}).grants()
	if err != nil {
		t.Fatal(err)
	}
	has := func(list []string, path string) bool {
		for _, p := range list {
			if p == path {
				return true
			}
		}
		return false
	}
	for _, p := range []string{"/a/open", "/b"} {
		if !has(g.dirs, base+p) {
			t.Errorf("%s is not granted", p)
		}
	}
	if !has(g.files, base+"/a/file") {
		t.Error("/a/file is not granted")
	}
	for _, p := range []string{"/a", "/a/secret", "/link"} {
		if has(g.dirs, base+p) || has(g.files, base+p) {
			t.Errorf("%s is granted", p)
		}
	}
	if has(g.dirs, "/") || has(g.dirs, "/tmp") {
		t.Error("a whole ancestor is granted")
	}
	// I5: the binary itself can be run, not changed or replaced.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all, err := (&Walls{}).grants()
	if err != nil || !has(all.readFiles, self) || !has(all.readDirs, "/") || has(all.files, self) || has(all.dirs, filepath.Dir(self)) {
		t.Errorf("nothing protected: %v, %v", all, err)
	}
}

// BenchmarkGrants is the walk beside typical protected paths.
func BenchmarkGrants(b *testing.B) {
	for b.Loop() {
		g, err := (&Walls{Protected: []string{"/var/lib/runnerd", "/etc/runnerd", "/run/runnerd"}}).grants()
		if err != nil || len(g.dirs) == 0 {
			b.Fatal(err)
		}
	}
}
