package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/control"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// TestLiveEdits edits, from within the first call of a run, each place that a
// decision depends on. The second, same call of that run must see the edit: the
// files by the stat before each decision, the database by the fresh read.
func TestLiveEdits(t *testing.T) {
	t.Parallel()
	const allowed = "---\nproject: ops\ntools: [desk]\nallow: [desk/note]\n---\nNote twice.\n"
	cases := []struct {
		name string
		edit func(t *testing.T, h *Daemon)
		code policy.Code
	}{
		{"nothing", func(*testing.T, *Daemon) {}, ""},
		{"task file: grant removed", writeFile("tasks/edit.md", strings.Replace(allowed, "allow: [desk/note]\n", "", 1)), policy.CodeNeedsApproval},
		{"task file: deny added", writeFile("tasks/edit.md", strings.Replace(allowed, "allow:", "deny: [desk/*]\nallow:", 1)), policy.CodeDenied},
		{"task file: no connectors", writeFile("tasks/edit.md", strings.Replace(allowed, "allow:", "connectors: []\nallow:", 1)), policy.CodeNotReachable},
		{"task file broken: last good stays", writeFile("tasks/edit.md", "---\nshedule: x\n---\n"), ""},
		{"task file gone: its policy stays for the run", removeFile("tasks/edit.md"), ""},
		{"connectors file: tool disabled", writeFile("connectors.yaml", weekConnectors+"    disabled_tools: [note]\n"), policy.CodeDisabled},
		{"connectors file: connector removed", writeFile("connectors.yaml", "mcpServers:\n  other: {command: in-memory}\n"), policy.CodeNotReachable},
		{"project file: no connectors", writeFile("projects.yaml", "projects:\n  ops: {connectors: []}\n"), policy.CodeNotReachable},
		{"task file: another project", writeFile("tasks/edit.md", strings.Replace(allowed, "project: ops", "project: closed", 1)), policy.CodeNotReachable},
		{"task file: another project, the old one gone", func(t *testing.T, h *Daemon) {
			writeFile("tasks/edit.md", strings.Replace(allowed, "project: ops", "project: open", 1))(t, h)
			writeFile("projects.yaml", "projects:\n  open: {}\n")(t, h)
		}, ""},
		{"override: grant taken away", override(policy.ScopeTask, "edit", `{"allow": []}`), policy.CodeNeedsApproval},
		{"override: project", override(policy.ScopeProject, "ops", `{"connectors": []}`), policy.CodeNotReachable},
		{"override: session", override(policy.ScopeSession, "edit", `{"connectors": []}`), policy.CodeNotReachable},
		{"API: task policy", api(func(ctx context.Context, c *control.Client) error {
			_, err := c.PatchTaskPolicy(ctx, "edit", map[string]json.RawMessage{"deny": json.RawMessage(`["desk/note"]`)})
			return err
		}), policy.CodeDenied},
		{"API: session connectors", api(func(ctx context.Context, c *control.Client) error {
			_, err := c.SetSessionConnectors(ctx, "edit", task.ListOf[string]())
			return err
		}), policy.CodeNotReachable},
		{"API: project", api(func(ctx context.Context, c *control.Client) error {
			_, err := c.PatchProject(ctx, "ops", map[string]json.RawMessage{"connector_ids": json.RawMessage(`[]`)})
			return err
		}), policy.CodeNotReachable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := testApp(t, map[string]string{
				"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n",
				"s.yaml":          "turns:\n  - call: [{tool: desk/note, args: {n: 1}}, {tool: desk/note, args: {n: 2}}]\n  - say: Done.\n",
				"projects.yaml":   "projects:\n  ops: {}\n  closed: {connectors: []}\n",
				"tasks/edit.md":   allowed,
				"connectors.yaml": weekConnectors,
			})
			var h *Daemon
			notes := 0
			a.Dial = noteServer(func() {
				if notes++; notes == 1 {
					c.edit(t, h)
				}
			})
			h = openTest(t, a)
			serveAPI(t, h)
			run := runTest(t, h, "edit")
			receipts, err := h.main.RunReceipts(t.Context(), run.ID)
			if err != nil || len(receipts) != 2 {
				t.Fatalf("%d receipts (%v), want 2", len(receipts), err)
			}
			if receipts[0].Decision != task.DecisionAllow {
				t.Errorf("first call: %s %s, want allowed", receipts[0].Decision, receipts[0].Rule)
			}
			if got := policy.Code(receipts[1].Code); got != c.code {
				t.Errorf("second call: code %q (%s), want %q", got, receipts[1].Rule, c.code)
			}
			if want := 1; c.code != "" && notes != want {
				t.Errorf("the server received %d calls, want %d", notes, want)
			}
		})
	}
}

