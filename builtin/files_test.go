package builtin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tree makes files below a new directory: "a/b": "text", "d/": "", "l": "-> target".
func tree(t *testing.T, entries map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range entries {
		full := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			must(t, os.Symlink(target, full))
		} else if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(full, 0o755))
		} else {
			must(t, os.WriteFile(full, []byte(text), 0o644))
		}
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	must(t, err)
	return string(data)
}

func TestPathsStayInside(t *testing.T) {
	outside := tree(t, map[string]string{"secret": "secret", "sub/": ""})
	dir := tree(t, map[string]string{
		"a/ok": "fine", "in": "-> a", "in-file": "-> a/ok",
		"out": "-> " + outside, "up": "-> ../" + filepath.Base(outside), "abs": "-> " + outside + "/secret",
	})
	beside := dir + "-beside"
	must(t, os.Mkdir(beside, 0o755))
	t.Cleanup(func() { os.RemoveAll(beside) })
	must(t, os.WriteFile(beside+"/x", nil, 0o644))
	s := connect(t, Files, "--root", dir)

	for path, want := range map[string]string{
		"":                  "path is empty",
		"a\x00b":            "NUL",
		"..":                `".."`,
		"../x":              `".."`,
		"a/../a/ok":         `".."`,
		dir + "/../x":       `".."`,
		"/etc/passwd":       "outside the root",
		beside + "/x":       "outside the root",
		outside + "/secret": "outside the root",
		"out/secret":        "leads out of the root",
		"up/secret":         "leads out of the root",
		"abs":               "leads out of the root",
		"none":              "does not exist",
	} {
		s.fails(want, "read_file", args{"path": path})
	}
	for _, path := range []string{"a/ok", "./a//ok", dir + "/a/ok", "in/ok", "in-file"} {
		if got := s.ok("read_file", args{"path": path}); got != "fine" {
			t.Errorf("read %s: %q", path, got)
		}
	}

	s.fails("leads out", "write_file", args{"path": "out/new", "content": "x"})
	s.fails("leads out", "write_file", args{"path": "out/deep/new", "content": "x"})
	s.fails("link", "write_file", args{"path": "abs", "content": "x"})
	s.fails("leads out", "append_file", args{"path": "out/secret", "content": "x"})
	s.fails("leads out", "make_directory", args{"path": "out/new"})
	s.fails("leads out", "move_file", args{"path": "a/ok", "to": "out/ok"})
	s.fails("leads out", "move_file", args{"path": "out/secret", "to": "a/secret"})
	s.fails("leads out", "delete_file", args{"path": "out/secret"})
	s.fails("leads out", "list_directory", args{"path": "out"})
	s.fails("leads out", "search_files", args{"path": "out", "glob": "*"})
	if got := names(t, outside); !slices.Equal(got, []string{"secret", "sub"}) || content(t, outside, "secret") != "secret" {
		t.Errorf("outside changed: %v", got)
	}
}

func TestRootBehindLink(t *testing.T) {
	real := tree(t, map[string]string{"f": "x"})
	link := filepath.Join(t.TempDir(), "root")
	must(t, os.Symlink(real, link))
	s := connect(t, Files, "--root", link)
	for _, path := range []string{"f", link + "/f", real + "/f"} {
		s.ok("read_file", args{"path": path})
	}
}

