// Package looptest holds a whole agent loop for tests: both databases for real,
// a real connector pool over MCP servers in memory, and a scripted model. Tests
// of agentloop and the suite of attacks use it; it is no part of the binary.
package looptest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"runnerd/agentloop"
	"runnerd/connector"
	"runnerd/db"
	"runnerd/llm"
	"runnerd/llm/scripted"
	"runnerd/policy"
	"runnerd/redact"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// World is everything that a run touches. Its fields may be used directly.
type World struct {
	T      testing.TB
	Dir    string
	Main   *db.DB
	Rules  *taskpolicy.Store
	Pool   *connector.Pool
	Redact *redact.Set
	Runner *agentloop.Runner
	// Spec is what the model is said to be; Model answers for it.
	Spec task.ModelSpec
	// Resolve resolves path arguments; it answers the path itself unless set.
	Resolve func(connector, path string) (string, error)
	// OnFreshen is called where the daemon would look at the files: a test edits
	// policy there, between two calls.
	OnFreshen func()
	// StaleFiles are said to be broken on disk.
	StaleFiles []string
	// LostFiles are connector files that are broken and have no last good revision.
	LostFiles map[string]string
	// Before and After are called around what the loop does; see Hook.
	Before, After Hook
	Log           *zap.Logger
	// FinalWrites is the loop's; its default unless set before Open.
	FinalWrites time.Duration
	// Day are the daemon's own limits per day; Sync puts them into force.
	Day policy.Limits
	// Ceiling is the daemon's own deny; Sync puts it into force.
	Ceiling task.List[policy.Grant]

	// Unflagged leaves connectors without flags as they are in a file.
	Unflagged bool

	mu       sync.Mutex
	asked    *recorder
	named    map[string]namedModel
	model    llm.Model
	tasks    map[string]task.Task
	rows     map[policy.Scope]map[string]policy.Fields
	servers  map[string]*Server
	revision map[string]string
	ids      int
}

// New opens a world. It is closed when the test ends.
func New(t testing.TB) *World {
	w := &World{
		T: t, Dir: t.TempDir(), Redact: redact.New(), Log: zap.NewNop(),
		Spec:  task.ModelSpec{Name: "default", Provider: "scripted", ToolMode: "auto", ContextTokens: 32768, MaxOutputTokens: 1024},
		asked: &recorder{}, named: map[string]namedModel{},
		tasks: map[string]task.Task{}, servers: map[string]*Server{}, revision: map[string]string{},
		rows: map[policy.Scope]map[string]policy.Fields{
			policy.ScopeTask: {}, policy.ScopeProject: {}, policy.ScopeConnector: {},
		},
	}
	w.must(template.copyTo(w.Dir))
	w.Resolve = func(_, path string) (string, error) { return path, nil }
	w.Open()
	t.Cleanup(w.Close)
	return w
}

// Open opens the stores and builds the loop; after Close it is what a restarted
// daemon would do.
func (w *World) Open() {
	w.T.Helper()
	var err error
	ctx := context.Background()
	w.Main, err = db.Open(ctx, db.Options{DSN: filepath.Join(w.Dir, mainFile)})
	w.must(err)
	w.Rules, err = taskpolicy.Open(ctx, taskpolicy.Options{DSN: filepath.Join(w.Dir, rulesFile)})
	w.must(err)
	w.Pool = connector.New(connector.Options{StateDir: w.Dir, Dial: w.dial, Redact: w.Redact.Text, Logger: w.Log, Idle: -1})
	w.Pool.Set(w.specs())
	g := &gate{World: w, store: w.Main}
	w.Runner = agentloop.New(agentloop.Options{
		Store: storeGate{g}, Policies: ruleGate{g}, Connectors: poolGate{g}, Files: w, Models: w, Redact: w.Redact,
		Resolve: func(c, p string) (string, error) { return w.Resolve(c, p) },
		Prompt:  func(s string) (string, error) { return s, nil },
		Zone:    midday(), NewID: w.NewID, Logger: w.Log, Backoff: time.Millisecond, FinalWrites: w.FinalWrites,
	})
}

// Close closes everything; a second Close does nothing.
func (w *World) Close() {
	if w.Main == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := errors.Join(w.Pool.Close(ctx), w.Rules.Close(), w.Main.Close())
	w.Main = nil
	if err != nil {
		w.T.Errorf("close world: %v", err)
	}
}

