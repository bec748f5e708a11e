package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/xid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"runnerd/agentloop"
	"runnerd/config"
	"runnerd/confine"
	"runnerd/connector"
	"runnerd/control"
	"runnerd/db"
	"runnerd/deliver"
	"runnerd/dispatch"
	"runnerd/llm/provider"
	"runnerd/policy"
	"runnerd/procgroup"
	"runnerd/redact"
	"runnerd/scheduler"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// house is the daemon, or a run in the foreground: everything opened and wired,
// nothing started.
type house struct {
	settings Settings
	log      *zap.Logger
	zone     *time.Location
	zoneFrom string
	every    time.Duration
	modes    modes // as they were when the daemon began

	secrets *config.Resolver
	redact  *redact.Set
	loader  *config.Loader
	main    *db.DB
	rules   *taskpolicy.Store
	pool    *connector.Pool
	models  *models
	runner  *agentloop.Runner
	workers *dispatch.Pool
	clock   *scheduler.Scheduler
	care    care
	meters  *meters
	starter *procgroup.Starter
	stops   stack

	partners partners

	// applied is the set whose content is in force everywhere; apply is held
	// while another takes its place.
	applied atomic.Pointer[config.Set]
	// faulty is what else is wrong with that set; see faults.
	faulty atomic.Pointer[[]config.Problem]
	apply  sync.Mutex
	// awayText is what was last said of a config directory that cannot be read.
	awayText atomic.Pointer[string]
	behind   chan struct{} // capacity 1: what was loaded could not be stored

	// service says that systemd started us; rights are who may do what, nil as
	// long as there is no socket.
	service bool
	rights  atomic.Pointer[func(control.Peer) control.Rights]
}

// newID makes ids of runs and approvals: short, unique, in order of time.
func newID() string { return xid.New().String() }

// openHouse opens everything, in order. What was opened is given back by close,
// also if a later part fails.
func (a *app) openHouse(ctx context.Context, logTo io.Writer) (h *house, err error) {
	h = &house{settings: a.Settings, every: cmp.Or(a.every, everyMinute), redact: redact.New(), meters: newMeters(), starter: &procgroup.Starter{Mark: procgroup.MarkOf(a.StateDir)}, behind: make(chan struct{}, 1), partners: newPartners()}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.zone, h.zoneFrom, err = a.findZone(a.getenv); err != nil {
		return h, &exit{task.ExitUsage, err}
	}
	if h.log, err = newLogger(a.Settings, logTo, h.redact, a.getenv); err != nil {
		return h, &exit{task.ExitUsage, err}
	}
	for _, dir := range []string{h.settings.StateDir, h.settings.CacheDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return h, fmt.Errorf("make directory: %w", err)
		}
	}
	if err := h.openStores(ctx, a.consent); err != nil {
		return h, err
	}
	h.openFiles(a)
	h.openCare(ctx, a)
	h.openParts(a)
	return h, nil
}

// queued tells the workers of a run that a commit put into the queue, by whatever
// path it did, and of a held result that was decided about. Before the parts are
// built nobody waits.
func (h *house) queued() {
	if h.workers != nil {
		h.workers.Wake()
		h.care.delivery.Wake()
	}
}

func (h *house) openFiles(a *app) {
	h.secrets = a.resolver(h.redact)
	h.loader = config.NewLoader(config.Options{
		Dir: h.settings.ConfigDir, Zone: h.zone.String(), CheckSchedule: checkSchedule, CheckPath: a.checkPath(h.secrets), LastGood: h.lastGood, Stored: h.stored(), Logger: h.log, PollOnly: a.poll > 0, Poll: a.poll,
	})
}

// resolver resolves references and lets hide know every secret that it meets.
func (a *app) resolver(hide *redact.Set) *config.Resolver {
	return config.NewResolver(config.ResolverOptions{
		CredentialDirs: a.credentialDirs(a.getenv), Getenv: a.lookupEnv, ConfigDir: a.ConfigDir,
		OnSecret: func(known []config.Secret) { hide.Replace(redactable(known)) },
	})
}

func redactable(known []config.Secret) []redact.Secret {
	list := make([]redact.Secret, len(known))
	for i, s := range known {
		list[i] = redact.Secret{Name: s.Name, Value: s.Value}
	}
	return list
}

func (a *app) lookupEnv(key string) (string, bool) {
	v := a.getenv(key)
	return v, v != ""
}

