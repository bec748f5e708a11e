package config

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// Watch calls changed, on its caller's goroutine, whenever the directory's
// files are no longer those of the latest load and have come to rest; changed
// will usually Load. It returns when ctx ends and nothing it started is left.
//
// Notifications from the kernel make it quick; a look at all files now and then
// makes it sure, whatever an editor or a mount does. How often that is, Options.Poll
// says, but where there are so many files that it would take a thousandth of the
// time.
func (l *Loader) Watch(ctx context.Context, changed func()) {
	events, errs, watcher := l.notifications()
	if watcher != nil {
		defer watcher.Close()
	}
	poll := time.NewTimer(l.opts.Poll)
	defer poll.Stop()
	settle := time.NewTimer(l.opts.Settle)
	settle.Stop()
	defer settle.Stop()

	w := &watchState{loader: l, watcher: watcher, changed: changed}
	w.look(true)
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			settle.Reset(w.quiet(time.Now()))
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			l.log.Warn("config notifications lost; looking at all files", zap.Error(err))
			settle.Reset(w.quiet(time.Now()))
		case <-settle.C:
			w.look(false)
		case <-poll.C:
			poll.Reset(max(l.opts.Poll, pollShare*w.look(true)))
		}
	}
}

// pollShare is how much longer than a look takes the pause until the next one is: a
// directory of very many files must not keep an idle daemon busy.
const pollShare = 1000

// watchState is what one Watch remembers between looks.
type watchState struct {
	loader  *Loader
	watcher *fsnotify.Watcher
	changed func()
	told    uint64    // the fingerprint that changed was last called for
	first   time.Time // of the events since the last look
}

// quiet is how long to wait for the next event before looking.
func (w *watchState) quiet(now time.Time) time.Duration {
	if w.first.IsZero() {
		w.first = now
	}
	opts := w.loader.opts
	return max(0, min(opts.Settle, opts.MaxSettle-now.Sub(w.first)))
}

// look compares and tells; again tells even what was told before, as a load may
// have failed. It answers how long the comparison took.
func (w *watchState) look(again bool) time.Duration {
	begun := time.Now()
	w.first = time.Time{}
	w.loader.addDirs(w.watcher)
	print, moved := w.loader.differs()
	took := time.Since(begun)
	if moved && (again || print != w.told) {
		w.told = print
		w.changed()
	}
	return took
}

// notifications starts the kernel's; without them polling is what is left.
func (l *Loader) notifications() (<-chan fsnotify.Event, <-chan error, *fsnotify.Watcher) {
	if l.opts.PollOnly {
		return nil, nil, nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		l.log.Warn("config notifications unavailable; polling", zap.Error(err), zap.Duration("poll", l.opts.Poll))
		return nil, nil, nil
	}
	return w.Events, w.Errors, w
}

// addDirs watches the directories that exist now; one that was replaced is
// watched anew.
func (l *Loader) addDirs(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	for _, dir := range []string{".", tasksDir, connectorsDir} {
		full := filepath.Join(l.opts.Dir, dir)
		if sign(full).exists() {
			if err := w.Add(full); err != nil {
				l.log.Warn("config directory not watched; polling", zap.String("dir", dir), zap.Error(err))
			}
		}
	}
}

// differs compares the files on disk with the latest load.
func (l *Loader) differs() (print uint64, moved bool) {
	found, err := l.scan()
	if err != nil {
		return 0, true // the load that follows says so
	}
	for _, f := range found.files {
		print += fingerprint(f.rel, f.sig)
	}
	st := l.state.Load()
	return print, st == nil || print != st.print || l.failed.Load()
}
