// Package daemon is the daemon itself: it opens the parts, wires them and is their
// life. The program around it adds verbs, printing and exit codes.
//
//	New      takes the state directory and both databases, which must belong to one
//	         another, and builds connectors, models, the loop, workers and the clock.
//	Reload   reads the files and puts what is good into force: databases first, then
//	         the parts. The last good revision of a broken file stays.
//	Run      starts the parts, recovers what a crash left behind, says READY, and then
//	         follows edits and signals: SIGHUP reads again, SIGTERM ends.
//	Close    gives everything back, last opened first.
//
// A run in the foreground is New, Reload, Recover, NewManual, Finish and DeliverNow,
// with nothing started. Inspect looks at the files and databases and changes nothing;
// its Check and the daemon's own reports come from the same functions.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/xid"
	"go.uber.org/zap"

	"runnerd/agentloop"
	"runnerd/config"
	"runnerd/connector"
	"runnerd/control"
	"runnerd/db"
	"runnerd/dispatch"
	"runnerd/llm/provider"
	"runnerd/procgroup"
	"runnerd/redact"
	"runnerd/scheduler"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// Daemon is the daemon, or a run in the foreground: everything opened and wired,
// nothing started.
type Daemon struct {
	options  Options
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
	stops   Stack

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

// New opens everything, in order. What was opened is given back by Close; if a part
// fails, at once.
func New(ctx context.Context, o Options) (d *Daemon, err error) {
	d = &Daemon{
		options: o, every: cmp.Or(o.Every, everyMinute), redact: redact.New(), meters: newMeters(), starter: &procgroup.Starter{Mark: procgroup.MarkOf(o.StateDir)},
		behind: make(chan struct{}, 1), partners: newPartners(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.zone, d.zoneFrom, err = o.FindZone(); err != nil {
		return d, &UsageError{err}
	}
	if d.log, err = newLogger(o, d.redact); err != nil {
		return d, &UsageError{err}
	}
	for _, dir := range []string{o.StateDir, o.CacheDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return d, fmt.Errorf("make directory: %w", err)
		}
	}
	if err := d.openStores(ctx, o.Consent); err != nil {
		return d, err
	}
	d.openFiles()
	d.openCare(ctx)
	d.openParts()
	return d, nil
}

// queued tells the workers of a run that a commit put into the queue, by whatever
// path it did, and of a held result that was decided about. Before the parts are
// built nobody waits.
func (d *Daemon) queued() {
	if d.workers != nil {
		d.workers.Wake()
		d.care.delivery.Wake()
	}
}

func (d *Daemon) openFiles() {
	o := d.options
	d.secrets = o.resolver(d.redact)
	d.loader = config.NewLoader(config.Options{
		Dir: o.ConfigDir, Zone: d.zone.String(), CheckSchedule: checkSchedule, CheckPath: o.checkPath(d.secrets),
		LastGood: d.lastGood, Stored: d.stored(), Logger: d.log, PollOnly: o.Poll > 0, Poll: o.Poll,
	})
}

// openParts builds what works: connectors, models, the loop, workers, the clock.
func (d *Daemon) openParts() {
	o := d.options
	d.models = newModels(provider.Options{Resolve: d.secrets.ResolveSecret, Env: o.childEnviron("HOME"), Starter: d.starter, Logger: d.log})
	connectors := o.connectors(d.secrets, d.redact, d.log)
	connectors.Notice, connectors.Starter = d.connectorNotice, d.starter
	d.pool = connector.New(connectors)
	if n := d.pool.Sweep(); n > 0 {
		d.log.Warn("ended what connectors of an earlier daemon left behind", zap.Int("processes", n))
	}
	d.stops.Push("connectors", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return d.pool.Close(ctx)
	})
	at := breakable(stores{d.main, d.main, d.main, d.pool}, o.Getenv)
	d.runner = agentloop.New(agentloop.Options{
		Store: at.loop, Policies: newestRules{d.rules, d}, Connectors: at.tools, Files: d, Models: d.models,
		Redact: d.redact, Resolve: d.resolvePath, Prompt: d.secrets.ResolvePrompt,
		Zone: d.zone, NewID: newID, Logger: d.log,
	})
	d.workers = dispatch.New(dispatch.Options{
		Store: mindedQueue{keptQueue{at.queue, d}, d}, Runner: minded{d.runner, d}, Workers: o.Workers, Grace: o.Grace,
		Redact: d.redact.Text, Logger: d.log,
	})
	d.clock = scheduler.New(scheduler.Options{
		Store: keptClock{at.clock, d}, NewID: newID, Host: HostName(), Now: wallClock(o.Getenv), Gate: d.gate, Allow: d.allow, Screen: d.screen, Log: d.log,
		OldSchedule: d.oldSchedule, Observe: d.turned, Stepped: d.stepped,
		Enqueued: func([]task.Run) { d.workers.Wake() },
		Cancel:   func(run, reason string) { d.cancelReplaced(run, reason) },
	})
}

func (d *Daemon) cancelReplaced(run, reason string) {
	if err := d.workers.Cancel(run, reason); err != nil && !errors.Is(err, dispatch.ErrNotActive) {
		d.log.Error("replaced run not cancelled", zap.String("run", run), zap.Error(err))
	}
}

// HostName names this machine, as notices do.
func HostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}

// Close gives everything back. Calling it again does nothing.
func (d *Daemon) Close() error { return d.stops.Close() }

// Main is the main database, open.
func (d *Daemon) Main() *db.DB { return d.main }

// Rules is the policy database, open.
func (d *Daemon) Rules() *taskpolicy.Store { return d.rules }

// Set is the files in force; nil before the first load.
func (d *Daemon) Set() *config.Set { return d.applied.Load() }

// Zone is the daemon's own time zone.
func (d *Daemon) Zone() *time.Location { return d.zone }

// Next is when a task is due next.
func (d *Daemon) Next(taskID string) (time.Time, bool) { return d.clock.Next(taskID) }

// Tools lists the tools of a connector, which is started if it is not.
func (d *Daemon) Tools(ctx context.Context, connector string) ([]task.Tool, error) {
	return d.pool.Tools(ctx, connector)
}
