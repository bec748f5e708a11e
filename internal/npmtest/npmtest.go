// Package npmtest finds the npm programs that tests talk to: MCP servers that
// somebody else wrote, the MCP conformance suite, and an independent mock of the
// model vendors' wires.
// package-lock.json pins them; `make test-deps` installs them beside it. Only
// tests import this package.
package npmtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The programs.
const (
	Everything = "mcp-server-everything"
	Filesystem = "mcp-server-filesystem"
	Memory     = "mcp-server-memory"
	Thinking   = "mcp-server-sequential-thinking"
	// Mock serves the OpenAI, Anthropic and Ollama wires from fixtures; see its
	// --help.
	Mock = "llmock"
	// Conformance is the official MCP suite. It needs the Node that [NewNode]
	// finds.
	Conformance = "conformance"
)

// Bin returns the absolute path of an installed program, which needs node on
// PATH. A missing one fails the test with the command that installs it, so that
// a broken machine cannot pass for a green one; `go test -short` skips instead.
func Bin(t testing.TB, name string) string {
	t.Helper()
	path, err := find(name)
	if err == nil {
		return path
	}
	if testing.Short() {
		t.Skip(err)
	}
	t.Fatal(err)
	return ""
}

// NewNode returns a Node of version 22 or newer: the one on PATH, else the one
// that is installed for programs that need it. Where there is none the test fails.
func NewNode(t testing.TB) string {
	t.Helper()
	var tried []error
	for _, node := range []func() (string, error){func() (string, error) { return exec.LookPath("node") }, func() (string, error) { return find("node") }} {
		path, err := node()
		if err == nil {
			var out []byte
			out, err = exec.Command(path, "-p", "+process.versions.node.split('.')[0] >= 22").Output()
			if err == nil && strings.TrimSpace(string(out)) == "true" {
				return path
			}
		}
		tried = append(tried, fmt.Errorf("%s: %w", path, cmp.Or(err, errors.New("older than 22"))))
	}
	if testing.Short() {
		t.Skip(errors.Join(tried...))
	}
	t.Fatalf("find Node 22 or newer, on PATH or by `make test-deps`: %v", errors.Join(tried...))
	return ""
}

func find(name string) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", fmt.Errorf("find node on PATH: %w; install Node 20 or newer", err)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "internal", "npmtest", "node_modules", ".bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find npm program %q: %w; run `make test-deps`", name, err)
	}
	return path, nil
}

// moduleRoot walks up from the working directory, which in a test is the
// package's own folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find module root: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find module root: no go.mod above the working directory")
		}
	}
}
