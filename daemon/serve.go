package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"runnerd/sqldb"
	"runnerd/systemd"
)

// Serve is New, Run and Close for a process that is the daemon. A signal that comes
// before it is ready ends it in good order.
func Serve(ctx context.Context, o Options, signals <-chan os.Signal) error {
	var d *Daemon
	err := starting(ctx, signals, func(ctx context.Context) (err error) {
		d, err = New(ctx, o)
		return err
	})
	if err == nil {
		err = d.Run(ctx, signals)
	}
	if errors.Is(err, errStopped) {
		err = nil
		if d.log != nil {
			d.log.Info("stopped before it was ready")
		}
	}
	return errors.Join(err, d.Close())
}

// errStopped says that a signal ended the daemon before it was ready. That is an
// orderly end.
var errStopped = errors.New("stopped by a signal")

// starting runs one step of the start. A signal to stop ends the step's context
// and, whatever the step answers, is errStopped; SIGHUP has nothing to do yet.
func starting(ctx context.Context, signals <-chan os.Signal, step func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- step(ctx) }()
	stopped := false
	for {
		select {
		case err := <-done:
			if stopped {
				return errStopped
			}
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				stopped = true
				cancel()
			}
		}
	}
}

// firstLoad bounds the reading of all files at start: of a hundred thousand on a
// busy machine too.
const firstLoad = 5 * time.Minute

// Run is the daemon's life: files, then the parts, then READY, then whatever
// comes until ctx ends or a signal says so.
func (d *Daemon) Run(ctx context.Context, signals <-chan os.Signal) error {
	err := starting(ctx, signals, func(ctx context.Context) error {
		load, cancel := context.WithTimeout(ctx, firstLoad)
		defer cancel()
		return d.Reload(load)
	})
	if errors.Is(err, errStopped) {
		return err
	}
	var stored *sqldb.Error
	if errors.As(err, &stored) {
		return err // the files are read; a database did not take them
	}
	if err != nil {
		return &UsageError{fmt.Errorf("read %s: %w", d.options.ConfigDir, err)}
	}
	interval, err := systemd.WatchdogInterval(d.options.Getenv)
	if err != nil {
		return err
	}
	socket, err := d.listen()
	if err != nil {
		return err
	}
	server, err := d.server()
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	notify := systemd.NewNotifier(d.options.Getenv)
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	control := func(ctx context.Context) error { return server.Serve(ctx, socket) }
	gone := d.start(life, end, control, func(ctx context.Context) error {
		notify.Watchdog(ctx, interval, d.healthy, d.log)
		return nil
	})
	if err = starting(life, signals, d.up); err == nil {
		d.say(notify.Ready(d.summary()))
		d.log.Info("ready", zap.String("version", d.options.Version), zap.String("config", d.options.ConfigDir), zap.String("state", d.options.StateDir),
			zap.String("zone", d.zone.String()), zap.String("zone_from", d.zoneFrom))
		d.obey(life, notify, signals)
	}
	d.say(notify.Stopping("stopping"))
	d.log.Info("stopping", zap.Strings("active", d.workers.Active()))
	end(errEnded)
	d.hurry(gone, signals)
	if cause := context.Cause(life); cause != errEnded && ctx.Err() == nil {
		return cause // the service manager is to start us again
	}
	return err
}

// parts go on at once until ctx ends. One that fails ends the daemon.
type parts struct {
	sync.WaitGroup
	ctx context.Context
	end context.CancelCauseFunc
	log *zap.Logger
}

