package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// watching runs Watch beside a test; each call of changed loads and is counted.
type watching struct {
	t    *testing.T
	l    *Loader
	sets chan *Set
}

func watch(t *testing.T, d dir, set ...func(*Options)) *watching {
	t.Helper()
	quick := func(o *Options) { o.Settle, o.MaxSettle, o.Poll = 60*time.Millisecond, time.Second, time.Hour }
	w := &watching{t: t, l: d.loader(append([]func(*Options){quick}, set...)...), sets: make(chan *Set, 100)}
	load(t, w.l)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		w.l.Watch(ctx, func() {
			s, err := w.l.Load(ctx)
			if err == nil {
				w.sets <- s
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	// A first edit shows that the watch stands; until then edits may be unseen.
	for i := 0; ; i++ {
		d.write("tasks/ready.md", fmt.Sprintf("---\n---\n%d\n", i))
		select {
		case <-w.sets:
			return w
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// until waits for a set that satisfies seen, and returns how many loads it took.
func (w *watching) until(seen func(*Set) bool) int {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for n := 1; ; n++ {
		select {
		case s := <-w.sets:
			if seen(s) {
				return n
			}
		case <-deadline:
			w.t.Fatal("the edit was never seen")
		}
	}
}

func promptIs(id, want string) func(*Set) bool {
	return func(s *Set) bool { return s.Tasks[id].Task.Prompt == want }
}

func TestWatchWaysOfSaving(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/..v1/k.md": "---\n---\none\n", "tasks/..v2/k.md": "---\n---\ntwo\n"}))
	tasks := filepath.Join(d.path, "tasks")
	try(t, os.Symlink("..v1", filepath.Join(tasks, "..data")), os.Symlink("..data/k.md", filepath.Join(tasks, "k.md")))
	w := watch(t, d)

	d.write("tasks/good.md", "---\n---\nin place\n")
	w.until(promptIs("good", "in place"))

	d.write("tasks/.good.tmp", "---\n---\nrenamed\n")
	try(t, os.Rename(filepath.Join(tasks, ".good.tmp"), filepath.Join(tasks, "good.md")))
	w.until(promptIs("good", "renamed"))

	try(t, os.Symlink("..v2", filepath.Join(tasks, "tmp")), os.Rename(filepath.Join(tasks, "tmp"), filepath.Join(tasks, "..data")))
	w.until(promptIs("k", "two"))

	d.write("connectors.d/new.yaml", "mcpServers: {new: {command: x}}\n")
	w.until(func(s *Set) bool { return s.Connectors["new"].Connector.Command == "x" })
	d.write("connectors.d/new.yaml", "mcpServers: {new: {command: y}}\n")
	w.until(func(s *Set) bool { return s.Connectors["new"].Connector.Command == "y" })

	d.remove("tasks/good.md")
	w.until(func(s *Set) bool { _, ok := s.Tasks["good"]; return !ok })
}

func TestWatchSettles(t *testing.T) {
	d := newDir(t, base(nil))
	w := watch(t, d)
	for i := range 50 {
		d.write(fmt.Sprintf("tasks/n%02d.md", i), "---\n---\np\n")
	}
	n := w.until(func(s *Set) bool { return len(s.Tasks) == 52 })
	if n > 3 {
		t.Errorf("50 files at once made %d loads", n)
	}
	d.write("tasks/notes.txt", "not ours") // no load comes of it
	d.write("tasks/n00.md", "---\n---\nlast\n")
	if n := w.until(promptIs("n00", "last")); n != 1 {
		t.Errorf("%d loads for one edit", n)
	}
}

func TestWatchPolls(t *testing.T) {
	d := newDir(t, base(nil))
	w := watch(t, d, func(o *Options) { o.PollOnly, o.Poll = true, 20*time.Millisecond })
	d.write("tasks/good.md", "---\n---\npolled\n")
	w.until(promptIs("good", "polled"))
}

func TestWatchSeesANewDirectory(t *testing.T) {
	d := newDir(t, base(nil))
	w := watch(t, d)
	old := filepath.Join(d.path, "tasks")
	try(t, os.Rename(old, filepath.Join(d.path, "old")))
	d.write("tasks/good.md", "---\n---\nmoved in\n")
	w.until(promptIs("good", "moved in"))
	d.write("tasks/good.md", "---\n---\nand edited\n")
	w.until(promptIs("good", "and edited"))
}

// Each event puts the look off, but not for ever.
func TestQuiet(t *testing.T) {
	w := &watchState{loader: NewLoader(Options{Settle: 200 * time.Millisecond, MaxSettle: 2 * time.Second})}
	start := time.Unix(1000, 0)
	for _, tt := range []struct{ at, want time.Duration }{
		{0, 200 * time.Millisecond}, {time.Second, 200 * time.Millisecond}, {1900 * time.Millisecond, 100 * time.Millisecond}, {3 * time.Second, 0},
	} {
		if got := w.quiet(start.Add(tt.at)); got != tt.want {
			t.Errorf("after %v: %v, want %v", tt.at, got, tt.want)
		}
	}
}
