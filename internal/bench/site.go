package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// site is the directories of one daemon.
type site struct {
	binary        string
	dir           string
	config, state string
}

// The files that every site has: a model that answers at once after one tool
// call, and a connector that the binary serves over stdio.
const (
	models = "models:\n  default: {provider: scripted, script: script.yaml}\n"
	script = "turns:\n  - call: [{tool: files/list_directory, args: {path: .}}]\n  - say: I looked at the directory.\n"
)

func (b *bench) site() (*site, error) {
	b.sites++
	dir := filepath.Join(b.root, fmt.Sprint(b.sites))
	s := &site{binary: b.binary, dir: dir, config: filepath.Join(dir, "config"), state: filepath.Join(dir, "state")}
	shown := filepath.Join(dir, "files")
	// The socket has a directory of its own: connectors cannot see what is in it.
	for _, d := range []string{filepath.Join(s.config, "tasks"), s.state, shown, filepath.Join(dir, "run")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"models.yaml": models, "script.yaml": script,
		"connectors.yaml": "mcpServers:\n  files: {builtin: files, root: " + shown + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(s.config, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return s, os.WriteFile(filepath.Join(shown, "a.txt"), []byte("hello\n"), 0o600)
}

// remove takes a site away at once: a later measurement should not share the
// page cache with it.
func (b *bench) remove(s *site) {
	if !b.keep {
		_ = os.RemoveAll(s.dir) // run removes what is left, and reports it
	}
}

// tasks writes n task files, the front matter of each by its number.
func (s *site) tasks(n int, front func(int) string) error {
	for i := range n {
		text := fmt.Sprintf("---\n%s---\nTask %d: look at the directory and say what is new.\n", front(i), i)
		name := filepath.Join(s.config, "tasks", fmt.Sprintf("task-%06d.md", i))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// farOff spreads tasks over the minutes of new year's night in the year after
// the next, so that nothing is due while an idle daemon is watched.
func farOff(year int) func(int) string {
	return func(i int) string {
		return fmt.Sprintf("schedule: at %d-01-01T%02d:%02d\ntimezone: Europe/Berlin\n", year+2, i/60%24, i%60)
	}
}