func (p *parts) start(name string, run func(context.Context) error) {
	p.Go(func() {
		if err := run(p.ctx); err != nil {
			p.log.Error("part ended", zap.String("part", name), zap.Error(err))
			p.end(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// start starts the parts. What runs under way need goes on until the workers are
// gone, for the grace time that they have; gone is closed when every part has
// returned.
func (d *Daemon) start(life context.Context, end context.CancelCauseFunc, control, watchdog func(context.Context) error) (gone <-chan struct{}) {
	d.modes = ownModes(d.options.Settings)
	needed, release := context.WithCancel(context.WithoutCancel(life))
	first, last := &parts{ctx: life, end: end, log: d.log}, &parts{ctx: needed, end: end, log: d.log}
	last.start("connectors", d.pool.Run)
	last.start("control", control)
	d.startCare(life, last.start)
	first.start("workers", d.workers.Run)
	first.start("clock", d.clock.Run)
	first.start("files", d.watch)
	first.start("edits", d.follow)
	first.start("ticks", d.tick)
	last.start("partners", d.noteOn)
	first.start("watchdog", watchdog)
	done := make(chan struct{})
	go func() {
		defer close(done)
		first.Wait()
		release()
		last.Wait()
	}()
	return done
}

// errEnded is the cause of an orderly end.
var errEnded = errors.New("ended")

// up waits until what a crash left behind is recovered and the scheduler turns.
func (d *Daemon) up(ctx context.Context) error {
	for _, part := range []<-chan struct{}{d.workers.Recovered(), d.clock.Started()} {
		select {
		case <-part:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// obey waits for the end: SIGTERM, SIGINT or the context's. SIGHUP reads the
// files again.
func (d *Daemon) obey(ctx context.Context, notify *systemd.Notifier, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				d.log.Info("signal", zap.Stringer("signal", s))
				return
			}
			d.say(notify.Reloading())
			d.reread(ctx)
			d.lookAgain()
			d.say(notify.Ready(d.summary()))
		}
	}
}

// hurry waits until all parts are gone; a second signal ends the grace time of
// the runs under way.
func (d *Daemon) hurry(gone <-chan struct{}, signals <-chan os.Signal) {
	for {
		select {
		case <-gone:
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				d.log.Warn("second signal: runs are cancelled at once")
				d.workers.Kill()
			}
		}
	}
}

func (d *Daemon) say(err error) {
	if err != nil {
		d.log.Warn("service manager not told", zap.Error(err))
	}
}

func (d *Daemon) summary() string {
	set := d.applied.Load()
	if set == nil {
		return "no files in force"
	}
	return fmt.Sprintf("%d tasks, %d connectors, %d problems in files", len(set.Tasks), len(set.Connectors), len(set.Problems))
}

// watch puts edited files into force as they come to rest.
func (d *Daemon) watch(ctx context.Context) error {
	d.loader.Watch(ctx, func() { d.reread(ctx) })
	return nil
}

// reread reads the files again. That they cannot be read is a trouble: what was in
// force stays so, and edits do not count.
func (d *Daemon) reread(ctx context.Context) {
	err := d.Reload(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		d.away(err)
	default:
		d.away(d.applied.Load().Away)
	}
}

// away makes known that the config directory does not count as it is, once, and that
// it does again.
func (d *Daemon) away(err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("Edits do not count, what was in force stays so: %v.", err)
	}
	if before := d.awayText.Swap(&text); (before == nil || *before != text) && err != nil {
		d.log.Error("reload", zap.Error(err))
	}
	d.care.board.Daemon("config", text)
}

// everyMinute is how often what only time changes is looked at.
const everyMinute = time.Minute

// tick expires approvals, gives unused memory back and keeps the modes of files.
func (d *Daemon) tick(ctx context.Context) error {
	t := time.NewTicker(d.every)
	defer t.Stop()
	for {
		expired, err := d.main.ExpireApprovals(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			d.log.Error("approvals not expired", zap.Error(err))
		}
		if len(expired) > 0 {
			d.log.Warn("approvals expired", zap.Int("count", len(expired)))
		}
		select {
		case <-t.C:
			d.trim()
			d.modes.restore(d.log)
		case <-ctx.Done():
			return nil
		}
	}
}

// stale is how long the scheduler may not turn before the daemon counts as
// unhealthy; it turns at least every 30 seconds.
const stale = 90 * time.Second

// healthy ties the watchdog to databases that are there and answer, and a scheduler
// that turns.
func (d *Daemon) healthy(ctx context.Context) error {
	if err := d.held(ctx); err != nil {
		return err // nothing fires for it
	}
	if turned := d.clock.Turned(); !turned.IsZero() && time.Since(turned) > stale {
		return fmt.Errorf("the scheduler has not turned since %s", turned.Format(time.RFC3339))
	}
	return errors.Join(d.main.Ping(ctx), d.rules.Ping(ctx))
}
