package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"runnerd/task"
)

// Options are a Loader's settings.
type Options struct {
	// Dir is the config directory, an absolute path.
	Dir string
	// Zone is the daemon's own, an IANA name; empty means UTC.
	Zone string
	// CheckSchedule says why a schedule cannot be used; nil accepts all. It is
	// asked once about each different schedule.
	CheckSchedule func(task.Schedule) error
	// CheckPath says why a result cannot be delivered to a file; nil accepts all. It is
	// asked once about each different path.
	CheckPath func(task.Delivery) error
	// LastGood returns the stored content of the last accepted revision of a file,
	// named relative to Dir; nil knows none.
	LastGood func(file string) (content []byte, ok bool)
	// Stored returns the contents of all files that were in force last, by path
	// relative to Dir: what a first load falls back to where the directory cannot be
	// read or has lost its tasks. Nil knows none.
	Stored func() map[string][]byte
	Logger *zap.Logger

	// LoadTimeout bounds one load, with a millisecond more for each file, and before
	// it the wait for another load; default 10 s.
	LoadTimeout time.Duration
	// Settle is how long the directory must be quiet before Watch reports, and a file
	// before any load takes it for a revision. MaxSettle is how long that can put off
	// a report or a load; default 200 ms and 2 s.
	Settle, MaxSettle time.Duration
	// Poll is how often Watch looks by itself at least, but where very many files
	// make that dear; default 30 s.
	Poll time.Duration
	// PollOnly keeps Watch from using inotify.
	PollOnly bool
}

// Loader reads a config directory and keeps the latest Set. Safe for concurrent
// use; loads happen one at a time.
type Loader struct {
	opts  Options
	log   *zap.Logger
	state atomic.Pointer[state]

	// turn is held by whoever loads; it guards what follows.
	turn     chan struct{}
	cache    map[string]*cached
	accepted map[string]*parsed // last good, by file
	checks   map[string]error   // answers of CheckSchedule and CheckPath
	ground   *ground            // of the latest load
	before   map[string][]byte  // answer of Stored
	empty    bool               // this load may find no tasks

	// failed: the directory was not read by the latest attempt.
	failed atomic.Bool

	// clock is by what files come to rest.
	clock clock
}

// clock is the time, and how to let it pass. A context that ends ends the pause.
type clock struct {
	now   func() time.Time
	pause func(ctx context.Context, d time.Duration)
}

func realClock() clock {
	return clock{time.Now, func(ctx context.Context, d time.Duration) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}}
}

// cached is what is known of one file on disk.
type cached struct {
	sig    signature
	parsed *parsed
	access *Problem // why it was not read
}

// state is the result of one load.
type state struct {
	set *Set
	// files are all files as they were read, not changed any more; one that is not
	// here was absent.
	files map[string]*cached
	// common are what every task's decisions depend on.
	common []watched
	print  uint64
}

// sig is a file's signature, the zero one if it was absent.
func (s *state) sig(rel string) signature {
	if c := s.files[rel]; c != nil {
		return c.sig
	}
	return signature{}
}

type watched struct {
	path string
	sig  signature
}

// The files that are always looked for, and the directories.
const (
	daemonName     = "runnerd.yaml"
	modelsName     = "models.yaml"
	connectorsName = "connectors.yaml"
	connectorsDir  = "connectors.d"
	hostFileName   = ".mcp.json"
	projectsName   = "projects.yaml"
	tasksDir       = "tasks"
)

// NewLoader returns a loader; it reads nothing yet.
func NewLoader(opts Options) *Loader {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&opts.LoadTimeout, 10*time.Second)
	def(&opts.Settle, 200*time.Millisecond)
	def(&opts.MaxSettle, 2*time.Second)
	def(&opts.Poll, 30*time.Second)
	if opts.Zone == "" {
		opts.Zone = "UTC"
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.CheckPath == nil {
		opts.CheckPath = func(task.Delivery) error { return nil }
	}
	if opts.CheckSchedule == nil {
		opts.CheckSchedule = func(task.Schedule) error { return nil }
	}
	return &Loader{
		opts: opts, log: opts.Logger, turn: make(chan struct{}, 1),
		cache: make(map[string]*cached), accepted: make(map[string]*parsed), checks: make(map[string]error), clock: realClock(),
	}
}

// Current returns the set of the latest load, nil before the first.
func (l *Loader) Current() *Set {
	if st := l.state.Load(); st != nil {
		return st.set
	}
	return nil
}

// Load reads what changed and returns the new set. What is wrong with files is
// in the set; an error means that the directory itself could not be read, that it
// has lost its tasks (*LostError) or that time ran out, and then the latest set stays
// as it is. A process that has none yet takes the files that Stored knows, and the
// set says why.
func (l *Loader) Load(ctx context.Context) (*Set, error) { return l.loadOnce(ctx, false) }

