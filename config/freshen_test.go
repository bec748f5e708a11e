package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"runnerd/task"
)

func freshen(t *testing.T, l *Loader, id string) (bool, *Set) {
	t.Helper()
	changed, s, err := l.Freshen(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return changed, s
}

// Whatever decides about a task's calls is seen by the very next look.
func TestFreshenSeesEachEdit(t *testing.T) {
	edits := []struct {
		name string
		edit func(d dir)
		seen func(s *Set) bool
	}{
		{"its own file", func(d dir) { d.write("tasks/good.md", "---\ndeny: [mail/*]\n---\np\n") },
			func(s *Set) bool { return s.Tasks["good"].Policy.Deny.Len() == 1 }},
		{"same size, at once", func(d dir) { d.write("tasks/good.md", "---\nschedule: \"@daily\"\n---\nDo ot.\n") },
			func(s *Set) bool { return s.Tasks["good"].Task.Prompt == "Do ot." }},
		{"projects", func(d dir) { d.write("projects.yaml", "projects:\n  ops: {connectors: []}\n") },
			func(s *Set) bool {
				c := s.Projects["ops"].Policy.Connectors
				return c.Declared() && c.Len() == 0
			}},
		{"connectors", func(d dir) {
			d.write("connectors.yaml", "mcpServers:\n  files: {builtin: files, root: /srv/reports, disabled_tools: [x]}\n  memory: {builtin: memory}\n")
		},
			func(s *Set) bool { return s.Connectors["files"].Policy.DisabledTools.Len() == 1 }},
		{"a new file in connectors.d", func(d dir) { d.write("connectors.d/x.yaml", "mcpServers:\n  x: {command: x}\n") },
			func(s *Set) bool { return s.Connectors["x"].Connector.Command == "x" }},
		{"a file of another host", func(d dir) { d.write(".mcp.json", `{"mcpServers": {"y": {"command": "y"}}}`) },
			func(s *Set) bool { return s.Connectors["y"].Connector.Command == "y" }},
		{"the daemon's file", func(d dir) { d.write("runnerd.yaml", "defaults: {on_ask: park}\n") },
			func(s *Set) bool { return *s.Tasks["good"].Policy.OnAsk == "park" }},
		{"a second file of its name", func(d dir) { d.write("tasks/good.yaml", "prompt: q\n") },
			func(s *Set) bool { return s.Tasks["good"].Stale && len(s.Problems) == 1 }},
		{"its file renamed to .yaml", func(d dir) { d.write("tasks/good.yaml", "prompt: q\n"); d.remove("tasks/good.md") },
			func(s *Set) bool { return s.Tasks["good"].Task.Prompt == "q" }},
		{"its file removed", func(d dir) { d.remove("tasks/good.md") },
			func(s *Set) bool { _, ok := s.Tasks["good"]; return !ok }},
		{"made world-writable", func(d dir) { try(d.t, os.Chmod(filepath.Join(d.path, "tasks/good.md"), 0o666)) },
			func(s *Set) bool { return s.Tasks["good"].Stale }},
	}
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDir(t, base(map[string]string{"tasks/other.md": "---\n---\nStays.\n"}))
			l := d.loader()
			load(t, l)
			if changed, _ := freshen(t, l, "good"); changed {
				t.Error("changed before the edit")
			}
			tt.edit(d)
			changed, s := freshen(t, l, "good")
			if !changed || !tt.seen(s) || l.Current() != s {
				t.Errorf("changed %v; the edit is not in the set: %q", changed, texts(s.Problems))
			}
			if changed, _ := freshen(t, l, "good"); changed {
				// A directory that changed a moment ago is looked at once more.
				if changed, _ = freshen(t, l, "good"); changed && tt.name != "a new file in connectors.d" {
					t.Error("changed again without an edit")
				}
			}
		})
	}
}

func TestFreshenMindsItsOwn(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/other.md": "---\n---\np\n"}))
	l := d.loader()
	before := load(t, l)
	d.write("tasks/other.md", "---\n---\nq\n")
	if changed, s := freshen(t, l, "good"); changed || s != before {
		t.Error("another task's file made a load")
	}
	if changed, _ := freshen(t, l, "other"); !changed {
		t.Error("its own file did not")
	}
	if changed, _ := freshen(t, l, "../../etc/passwd"); changed {
		t.Error("a name that is no id made a load")
	}
}

// A file that an editor removes for a moment is not believed to be gone.
func TestSaveByRemovingFirst(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader()
	load(t, l)
	d.remove("tasks/good.md")
	pause := l.clock.pause
	l.clock.pause = func(ctx context.Context, rest time.Duration) { // the editor goes on while the loader waits
		if _, err := os.Stat(filepath.Join(d.path, "tasks/good.md")); err != nil {
			d.write("tasks/good.md", "---\n---\nSaved.\n")
		}
		pause(ctx, rest)
	}
	if _, s := freshen(t, l, "good"); s.Tasks["good"].Task.Prompt != "Saved." {
		t.Errorf("task = %+v", s.Tasks["good"])
	}
}

// A file that is being written is not read half: rules at its end count. The writer
// goes on while the loader waits, and no time passes until it is done, however slow
// the machine is.
func TestSlowWriter(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader(func(o *Options) { o.MaxSettle = time.Hour })
	load(t, l)
	full := filepath.Join(d.path, "connectors.yaml")
	f, err := os.Create(full)
	try(t, err)
	defer f.Close()
	_, err = f.WriteString("mcpServers:\n  files: {builtin: files, root: /srv/reports}\n")
	try(t, err)
	written := 0
	l.clock.pause = func(context.Context, time.Duration) {
		fmt.Fprintf(f, "  m%d: {builtin: memory}\n", written)
		written++
	}
	l.clock.now = func() time.Time {
		since := time.Millisecond
		if written == 5 {
			since = time.Minute
		}
		return time.Unix(0, sign(full).mtime).Add(since)
	}
	if _, s := freshen(t, l, "good"); len(s.Connectors) != 6 || written != 5 {
		t.Errorf("connectors = %v, %d lines written", s.ConnectorIDs(), written)
	}
}

