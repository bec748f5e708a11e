package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/db"
	"runnerd/task"
)

// testApp is the program in a directory of its own, with no environment.
func testApp(t *testing.T, files map[string]string) *Options {
	t.Helper()
	dir := t.TempDir()
	a := &Options{Getenv: func(string) string { return "" }, Log: io.Discard, Command: "runnerd"}
	a.Settings = Settings{
		ConfigDir: filepath.Join(dir, "config"), StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"),
		LogLevel: "error", LogFormat: "json", Workers: 4, Grace: time.Second, Timezone: "UTC",
	}
	a.Listener = func() net.Listener { return &deaf{closed: make(chan struct{})} }
	if err := a.Complete(a.Getenv); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(a.ConfigDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// deaf is a listener that nobody calls. Waiting on a real socket would stop the
// time of a bubble.
type deaf struct {
	closed chan struct{}
	once   sync.Once
}

func (d *deaf) Accept() (net.Conn, error) {
	<-d.closed
	return nil, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *deaf) Addr() net.Addr { return &net.UnixAddr{Name: "deaf", Net: "unix"} }

// deskServer answers look, note and wipe, in memory.
func deskServer(calls map[string]int) func(context.Context, task.Connector) (mcp.Transport, error) {
	return func(context.Context, task.Connector) (mcp.Transport, error) {
		srv := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		for _, name := range []string{"look", "note", "wipe"} {
			srv.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					calls[name]++
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " done"}}}, nil
				})
		}
		client, server := mcp.NewInMemoryTransports()
		_, err := srv.Connect(context.Background(), server, nil)
		return client, err
	}
}

const weekModels = `
models:
  default: {provider: scripted, script: scripts/brief.yaml}
  quick: {provider: scripted, script: scripts/quick.yaml}
`

const weekConnectors = `
mcpServers:
  desk:
    command: in-memory
    classes: {look: read, note: write, wipe: exec}
`

const weekScript = `
turns:
  - call: [{tool: desk/look, args: {}}]
    usage: {input: 100, output: 10}
  - expect: {results_contain: look done}
    call:
      - {tool: desk/note, args: {text: seen}}
      - {tool: desk/wipe, args: {}}
    usage: {input: 120, output: 20}
  - say: I've noted what I saw. I was not allowed to wipe the desk.
    usage: {input: 150, output: 15}
`

// TestTwoWeeksAcrossDST plays two weeks of the whole daemon, over real SQLite and
// an MCP server in memory, across the night when clocks in Berlin go forward, and
// asserts every occurrence, every decision and every message.
func TestTwoWeeksAcrossDST(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	a := testApp(t, map[string]string{
		"models.yaml": weekModels, "connectors.yaml": weekConnectors, "scripts/brief.yaml": weekScript,
		"scripts/quick.yaml": "turns:\n  - say: Nothing new.\n    usage: {input: 50, output: 5}\n",
		"tasks/brief.md":     "---\nschedule: \"30 2 * * *\"\ntimezone: Europe/Berlin\nsession: fresh\nallow: [desk/note]\n---\nLook, note, wipe.\n",
		"tasks/watch.md":     "---\nschedule: \"*/30 1-3 * * *\"\ntimezone: Europe/Berlin\nmodel: quick\ntools: []\nsession: fresh\n---\nAnything new?\n",
	})
	a.Dial, a.Poll, a.Every = deskServer(calls), time.Hour, 6*time.Hour
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2000, 3, 19, 12, 0, 0, 0, berlin) // clocks go forward on the 26th
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		h, err := New(t.Context(), *a)
		if err != nil {
			t.Fatal(err)
		}
		life, end := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.Run(life, nil) }()
		time.Sleep(14 * 24 * time.Hour)
		synctest.Wait()
		checkWeeks(t, h.main, berlin)
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if calls["look"] != 14 || calls["note"] != 14 || calls["wipe"] != 0 {
		t.Errorf("the server received %v, want look and note 14 times and wipe never", calls)
	}
}

func checkWeeks(t *testing.T, main *db.DB, zone *time.Location) {
	t.Helper()
	ctx := context.Background()
	for id, want := range map[string][]time.Time{"brief": briefDue(zone), "watch": watchDue(zone)} {
		got, err := main.Occurrences(ctx, db.OccurrenceFilter{Task: id, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d occurrences, want %d", id, len(got), len(want))
			continue
		}
		for i, o := range got { // newest first
			due := want[len(want)-1-i]
			if !o.Due.Equal(due) || o.End != task.EndRun {
				t.Errorf("%s: occurrence %s %s %s, want a run due %s", id, o.Due, o.End, o.Reason, due)
				continue
			}
			checkRun(t, main, o)
		}
	}
}

// checkRun asserts the whole record of one run.
func checkRun(t *testing.T, main *db.DB, o task.Occurrence) {
	t.Helper()
	ctx := context.Background()
	run, err := main.Run(ctx, o.RunID)
	if err != nil {
		t.Fatal(err)
	}
	receipts, err := main.RunReceipts(ctx, o.RunID)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := main.RunMessages(ctx, o.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var roles, decisions string
	for _, m := range msgs {
		roles += string(m.Role[:1])
	}
	for _, r := range receipts {
		decisions += fmt.Sprintf("%s/%s:%s:%s ", r.Tool, r.Class, r.Decision, r.Outcome)
	}
	wantStatus, wantRoles, wantDecisions := task.StatusOK, "ua", ""
	if o.Task == "brief" {
		wantStatus, wantRoles = task.StatusDenied, "uatatta"
		wantDecisions = "look/read:allow:ok note/write:allow:ok wipe/exec:deny:none "
	}
	if run.Status() != wantStatus || roles != wantRoles || decisions != wantDecisions {
		t.Errorf("%s due %s: status %s (%s), messages %q, decisions %q; want %s, %q, %q",
			o.Task, o.Due, run.Status(), run.Reason, roles, decisions, wantStatus, wantRoles, wantDecisions)
	}
	if late := run.StartedAt.Sub(o.Due); late < 0 || late > time.Second {
		t.Errorf("%s due %s started %s late", o.Task, o.Due, late)
	}
}

// briefDue is 02:30 each night; on the 26th, where there is none, 03:00.
func briefDue(zone *time.Location) []time.Time {
	var list []time.Time
	for d := 20; d < 34; d++ {
		due := time.Date(2000, 3, d, 2, 30, 0, 0, zone)
		if d == 26 {
			due = time.Date(2000, 3, d, 3, 0, 0, 0, zone)
		}
		list = append(list, due)
	}
	return list
}

// watchDue is each half hour from 01:00 to 03:30; on the 26th the two that do not
// exist are dropped.
func watchDue(zone *time.Location) []time.Time {
	var list []time.Time
	for d := 20; d < 34; d++ {
		for half := 2; half < 8; half++ {
			if d == 26 && half/2 == 2 {
				continue
			}
			list = append(list, time.Date(2000, 3, d, half/2, half%2*30, 0, 0, zone))
		}
	}
	return list
}