func TestReadFile(t *testing.T) {
	long := strings.Repeat("x", maxText+10)
	var many strings.Builder
	for i := 1; i <= 30000; i++ {
		fmt.Fprintf(&many, "line %d with some text behind it\n", i)
	}
	dir := tree(t, map[string]string{
		"five": "1\n2\n3\n4\n5\n", "open": "1\n2\n3", "empty": "", "long": "first\n" + long + "\nlast\n",
		"many": many.String(), "binary": "ab\x00cd", "latin": "caf\xe9\n", "d/": "",
	})
	must(t, syscall.Mkfifo(dir+"/pipe", 0o644))
	s := connect(t, Files, "--root", dir)
	for _, c := range []struct {
		in   args
		want string
	}{
		{args{"path": "five"}, "1\n2\n3\n4\n5\n"},
		{args{"path": "five", "offset": 4}, "4\n5\n"},
		{args{"path": "five", "limit": 2}, "1\n2\n\n[lines 1-2 of a file of 10 bytes; go on with offset 3]"},
		{args{"path": "five", "offset": 3, "limit": 2}, "3\n4\n\n[lines 3-4 of a file of 10 bytes; go on with offset 5]"},
		{args{"path": "five", "offset": 4, "limit": 2}, "4\n5\n"},
		{args{"path": "five", "offset": -2}, "4\n5\n\n[last 2 lines of a file of 10 bytes]"},
		{args{"path": "five", "offset": -9}, "1\n2\n3\n4\n5\n"},
		{args{"path": "open", "offset": -1}, "3\n[last 1 lines of a file of 5 bytes]"},
		{args{"path": "open"}, "1\n2\n3"},
		{args{"path": "empty"}, ""},
		{args{"path": "empty", "offset": -3}, ""},
		{args{"path": "latin"}, "caf\uFFFD\n"},
		{args{"path": "many", "offset": -1}, "line 30000 with some text behind it\n\n[last 1 lines of a file of " + fmt.Sprint(many.Len()) + " bytes]"},
		{args{"path": "long", "limit": 1}, fmt.Sprintf("first\n\n[lines 1-1 of a file of %d bytes; go on with offset 2]", len(long)+12)},
		{args{"path": "long", "offset": 3}, "last\n"},
	} {
		if got := s.ok("read_file", c.in); got != c.want {
			t.Errorf("%v: %q, want %q", c.in, clip(got), clip(c.want))
		}
	}
	if got := s.ok("read_file", args{"path": "long"}); got[:6] != "first\n" || !strings.HasSuffix(got, "go on with offset 2]") {
		t.Errorf("a long second line: %q", clip(got))
	}
	if got := s.ok("read_file", args{"path": "long", "offset": 2}); len(got) > maxText+200 || !strings.Contains(got, "line 2 is longer than") {
		t.Errorf("a line beyond the cap: %d bytes, %q", len(got), clip(got))
	}
	s.fails("has 5 lines; offset 6 is behind the end", "read_file", args{"path": "five", "offset": 6})
	s.fails("is binary", "read_file", args{"path": "binary"})
	s.fails("is a directory", "read_file", args{"path": "d"})
	s.fails("is a special file", "read_file", args{"path": "pipe"})
	readsThrough(t, s, "many", many.String())
}

// readsThrough follows the offsets of the notes and must meet every byte once.
func readsThrough(t *testing.T, s *session, path, want string) {
	t.Helper()
	var all strings.Builder
	offset := 1
	for range 100 {
		got := s.ok("read_file", args{"path": path, "offset": offset, "limit": maxLines})
		text, note, more := strings.Cut(got, "\n[lines ")
		all.WriteString(text)
		if !more {
			break
		}
		_, next, _ := strings.Cut(note, "go on with offset ")
		if _, err := fmt.Sscanf(next, "%d", &offset); err != nil {
			t.Fatalf("note %q", note)
		}
	}
	if all.String() != want {
		t.Errorf("%s read in parts has %d bytes, want %d", path, all.Len(), len(want))
	}
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:150] + " … " + s[len(s)-150:]
	}
	return s
}

func TestWriteFile(t *testing.T) {
	dir := tree(t, map[string]string{"old": "old", "d/": "", "l": "-> old"})
	must(t, os.Chmod(dir+"/old", 0o600))
	must(t, syscall.Mkfifo(dir+"/pipe", 0o644))
	s := connect(t, Files, "--root", dir)

	s.ok("write_file", args{"path": "new/deep/file.md", "content": "hello\n", "mode": "create"})
	if got := content(t, dir, "new/deep/file.md"); got != "hello\n" {
		t.Errorf("new file: %q", got)
	}
	s.fails("exists already", "write_file", args{"path": "old", "content": "x", "mode": "create"})
	if got := content(t, dir, "old"); got != "old" {
		t.Errorf("create replaced: %q", got)
	}
	s.ok("write_file", args{"path": "old", "content": "second", "mode": "overwrite"})
	s.ok("write_file", args{"path": "old", "content": "third"})
	info, err := os.Stat(dir + "/old")
	must(t, err)
	if got := content(t, dir, "old"); got != "third" || info.Mode().Perm() != 0o600 {
		t.Errorf("overwritten: %q, %s", got, info.Mode())
	}
	s.fails("is a link", "write_file", args{"path": "l", "content": "x"})
	s.fails("is a directory", "write_file", args{"path": "d", "content": "x"})
	s.fails("is a special file", "write_file", args{"path": "pipe", "content": "x"})
	s.fails("not a directory", "write_file", args{"path": "old/x", "content": "x"})
	s.fails("the root itself", "write_file", args{"path": ".", "content": "x"})
	s.fails("at most", "write_file", args{"path": "big", "content": strings.Repeat("x", maxWrite+1)})
	if got := names(t, dir); !slices.Equal(got, []string{"d", "l", "new", "old", "pipe"}) {
		t.Errorf("left behind: %v", got)
	}
}