// door is what files are written through: it refuses what connectors are kept from,
// and the binary.
func (a *app) door() *confine.Door {
	paths := a.protected(a.getenv)
	if self, err := os.Executable(); err == nil {
		paths = append(paths, self)
	}
	return confine.New(paths...)
}

// checkPath finds results that are to go where the door writes nothing.
func (a *app) checkPath(secrets *config.Resolver) func(task.Delivery) error {
	return deliver.New(deliver.Options{Door: a.door(), ResolvePath: secrets.ResolvePath}).Check
}

func checkSchedule(s task.Schedule) error {
	_, err := scheduler.Parse(s)
	return err
}

func (h *house) lastGood(file string) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	content, err := h.main.LastGood(ctx, file)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		h.log.Error("last good revision unreadable", zap.String("file", file), zap.Error(err))
	}
	return content, err == nil
}

// openParts builds what works: connectors, models, the loop, workers, the clock.
func (h *house) openParts(a *app) {
	h.models = newModels(provider.Options{Resolve: h.secrets.ResolveSecret, Env: childEnviron(a, "HOME"), Starter: h.starter, Logger: h.log})
	connectors := connectorOptions(a, h.secrets, h.redact, h.log)
	connectors.Notice, connectors.Starter = h.connectorNotice, h.starter
	h.pool = connector.New(connectors)
	if n := h.pool.Sweep(); n > 0 {
		h.log.Warn("ended what connectors of an earlier daemon left behind", zap.Int("processes", n))
	}
	h.stops.push("connectors", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return h.pool.Close(ctx)
	})
	at := breakable(stores{h.main, h.main, h.main, h.pool}, a.getenv)
	h.runner = agentloop.New(agentloop.Options{
		Store: at.loop, Policies: newestRules{h.rules, h}, Connectors: at.tools, Files: h, Models: h.models,
		Redact: h.redact, Resolve: h.resolvePath, Prompt: h.secrets.ResolvePrompt,
		Zone: h.zone, NewID: newID, Logger: h.log,
	})
	h.workers = dispatch.New(dispatch.Options{
		Store: mindedQueue{at.queue, h}, Runner: minded{h.runner, h}, Workers: h.settings.Workers, Grace: h.settings.Grace,
		Redact: h.redact.Text, Logger: h.log,
	})
	h.clock = scheduler.New(scheduler.Options{
		Store: at.clock, NewID: newID, Host: hostName(), Now: wallClock(a.getenv), Gate: h.gate, Allow: h.allow, Screen: h.screen, Log: h.log,
		OldSchedule: h.oldSchedule, Observe: h.turned, Stepped: h.stepped,
		Enqueued: func([]task.Run) { h.workers.Wake() },
		Cancel:   func(run, reason string) { h.cancelReplaced(run, reason) },
	})
}

func (h *house) cancelReplaced(run, reason string) {
	if err := h.workers.Cancel(run, reason); err != nil && !errors.Is(err, dispatch.ErrNotActive) {
		h.log.Error("replaced run not cancelled", zap.String("run", run), zap.Error(err))
	}
}

// connectorOptions are the same for the daemon and for the verbs that only look.
func connectorOptions(a *app, secrets *config.Resolver, hide *redact.Set, log *zap.Logger) connector.Options {
	as, fettered, err := connectorUser(a.ConnectorUser)
	if err != nil {
		fettered = true // settle has refused the name before
	}
	return connector.Options{
		As: as, Fettered: fettered,
		Resolve: secrets.ResolveSecret, ResolvePath: secrets.ResolvePath, Redact: hide.Text, StateDir: a.StateDir, CacheDir: a.CacheDir,
		Schema:    policy.SchemaError,
		Protected: a.protected(a.getenv),
		Environ:   childEnviron(a), Logger: log, Version: versionText(), Dial: a.dial,
	}
}

// connectorUser says who stdio connectors run as. A daemon that root runs gives them
// root without what makes it root, unless the operator names a user, or says root.
func connectorUser(name string) (as *procgroup.User, fettered bool, err error) {
	if os.Geteuid() != 0 {
		if name != "" {
			return nil, false, fmt.Errorf("RUNNERD_CONNECTOR_USER is %q, but only a daemon that root runs can start programs as somebody else", name)
		}
		return nil, false, nil
	}
	if name == "" || name == "root" {
		return nil, name == "", nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, false, fmt.Errorf("RUNNERD_CONNECTOR_USER is %q; expected the name or uid of a user here, or root", name)
		}
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	return &procgroup.User{UID: uint32(uid), GID: uint32(gid)}, false, errors.Join(uerr, gerr)
}