func TestFreshenTogether(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader()
	load(t, l)
	d.write("tasks/good.md", "---\n---\nNew.\n")
	var wg sync.WaitGroup
	sets := make([]*Set, 20)
	for i := range sets {
		wg.Go(func() { _, sets[i], _ = l.Freshen(context.Background(), "good") })
	}
	wg.Wait()
	for _, s := range sets {
		if s != sets[0] || s.Tasks["good"].Task.Prompt != "New." {
			t.Fatal("more than one load, or an old set")
		}
	}
}

func TestLoadEnds(t *testing.T) {
	d := newDir(t, base(nil))
	l := d.loader()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if l.Current() != nil {
		t.Error("a set without a load")
	}
	held := d.loader(func(o *Options) { o.LoadTimeout = time.Millisecond })
	held.turn <- struct{}{}
	if _, _, err := held.Freshen(context.Background(), "good"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	asked := 0
	d := newDir(t, base(nil))
	l := d.loader(func(o *Options) { o.CheckSchedule = func(task.Schedule) error { asked++; return nil } })
	load(t, l)
	parsed := l.cache["tasks/good.md"].parsed
	load(t, l)
	if l.cache["tasks/good.md"].parsed != parsed || asked != 1 {
		t.Errorf("parsed again, or asked %d times about one schedule", asked)
	}
}

func manyTasks(t testing.TB, n int) dir {
	d := newDir(t, base(nil))
	for i := range n {
		d.write(fmt.Sprintf("tasks/t%05d.md", i), fmt.Sprintf("---\nschedule: \"%d 7 * * *\"\ntimezone: Europe/Berlin\nproject: ops\nconnectors: [memory]\nallow: [memory/remember]\nlimits: {steps: 5}\n---\nTask %d.\n", i%60, i))
	}
	return d
}

func TestManyTasks(t *testing.T) {
	const n = 2000 // BenchmarkLoad10k has the whole number
	d := manyTasks(t, n)
	l := d.loader()
	start := time.Now()
	if s := load(t, l); len(s.Tasks) != n+1 || len(s.Problems) > 0 {
		t.Fatalf("%d tasks, problems %q", len(s.Tasks), texts(s.Problems))
	}
	if took := time.Since(start); took > 20*time.Second { // 0.2 s on a quiet machine
		t.Errorf("load took %v", took)
	}
}

func BenchmarkLoad10k(b *testing.B) {
	d := manyTasks(b, 10_000)
	for b.Loop() {
		load(b, d.loader())
	}
}

func BenchmarkReload10k(b *testing.B) {
	d := manyTasks(b, 10_000)
	l := d.loader()
	load(b, l)
	for b.Loop() {
		load(b, l)
	}
}

func BenchmarkFreshen(b *testing.B) {
	d := newDir(b, base(map[string]string{"connectors.d/a.yaml": "mcpServers: {a: {command: x}}\n", "runnerd.yaml": "limits: {runs_per_day: 5}\n"}))
	l := d.loader()
	load(b, l)
	time.Sleep(300 * time.Millisecond)
	load(b, l)
	for b.Loop() {
		if changed, _, err := l.Freshen(context.Background(), "good"); changed || err != nil {
			b.Fatal(changed, err)
		}
	}
}

// TestRest (U13): a file that changed within the time of rest is not yet a revision,
// whoever asks: a load, as SIGHUP makes one, and Freshen.
func TestRest(t *testing.T) {
	for _, c := range []struct {
		name string
		look func(l *Loader) (*Set, error)
	}{
		{"U13 load", func(l *Loader) (*Set, error) { return l.Load(context.Background()) }},
		{"U13 freshen", func(l *Loader) (*Set, error) {
			_, set, err := l.Freshen(context.Background(), "a")
			return set, err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDir(t, base(map[string]string{"tasks/a.md": "---\n---\nW-8000\n"}))
			file := filepath.Join(d.path, "tasks/a.md")
			rested := time.Now().Add(-2 * time.Hour)
			try(t, filepath.Walk(d.path, func(path string, _ os.FileInfo, err error) error {
				return errors.Join(err, os.Chtimes(path, rested, rested))
			}))
			l := d.loader(func(o *Options) { o.Settle, o.MaxSettle = time.Hour, 50*time.Millisecond })
			load(t, l)
			d.write("tasks/a.md", "---\n---\nW-90") // the rest is still to come
			set, err := c.look(l)
			try(t, err)
			if got := set.Tasks["a"].Task.Prompt; got != "W-8000" || len(set.Problems) != 1 || !strings.Contains(set.Problems[0].Error(), "being written") {
				t.Errorf("in the midst of writing: prompt %q, problems %v", got, set.Problems)
			}
			d.write("tasks/a.md", "---\n---\nW-9012\n")
			try(t, os.Chtimes(file, rested.Add(time.Minute), rested.Add(time.Minute)))
			set, err = c.look(l)
			try(t, err)
			if got := set.Tasks["a"].Task.Prompt; got != "W-9012" || len(set.Problems) != 0 {
				t.Errorf("at rest: prompt %q, problems %v", got, set.Problems)
			}
		})
	}
}
