package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"runnerd/db"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error and passes the value on.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// rig is a server over real databases and a real socket. The tasks are brief, of
// project ops, and backup; the connectors are files, mail and web.
type rig struct {
	t      testing.TB
	main   *db.DB
	rules  *taskpolicy.Store
	server *Server
	socket string
	peer   atomic.Pointer[Peer]
	logs   *observer.ObservedLogs

	stop   func() error // ends Serve and answers its error
	mu     sync.Mutex
	tools  map[string][]task.Tool
	cancel []string
	wakes  int
	runIDs int
}

var (
	operator = Peer{UID: 0, GID: 0, PID: 1}
	nobody   = Peer{UID: 65534, GID: 65534, PID: 2}
)

const projectOfBrief = "ops"

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := newStores(t)
	r.serve(change...)
	return r
}

// newStores opens the databases only.
func newStores(t testing.TB) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, socket: filepath.Join(dir, "s"), tools: map[string][]task.Tool{}}
	r.peer.Store(&operator)
	r.main = must[*db.DB](t)(db.Open(ctx, db.Options{DSN: filepath.Join(dir, "runnerd.db"), OnQueued: r.Wake}))
	t.Cleanup(func() { closed(t, r.main.Close) })
	r.rules = must[*taskpolicy.Store](t)(taskpolicy.Open(ctx, taskpolicy.Options{DSN: filepath.Join(dir, "task_policies.db")}))
	t.Cleanup(func() { closed(t, r.rules.Close) })
	rows := []taskpolicy.Row{
		{Scope: policy.ScopeTask, ID: "brief", Fields: policy.Fields{Allow: task.ListOf(policy.Grant{Connector: "mail", Tool: "send"})}},
		{Scope: policy.ScopeTask, ID: "backup"},
		{Scope: policy.ScopeProject, ID: projectOfBrief},
	}
	for _, id := range []string{"files", "mail", "web"} {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeConnector, ID: id, Fields: policy.Fields{Classes: map[string]policy.Class{"get_*": policy.ClassRead}}})
	}
	ok(t, r.rules.SyncFiles(ctx, rows, policy.Fields{}, "files"))
	return r
}

func closed(t testing.TB, closeIt func() error) {
	if err := closeIt(); err != nil {
		t.Error(err)
	}
}

func (r *rig) options() Options {
	core, logs := observer.New(zap.DebugLevel)
	r.logs = logs
	rights, err := DefaultRights(RightsOptions{Service: true, UID: 4242})
	ok(r.t, err)
	return Options{
		Main: r.main, Policies: r.rules, Files: rigFiles{}, Workers: r, Connectors: r,
		Start: r.startRun, Reload: func(context.Context, bool) (ReloadView, error) { return ReloadView{Tasks: 2}, nil },
		Rights: rights, Logger: zap.New(core), Daemon: DaemonView{Running: true, PID: 7},
		ConfigDir: "/etc/runnerd", StateDir: "/var/lib/runnerd",
	}
}

// build makes the server without serving.
func (r *rig) build(change ...func(*Options)) {
	o := r.options()
	for _, c := range change {
		c(&o)
	}
	r.server = New(o)
	r.server.peerOf = func(net.Conn) (Peer, error) { return *r.peer.Load(), nil }
	r.server.poll = 2 * time.Millisecond
}

// serve serves until the test ends, or stop is called.
func (r *rig) serve(change ...func(*Options)) {
	r.t.Helper()
	r.build(change...)
	l := must[net.Listener](r.t)(Listen(r.socket))
	life, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(life, l) }()
	r.stop = sync.OnceValue(func() error { end(); return <-done })
	r.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			r.t.Error(err)
		}
	})
}

// as answers a client whose requests come from the peer, from now on.
func (r *rig) as(p Peer) *Client {
	r.peer.Store(&p)
	c := NewClient(r.socket, nil)
	c.http.Transport.(*http.Transport).DisableKeepAlives = true
	r.t.Cleanup(c.Close)
	return c
}

// rigFiles is the config directory.
type rigFiles struct{}

func (rigFiles) specs() []task.Task {
	return []task.Task{
		{ID: "backup", Enabled: true, File: "tasks/backup.md", Schedule: task.Schedule{Zone: "UTC"}},
		{
			ID: "brief", Enabled: true, Project: projectOfBrief, File: "tasks/brief.md", Ping: "https://ping.example/secret",
			Schedule: task.Schedule{Specs: []string{"@daily"}, Zone: "UTC"},
			Deliver:  []task.Delivery{{To: "notify", URL: "ntfy://secret"}},
		},
	}
}

