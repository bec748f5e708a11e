package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// serveVariable makes the test binary a server, for the tests over stdio.
const serveVariable = "RUNNERD_TEST_SERVE"

func TestMain(m *testing.M) {
	if name := os.Getenv(serveVariable); name != "" {
		if err := Serve(context.Background(), name, os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// session is a client of one server.
type session struct {
	t  *testing.T
	cs *mcp.ClientSession
}

// connect serves the named server in process and connects the SDK's client.
func connect(t *testing.T, name string, args ...string) *session {
	t.Helper()
	server, release, err := open(name, args)
	if err != nil {
		t.Fatal(err)
	}
	near, far := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := dial(t, near)
	t.Cleanup(func() {
		if err := errors.Join(s.cs.Close(), ss.Wait(), release()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func dial(t *testing.T, transport mcp.Transport) *session {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	cs, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &session{t, cs}
}

type args = map[string]any

// try calls a tool and answers its text and whether it is an error result.
func (s *session) try(tool string, in args) (string, bool) {
	s.t.Helper()
	res, err := s.cs.CallTool(s.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		s.t.Errorf("%s %v: %v", tool, in, err)
		return "", true
	}
	var b strings.Builder
	for _, c := range res.Content {
		b.WriteString(c.(*mcp.TextContent).Text)
	}
	return b.String(), res.IsError
}

func (s *session) ok(tool string, in args) string {
	s.t.Helper()
	text, bad := s.try(tool, in)
	if bad {
		s.t.Fatalf("%s %v: %s", tool, in, text)
	}
	return text
}

// fails calls a tool that must answer an error holding want.
func (s *session) fails(want, tool string, in args) string {
	s.t.Helper()
	text, bad := s.try(tool, in)
	if !bad || !strings.Contains(text, want) {
		s.t.Errorf("%s %v: error %v, %q; want an error with %q", tool, in, bad, text, want)
	}
	return text
}

func TestTools(t *testing.T) {
	dir := t.TempDir()
	servers := map[string][]string{
		Files: {"--root", dir}, Fetch: nil, Shell: {"--dir", dir}, Memory: {"--file", dir + "/m.jsonl"},
	}
	want := map[string]string{ // tool: read | write | destroy, then * for the open world
		"files/read_file": "read", "files/list_directory": "read", "files/search_files": "read", "files/stat_file": "read",
		"files/write_file": "destroy", "files/append_file": "write", "files/make_directory": "write",
		"files/move_file": "destroy", "files/delete_file": "destroy",
		"fetch/fetch": "read*", "shell/run": "destroy*",
		"memory/remember": "destroy", "memory/recall": "read", "memory/search": "read", "memory/forget": "destroy",
	}
	got := map[string]string{}
	for _, name := range Names() {
		list, err := connect(t, name, servers[name]...).cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			got[name+"/"+tool.Name] = hints(tool.Annotations)
			describes(t, tool)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("tools are %v\nwant %v", got, want)
	}
}

func hints(a *mcp.ToolAnnotations) string {
	s := "write"
	switch {
	case a.ReadOnlyHint:
		s = "read"
	case a.DestructiveHint == nil || *a.DestructiveHint:
		s = "destroy"
	}
	if a.OpenWorldHint == nil || *a.OpenWorldHint {
		s += "*"
	}
	return s
}

// describes checks that a model is told what each argument is.
func describes(t *testing.T, tool *mcp.Tool) {
	t.Helper()
	if tool.Description == "" {
		t.Errorf("%s has no description", tool.Name)
	}
	schema := tool.InputSchema.(map[string]any)
	for name, p := range schema["properties"].(map[string]any) {
		if d, _ := p.(map[string]any)["description"].(string); d == "" {
			t.Errorf("%s: %s has no description", tool.Name, name)
		}
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s takes unknown arguments: %v", tool.Name, schema["additionalProperties"])
	}
}

func TestBadArguments(t *testing.T) {
	s := connect(t, Files, "--root", t.TempDir())
	s.fails("path", "read_file", args{})
	s.fails("path", "read_file", args{"path": []string{"a"}})
	s.fails("colour", "read_file", args{"path": "a", "colour": "red"})
	s.fails("mode", "write_file", args{"path": "a", "content": "x", "mode": "append"})
	s.fails("limit", "read_file", args{"path": "a", "limit": 0})
}

func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"file", nil, `"file": unknown; there are fetch, files, memory, shell`},
		{Files, nil, "--root is missing"},
		{Files, []string{"--root", dir + "/none"}, "no such file"},
		{Files, []string{"--rot", dir}, "rot"},
		{Files, []string{"--root", dir, "extra"}, `"extra" is no flag`},
		{Fetch, []string{"--timeout", "0s"}, "above 0"},
		{Fetch, []string{"--timeout", "soon"}, "timeout"},
		{Shell, []string{"--dir", dir + "/none"}, "not a directory"},
		{Shell, []string{"--timeout", "1ms"}, "1s or more"},
		{Memory, []string{"--file", dir + "/none/m.jsonl"}, "its directory does not exist"},
	} {
		err := Serve(t.Context(), c.name, c.args, strings.NewReader(""), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, want %q", c.name, c.args, err, c.want)
		}
	}
}

func TestServeEnds(t *testing.T) {
	dir := t.TempDir()
	t.Run("with its input", func(t *testing.T) {
		if err := Serve(t.Context(), Files, []string{"--root", dir}, strings.NewReader(""), io.Discard); err != nil {
			t.Error(err)
		}
	})
	t.Run("with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, far := io.Pipe()
		defer far.Close()
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, Files, []string{"--root", dir}, in, io.Discard) }()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Serve did not return")
		}
	})
}

func TestStdio(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(self, "--root", dir)
	cmd.Env = append(os.Environ(), serveVariable+"="+Files)
	var errs strings.Builder
	cmd.Stderr = &errs
	s := dial(t, &mcp.CommandTransport{Command: cmd})
	s.ok("write_file", args{"path": "notes/a.md", "content": "one\n"})
	if got := s.ok("read_file", args{"path": dir + "/notes/a.md"}); got != "one\n" {
		t.Errorf("read %q", got)
	}
	if err := s.cs.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if errs.Len() > 0 {
		t.Errorf("standard error: %s", errs.String())
	}
}

// names lists a directory's entries, hidden ones too.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return slices.Clip(list)
}
