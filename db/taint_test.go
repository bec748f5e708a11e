package db

import (
	"testing"

	"runnerd/task"
)

// I19: taint follows entries as they are written, moved, replaced and removed.
func TestTaints(t *testing.T) {
	d := openTest(t, Options{})
	touch := func(run string, tainted bool, what task.Touched) {
		t.Helper()
		if err := d.Touch(t.Context(), run, tainted, what); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want map[string]string) {
		t.Helper()
		for entry, by := range want {
			if got, err := d.Tainted(t.Context(), []string{"/other", entry}); err != nil || got != by {
				t.Errorf("%s: %s is tainted by %q, want %q (%v)", what, entry, got, by, err)
			}
		}
	}
	touch("r1", true, task.Touched{Wrote: []string{"/s/d", "/s/d/a", "/s/d/b", "/s/da"}, Added: []string{"/s/m#k"}})
	expect("written", map[string]string{"/s/d/a": "r1", "/s/da": "r1", "/s/m#k": "r1", "/s": "", "/s/d/a/x": "", "/s/m": ""})
	touch("r2", false, task.Touched{Added: []string{"/s/d/a"}})
	expect("appended to", map[string]string{"/s/d/a": "r1"})
	touch("r2", false, task.Touched{Moved: []task.Move{{From: "/s/d", To: "/s/%_"}}})
	expect("moved", map[string]string{"/s/d": "", "/s/d/a": "", "/s/%_": "r1", "/s/%_/a": "r1", "/s/%_/b": "r1", "/s/da": "r1"})
	touch("r2", false, task.Touched{Wrote: []string{"/s/%_/a"}, Gone: []string{"/s/m#k"}})
	expect("replaced and forgotten", map[string]string{"/s/%_/a": "", "/s/%_/b": "r1", "/s/m#k": ""})
	touch("r3", true, task.Touched{Moved: []task.Move{{From: "/s/%_/a", To: "/s/é"}}})
	expect("named by a tainted run", map[string]string{"/s/é": "r3"})
	touch("r2", false, task.Touched{Gone: []string{"/s/%_"}})
	expect("gone with all below", map[string]string{"/s/%_": "", "/s/%_/b": "", "/s/da": "r1"})
	many := make([]string, 1000)
	for i := range many {
		many[i] = "/none"
	}
	if by, err := d.Tainted(t.Context(), append(many, "/s/da")); err != nil || by != "r1" {
		t.Errorf("the last of many: %q %v", by, err)
	}
}