// childEnviron is what children get of the daemon's environment.
func childEnviron(a *app, more ...string) []string {
	var environ []string
	for _, key := range append(more, "PATH", "LANG", "LC_ALL", "TZ", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR") {
		if v := a.getenv(key); v != "" {
			environ = append(environ, key+"="+v)
		}
	}
	return environ
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}

func (h *house) close() error { return h.stops.close() }

// Freshen implements agentloop.Files: whatever changed on disk is in force when
// it returns, or an error says that the last good revision still is.
func (h *house) Freshen(ctx context.Context, taskID string) error {
	_, _, err := h.loader.Freshen(ctx, taskID)
	return errors.Join(err, h.putNewest(ctx))
}

// Lost implements agentloop.Files.
func (h *house) Lost() map[string]string {
	if set := h.applied.Load(); set != nil {
		return set.LostConnectors()
	}
	return nil
}

// Stale implements agentloop.Files.
func (h *house) Stale(taskID string) []string {
	set := h.applied.Load()
	if set == nil {
		return nil
	}
	var files []string
	for _, f := range set.Kept {
		if id := taskOf(f); id == "" || id == taskID {
			files = append(files, f)
		}
	}
	return files
}

// reload reads all files again and puts what is good into force.
func (h *house) reload(ctx context.Context) error { return h.reloadBy(ctx, h.loader.Load) }

func (h *house) reloadBy(ctx context.Context, load func(context.Context) (*config.Set, error)) error {
	if _, err := load(ctx); err != nil {
		return err
	}
	return h.putNewest(ctx)
}

// stored are the files that were in force last, unless those were of another config
// directory: a name mistyped is no volume that is not mounted.
func (h *house) stored() func() map[string][]byte {
	if was := h.partners.lock.Memory().Config; was != "" && was != h.settings.ConfigDir {
		return nil
	}
	return storedFiles(h.main, h.log)
}

// storedFiles reads the files that were in force last.
func storedFiles(main *db.DB, log *zap.Logger) func() map[string][]byte {
	return func() map[string][]byte {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		files, err := main.Files(ctx)
		if err != nil {
			log.Error("files that were in force last not read", zap.Error(err))
		}
		return files
	}
}

// putNewest makes the set that was loaded last, by whomever, the one in force:
// what can fail first (both databases), then the parts that only swap a pointer.
func (h *house) putNewest(ctx context.Context) error {
	if h.loader.Current() == h.applied.Load() {
		return nil
	}
	h.apply.Lock()
	defer h.apply.Unlock()
	set := h.loader.Current()
	if set == h.applied.Load() {
		return nil // another caller put it there
	}
	wrong := faults(set, h.secrets) // resolving makes secrets known before anything could show them
	entries, err := h.store(ctx, set)
	if err != nil {
		select {
		case h.behind <- struct{}{}:
		default:
		}
		return fmt.Errorf("put files into force: %w", err)
	}
	h.models.set(set.Models)
	h.pool.Set(connectorSpecs(set))
	err = h.clock.Set(entries)
	h.faulty.Store(&wrong)
	h.applied.Store(set)
	h.care.see(set, wrong)
	h.away(set.Away)
	if set.Away == nil {
		err = errors.Join(err, h.partners.lock.RememberConfig(h.settings.ConfigDir))
	}
	h.admit(set.Daemon.Access)
	h.tell(set, wrong)
	if len(set.Tasks) >= many {
		debug.FreeOSMemory() // a load takes several times what is then kept
	}
	return err
}

// lookAgain finds what is wrong beside the files of the set in force, which may have
// changed although none of them has: scripts, credentials, directories.
func (h *house) lookAgain() {
	h.apply.Lock()
	defer h.apply.Unlock()
	if set := h.applied.Load(); set != nil {
		wrong := faults(set, h.secrets)
		h.faulty.Store(&wrong)
		h.care.see(set, wrong)
	}
}

// many is from how many tasks on what a load leaves behind is given back at once:
// an idle daemon collects little, and so would keep it.
const many = 1000