func writeFile(name, text string) func(*testing.T, *Daemon) {
	return func(t *testing.T, h *Daemon) {
		if err := os.WriteFile(filepath.Join(h.options.ConfigDir, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func removeFile(name string) func(*testing.T, *Daemon) {
	return func(t *testing.T, h *Daemon) {
		if err := os.Remove(filepath.Join(h.options.ConfigDir, name)); err != nil {
			t.Error(err)
		}
	}
}

func override(scope policy.Scope, id, patch string) func(*testing.T, *Daemon) {
	return func(t *testing.T, h *Daemon) {
		var p map[string]json.RawMessage
		if err := json.Unmarshal([]byte(patch), &p); err != nil {
			t.Error(err)
		}
		if _, err := h.rules.Set(context.Background(), taskpolicy.Change{Scope: scope, ID: id, Patch: p, By: "test"}); err != nil {
			t.Error(err)
		}
	}
}

// api edits through the control socket, as another process would.
func api(do func(context.Context, *control.Client) error) func(*testing.T, *Daemon) {
	return func(t *testing.T, h *Daemon) {
		client := control.NewClient(h.options.Socket, func() string {
			token, err := control.ReadToken(h.options.StateDir)
			if err != nil {
				t.Error(err)
			}
			return token
		})
		defer client.Close()
		if err := do(t.Context(), client); err != nil {
			t.Error(err)
		}
	}
}

// serveAPI serves the control socket until the test ends.
func serveAPI(t *testing.T, h *Daemon) {
	t.Helper()
	h.options.Listener = nil // a real socket
	socket, err := h.listen()
	if err != nil {
		t.Fatal(err)
	}
	server, err := h.server()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, socket) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// noteServer serves one tool, note, and calls do at each call.
func noteServer(do func()) func(context.Context, task.Connector) (mcp.Transport, error) {
	return func(context.Context, task.Connector) (mcp.Transport, error) {
		srv := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		srv.AddTool(&mcp.Tool{Name: "note", InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				do()
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "noted"}}}, nil
			})
		client, server := mcp.NewInMemoryTransports()
		_, err := srv.Connect(context.Background(), server, nil)
		return client, err
	}
}

// openTest opens a daemon with its files in force; it is closed with the test.
func openTest(t *testing.T, a *Options) *Daemon {
	t.Helper()
	h, err := New(t.Context(), *a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range h.applied.Load().Problems {
		t.Fatal(p)
	}
	return h
}

// runTest runs a task by hand, to its end.
func runTest(t *testing.T, h *Daemon, id string) task.Run {
	t.Helper()
	run, err := h.NewManual(t.Context(), id, task.Script{})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = h.Finish(t.Context(), run.ID, unwatched{}); err != nil {
		t.Fatal(err)
	}
	return run
}

// unwatched is nobody, who watches a run.
type unwatched struct{}

func (unwatched) Messages([]task.Message, []task.Receipt) {}
func (unwatched) Trying(task.Execution, string)           {}
func (unwatched) Retry(time.Time, string)                 {}
