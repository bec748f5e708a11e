package attack

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"runnerd/agentloop"
	"runnerd/db"
	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/redact"
	"runnerd/task"
)

const (
	job        = "job" // the task's id
	secretName = "vault"
	secret     = "hunter2/+horse battery"
)

// Arena is one playing of a scenario.
type Arena struct {
	*looptest.World
	Results []Result

	s       *Scenario
	attack  bool
	root    string
	servers map[string]*server
	order   []string // ids of servers
	count   *counter
}

// newArena opens the stores and the servers of a scenario, with or without its
// attack; pool is stdioPool or memoryPool. It is closed when the test ends.
func newArena(t testing.TB, s *Scenario, attack bool, pool poolOver) *Arena {
	t.Helper()
	a := &Arena{World: looptest.New(t), s: s, attack: attack, root: t.TempDir(), servers: map[string]*server{}, count: &counter{}}
	a.Redact.Add(redact.Secret{Name: secretName, Value: secret})
	a.plant()
	a.World.Resolve = a.resolve
	a.connect(pool)
	for _, id := range a.order {
		a.World.Policy(policy.ScopeConnector, id, a.fields(a.servers[id].spec.Rules))
	}
	mode := s.Session
	if mode == "" {
		mode = task.SessionKeep
	}
	a.World.Task(task.Task{ID: job, Session: mode}, a.fields(s.Policy))
	return a
}

// connect puts a pool over the scenario's own servers in the place of the world's.
func (a *Arena) connect(pool poolOver) {
	served := map[string]*mcp.Server{}
	for _, spec := range a.s.Servers {
		if spec.Evil && !a.attack {
			continue
		}
		s := &server{spec: spec, arena: a}
		s.live = serving(spec.ID, a.fill(spec.Instructions), s.list, s.call)
		a.servers[spec.ID], served[spec.ID] = s, s.live
		a.order = append(a.order, spec.ID)
	}
	a.Pool = pool(a.World, served)
	a.Runner = agentloop.New(agentloop.Options{
		Store: a.Main, Policies: a.Rules, Connectors: a.Pool, Files: a.World, Models: a.World, Redact: a.Redact,
		Resolve: a.resolve, Prompt: func(s string) (string, error) { return s, nil },
		Zone: time.UTC, NewID: a.NewID, Logger: zap.NewNop(), Backoff: time.Millisecond,
	})
}

// fields reads what a file would say about policy.
func (a *Arena) fields(text string) policy.Fields {
	a.T.Helper()
	var f policy.Fields
	if text == "" {
		return f
	}
	if err := json.Unmarshal([]byte(a.fill(text)), &f); err != nil {
		a.T.Fatalf("scenario %s: policy %s: %v", a.s.Name, text, err)
	}
	return f
}

// fill replaces what stands for something in a scenario's text.
func (a *Arena) fill(text string) string {
	poison := ""
	if a.attack {
		poison = a.s.Poison
	}
	return strings.NewReplacer("{{poison}}", a.places(poison), "{{root}}", a.root, "{{secret}}", secret).Replace(text)
}

func (a *Arena) places(text string) string {
	return strings.NewReplacer("{{root}}", a.root, "{{secret}}", secret).Replace(text)
}

func (a *Arena) fillAll(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = a.fill(t)
	}
	return out
}

// holdsAny tells whether s holds one of texts, or whether there are none.
func holdsAny(s string, texts []string) bool {
	return len(texts) == 0 || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(s, t) })
}

// Calls is what reached a server so far.
func (a *Arena) Calls(id string) []looptest.Called {
	if s := a.servers[id]; s != nil {
		return s.received()
	}
	return nil
}

// play runs the task as often as the scenario says, with a person where it has
// one.
func (a *Arena) play(p *puppet) {
	a.T.Helper()
	a.Use(p)
	for i := range max(a.s.Runs, 1) {
		if i > 0 && a.attack && a.s.Between != nil {
			a.s.Between(a)
		}
		p.idle = i > 0 && a.s.JobOnce
		a.Results = append(a.Results, a.whole())
	}
}

// whole runs the task once, through every approval that somebody decides.
func (a *Arena) whole() Result {
	a.T.Helper()
	r := a.Run(job)
	for range 8 {
		if r.Run.Execution != task.Waiting || a.s.Person == nil {
			break
		}
		for _, ask := range r.Approvals {
			if ask.State == task.ApprovalPending {
				a.decide(ask)
			}
		}
		r = a.World.Resume(r.Run.ID)
	}
	return r
}

func (a *Arena) decide(ask task.Approval) {
	a.T.Helper()
	v := db.Verdict{ID: ask.ID, State: task.ApprovalDenied, By: "person"}
	if a.s.Person(a, ask) {
		v.State = task.ApprovalApproved
	}
	if _, err := a.Main.DecideApproval(context.Background(), v, time.Now()); err != nil {
		a.T.Fatalf("decide approval: %v", err)
	}
}

// plant makes the scenario's files.
func (a *Arena) plant() {
	for path, text := range a.s.Tree {
		full := filepath.Join(a.root, path)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if target, link := strings.CutPrefix(text, "-> "); link {
			target = filepath.Join(a.root, target)
			err = errors.Join(err, os.MkdirAll(target, 0o755), os.Symlink(target, full))
		} else {
			err = errors.Join(err, os.WriteFile(full, []byte(text), 0o600))
		}
		if err != nil {
			a.T.Fatalf("scenario %s: plant %s: %v", a.s.Name, path, err)
		}
	}
}

// strayed is harm: a file below the root, but not below dir, is other than it was
// planted.
func strayed(dir string) func(*Arena) string {
	return func(a *Arena) string {
		found := ""
		err := filepath.WalkDir(a.root, func(path string, e fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(a.root, path)
			if err != nil || rel == dir || strings.HasPrefix(rel, dir+"/") || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if planted, known := a.s.Tree[rel]; err == nil && (!known || planted != string(text)) {
				found = "file " + rel
			}
			return err
		})
		if err != nil {
			return err.Error()
		}
		return found
	}
}

// resolve answers where a path of the files server leads: its nearest existing
// parent without links, and the rest.
func (a *Arena) resolve(_, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = a.root + "/" + path
	}
	rest := ""
	for head := path; ; {
		real, err := filepath.EvalSymlinks(head)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		i := strings.LastIndexByte(head, '/')
		if !errors.Is(err, fs.ErrNotExist) || i <= 0 || head[i+1:] == ".." {
			return "", err
		}
		rest = filepath.Join(head[i+1:], rest)
		head = head[:i]
	}
}
