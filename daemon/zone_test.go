package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runnerd/internal/daemontest"
)

// lay lays files below a root: by their content, links by where they lead, with ->
// before it.
func lay(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		daemontest.Must(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
		if target, link := strings.CutPrefix(text, "-> "); link {
			daemontest.Must(t, os.Symlink(target, root+name))
		} else {
			daemontest.Must(t, os.WriteFile(root+name, []byte(text), 0o644))
		}
	}
}

// TestZone (U9): the daemon's zone is found, or refused with a word on what to set.
func TestZone(t *testing.T) {
	database := map[string]string{
		"/usr/share/zoneinfo/Europe/Berlin":       "TZif berlin",
		"/usr/share/zoneinfo/Arctic/Longyearbyen": "TZif berlin",
		"/usr/share/zoneinfo/Europe/Oslo":         "TZif berlin",
		"/usr/share/zoneinfo/America/New_York":    "TZif newyork",
		"/usr/share/zoneinfo/US/Eastern":          "-> ../America/New_York",
		"/usr/share/zoneinfo/posix/Europe/Berlin": "TZif berlin",
		"/usr/share/zoneinfo/Etc/UTC":             "TZif utc",
		"/usr/share/zoneinfo/UTC":                 "TZif utc",
		"/usr/share/zoneinfo/Asia/Tokyo":          "TZif tokyo",
		"/usr/share/zoneinfo/zone1970.tab":        "# c\tp\tTZ\nDE,NO\t+5230+01322\tEurope/Berlin\nUS\t+4042\tAmerica/New_York\tEastern\n",
	}
	const local = "/etc/localtime"
	for _, c := range []struct {
		name, setting, tz string
		files             map[string]string
		want, from        string // of an error, a part of it
	}{
		{"U9 RUNNERD_TIMEZONE", "Asia/Tokyo", "Europe/Berlin", nil, "Asia/Tokyo", "RUNNERD_TIMEZONE"},
		{"U9 RUNNERD_TIMEZONE is none", "Berlin", "", nil, "", "Europe/Berlin"},
		{"U9 TZ", "", "Asia/Tokyo", nil, "Asia/Tokyo", "TZ"},
		{"U9 TZ with colon", "", ":Europe/Berlin", nil, "Europe/Berlin", "TZ"},
		{"U9 TZ of /etc/localtime", "", ":/etc/localtime", map[string]string{local: "-> /usr/share/zoneinfo/Asia/Tokyo"}, "Asia/Tokyo", "TZ=:/etc/localtime"},
		{"U9 TZ of a copied /etc/localtime", "", ":/etc/localtime", map[string]string{local: "TZif tokyo"}, "Asia/Tokyo", "TZ=:/etc/localtime, by its content"},
		{"U9 TZ of a file", "", "/usr/share/zoneinfo/Asia/Tokyo", nil, "Asia/Tokyo", "TZ="},
		{"U9 TZ of a file that is not there", "", ":/etc/nothing", nil, "", "RUNNERD_TIMEZONE"},
		{"U9 TZ in the form of POSIX", "", "CET-1CEST,M3.5.0,M10.5.0/3", nil, "", "RUNNERD_TIMEZONE"},
		{"U9 link", "", "", map[string]string{local: "-> /usr/share/zoneinfo/Europe/Berlin"}, "Europe/Berlin", local},
		{"U9 relative link", "", "", map[string]string{local: "-> ../usr/share/zoneinfo/Europe/Berlin"}, "Europe/Berlin", local},
		{"U9 link to a link", "", "", map[string]string{local: "-> /etc/here", "/etc/here": "-> ../srv/tz", "/srv/tz": "-> /usr/share/zoneinfo/Europe/Berlin"},
			"Europe/Berlin", local},
		{"U9 link through a linked directory", "", "", map[string]string{local: "-> /srv/zones/Europe/Berlin", "/srv/zones": "-> /usr/share/zoneinfo"}, "Europe/Berlin", local},
		{"U9 link to a link in the database", "", "", map[string]string{local: "-> /usr/share/zoneinfo/US/Eastern"}, "US/Eastern", local},
		{"U9 link into posix", "", "", map[string]string{local: "-> /usr/share/zoneinfo/posix/Europe/Berlin"}, "Europe/Berlin", local},
		{"U9 link into a database that is not installed", "", "", map[string]string{local: "-> /usr/lib/zoneinfo/Asia/Kathmandu"}, "Asia/Kathmandu", local},
		{"U9 link to a copy", "", "", map[string]string{local: "-> /srv/tz", "/srv/tz": "TZif newyork"}, "America/New_York", "by its content"},
		{"U9 link to nothing", "", "", map[string]string{local: "-> /srv/tz"}, "", "RUNNERD_TIMEZONE"},
		{"U9 links in a ring", "", "", map[string]string{local: "-> /etc/here", "/etc/here": "-> localtime"}, "", "RUNNERD_TIMEZONE"},
		{"U9 copy", "", "", map[string]string{local: "TZif berlin"}, "Europe/Berlin", local + ", by its content"},
		{"U9 copy of UTC", "", "", map[string]string{local: "TZif utc"}, "UTC", "by its content"},
		{"U9 copy, named in /etc/timezone", "", "", map[string]string{local: "TZif berlin", "/etc/timezone": "Europe/Oslo\n"}, "Europe/Oslo", "/etc/timezone"},
		{"U9 copy, /etc/timezone names another", "", "", map[string]string{local: "TZif berlin", "/etc/timezone": "Asia/Tokyo\n"}, "Europe/Berlin", "by its content"},
		{"U9 copy of an older database", "", "", map[string]string{local: "TZif old", "/etc/timezone": "Asia/Tokyo\n"}, "Asia/Tokyo", "/etc/timezone"},
		{"U9 unknown copy", "", "", map[string]string{local: "TZif old"}, "", "RUNNERD_TIMEZONE"},
		{"U9 unknown copy, odd /etc/timezone", "", "", map[string]string{local: "TZif old", "/etc/timezone": "somewhere\n"}, "", "RUNNERD_TIMEZONE"},
		{"U9 a directory", "", "", map[string]string{local + "/x": ""}, "", "RUNNERD_TIMEZONE"},
		{"U9 /etc/timezone alone", "", "", map[string]string{"/etc/timezone": "Europe/Berlin\n"}, "Europe/Berlin", "/etc/timezone"},
		{"U9 nothing at all", "", "", nil, "UTC", "there is no /etc/localtime"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Options{Settings: Settings{Timezone: c.setting}, Root: t.TempDir(), Getenv: func(key string) string { return map[string]string{"TZ": c.tz}[key] }}
			lay(t, a.Root, database)
			lay(t, a.Root, c.files)
			zone, from, err := a.FindZone()
			switch {
			case c.want == "" && (err == nil || !strings.Contains(err.Error(), c.from) || !strings.Contains(err.Error(), "RUNNERD_TIMEZONE")):
				t.Errorf("%v, %v; want an error that names RUNNERD_TIMEZONE and %s", zone, err, c.from)
			case c.want != "" && (err != nil || zone.String() != c.want || !strings.Contains(from, c.from)):
				t.Errorf("%v from %q, %v; want %s from %s", zone, from, err, c.want, c.from)
			}
		})
	}
}