func (w *World) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// NewID makes ids in order.
func (w *World) NewID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("id%04d", w.ids)
}

// Stale implements agentloop.Files.
func (w *World) Stale(string) []string { return w.StaleFiles }

// Lost implements agentloop.Files.
func (w *World) Lost() map[string]string { return w.LostFiles }

// Freshen implements agentloop.Files.
func (w *World) Freshen(context.Context, string) error {
	if w.OnFreshen != nil {
		w.OnFreshen()
	}
	return nil
}

// Model implements agentloop.Models.
func (w *World) Model(_ context.Context, name string) (llm.Model, task.ModelSpec, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, ok := w.named[name]; ok {
		return n.model, n.spec, nil
	}
	if w.model == nil {
		return nil, w.Spec, errors.New("the test set no model")
	}
	spec := w.Spec
	spec.Name = name
	return w.model, spec, nil
}

// Rehearsal implements agentloop.Models.
func (w *World) Rehearsal(_ context.Context, name string, script task.Script) (llm.Model, task.ModelSpec, error) {
	spec := w.Spec
	spec.Name = name
	parsed, err := scripted.Parse(script.Name, []byte(script.Text))
	if err != nil {
		return nil, spec, err
	}
	return scripted.New(parsed), spec, nil
}

// Use makes m the model.
func (w *World) Use(m llm.Model) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.Model = m
	w.model = w.asked
}

// Script makes a scripted model of turns, a YAML list.
func (w *World) Script(turns string) {
	w.T.Helper()
	s, err := scripted.Parse("test.yaml", []byte("turns:\n"+turns))
	w.must(err)
	w.Use(scripted.New(s))
}

// Task puts a task and what its file says about policy into force.
func (w *World) Task(t task.Task, f policy.Fields) {
	w.T.Helper()
	if t.Schedule.Zone == "" {
		t.Schedule.Zone = midday().String()
	}
	if t.Model == "" {
		t.Model = "default"
	}
	if t.Prompt == "" {
		t.Prompt = "Do the work."
	}
	if t.Retry.Attempts == 0 {
		t.Retry = task.Retry{Attempts: 1, Backoff: time.Second}
	}
	t.Enabled = true
	w.tasks[t.ID] = t
	hash, err := w.Main.SaveRevision(context.Background(), t)
	w.must(err)
	w.revision[t.ID] = hash
	w.Policy(policy.ScopeTask, t.ID, f)
}

// Policy puts what a file says about a task, project or connector into force. A
// connector of which nothing is known has no flags, unless Unflagged is set.
func (w *World) Policy(scope policy.Scope, id string, f policy.Fields) {
	w.T.Helper()
	if scope == policy.ScopeConnector && !f.Flags.Declared() && policy.Unflagged(policy.RulesOf(f)) && !w.Unflagged {
		f.Flags = task.ListOf[policy.Flag]()
	}
	w.rows[scope][id] = f
	w.must(w.Sync())
}

// Sync writes the file layer as it stands.
func (w *World) Sync() error {
	var rows []taskpolicy.Row
	for scope, byID := range w.rows {
		for id, f := range byID {
			rows = append(rows, taskpolicy.Row{Scope: scope, ID: id, Fields: f})
		}
	}
	return w.Rules.SyncFiles(context.Background(), rows, policy.Fields{Limits: &w.Day, Deny: w.Ceiling}, "test")
}

// Fields returns what was last put into force for an id.
func (w *World) Fields(scope policy.Scope, id string) policy.Fields { return w.rows[scope][id] }

func (w *World) specs() []task.Connector {
	var specs []task.Connector
	for id := range w.servers {
		specs = append(specs, task.Connector{ID: id, Command: "in-memory", ConnectTimeout: 5 * time.Second, CallTimeout: 5 * time.Second})
	}
	return specs
}

func (w *World) dial(ctx context.Context, c task.Connector) (mcp.Transport, error) {
	w.mu.Lock()
	s := w.servers[c.ID]
	w.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("no server %s", c.ID)
	}
	return s.connect()
}

// midday is a zone in which it is about noon, so that no test of a day's limits
// passes midnight, whatever the hour is.
func midday() *time.Location {
	name := "Etc/UTC"
	switch ahead := 12 - time.Now().UTC().Hour(); {
	case ahead > 0:
		name = fmt.Sprintf("Etc/GMT-%d", ahead) // POSIX counts westwards
	case ahead < 0:
		name = fmt.Sprintf("Etc/GMT+%d", -ahead)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}
