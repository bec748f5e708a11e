package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestResolvePath(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(base, "reports/sub"), 0o755))
	must(os.MkdirAll(filepath.Join(base, "elsewhere/deep"), 0o755))
	must(os.Symlink("../elsewhere/deep", filepath.Join(base, "reports/link")))
	must(os.Symlink("nowhere", filepath.Join(base, "reports/dangling")))
	must(os.WriteFile(filepath.Join(base, "reports/file"), nil, 0o644))
	root := filepath.Join(base, "reports")
	cases := []struct{ path, want string }{
		{"new.md", "reports/new.md"},
		{"sub/../new.md", "reports/new.md"},
		{"a/b/new.md", "reports/a/b/new.md"},
		{"../etc/x", "etc/x"},
		{root + "/../etc/x", "etc/x"},
		{base + "/reports-evil/x", "reports-evil/x"},
		{"link/x", "elsewhere/deep/x"},
		{"link/../x", "elsewhere/x"}, // as the kernel does it, not as text
		{".", "reports"},
		{"dangling", ""},
		{"dangling/x", ""},
		{"a/../../x", ""},
		{"file/x", ""},
		{"", ""},
		{"a\x00b", ""},
	}
	for _, c := range cases {
		got, err := resolvePath(root, c.path)
		if c.want == "" {
			if err == nil {
				t.Errorf("resolvePath(%q) = %q, want an error", c.path, got)
			}
			continue
		}
		if want := filepath.Join(base, c.want); err != nil || got != want {
			t.Errorf("resolvePath(%q) = %q, %v; want %q", c.path, got, err, want)
		}
	}
	if _, err := resolvePath("", "x"); err == nil {
		t.Error("a relative path without a root was resolved")
	}
}
