package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"runnerd/config"
	"runnerd/confine"
	"runnerd/task"
	"runnerd/text"
)

type initCmd struct {
	Dir string `arg:"" optional:"" help:"Where; default: the config directory." type:"path"`
}

// Run writes the starter config. It never overwrites: what exists stays as it is
// and is named.
func (c initCmd) Run(a *app) error {
	dir := c.Dir
	if dir == "" {
		dir = a.ConfigDir
	}
	reports := reportsDir(dir, a.Getenv("HOME"))
	if err := confine.New().MkdirAll(confine.Real([]string{reports})[0], 0o755); err != nil {
		return &exit{task.ExitUsage, fmt.Errorf("make the directory that the starter's files connector sees: %w", err)}
	}
	kept, err := writeNew(dir, config.Starter(reports))
	if err != nil {
		return &exit{task.ExitUsage, err}
	}
	text.Fprintf(a.out, "config    %s\nreports   %s (what the starter's files connector sees)\n", dir, reports)
	for _, name := range kept {
		text.Fprintf(a.out, "kept      %s (it exists)\n", filepath.Join(dir, name))
	}
	flags := ""
	if dir != a.defaults.ConfigDir {
		flags = " --config " + dir
	}
	if a.StateDir != a.defaults.StateDir {
		flags += " --state " + a.StateDir
	}
	text.Fprintf(a.out, "\nGo on with:\n  runnerd%s check        what each task would do\n  runnerd%s run hello    run the first task now\n  runnerd%s serve        be the daemon\n", flags, flags, flags)
	return nil
}

// reportsDir is a place for what agents write: the user's home, or /srv for a
// config of the whole machine.
func reportsDir(dir, home string) string {
	if dir == "/etc" || strings.HasPrefix(dir, "/etc/") || !filepath.IsAbs(home) {
		return "/srv/reports"
	}
	return filepath.Join(home, "runnerd-reports")
}

// writeNew writes files that do not exist yet and names those that do.
func writeNew(dir string, files map[string]string) (kept []string, err error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	dir = confine.Real([]string{dir})[0] // a person typed it
	for _, name := range names {
		f, err := confine.New().Create(filepath.Join(dir, name), 0o644)
		if errors.Is(err, fs.ErrExist) {
			kept = append(kept, name)
			continue
		}
		if err != nil {
			return kept, fmt.Errorf("write starter: %w", err)
		}
		_, err = f.WriteString(files[name])
		if err = errors.Join(err, f.Close()); err != nil {
			return kept, fmt.Errorf("write starter: %w", err)
		}
	}
	return kept, nil
}