// store writes a set to the databases, both at once, and answers what the clock
// needs of it. Where one fails, the set is not in force and is written again.
func (h *house) store(ctx context.Context, set *config.Set) ([]scheduler.Entry, error) {
	tasks := make([]task.Task, 0, len(set.Tasks))
	schedules := map[string]task.Schedule{}
	for _, id := range set.TaskIDs() {
		t := set.Tasks[id].Task
		tasks = append(tasks, t)
		if len(t.Schedule.Specs) > 0 {
			schedules[scheduler.Revision(t.Schedule)] = t.Schedule
		}
	}
	var revisions []string
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		if revisions, err = h.main.SaveRevisions(ctx, tasks); err == nil {
			err = h.main.SaveSchedules(ctx, schedules)
		}
		if err == nil {
			err = h.main.SaveFiles(ctx, h.edited(set))
		}
		if err == nil {
			err = h.main.ForgetFiles(ctx, h.forgotten(set))
		}
		return h.ofMain(err)
	})
	both.Go(func() error {
		return h.ofRules(h.rules.SyncFiles(ctx, policyRows(set), set.Daemon.Policy(), "files"))
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	entries := make([]scheduler.Entry, len(tasks))
	for i, t := range tasks {
		entries[i] = scheduler.Entry{Task: t, Revision: revisions[i]}
	}
	return entries, nil
}

// forgotten tells which files are not in force any more; nil where none can have
// gone since the last set.
func (h *house) forgotten(set *config.Set) func(file string) bool {
	in := make(map[string]bool, len(set.Accepted)+len(set.Kept))
	for file := range set.Accepted {
		in[file] = true
	}
	for _, file := range set.Kept {
		in[file] = true
	}
	before := h.applied.Load()
	gone := before == nil
	if before != nil {
		for file := range before.Accepted {
			gone = gone || !in[file]
		}
		gone = gone || len(before.Kept) > 0
	}
	if !gone {
		return nil
	}
	return func(file string) bool { return !in[file] }
}

// edited are the contents of the accepted files that are not in force as they are.
func (h *house) edited(set *config.Set) map[string][]byte {
	contents := map[string][]byte{}
	before := h.applied.Load()
	for file, r := range set.Accepted {
		if before == nil || before.Accepted[file].SHA256 != r.SHA256 {
			contents[file] = r.Content
		}
	}
	return contents
}

// policyRows is what the files say about tasks, projects and connectors.
func policyRows(set *config.Set) []taskpolicy.Row {
	rows := make([]taskpolicy.Row, 0, len(set.Tasks)+len(set.Projects)+len(set.Connectors))
	for _, id := range set.TaskIDs() {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeTask, ID: id, Fields: set.Tasks[id].Policy})
	}
	for _, id := range set.ProjectIDs() {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeProject, ID: id, Fields: set.Projects[id].Policy})
	}
	for _, id := range set.ConnectorIDs() {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeConnector, ID: id, Fields: set.Connectors[id].Policy})
	}
	return rows
}

func connectorSpecs(set *config.Set) []task.Connector {
	specs := make([]task.Connector, 0, len(set.Connectors))
	for _, id := range set.ConnectorIDs() {
		specs = append(specs, set.Connectors[id].Connector)
	}
	return specs
}

// tell logs what is wrong with the files that were just read, once a load.
func (h *house) tell(set *config.Set, wrong []config.Problem) {
	for _, p := range set.Problems {
		h.log.Error("file refused", zap.String("file", p.File), zap.String("detail", p.Error()))
	}
	for _, p := range wrong {
		h.log.Error("file cannot do what it says", zap.String("file", p.File), zap.String("detail", p.Error()))
	}
	for _, p := range set.Warnings {
		h.log.Warn("file", zap.String("file", p.File), zap.String("detail", p.Error()))
	}
	for _, f := range set.Kept {
		h.log.Warn("last good revision stays in force", zap.String("file", f))
	}
	h.log.Info("files in force", zap.Int("tasks", len(set.Tasks)), zap.Int("connectors", len(set.Connectors)), zap.Int("problems", len(set.Problems)+len(wrong)))
}

// resolvePath resolves a path argument of a connector's call against its root.
func (h *house) resolvePath(id, path string) (string, error) {
	set := h.applied.Load()
	if set == nil {
		return "", fmt.Errorf("resolve path: no files are in force")
	}
	return pathOf(set, h.secrets, id, path)
}

func (h *house) oldSchedule(revision string) (task.Schedule, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, ok, err := h.main.OldSchedule(ctx, revision)
	if err != nil {
		h.log.Error("old schedule unreadable", zap.String("revision", revision), zap.Error(err))
	}
	return s, ok
}
