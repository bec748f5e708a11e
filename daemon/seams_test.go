package daemon

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/uptrace/bun/driver/sqliteshim"

	"runnerd/control"
	"runnerd/policy"
	"runnerd/sqldb"
	"runnerd/task"
)

// Files for a task that notes once, or twice, and may.
func noteFiles(calls int) map[string]string {
	return map[string]string{
		"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n",
		"s.yaml":          "turns:\n  - call: [" + strings.TrimSuffix(strings.Repeat("{tool: desk/note}, ", calls), ", ") + "]\n  - say: Done.\n",
		"tasks/edit.md":   "---\nallow: [desk/note]\ntools: [desk]\n---\nNote.\n",
		"connectors.yaml": weekConnectors,
	}
}

const denyNote = "---\nallow: [desk/note]\ndeny: [desk/note]\ntools: [desk]\n---\nNote.\n"

// refuseWrites makes every write of the policy database fail while reads go on,
// as a full disk does, until the answered function is called.
func refuseWrites(t *testing.T, h *Daemon) (mend func()) {
	t.Helper()
	const trigger = "CREATE TRIGGER full BEFORE UPDATE ON policy_rows BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
	raw := rawDatabase(t, h.options.PolicyDatabase)
	if _, err := raw.Exec(trigger); err != nil {
		t.Error(err)
	}
	return func() {
		if _, err := raw.Exec("DROP TRIGGER full"); err != nil {
			t.Error(err)
		}
	}
}

// An edit that was read and cannot be stored is no reason to decide by what stood
// before: the call is refused.
func TestEditThatCannotBeStoredRefuses(t *testing.T) {
	t.Parallel()
	a := testApp(t, noteFiles(2))
	var h *Daemon
	notes := 0
	a.Dial = noteServer(func() {
		if notes++; notes == 1 {
			refuseWrites(t, h)
			writeFile("tasks/edit.md", denyNote)(t, h)
		}
	})
	h = openTest(t, a)
	run := runTest(t, h, "edit")
	receipts, err := h.main.RunReceipts(t.Context(), run.ID)
	if err != nil || len(receipts) != 2 || notes != 1 {
		t.Fatalf("%d receipts (%v), %d calls sent, want 2 and 1", len(receipts), err, notes)
	}
	if code := policy.Code(receipts[1].Code); code != policy.CodePolicyError {
		t.Errorf("second call: %q (%s), want policy_error", code, receipts[1].Rule)
	}
}

// Whoever loads files may be cut short, or find a database busy: the edit comes
// into force all the same, without another one.
func TestEditIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := testApp(t, noteFiles(1))
		a.Poll, a.Dial = time.Second, noteServer(func() {})
		played(t, a, func(h *Daemon) {
			pass(2 * time.Second)
			mend := refuseWrites(t, h)
			writeFile("tasks/edit.md", "---\nschedule: every 1h\nallow: [desk/note]\ndeny: [desk/*]\n---\nNote.\n")(t, h)
			pass(time.Minute)
			if next, ok := h.clock.Next("edit"); ok {
				t.Fatalf("the edit came into force although it could not be stored: next %s", next)
			}
			mend()
			pass(10 * time.Second)
			if _, ok := h.clock.Next("edit"); !ok {
				t.Error("the edit did not come into force although it can be stored again")
			}
		})
	})
}