func TestLargestWriteFitsTheWire(t *testing.T) {
	dir := t.TempDir()
	s := connect(t, Files, "--root", dir)
	// The worst text: each byte takes six on the wire.
	s.ok("write_file", args{"path": "f", "content": strings.Repeat("\x01", maxWrite)})
	if got := content(t, dir, "f"); len(got) != maxWrite {
		t.Errorf("wrote %d bytes", len(got))
	}
}

func TestCreateHasOneWinner(t *testing.T) {
	dir := t.TempDir()
	s := connect(t, Files, "--root", dir)
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, bad := s.try("write_file", args{"path": "f", "content": fmt.Sprint(i), "mode": "create"}); !bad {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || len(names(t, dir)) != 1 {
		t.Errorf("%d creators won, directory holds %v", won.Load(), names(t, dir))
	}
}

func TestAppendFile(t *testing.T) {
	dir := tree(t, map[string]string{"l": "-> log", "d/": ""})
	s := connect(t, Files, "--root", dir)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { s.ok("append_file", args{"path": "sub/log", "content": "line\n"}) })
	}
	wg.Wait()
	if got := content(t, dir, "sub/log"); got != strings.Repeat("line\n", 10) {
		t.Errorf("log: %q", got)
	}
	s.fails("is a link", "append_file", args{"path": "l", "content": "x"})
	s.fails("is a directory", "append_file", args{"path": "d", "content": "x"})
}

func TestMakeMoveDelete(t *testing.T) {
	dir := tree(t, map[string]string{"f": "f", "g": "g", "d/x": "x", "l": "-> f", "e/": ""})
	s := connect(t, Files, "--root", dir)

	s.ok("make_directory", args{"path": "m/n"})
	s.ok("make_directory", args{"path": "m/n"})
	s.fails("not a directory", "make_directory", args{"path": "f/n"})
	s.fails("exists and is not a directory", "make_directory", args{"path": "f"})

	s.fails("exists already", "move_file", args{"path": "f", "to": "g"})
	s.fails("exists already", "move_file", args{"path": "f", "to": "e"})
	s.fails("is a link", "move_file", args{"path": "l", "to": "l2"})
	s.fails("cannot move into itself", "move_file", args{"path": "d", "to": "d/below"})
	s.fails("does not exist", "move_file", args{"path": "none", "to": "x"})
	s.fails("the root itself", "move_file", args{"path": ".", "to": "x"})
	s.fails("to: ", "move_file", args{"path": "f", "to": "../f"})
	s.ok("move_file", args{"path": "f", "to": "p/q/f"})
	s.ok("move_file", args{"path": "d", "to": "p/d"})
	if content(t, dir, "p/q/f") != "f" || content(t, dir, "p/d/x") != "x" || content(t, dir, "g") != "g" {
		t.Error("moved files are not what they were")
	}

	s.fails("directory not empty", "delete_file", args{"path": "p"})
	s.fails("is a link", "delete_file", args{"path": "l"})
	s.fails("the root itself", "delete_file", args{"path": dir})
	s.fails("does not exist", "delete_file", args{"path": "none"})
	s.ok("delete_file", args{"path": "g"})
	s.ok("delete_file", args{"path": "e"})
	if got := names(t, dir); !slices.Equal(got, []string{"l", "m", "p"}) {
		t.Errorf("left: %v", got)
	}
}

