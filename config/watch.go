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
// makes it sure, whatever an editor or a mount does.
func (l *Loader) Watch(ctx context.Context, changed func()) {
	events, errs, watcher := l.notifications()
	if watcher != nil {
		defer watcher.Close()
	}
	poll := time.NewTicker(l.opts.Poll)
	defer poll.Stop()
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	defer settle.Stop()

	var told uint64 // the fingerprint that changed was last called for
	var first time.Time
	look := func(again bool) {
		first = time.Time{}
		l.addDirs(watcher)
		if print, moved := l.differs(); moved && (again || print != told) {
			told = print
			changed()
		}
	}
	look(true)
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			settle.Reset(max(0, min(l.opts.Settle, l.opts.MaxSettle-time.Since(first))))
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			l.log.Warn("config notifications lost; looking at all files", zap.Error(err))
			settle.Reset(l.opts.Settle)
		case <-settle.C:
			look(false)
		case <-poll.C:
			look(true)
		}
	}
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
		l.log.Warn("config directory not listed", zap.Error(err))
		return 0, false
	}
	files := make(map[string]signature, len(found.files))
	for _, f := range found.files {
		files[f.rel] = f.sig
	}
	print = fingerprint(files)
	st := l.state.Load()
	return print, st == nil || print != st.print
}