// A decision waits for the newest files that anybody has loaded, also when the
// one who did has not yet put them into force.
func TestDecisionSeesWhatOthersLoaded(t *testing.T) {
	t.Parallel()
	a := testApp(t, noteFiles(2))
	var h *Daemon
	notes := 0
	a.Dial = noteServer(func() {
		if notes++; notes == 1 {
			writeFile("tasks/edit.md", denyNote)(t, h)
			if _, err := h.loader.Load(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	h = openTest(t, a)
	eff, err := h.runner.Policies.Effective(t.Context(), "edit", "edit", "")
	if err != nil || len(eff.Deny) != 0 {
		t.Fatalf("%v %v", eff.Deny, err)
	}
	writeFile("tasks/edit.md", denyNote)(t, h)
	if _, err := h.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if eff, err = h.runner.Policies.Effective(t.Context(), "edit", "edit", ""); err != nil || len(eff.Deny) != 1 {
		t.Errorf("deny %v (%v), want the line of the file that was loaded", eff.Deny, err)
	}
}

// A value that only a destination holds is a secret before anything was delivered.
func TestSecretsAreKnownBeforeTheirFirstUse(t *testing.T) {
	t.Parallel()
	files := noteFiles(1)
	files["tasks/edit.md"] = "---\nallow: [desk/note]\ntools: [desk]\ndeliver: [{to: notify, when: failure, url: \"${credential:ntfy}\"}]\n---\nNote.\n"
	a := testApp(t, files)
	const secret = "ntfy://tk_5x9hidden@ntfy.sh/ops"
	if err := os.MkdirAll(filepath.Join(a.StateDir, "credentials"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.StateDir, "credentials", "ntfy"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Dial = answering("it says " + secret)
	h := openTest(t, a)
	run := runTest(t, h, "edit")
	msgs, err := h.main.RunMessages(t.Context(), run.ID)
	if err != nil || len(msgs) < 3 {
		t.Fatalf("%d messages (%v)", len(msgs), err)
	}
	for _, m := range msgs {
		if strings.Contains(m.Text, "hidden") {
			t.Errorf("the transcript holds a credential: %s", m.Text)
		}
	}
}

// A variable in the path of a connector, or that is the path of something, is no
// secret: a call may name a file there, and what its grant says about paths counts.
func TestVariablesInPathsAreNoSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "our-notes", "x.md")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string]string{
		"in root":          "root: \"" + dir + "/${env:NAME}\"",
		"in a value":       "root: " + dir + "/our-notes, env: {WHERE: \"${env:NOTES}/our-notes\"}",
		"in args and root": "root: \"${env:NOTES}/our-notes\", args: [--root, \"${env:NOTES}/our-notes\"]",
	} {
		t.Run(name, func(t *testing.T) {
			a := testApp(t, map[string]string{
				"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n",
				"s.yaml":          "turns:\n  - call: [{tool: files/write_file, args: {path: \"" + path + "\", content: hello}}]\n  - say: Done.\n",
				"tasks/edit.md":   "---\nallow: [{tool: files/write_file, where: {path: {under: " + dir + "}, content: any}}]\n---\nNote.\n",
				"connectors.yaml": "mcpServers:\n  files: {builtin: files, " + keys + "}\n  other: {command: x, cwd: \"${env:NOTES}/our-notes\"}\n",
			})
			a.Getenv = func(key string) string { return map[string]string{"NOTES": dir, "NAME": "our-notes"}[key] }
			h := openTest(t, a)
			if run := runTest(t, h, "edit"); run.Status() != task.StatusOK {
				t.Errorf("the run is %s: %s", run.Status(), run.Reason)
			}
			if name := h.redact.Find(path); name != "" {
				t.Errorf("the path holds the secret %s", name)
			}
			if got, err := h.resolvePath("other", "x.md"); got != path {
				t.Errorf("x.md below a cwd with a variable is %q (%v), want %s", got, err, path)
			}
		})
	}
}

// Who may do what is an edit like any other.
func TestAccessIsLive(t *testing.T) {
	t.Parallel()
	a := testApp(t, noteFiles(1))
	h := openTest(t, a)
	serveAPI(t, h)
	stranger := control.Peer{UID: 54321, GID: 54321}
	if h.rightsOf(stranger).Read {
		t.Error("a stranger may read")
	}
	for _, step := range []struct {
		access string
		read   bool
	}{
		{"access: {read: [\"54321\"]}\n", true},
		{"access: {read: [\"no-such-user-here\"]}\n", true}, // last good stays
		{"access: {read: []}\n", false},
	} {
		writeFile("runnerd.yaml", step.access)(t, h)
		if err := h.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.rightsOf(stranger).Read; got != step.read {
			t.Errorf("after %q the stranger's right to read is %v, want %v", step.access, got, step.read)
		}
	}
}

// A run that a person starts is of the files as they are on disk.
func TestManualRunIsOfTheNewestFile(t *testing.T) {
	t.Parallel()
	a := testApp(t, noteFiles(1))
	h := openTest(t, a)
	writeFile("tasks/edit.md", "---\ntools: []\n---\nThe newest prompt.\n")(t, h)
	run, err := h.startManual(t.Context(), "edit", task.Script{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := h.main.Revision(t.Context(), run.Revision)
	if err != nil || !strings.Contains(spec.Prompt, "newest") {
		t.Errorf("the run has the prompt %q (%v)", spec.Prompt, err)
	}
	writeFile("tasks/more.md", "---\ntools: []\n---\nOne more.\n")(t, h)
	if _, err := h.startManual(t.Context(), "more", task.Script{}); err != nil {
		t.Errorf("a task whose file was just written: %v", err)
	}
}

// The databases are out of reach wherever they are.
func TestDatabasesElsewhereAreProtected(t *testing.T) {
	t.Parallel()
	a := testApp(t, nil)
	a.Database, a.PolicyDatabase = "postgres://localhost/x", "file:/srv/db/policy.db"
	paths := a.Protected()
	for _, path := range []string{a.StateDir, a.ConfigDir, "/srv/db/policy.db", "/srv/db/policy.db-wal"} {
		if !slices.Contains(paths, path) {
			t.Errorf("connectors are not kept from %s: %v", path, paths)
		}
	}
	if got := slices.IndexFunc(paths, func(p string) bool { return strings.Contains(p, "postgres") }); got >= 0 {
		t.Errorf("protects %s", paths[got])
	}
}

// Runs that are planned at one moment count against each other: what a task has to
// catch up with, and tasks that are due together.
func TestRunsPerDayAtOneMoment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, limits, daemon, reason string
		tasks                        int
		project                      string
	}{
		{"one task that catches up", "{runs_per_day: 3}", "", "runs_per_day of 3 is reached", 1, ""},
		{"many tasks", "{}", "limits: {runs_per_day: 3}\n", "the daemon's runs_per_day of 3 is reached", 5, ""},
		{"D3 the tasks of a project", "{}", "", "project ops's runs_per_day of 3 is reached", 5, "projects: {ops: {limits: {runs_per_day: 3}}}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := newNotices(t)
			files := map[string]string{"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml() + c.daemon}
			project := ""
			if c.project != "" {
				files["projects.yaml"], project = c.project, "project: ops\n"
			}
			for i := range c.tasks {
				files[fmt.Sprintf("tasks/t%d.md", i)] = "---\n" + project + "schedule: \"*/10 * * * *\"\ncatch_up: all\ntools: []\nsession: fresh\nlimits: " + c.limits + "\n---\nHello?\n"
			}
			a := testApp(t, files)
			a.Poll = time.Hour
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(5 * time.Minute)
				played(t, a, func(*Daemon) { pass(time.Minute) }) // first sight
				if c.tasks == 1 {
					time.Sleep(time.Hour) // six to catch up with
				}
				played(t, a, func(h *Daemon) {
					pass(5 * time.Minute)
					runs, skipped := 0, 0
					for i := range c.tasks {
						for end, n := range ends(t, h, fmt.Sprintf("t%d", i)) {
							switch end {
							case "run":
								runs += n
							case "skipped budget: " + c.reason:
								skipped += n
							default:
								t.Errorf("%s: %d", end, n)
							}
						}
					}
					if runs != 3 || skipped == 0 {
						t.Errorf("%d runs and %d skipped, want 3 and the rest", runs, skipped)
					}
					if titles := told.take(t); len(titles) != 1 || !strings.HasSuffix(titles[0], "the day's budget is spent") {
						t.Errorf("told %q", titles)
					}
				})
			})
		})
	}
}

// Two daemons do not share a database, whatever their state directories.
func TestOneDaemonToADatabase(t *testing.T) {
	t.Parallel()
	first := testApp(t, noteFiles(1))
	first.Dial = answering("noted")
	h := openTest(t, first)
	second := testApp(t, noteFiles(1))
	second.Database = first.Database
	other, err := New(t.Context(), *second)
	if !errors.Is(err, sqldb.ErrInUse) {
		t.Errorf("a second daemon on the same database: %v", err)
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
	if run := runTest(t, h, "edit"); !run.Execution.Finished() {
		t.Errorf("the first one's run is %s", run.Execution)
	}
}

// A day begins at its first instant, also where that is not midnight.
func TestDawn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, noon, want string }{
		{"America/Santiago", "2026-09-06T12:00:00-03:00", "2026-09-06T01:00:00-03:00"},
		{"Africa/Cairo", "2026-04-24T12:00:00+03:00", "2026-04-24T01:00:00+03:00"},
		{"America/Havana", "2026-11-01T12:00:00-05:00", "2026-11-01T00:00:00-04:00"}, // midnight comes twice
		{"Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		noon, err := time.Parse(time.RFC3339, c.noon)
		if err != nil {
			t.Fatal(err)
		}
		if got := dawn(noon, zone).Format(time.RFC3339); got != c.want {
			t.Errorf("%s: the day began %s, want %s", c.zone, got, c.want)
		}
	}
}

// answering serves one tool, note, that answers the text.
func answering(text string) func(context.Context, task.Connector) (mcp.Transport, error) {
	return func(context.Context, task.Connector) (mcp.Transport, error) {
		srv := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		srv.AddTool(&mcp.Tool{Name: "note", InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
			})
		client, server := mcp.NewInMemoryTransports()
		_, err := srv.Connect(context.Background(), server, nil)
		return client, err
	}
}

// rawDatabase opens a database behind its owner's back, until the test ends.
func rawDatabase(t *testing.T, file string) *sql.DB {
	t.Helper()
	raw, err := sql.Open(sqliteshim.ShimName, "file:"+file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := raw.Close(); err != nil {
			t.Error(err)
		}
	})
	return raw
}