func TestListAndStat(t *testing.T) {
	dir := tree(t, map[string]string{"b": "1234", "a/": "", "l": "-> b", "odd\nname": "x", "full/": ""})
	when := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	must(t, os.Chtimes(dir+"/b", when, when))
	for i := range maxShown + 1 {
		must(t, os.WriteFile(fmt.Sprintf("%s/full/%05d", dir, i), nil, 0o644))
	}
	s := connect(t, Files, "--root", dir)
	lines := strings.Split(strings.TrimSpace(s.ok("list_directory", args{})), "\n")
	var got []string
	for _, l := range lines {
		f := strings.Fields(l)
		got = append(got, f[0]+" "+f[len(f)-1])
	}
	want := []string{"directory a/", "file b", "directory full/", "link l", `file "odd\nname"`}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	if !strings.Contains(lines[1], " 4  2026-03-04T05:06:07Z ") {
		t.Errorf("line of b: %q", lines[1])
	}
	if got := s.ok("list_directory", args{"path": "a"}); got != "[empty directory]" {
		t.Errorf("empty directory: %q", got)
	}
	if got := s.ok("list_directory", args{"path": "full"}); strings.Count(got, "\n") != maxShown+1 || !strings.Contains(got, "there are more") {
		t.Errorf("full directory: %d lines", strings.Count(got, "\n"))
	}
	s.fails("is a file, not a directory", "list_directory", args{"path": "b"})
	if got := s.ok("stat_file", args{"path": "b"}); !strings.Contains(got, "kind: file\nsize: 4\n") {
		t.Errorf("stat: %q", got)
	}
	if got := s.ok("stat_file", args{"path": "l"}); !strings.Contains(got, "kind: link") || !strings.Contains(got, "target: b") {
		t.Errorf("stat of a link: %q", got)
	}
	s.fails("does not exist", "stat_file", args{"path": "none"})
}

func TestSearchFiles(t *testing.T) {
	outside := tree(t, map[string]string{"x.log": "ERROR outside"})
	dir := tree(t, map[string]string{
		"a.log": "fine\nERROR one\n", "sub/b.log": "ERROR two\r\n", "sub/c.txt": "error three\n",
		"sub/deep/d.log": "ok\n", "bin.log": "ERROR\x00", "out": "-> " + outside,
		"long.log": strings.Repeat("y", 1000) + "ERROR",
	})
	s := connect(t, Files, "--root", dir)
	for _, c := range []struct {
		in   args
		want string
	}{
		{args{"glob": "*.log"}, "a.log\nbin.log\nlong.log\nsub/b.log\nsub/deep/d.log\n"},
		{args{"glob": "sub/*.log"}, "sub/b.log\n"},
		{args{"glob": "sub/**/*.log"}, "sub/b.log\nsub/deep/d.log\n"},
		{args{"path": "sub", "glob": "deep/*"}, "sub/deep/d.log\n"},
		{args{"content": "^ERROR .*$"}, "a.log:2: ERROR one\nsub/b.log:1: ERROR two\n"},
		{args{"content": "(?i)error t", "glob": "*.txt"}, "sub/c.txt:1: error three\n"},
		{args{"glob": "*.none"}, "[nothing found]\n"},
		{args{"glob": "*.log", "limit": 1}, "a.log\n[the search is not complete: the limit of 1 results is reached]\n"},
		{args{"content": "yERROR"}, "long.log:1: " + strings.Repeat("y", maxHitText) + " …\n"},
	} {
		if got := s.ok("search_files", c.in); got != c.want {
			t.Errorf("%v: %q, want %q", c.in, got, c.want)
		}
	}
	s.fails("give glob, content or both", "search_files", args{})
	s.fails("content: ", "search_files", args{"content": "("})
	s.fails("glob: ", "search_files", args{"glob": "[a"})
	s.fails("does not exist", "search_files", args{"path": "none", "glob": "*"})
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.md", "a.md", true}, {"*.md", "x/y/a.md", true}, {"*.md", "a.mdx", false},
		{"x/*.md", "x/a.md", true}, {"x/*.md", "y/x/a.md", false}, {"x/*.md", "x/y/a.md", false},
		{"**/a", "a", true}, {"**/a", "x/y/a", true}, {"x/**", "x/a/b", true}, {"x/**", "y/a", false},
		{"x/**/z", "x/z", true}, {"x/**/z", "x/a/b/z", true}, {"x/**/z", "x/a/b", false},
		{"/x/a", "x/a", true}, {"[ab]?", "b1", true}, {"[ab]?", "c1", false}, {"**/**/**", "a", true},
		{strings.Repeat("**/", 100) + "b", strings.Repeat("a/", 200) + "a", false},
	} {
		g, err := parseGlob(c.pattern)
		must(t, err)
		if got := g.match(c.name); got != c.want {
			t.Errorf("%s ~ %s: %v", c.pattern, c.name, got)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "../a", "/srv/x/a", "/srv/x", "a/./b", "//", "/srv/x/../y", ".", "a\x00"} {
		f.Add(s)
	}
	fs := &files{dir: "/srv/x", real: "/data/x"}
	f.Fuzz(func(t *testing.T, path string) {
		name, err := fs.name(path)
		if err == nil && (!filepath.IsLocal(name) || filepath.Clean(name) != name) {
			t.Errorf("%q became %q", path, name)
		}
	})
}
