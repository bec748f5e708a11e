package config

import "testing"

// A task that was taken over from load to load is judged again when what it is
// judged against changes, and taken over again after that.
func TestTakenOverTasks(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/far.md": "---\nproject: ops\nallow: [memory/remember]\n---\nFar.\n"}))
	l := d.loader()
	check := func(what string, fine func(TaskFile) bool) {
		t.Helper()
		for _, again := range []string{"", ", taken over"} {
			s := load(t, l)
			if f := s.Tasks["far"]; f.Task.Prompt != "Far." || f.Stale || f.Policy.Allow.Len() != 1 || !fine(f) {
				t.Errorf("%s%s: %+v, problems %q", what, again, f, texts(s.Problems))
			}
			if p := l.cache["tasks/far.md"].parsed; p.task != nil || s.Accepted["tasks/far.md"].SHA256 != p.sum {
				t.Errorf("%s%s: keys kept %v, or not accepted", what, again, p.task)
			}
		}
	}
	check("first", func(f TaskFile) bool { return string(*f.Policy.OnAsk) == "deny" })
	d.write("runnerd.yaml", "defaults: {on_ask: park, overlap: queue}\n")
	check("defaults", func(f TaskFile) bool { return string(*f.Policy.OnAsk) == "park" && f.Task.Overlap == "queue" })
	d.write("projects.yaml", "projects:\n  ops: {instructions: Be kind.}\n")
	check("project", func(f TaskFile) bool { return f.Task.Instructions == "Be kind." })
	d.write("runnerd.yaml", "defaults: [\n")
	check("defaults broken", func(f TaskFile) bool { return string(*f.Policy.OnAsk) == "park" })
	d.remove("runnerd.yaml")
	check("defaults gone", func(f TaskFile) bool { return string(*f.Policy.OnAsk) == "deny" && f.Task.Overlap == "skip" })

	d.write("connectors.yaml", "mcpServers:\n  files: {builtin: files, root: /srv/reports}\n")
	for range 2 {
		if s := load(t, l); !s.Tasks["far"].Stale || len(s.Problems) == 0 {
			t.Errorf("a task whose connector is gone: %+v", s.Tasks["far"])
		}
	}
}
