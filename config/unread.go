package config

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// folder is one of our directories as somebody left it.
type folder struct {
	dir   string // below the config directory; empty: that itself
	names []string
	// ours tells whether a name is one that is read.
	ours func(name string) bool
}

func folderOf(dir string, entries []os.DirEntry, ours func(string) bool) folder {
	f := folder{dir: dir, ours: ours}
	for _, e := range entries {
		f.names = append(f.names, e.Name())
	}
	return f
}

// setAside tells whether the name is marked as one that programs pass over, or as an
// editor's. Such a file is never read; tell says whether it is named.
func setAside(name string) bool {
	return strings.HasPrefix(name, ".") && name != hostFileName || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~")
}

// tell names a file that was set aside if it looks like one of ours, or is all that
// an editor left of one. Nothing is said of what lies beside the file that it was
// made from, nor of what editors keep while they work (.x.md.swp, .#x.md).
func (f folder) tell(s *scan, name string) {
	of := original(name)
	if of == "" || !f.ours(of) || slices.Contains(f.names, of) {
		return
	}
	p := Problem{File: path.Join(f.dir, name), What: "this file is not read"}
	if of == name[1:] {
		p.Expected, p.Hint = "a name that begins with a letter or digit", "rename it, or move it away"
	} else {
		p.Hint = "an editor kept it of " + of + ", which is not there: rename it to " + of + ", or remove it"
	}
	s.warnings = append(s.warnings, p)
}

var numberedBackup = regexp.MustCompile(`\.~[0-9]+~$`)

// original is the name that a name was made from by those who set files aside; "" if
// the name alone says that nobody needs to hear of it.
func original(name string) string {
	switch {
	case strings.HasPrefix(name, ".#"), strings.HasPrefix(name, ".."):
		return ""
	case strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#"):
		return strings.Trim(name, "#")
	case numberedBackup.MatchString(name):
		return numberedBackup.ReplaceAllString(name, "")
	case strings.HasSuffix(name, "~"):
		return strings.TrimSuffix(name, "~")
	case strings.HasPrefix(name, "._"): // a Mac's
		return name[2:]
	}
	return name[1:]
}
