package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain registers the program itself, so that scripts run it as a process of
// its own: with its own connectors, signals and exit codes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"runnerd": main, "counter": counting, "gated": gated})
}

// TestScripts runs testdata/*.txtar: the command line as people use it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("RUNNERD_TIMEZONE", "Europe/Berlin")
			env.Setenv("RUNNERD_CONFIG_DIR", filepath.Join(env.WorkDir, "config"))
			env.Setenv("RUNNERD_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o755)
		},
	})
}
