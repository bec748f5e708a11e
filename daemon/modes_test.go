package daemon

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"runnerd/internal/daemontest"
)

// A child of the daemon's own user may change modes in the state directory, which
// shuts people's verbs out and lets other users in. The next tick puts them back.
func TestModesArePutBack(t *testing.T) {
	a := testApp(t, map[string]string{"tasks/rest.yaml": "prompt: Rest.\n", "models.yaml": "models:\n  default: {provider: scripted, script: s.yaml}\n", "s.yaml": "turns:\n  - say: Hi.\n"})
	a.Every = 10 * time.Millisecond
	h := openTest(t, a)
	token, err := h.openDoor()
	if err != nil || token == "" {
		t.Fatalf("token %q, %v", token, err)
	}
	file := filepath.Join(a.StateDir, "control.token")
	paths := []string{a.StateDir, file, h.options.Database, h.options.PolicyDatabase}
	before := map[string]fs.FileMode{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		before[path] = info.Mode().Perm()
	}
	mode := func(path string) fs.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Mode().Perm()
	}
	kept := ownModes(h.options.Settings)
	for _, path := range paths {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	kept.restore(h.log)
	for _, path := range paths {
		if got := mode(path); got != before[path] {
			t.Errorf("%s: %v, want %v", path, got, before[path])
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	h.modes = kept
	go func() { done <- h.tick(ctx) }()
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	daemontest.Until(t, "the tick restored the token's mode", func() bool { return mode(file) == before[file] })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
