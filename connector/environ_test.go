package connector

import (
	"errors"
	"strings"
	"testing"

	"runnerd/task"
)

func TestCommandLine(t *testing.T) {
	tests := []struct {
		spec task.Connector
		path string
		args string
	}{
		{task.Connector{Builtin: "files", Root: "/srv"}, "/bin/runnerd", "runnerd mcp files --root /srv"},
		{task.Connector{Builtin: "shell", Root: "/srv", AllowPrivate: true}, "/bin/runnerd", "runnerd mcp shell --dir /srv"},
		{task.Connector{Builtin: "fetch", AllowPrivate: true, Args: []string{"--x"}}, "/bin/runnerd", "runnerd mcp fetch --allow-private --x"},
		{task.Connector{Command: "sh", Args: []string{"-c", "${credential:a}"}}, "/bin/sh", "sh -c resolved"},
		{task.Connector{Command: "/bin/sh"}, "/bin/sh", "/bin/sh"},
		{task.Connector{Command: "bin/sh", Dir: "/"}, "/bin/sh", "bin/sh"},
	}
	for _, tt := range tests {
		tt.spec.ID = "x"
		p := New(Options{StateDir: t.TempDir(), Executable: "/bin/runnerd", Environ: []string{"PATH=/nowhere:/bin"},
			Resolve: func(s string) (string, error) { return strings.ReplaceAll(s, "${credential:a}", "resolved"), nil }})
		cmd, err := newConn(p, tt.spec).command()
		if err != nil || cmd.path != tt.path || strings.Join(cmd.args, " ") != tt.args {
			t.Errorf("%+v: %s %q, %v", tt.spec, cmd.path, cmd.args, err)
		}
	}
}

// A reference that does not resolve names its place and starts nothing.
func TestUnresolved(t *testing.T) {
	missing := func(string) (string, error) { return "", errors.New("credential a is not there") }
	for want, spec := range map[string]task.Connector{
		"resolve its args[0]: credential a": {Command: "sh", Args: []string{"${credential:a}"}},
		"resolve its command":               {Command: "sh"},
		"resolve its env A":                 {Command: "sh", Env: map[string]string{"A": "${credential:a}"}},
		"resolve its url":                   {URL: "https://example.com"},
	} {
		spec.ID = "x"
		resolve := missing
		if strings.Contains(want, "args") {
			resolve = func(s string) (string, error) {
				if strings.HasPrefix(s, "$") {
					return missing(s)
				}
				return s, nil
			}
		}
		p := testPool(t, func(o *Options) { o.Resolve = resolve }, spec)
		if err := p.Dial(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
