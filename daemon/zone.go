package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"runnerd/task"
)

// zoneFiles is where the machine says which zone it is in, and where its zone
// database is.
type zoneFiles struct {
	root string // of the file system; "" is /
}

const (
	localtimeFile = "/etc/localtime"
	timezoneFile  = "/etc/timezone"
	zoneDatabase  = "/usr/share/zoneinfo"
	zoneMark      = "zoneinfo/"
	maxHops       = 40
)

// FindZone is the daemon's zone and where that was found, or an error: it is never
// guessed. RUNNERD_TIMEZONE comes first, then TZ, then the machine's files. A name is
// needed, because it is stored with each task.
func (o Options) FindZone() (zone *time.Location, from string, err error) {
	files := zoneFiles{o.Root}
	name, from := o.Timezone, "RUNNERD_TIMEZONE"
	if name == "" {
		if tz := strings.TrimPrefix(o.Getenv("TZ"), ":"); filepath.IsAbs(tz) {
			name, from, err = files.ofFile(tz, "TZ="+o.Getenv("TZ"))
		} else if tz != "" {
			name, from = tz, "TZ"
		} else {
			name, from, err = files.machine()
		}
	}
	if err != nil {
		return nil, from, fmt.Errorf("the machine's time zone is not known: %w; set RUNNERD_TIMEZONE, for example to Europe/Berlin", err)
	}
	if zone, err = task.LoadZone(name); err != nil {
		return nil, from, fmt.Errorf("time zone %q (%s) is not an IANA name: %w; set RUNNERD_TIMEZONE, for example to Europe/Berlin", name, from, err)
	}
	return zone, from, nil
}

// Zone is FindZone for who needs no more.
func (o Options) Zone() (*time.Location, error) {
	zone, _, err := o.FindZone()
	return zone, err
}

func isZone(name string) bool {
	_, err := task.LoadZone(name)
	return err == nil
}

// machine is the zone of the machine. One without /etc/localtime is in UTC: that is
// what localtime(5) says, and what its other programs do.
func (f zoneFiles) machine() (name, from string, err error) {
	if _, err := os.Lstat(f.root + localtimeFile); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return f.ofFile(localtimeFile, localtimeFile)
	}
	if name := f.written(); name != "" {
		return name, timezoneFile, nil
	}
	return "UTC", "there is no " + localtimeFile, nil
}

// ofFile names the zone of a file in the form of /etc/localtime: by the links that
// lead to it, else by its bytes, which are those of one in the zone database, else
// by /etc/timezone, where it speaks for /etc/localtime.
func (f zoneFiles) ofFile(file, what string) (name, from string, err error) {
	path, name, err := f.follow(file)
	if err != nil {
		return "", what, err
	}
	if name != "" {
		return name, what, nil
	}
	content, err := os.ReadFile(f.root + path)
	if err != nil {
		return "", what, err
	}
	same, err := f.sameAs(content)
	written := f.written()
	switch {
	case err != nil:
		return "", what, err
	case slices.Contains(same, written):
		return written, what + ", by its content and " + timezoneFile, nil
	case len(same) > 0:
		return same[0], what + ", by its content", nil
	case written != "" && file == localtimeFile:
		return written, timezoneFile, nil
	}
	return "", what, fmt.Errorf("%s is no link into a zone database, and no zone of %s has its content", file, zoneDatabase)
}

// follow follows links from one to the next. It returns the name below a zone
// database that one of them names, or the path of the file at their end.
func (f zoneFiles) follow(path string) (end, name string, err error) {
	for range maxHops {
		if _, after, ok := cutLast(path, zoneMark); ok {
			after = strings.TrimPrefix(after, "posix/")
			if isZone(after) {
				return path, after, nil
			}
		}
		target, err := f.link(path)
		if err != nil || target == "" {
			return path, "", err
		}
		path = target
	}
	return "", "", fmt.Errorf("%s: more than %d links", path, maxHops)
}

// link is where the first link in a path leads, with the rest of the path; empty if
// there is none.
func (f zoneFiles) link(path string) (string, error) {
	parts := strings.Split(filepath.Clean(path), "/")
	at := "/"
	for i, part := range parts[1:] {
		next := filepath.Join(at, part)
		info, err := os.Lstat(f.root + next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(f.root + next)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(at, target)
		}
		return filepath.Join(append([]string{target}, parts[i+2:]...)...), nil
	}
	return "", nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// written is the zone that /etc/timezone names, if it names one.
func (f zoneFiles) written() string {
	text, err := os.ReadFile(f.root + timezoneFile)
	name := strings.TrimSpace(string(text))
	if err != nil || !isZone(name) {
		return ""
	}
	return name
}

// sameAs lists the zones of the database whose files are the same, the best name
// first: many zones have several. What they are called makes no difference to when
// anything is due.
func (f zoneFiles) sameAs(content []byte) (names []string, err error) {
	base := f.root + zoneDatabase
	err = filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, base), "/")
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() && (name == "posix" || name == "right"):
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() != int64(len(content)) {
			return nil // a link that leads to nothing names no zone
		}
		if other, err := os.ReadFile(path); err == nil && bytes.Equal(other, content) && isZone(name) {
			names = append(names, name)
		}
		return nil
	})
	canonical := f.canonical()
	slices.SortStableFunc(names, func(a, b string) int { return rank(a, canonical) - rank(b, canonical) })
	return names, err
}

// canonical are the names that the database gives to people to choose from.
func (f zoneFiles) canonical() map[string]bool {
	list := map[string]bool{}
	text, err := os.ReadFile(f.root + zoneDatabase + "/zone1970.tab")
	if err != nil {
		return list // any of the names will do
	}
	for _, line := range strings.Split(string(text), "\n") {
		if columns := strings.Split(line, "\t"); len(columns) > 2 && !strings.HasPrefix(line, "#") {
			list[columns[2]] = true
		}
	}
	return list
}

func rank(name string, canonical map[string]bool) int {
	switch {
	case name == "UTC":
		return 0
	case canonical[name]:
		return 1
	case strings.Contains(name, "/") && !strings.HasPrefix(name, "Etc/"):
		return 2
	}
	return 3
}
