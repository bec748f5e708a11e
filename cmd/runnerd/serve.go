package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"runnerd/sqldb"
	"runnerd/systemd"
	"runnerd/task"
)

type serveCmd struct {
	NewPolicy       bool `help:"Make a new policy database in place of one that was lost: what people set and accepted is gone, the files' rules count."`
	NewMain         bool `help:"Make a new main database in place of one that was lost: runs and receipts are gone."`
	AcceptDatabases bool `help:"Take both databases as they are, although one is older than the other remembers or not of it."`
}

// Help lists the settings, from the struct that reads them.
func (serveCmd) Help() string { return "Settings, from the environment:\n" + settingsTable() }

func (c serveCmd) Run(ctx context.Context, a *app) error {
	a.consent = sqldb.Consent{NewMain: c.NewMain, NewPolicy: c.NewPolicy, Accept: c.AcceptDatabases}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ctx = context.WithoutCancel(ctx) // signals say what they mean below
	var h *house
	err := starting(ctx, signals, func(ctx context.Context) (err error) {
		h, err = a.openHouse(ctx, a.err)
		return err
	})
	if err == nil {
		err = h.serve(ctx, a, signals)
	}
	if errors.Is(err, errStopped) {
		err = nil
		if h.log != nil {
			h.log.Info("stopped before it was ready")
		}
	}
	return errors.Join(err, h.close())
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

// serve is the daemon's life: files, then the parts, then READY, then whatever
// comes until ctx ends or a signal says so.
func (h *house) serve(ctx context.Context, a *app, signals <-chan os.Signal) error {
	err := starting(ctx, signals, func(ctx context.Context) error {
		load, cancel := context.WithTimeout(ctx, firstLoad)
		defer cancel()
		return h.reload(load)
	})
	if errors.Is(err, errStopped) {
		return err
	}
	var stored *sqldb.Error
	if errors.As(err, &stored) {
		return err // the files are read; a database did not take them
	}
	if err != nil {
		return &exit{task.ExitUsage, fmt.Errorf("read %s: %w", h.settings.ConfigDir, err)}
	}
	interval, err := systemd.WatchdogInterval(a.getenv)
	if err != nil {
		return err
	}
	socket, err := h.listen(a)
	if err != nil {
		return err
	}
	server, err := h.server(a)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	notify := systemd.NewNotifier(a.getenv)
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	control := func(ctx context.Context) error { return server.Serve(ctx, socket) }
	gone := h.start(life, end, control, func(ctx context.Context) error {
		notify.Watchdog(ctx, interval, h.healthy, h.log)
		return nil
	})
	if err = starting(life, signals, h.up); err == nil {
		h.say(notify.Ready(h.summary()))
		h.log.Info("ready", zap.String("version", versionText()), zap.String("config", h.settings.ConfigDir), zap.String("state", h.settings.StateDir),
			zap.String("zone", h.zone.String()), zap.String("zone_from", h.zoneFrom))
		h.obey(life, notify, signals)
	}
	h.say(notify.Stopping("stopping"))
	h.log.Info("stopping", zap.Strings("active", h.workers.Active()))
	end(errEnded)
	h.hurry(gone, signals)
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
func (h *house) start(life context.Context, end context.CancelCauseFunc, control, watchdog func(context.Context) error) (gone <-chan struct{}) {
	h.modes = ownModes(h.settings)
	needed, release := context.WithCancel(context.WithoutCancel(life))
	first, last := &parts{ctx: life, end: end, log: h.log}, &parts{ctx: needed, end: end, log: h.log}
	last.start("connectors", h.pool.Run)
	last.start("control", control)
	h.startCare(life, last.start)
	first.start("workers", h.workers.Run)
	first.start("clock", h.clock.Run)
	first.start("files", h.watch)
	first.start("edits", h.follow)
	first.start("ticks", h.tick)
	last.start("partners", h.noteOn)
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
func (h *house) up(ctx context.Context) error {
	for _, part := range []<-chan struct{}{h.workers.Recovered(), h.clock.Started()} {
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
func (h *house) obey(ctx context.Context, notify *systemd.Notifier, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				h.log.Info("signal", zap.Stringer("signal", s))
				return
			}
			h.say(notify.Reloading())
			h.reread(ctx)
			h.lookAgain()
			h.say(notify.Ready(h.summary()))
		}
	}
}

// hurry waits until all parts are gone; a second signal ends the grace time of
// the runs under way.
func (h *house) hurry(gone <-chan struct{}, signals <-chan os.Signal) {
	for {
		select {
		case <-gone:
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				h.log.Warn("second signal: runs are cancelled at once")
				h.workers.Kill()
			}
		}
	}
}

func (h *house) say(err error) {
	if err != nil {
		h.log.Warn("service manager not told", zap.Error(err))
	}
}

func (h *house) summary() string {
	set := h.applied.Load()
	if set == nil {
		return "no files in force"
	}
	return fmt.Sprintf("%d tasks, %d connectors, %d problems in files", len(set.Tasks), len(set.Connectors), len(set.Problems))
}

// watch puts edited files into force as they come to rest.
func (h *house) watch(ctx context.Context) error {
	h.loader.Watch(ctx, func() { h.reread(ctx) })
	return nil
}

// reread reads the files again. That they cannot be read is a trouble: what was in
// force stays so, and edits do not count.
func (h *house) reread(ctx context.Context) {
	err := h.reload(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		h.away(err)
	default:
		h.away(h.applied.Load().Away)
	}
}

// away makes known that the config directory does not count as it is, once, and that
// it does again.
func (h *house) away(err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("Edits do not count, what was in force stays so: %v.", err)
	}
	if before := h.awayText.Swap(&text); (before == nil || *before != text) && err != nil {
		h.log.Error("reload", zap.Error(err))
	}
	h.care.board.Daemon("config", text)
}

// everyMinute is how often what only time changes is looked at.
const everyMinute = time.Minute

// tick expires approvals, gives unused memory back and keeps the modes of files.
func (h *house) tick(ctx context.Context) error {
	t := time.NewTicker(h.every)
	defer t.Stop()
	for {
		expired, err := h.main.ExpireApprovals(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			h.log.Error("approvals not expired", zap.Error(err))
		}
		if len(expired) > 0 {
			h.log.Warn("approvals expired", zap.Int("count", len(expired)))
		}
		select {
		case <-t.C:
			h.trim()
			h.modes.restore(h.log)
		case <-ctx.Done():
			return nil
		}
	}
}

// stale is how long the scheduler may not turn before the daemon counts as
// unhealthy; it turns at least every 30 seconds.
const stale = 90 * time.Second

// healthy ties the watchdog to a scheduler that turns and databases that answer.
func (h *house) healthy(ctx context.Context) error {
	if turned := h.clock.Turned(); !turned.IsZero() && time.Since(turned) > stale {
		return fmt.Errorf("the scheduler has not turned since %s", turned.Format(time.RFC3339))
	}
	return errors.Join(h.held(ctx), h.main.Ping(ctx), h.rules.Ping(ctx))
}