func (f rigFiles) Tasks(context.Context) ([]TaskRow, error) {
	var list []TaskRow
	for _, t := range f.specs() {
		list = append(list, NewTaskRow(t, noon))
	}
	return append(list, TaskRow{ID: "broken", Schedule: []string{}, File: "tasks/broken.md", Error: "line 1: bad"}), nil
}

func (f rigFiles) Task(id string) (task.Task, bool) {
	for _, t := range f.specs() {
		if t.ID == id {
			return t, true
		}
	}
	return task.Task{}, false
}

func (rigFiles) Problems() []string { return []string{"tasks/broken.md:1: bad"} }

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// startRun is what the daemon does for a manual start.
func (r *rig) startRun(ctx context.Context, id string, script task.Script) (task.Run, error) {
	if _, found := (rigFiles{}).Task(id); !found {
		return task.Run{}, noTask(id)
	}
	r.mu.Lock()
	r.runIDs++
	run := task.Run{ID: fmt.Sprintf("run%02d", r.runIDs), Task: id, Session: id, Due: noon, Trigger: task.TriggerManual, Attempt: 1, CreatedAt: time.Now(), Script: script}
	r.mu.Unlock()
	if err := r.main.InsertManual(ctx, run); err != nil {
		return run, err
	}
	run.Execution = task.Queued
	return run, nil
}

// The worker pool.

func (r *rig) Cancel(runID, reason string) error {
	r.mu.Lock()
	r.cancel = append(r.cancel, runID+": "+reason)
	r.mu.Unlock()
	done, err := r.main.Cancel(ctx, runID, reason, time.Now())
	if err == nil && !done {
		err = errors.New("run is not active")
	}
	return err
}

func (r *rig) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakes++
}

func (r *rig) woken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wakes
}

// The connectors.

func (r *rig) Status() []ConnectorRow {
	return []ConnectorRow{{ID: "files", Kind: "builtin", Up: true, Tools: 2}, {ID: "mail", Kind: "stdio"}}
}

func (r *rig) Tools(_ context.Context, connector string) ([]task.Tool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tools, up := r.tools[connector]
	if !up {
		return nil, errors.New("connection refused")
	}
	return slices.Clone(tools), nil
}

func (r *rig) lists(connector string, tools ...task.Tool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range tools {
		tools[i].Hash = tools[i].DefinitionHash()
	}
	r.tools[connector] = tools
}

// running starts a run and claims it.
func (r *rig) running(id string) task.Run {
	r.t.Helper()
	must[task.Run](r.t)(r.startRun(ctx, id, task.Script{}))
	run, got, err := r.main.Claim(ctx, time.Now().Add(time.Hour))
	if err != nil || !got {
		r.t.Fatalf("claim: %v %v", got, err)
	}
	return run
}

// parks makes a running run wait for approvals.
func (r *rig) parks(run task.Run, asks ...task.Approval) {
	r.t.Helper()
	for _, a := range asks {
		a.Run, a.Task, a.Step, a.CallID, a.State = run.ID, run.Task, 1, "call-"+a.ID, task.ApprovalPending
		a.Connector, a.Tool, a.Class = "files", "write_file", "write"
		a.ArgsHash = task.ArgsHash(a.Arguments)
		if a.CreatedAt.IsZero() {
			a.CreatedAt = time.Now()
		}
		if a.ExpiresAt.IsZero() {
			a.ExpiresAt = time.Now().Add(time.Hour)
		}
		rc := &task.Receipt{Run: run.ID, Task: run.Task, Step: 1, CallID: a.CallID, Connector: "files", Tool: "write_file", Class: "write",
			Decision: task.DecisionPark, Outcome: task.ReceiptNone, ArgsHash: a.ArgsHash, ApprovalID: a.ID, StartedAt: time.Now(), FinishedAt: time.Now()}
		ok(r.t, r.main.Refuse(ctx, rc, nil, &a))
	}
	run.Execution = task.Waiting
	ok(r.t, r.main.Update(ctx, run))
}

// says appends a message to a run.
func (r *rig) says(run task.Run, words string) {
	r.t.Helper()
	m := &task.Message{Session: run.Session, Run: run.ID, Step: 1, Role: task.RoleAssistant, Text: words, At: time.Now()}
	ok(r.t, r.main.Append(ctx, task.Days{Task: "2026-05-04", Total: "2026-05-04"}, m))
}

// refusedWith checks the status and code of an error.
func refusedWith(t testing.TB, err error, status int, code string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want %d %s", err, status, code)
	}
	if e.Status != status || e.Code != code {
		t.Errorf("error %d %s (%s), want %d %s", e.Status, e.Code, e.Message, status, code)
	}
	return e
}