// LoadEmpty is Load by somebody who knows that there may be no tasks.
func (l *Loader) LoadEmpty(ctx context.Context) (*Set, error) { return l.loadOnce(ctx, true) }

func (l *Loader) loadOnce(ctx context.Context, empty bool) (*Set, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	l.empty = empty
	defer func() { l.empty = false }()
	st, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	return st.set, nil
}

func (l *Loader) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.LoadTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("load config: %w", err)
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("load config: another load is under way: %w", ctx.Err())
	}
}

func (l *Loader) leave() { <-l.turn }

// load does the work of Load for whoever has the turn.
func (l *Loader) load(ctx context.Context) (*state, error) {
	st, err := l.read(ctx)
	l.failed.Store(err != nil)
	if err != nil && ctx.Err() == nil {
		if st := l.fromStore(err); st != nil {
			return st, nil
		}
	}
	return st, err
}

func (l *Loader) read(ctx context.Context) (*state, error) {
	root, err := os.OpenRoot(l.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open config directory: %w", err)
	}
	defer root.Close()
	found, err := l.scanSettled(ctx)
	if err == nil {
		err = l.lost(found)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.LoadTimeout+time.Duration(len(found.files))*time.Millisecond)
	defer cancel()
	now := l.clock.now()
	r := &reader{clock: l.clock, dir: l.opts.Dir, root: root, uid: uint32(os.Geteuid()), ownGroup: remembered(primaryGroup),
		rest: max(restTime, l.opts.Settle), patience: now.Add(l.opts.MaxSettle)}
	if err := l.readAll(ctx, r, found.files); err != nil {
		return nil, err
	}
	st := &state{set: l.assemble(found), files: l.cache}
	l.watchCommon(st, found, now)
	for rel, c := range st.files {
		st.print += fingerprint(rel, c.sig)
	}
	l.state.Store(st)
	l.log.Debug("config loaded", zap.Int("tasks", len(st.set.Tasks)), zap.Int("problems", len(st.set.Problems)))
	return st, nil
}

// watchCommon notes what every task's decisions depend on, absent files too.
func (l *Loader) watchCommon(st *state, found *scan, now time.Time) {
	dir := found.connectorsDir
	if dir.fresh(now, restTime) {
		dir = unsettled
	}
	st.common = append(st.common, watched{filepath.Join(l.opts.Dir, connectorsDir), dir})
	for _, name := range []string{daemonName, projectsName, connectorsName, hostFileName} {
		st.common = append(st.common, watched{filepath.Join(l.opts.Dir, name), st.sig(name)})
	}
	for _, f := range found.files {
		if strings.HasPrefix(f.rel, connectorsDir+"/") {
			st.common = append(st.common, watched{filepath.Join(l.opts.Dir, f.rel), st.sig(f.rel)})
		}
	}
}

// file is one file of the directory that is ours to read.
type file struct {
	rel  string
	kind kind
	sig  signature
}

// scan is a listing of the directory.
type scan struct {
	files         []file
	warnings      []Problem
	connectorsDir signature
}

// scanSettled lists the directory, once more after a rest if a file has disappeared:
// some editors save by removing the file and writing it anew.
func (l *Loader) scanSettled(ctx context.Context) (*scan, error) {
	found, err := l.scan()
	st := l.state.Load()
	if err != nil || st == nil {
		return found, err
	}
	present := make(map[string]bool, len(found.files))
	for _, f := range found.files {
		present[f.rel] = true
	}
	for rel := range st.files {
		if !present[rel] && !present[otherTaskFile(rel)] {
			if l.clock.pause(ctx, l.opts.Settle); ctx.Err() != nil {
				return nil, fmt.Errorf("load config: %w", ctx.Err())
			}
			return l.scan()
		}
	}
	return found, nil
}

// otherTaskFile is the other name that a task's file can have.
func otherTaskFile(rel string) string {
	if !strings.HasPrefix(rel, tasksDir+"/") {
		return ""
	}
	if stem, ok := strings.CutSuffix(rel, ".md"); ok {
		return stem + ".yaml"
	}
	return strings.TrimSuffix(rel, ".yaml") + ".md"
}

