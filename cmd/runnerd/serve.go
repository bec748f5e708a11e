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

	"runnerd/systemd"
	"runnerd/task"
)

type serveCmd struct{}

// Help lists the settings, from the struct that reads them.
func (serveCmd) Help() string { return "Settings, from the environment:\n" + settingsTable() }

func (serveCmd) Run(ctx context.Context, a *app) error {
	h, err := a.openHouse(ctx, a.err)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	err = h.serve(context.WithoutCancel(ctx), a, signals)
	signal.Stop(signals)
	return errors.Join(err, h.close())
}

// firstLoad bounds the reading of all files at start.
const firstLoad = time.Minute

// serve is the daemon's life: files, then the parts, then READY, then whatever
// comes until ctx ends or a signal says so.
func (h *house) serve(ctx context.Context, a *app, signals <-chan os.Signal) error {
	load, cancel := context.WithTimeout(ctx, firstLoad)
	defer cancel()
	if err := h.reload(load); err != nil {
		return &exit{task.ExitUsage, fmt.Errorf("read %s: %w", h.settings.ConfigDir, err)}
	}
	interval, err := systemd.WatchdogInterval(a.getenv)
	if err != nil {
		return err
	}
	notify := systemd.NewNotifier(a.getenv)
	life, end := context.WithCancel(ctx)
	defer end()
	var parts sync.WaitGroup
	start := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(life); err != nil {
				h.log.Error("part ended", zap.String("part", name), zap.Error(err))
				end()
			}
		})
	}
	start("workers", h.workers.Run)
	start("clock", h.clock.Run)
	start("connectors", h.pool.Run)
	start("files", h.watch)
	start("ticks", h.tick)
	start("watchdog", func(ctx context.Context) error {
		notify.Watchdog(ctx, interval, h.healthy, h.log)
		return nil
	})
	h.say(notify.Ready(h.summary()))
	h.log.Info("ready", zap.String("version", versionText()), zap.String("config", h.settings.ConfigDir), zap.String("state", h.settings.StateDir))
	h.obey(life, notify, signals)
	h.say(notify.Stopping("stopping"))
	h.log.Info("stopping", zap.Strings("active", h.workers.Active()))
	end()
	gone := make(chan struct{})
	go func() { parts.Wait(); close(gone) }()
	h.hurry(gone, signals)
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
			if err := h.reload(ctx); err != nil {
				h.log.Error("reload", zap.Error(err))
			}
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
	h.loader.Watch(ctx, func() {
		if err := h.reload(ctx); err != nil && ctx.Err() == nil {
			h.log.Error("reload", zap.Error(err))
		}
	})
	return nil
}

// every is how often what only time changes is looked at.
const every = time.Minute

// tick expires approvals and wakes what they free.
func (h *house) tick(ctx context.Context) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		expired, err := h.main.ExpireApprovals(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			h.log.Error("approvals not expired", zap.Error(err))
		}
		if len(expired) > 0 {
			h.log.Warn("approvals expired", zap.Int("count", len(expired)))
			h.workers.Wake()
		}
		select {
		case <-t.C:
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
	return errors.Join(h.main.Ping(ctx), h.rules.Ping(ctx))
}
