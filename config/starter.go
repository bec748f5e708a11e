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
// runs offline, on a scripted model. reports is the directory that its files
// connector sees; it must exist when a connector is started.
func Starter(reports string) map[string]string {
	out := make(map[string]string)
	_ = fs.WalkDir(starterFiles, "starter", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := starterFiles.ReadFile(name)
		out[strings.TrimPrefix(name, "starter/")] = strings.ReplaceAll(string(text), "/srv/reports", reports)
		return err
	})
	return out
}