func (l *Loader) scan() (*scan, error) {
	s := &scan{connectorsDir: sign(filepath.Join(l.opts.Dir, connectorsDir))}
	for _, f := range []file{
		{rel: daemonName, kind: kindDaemon}, {rel: modelsName, kind: kindModels}, {rel: projectsName, kind: kindProjects},
		{rel: connectorsName, kind: kindConnectors}, {rel: hostFileName, kind: kindConnectors},
	} {
		if f.sig = lsign(filepath.Join(l.opts.Dir, f.rel)); f.sig != (signature{}) {
			s.files = append(s.files, f)
		}
	}
	if err := l.scanDir(s, connectorsDir, kindConnectors, ".yaml", ".json"); err != nil {
		return nil, err
	}
	if err := l.scanDir(s, tasksDir, kindTask, ".md", ".yaml"); err != nil {
		return nil, err
	}
	if err := l.scanTop(s); err != nil {
		return nil, err
	}
	for _, dir := range []string{".", tasksDir, connectorsDir} {
		if sig := sign(filepath.Join(l.opts.Dir, dir)); sig.mode&0o002 != 0 && sig.exists() {
			s.warnings = append(s.warnings, Problem{File: dir, What: "everyone can write this directory, and so remove or replace its files", Hint: "chmod o-w"})
		}
	}
	return s, nil
}

func (l *Loader) scanDir(s *scan, dir string, k kind, exts ...string) error {
	entries, err := os.ReadDir(filepath.Join(l.opts.Dir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	list := folderOf(dir, entries, func(name string) bool { return slices.Contains(exts, path.Ext(name)) })
	for _, e := range entries {
		name := e.Name()
		rel := dir + "/" + name
		switch {
		case setAside(name):
			list.tell(s, name)
		case e.IsDir():
			s.warnings = append(s.warnings, Problem{File: rel, What: "folders are not read", Hint: "move its files into " + dir + "/"})
		case list.ours(name):
			if sig := lsign(filepath.Join(l.opts.Dir, rel)); sig != (signature{}) {
				s.files = append(s.files, file{rel, k, sig})
			}
		default:
			s.warnings = append(s.warnings, Problem{
				File: rel, What: "this file is not read", Expected: "a name that ends in " + oneOf(exts), Hint: "rename it, or move it out of " + dir + "/",
			})
		}
	}
	return nil
}

// scanTop names what lies beside the files that are read and looks like one of
// them.
func (l *Loader) scanTop(s *scan) error {
	entries, err := os.ReadDir(l.opts.Dir)
	if err != nil {
		return fmt.Errorf("list the config directory: %w", err)
	}
	known := []string{daemonName, modelsName, connectorsName, projectsName, hostFileName, connectorsDir, tasksDir}
	list := folderOf("", entries, func(name string) bool { return slices.Contains(known, name) })
	for _, e := range entries {
		name := e.Name()
		if list.ours(name) {
			continue
		}
		if setAside(name) {
			list.tell(s, name)
			continue
		}
		stem := strings.TrimSuffix(name, path.Ext(name))
		near := task.Nearest(name, known)
		for _, k := range known {
			if strings.EqualFold(stem, strings.TrimSuffix(k, path.Ext(k))) {
				near = k
			}
		}
		if near != "" {
			s.warnings = append(s.warnings, Problem{File: name, What: "this is not read", Hint: "did you mean " + near + "?"})
		}
	}
	return nil
}

// readAll brings the cache up to date, in parallel, and drops what is gone.
func (l *Loader) readAll(ctx context.Context, r *reader, files []file) error {
	fresh := make([]*cached, len(files))
	var group errgroup.Group
	group.SetLimit(max(2, min(8, runtime.GOMAXPROCS(0))))
	for i, f := range files {
		old := l.cache[f.rel]
		if old != nil && old.sig == f.sig {
			fresh[i] = old
			continue
		}
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("load config: %w", err)
			}
			fresh[i] = readFile(ctx, r, f, old)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	l.cache = make(map[string]*cached, len(files))
	for i, f := range files {
		l.cache[f.rel] = fresh[i]
	}
	for rel := range l.accepted {
		if l.cache[rel] == nil {
			delete(l.accepted, rel)
		}
	}
	return nil
}

func readFile(ctx context.Context, r *reader, f file, old *cached) *cached {
	content, sig, problem := r.read(ctx, f.rel)
	c := &cached{sig: sig, access: problem}
	if sig.fresh(r.clock.now(), r.rest) || !sig.exists() {
		c.sig = unsettled
	}
	if problem != nil {
		return c
	}
	if old != nil && old.parsed != nil && old.parsed.sum == sumOf(content) {
		c.parsed = old.parsed
		return c
	}
	c.parsed = parse(f.rel, f.kind, content)
	return c
}

// remembered makes a lookup remember its answers and safe for concurrent use.
func remembered(look func(uint32) (uint32, bool)) func(uint32) (uint32, bool) {
	type answer struct {
		gid   uint32
		known bool
	}
	var mu sync.Mutex
	known := make(map[uint32]answer)
	return func(uid uint32) (uint32, bool) {
		mu.Lock()
		defer mu.Unlock()
		a, ok := known[uid]
		if !ok {
			a.gid, a.known = look(uid)
			known[uid] = a
		}
		return a.gid, a.known
	}
}
