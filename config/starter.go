package config

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed starter
var starterFiles embed.FS

// Starter is the commented configuration that `runnerd init` writes: content by
// path relative to the config directory. It loads without problems and its task
// runs offline, on a scripted model.
func Starter() map[string]string {
	out := make(map[string]string)
	_ = fs.WalkDir(starterFiles, "starter", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := starterFiles.ReadFile(name)
		out[strings.TrimPrefix(name, "starter/")] = string(text)
		return err
	})
	return out
}
