package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"runnerd/daemon"
)

const sayHello = "turns:\n  - say: Hello.\n    usage: {input: 100000, output: 0}\n"

// testApp is the program in a directory of its own, with no environment.
func testApp(t *testing.T, files map[string]string) *app {
	t.Helper()
	dir := t.TempDir()
	a := &app{out: io.Discard, err: io.Discard, Options: daemon.Options{Getenv: func(string) string { return "" }, Log: io.Discard}}
	a.Settings = daemon.Settings{
		ConfigDir: filepath.Join(dir, "config"), StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"),
		LogLevel: "error", LogFormat: "json", Workers: 4, Grace: time.Second, Timezone: "UTC",
	}
	if err := a.Complete(a.Getenv); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(a.ConfigDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return a
}
