package main

import (
	"os"
	"strings"
	"testing"

	"runnerd/internal/daemontest"
)

// U19: a database that is damaged or has no room at start is named, with what helps;
// the config directory has nothing to do with it.
func TestDamagedAtStart(t *testing.T) {
	for _, name := range []string{"runnerd.db", "task_policies.db"} {
		for _, c := range []struct {
			name string
			harm func(path string) error
		}{
			{"garbage", func(path string) error {
				return os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600)
			}},
			{"cut short", func(path string) error { return os.Truncate(path, 9000) }},
			{"a page overwritten", func(path string) error { return scribble(path, 8192) }},
			{"the schema overwritten", func(path string) error { return scribble(path, 100) }},
		} {
			t.Run("U19 "+name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				d := ran(t, 1)
				if err := c.harm(d.state(name)); err != nil {
					t.Fatal(err)
				}
				for _, verb := range [][]string{{"serve"}, {"run", "t"}, {"check", "--offline"}} {
					out, errw, code := d.command(verb...)
					text := out + lines(errw)
					if !strings.Contains(text, d.state(name)) || !strings.Contains(text, "restore DIR") || strings.Contains(text, "read "+d.a.ConfigDir) {
						t.Errorf("%v does not name the database and the cure:\n%s", verb, text)
					}
					if code != 1 && (code != 2 || verb[0] != "check") {
						t.Errorf("%v: exit code %d", verb, code)
					}
				}
			})
		}
	}
}

// U19: no room for what a start has to write, be it the first or a later one.
func TestFullAtStart(t *testing.T) {
	for _, first := range []bool{true, false} {
		d := newDaemon(t, partnered())
		daemontest.SmallDisk(t, d.a.StateDir, 4<<20)
		if !first {
			d.again(1)
			d.write("tasks/new.md", "---\n---\nNew.\n")
		}
		empty := daemontest.Fill(t, d.a.StateDir)
		_, errw, code := d.command("serve")
		text := lines(errw)
		if code != 1 || !strings.Contains(text, d.a.StateDir) || !strings.Contains(text, "make room") {
			t.Errorf("U19 first start %v: exit code %d\n%s", first, code, errw)
		}
		empty()
		if log, code := d.serveOnce(); code != 0 {
			t.Errorf("U19 first start %v, with room: exit code %d\n%s", first, code, log)
		}
	}
}

// A database named as file:PATH is a file like any other.
func TestDatabaseAsFileURL(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, partnered())
	dir := t.TempDir()
	d.env = append(d.env, "RUNNERD_DATABASE=file:"+dir+"/m.db", "RUNNERD_POLICY_DATABASE=file:"+dir+"/p.db")
	d.again(1)
	if out, errw, code := d.command("backup", t.TempDir()+"/b"); code != 0 {
		t.Errorf("backup: exit code %d\n%s%s", code, out, errw)
	}
	if out, errw, code := d.command("doctor"); !strings.Contains(out, "ok       main database") {
		t.Errorf("doctor: exit code %d\n%s%s", code, out, errw)
	}
}
