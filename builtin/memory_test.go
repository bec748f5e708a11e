package builtin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	s := connect(t, Memory)
	if got := s.ok("recall", args{}); got != "[no notes]" {
		t.Errorf("nothing yet: %q", got)
	}
	s.ok("remember", args{"key": "wifi", "text": "Router is in the CELLAR", "tags": []string{"house", "net"}})
	s.ok("remember", args{"key": " cat ", "text": "likes <fish>\nand naps"})
	if got := s.ok("remember", args{"key": "dog", "text": "old"}); got != `remembered "dog"` {
		t.Errorf("%q", got)
	}
	if got := s.ok("remember", args{"key": "dog", "text": "in the cellar too"}); got != `replaced "dog"` {
		t.Errorf("%q", got)
	}

	// Another session, as the next run has it.
	s = connect(t, Memory, "--file", dir+"/memory.jsonl")
	for _, c := range []struct {
		tool string
		in   args
		want string // keys in order
	}{
		{"recall", args{}, "dog cat wifi"},
		{"recall", args{"limit": 1}, "dog"},
		{"recall", args{"key": "cat"}, "cat"},
		{"search", args{"query": "cellar"}, "dog wifi"},
		{"search", args{"query": "Cellar NET"}, "wifi"},
		{"search", args{"query": "cellar", "limit": 1}, "dog"},
		{"search", args{"query": "nowhere"}, ""},
	} {
		if got := keys(s.ok(c.tool, c.in)); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.tool, c.in, got, c.want)
		}
	}
	if got := s.ok("recall", args{"key": "cat"}); !strings.HasSuffix(got, "\nlikes <fish>\nand naps\n\n") {
		t.Errorf("cat: %q", got)
	}
	s.ok("forget", args{"key": "cat"})
	s.fails("nothing is remembered", "recall", args{"key": "cat"})
	s.fails("nothing is remembered", "forget", args{"key": "cat"})
	s.fails("key is empty", "remember", args{"key": " ", "text": "x"})
	s.fails("text is empty", "remember", args{"key": "x", "text": ""})
	s.fails("at most", "remember", args{"key": "x", "text": strings.Repeat("x", maxNote+1)})
	s.fails("at most", "remember", args{"key": strings.Repeat("x", maxKey+1), "text": "x"})
	s.fails("query", "search", args{"query": " "})
	info, err := os.Stat(dir + "/memory.jsonl")
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
}

// keys lists the keys of an answer.
func keys(text string) string {
	var list []string
	for line := range strings.SplitSeq(text, "\n") {
		if k, ok := strings.CutPrefix(line, "key: "); ok {
			list = append(list, k)
		}
	}
	return strings.Join(list, " ")
}

func TestMemoryKeepsABrokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.jsonl")
	for text, want := range map[string]string{
		"{\"key\":\"a\",\"text\":\"x\"}\n\nnot json\n": ":3: not a note",
		`{"text":"x"}`: ":1: not a note: no key",
		`["key"]`:      ":1: not a note",
	} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		s := connect(t, Memory, "--file", file)
		s.fails(file+want, "recall", args{})
		s.fails(want, "remember", args{"key": "b", "text": "y"})
		if got := content(t, file); got != text {
			t.Errorf("rewritten to %q", got)
		}
	}
}

func TestMemoryHandlesManyAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.jsonl")
	servers := []*session{connect(t, Memory, "--file", file), connect(t, Memory, "--file", file)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			servers[i%2].ok("remember", args{"key": fmt.Sprint("k", i), "text": "x"})
			servers[(i+1)%2].ok("recall", args{"key": fmt.Sprint("k", i)})
		})
	}
	wg.Wait()
	if got := strings.Count(content(t, file), "\n"); got != 20 {
		t.Errorf("%d notes, want 20", got)
	}
}

func TestMemoryWaitsForItsLock(t *testing.T) {
	m := &memory{file: filepath.Join(t.TempDir(), "m.jsonl")}
	lock, err := os.Create(m.file + ".lock")
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.remember(ctx, rememberArgs{Key: "a", Text: "x"}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("with the lock held: %v", err)
	}
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	if _, err := m.remember(t.Context(), rememberArgs{Key: "a", Text: "x"}); err != nil {
		t.Errorf("with the lock free: %v", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.jsonl")
	var b strings.Builder
	for i := range maxNotes {
		fmt.Fprintf(&b, "{\"key\":\"k%d\",\"text\":\"%s\",\"at\":\"2026-01-02T03:04:05Z\"}\n", i, strings.Repeat("x", 100))
	}
	must(t, os.WriteFile(file, []byte(b.String()), 0o600))
	s := connect(t, Memory, "--file", file)
	s.fails("forget some first", "remember", args{"key": "one more", "text": "x"})
	s.ok("remember", args{"key": "k5", "text": "replaced"})
	got := s.ok("recall", args{"limit": maxNotes})
	if len(got) > maxRecall+100 || !strings.Contains(got, "older notes are not shown") || !strings.HasPrefix(got, "key: k5\n") {
		t.Errorf("%d bytes: %q", len(got), clip(got))
	}
	must(t, os.Truncate(file, maxFile+1))
	s.fails("at most", "recall", args{})
}
