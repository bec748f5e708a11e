package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is a config directory of a test.
type dir struct {
	t    testing.TB
	path string
}

func newDir(t testing.TB, files map[string]string) dir {
	t.Helper()
	d := dir{t, t.TempDir()}
	for name, text := range files {
		d.write(name, text)
	}
	return d
}

func (d dir) write(name, text string) {
	d.t.Helper()
	full := filepath.Join(d.path, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d dir) remove(name string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.path, name)); err != nil {
		d.t.Fatal(err)
	}
}

func (d dir) loader(set ...func(*Options)) *Loader {
	opts := Options{Dir: d.path, Settle: restTime} // most tests need no more
	for _, s := range set {
		s(&opts)
	}
	return NewLoader(opts)
}

func load(t testing.TB, l *Loader) *Set {
	t.Helper()
	s, err := l.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func texts(list []Problem) []string {
	out := []string{}
	for _, p := range list {
		out = append(out, p.Error())
	}
	return out
}

// base is a small config that is good.
func base(more map[string]string) map[string]string {
	files := map[string]string{
		"models.yaml":     "models:\n  default: {provider: ollama, model: qwen3:8b}\n  priced: {provider: openai, model: m, price: {input: 1, output: 2}}\n",
		"connectors.yaml": "mcpServers:\n  files: {builtin: files, root: /srv/reports}\n  memory: {builtin: memory}\n  mail: {url: \"https://mail.example.com/mcp\"}\n",
		"projects.yaml":   "projects:\n  ops: {instructions: Be brief., connectors: [files, memory]}\n",
		"tasks/good.md":   "---\nschedule: \"@daily\"\n---\nDo it.\n",
	}
	for name, text := range more {
		if text == "" {
			delete(files, name)
		} else {
			files[name] = text
		}
	}
	return files
}
