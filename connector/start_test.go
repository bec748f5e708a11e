package connector

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runnerd/task"
)

// npx is a connector whose command is a script of that name; SERVER in it is a
// good server's command line.
func npx(t *testing.T, script string) (task.Connector, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script = "#!/bin/sh\n" + strings.ReplaceAll(script, "SERVER", exe+" "+serverVerb) + "\n"
	if err := os.WriteFile(filepath.Join(dir, "npx"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return task.Connector{ID: "x", Command: "npx", Args: []string{"-y", "some-server"}}, dir + ":" + os.Getenv("PATH")
}

// busy works for so many seconds.
const busy = `end=$(($(date +%s)+SECONDS)); while [ $(date +%s) -lt $end ]; do :; done; `

// A command that is busy installing its server is not killed at the deadlines that
// a server has; one that does nothing is, and none is waited for without end.
func TestInstallingIsNotKilled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script, want string
		limits             Limits
	}{
		{"E5 busy beyond both deadlines", strings.ReplaceAll(busy, "SECONDS", "5") + "exec SERVER good", "", Limits{Connect: 2 * time.Second}},
		{"E5 then an older server", strings.ReplaceAll(busy, "SECONDS", "4") + "exec SERVER legacy", "", Limits{Connect: 2 * time.Second}},
		{"E5 does nothing", "sleep 100", "no answer in time", Limits{Connect: time.Second}},
		{"E5 busy for ever", "while :; do :; done", "the command was busy for 2s and no server answered", Limits{Connect: time.Second, Install: 2 * time.Second}},
		{"E5 fails", "echo npm error code E404 >&2; exit 1", "correct the package name", Limits{Connect: time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec, path := npx(t, tt.script)
			p := testPool(t, func(o *Options) {
				o.Environ = []string{"PATH=" + path}
				o.Limits.Connect, o.Limits.Install = tt.limits.Connect, tt.limits.Install
			}, spec)
			begun := time.Now()
			err := p.Dial(t.Context(), "x")
			var e *Error
			if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &e) || !strings.Contains(e.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if tt.want == "" && p.Status()[0].Restarts != 0 {
				t.Errorf("it was started again: %+v", p.Status()[0])
			}
			if d := time.Since(begun); d > 20*time.Second {
				t.Errorf("took %s", d)
			}
		})
	}
}
