package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/sqldb"
	"runnerd/text"
)

// live answers with the client of this state directory's daemon, nil if none answers.
// What the verb then does by itself it does to this directory, whoever listens.
func (a *app) live(ctx context.Context) *control.Client {
	p := a.Present(ctx)
	if why := a.unasked(p); why != "" && !a.toldUnasked {
		a.toldUnasked = true
		text.Fprintf(a.err, "note: %s\n", why)
	}
	return p.Client
}

// unasked says why whoever listens at the socket is not asked, "" where nobody does or
// it is.
func (a *app) unasked(p daemon.Presence) string {
	if p.Client != nil || errors.Is(p.Err, control.ErrNoDaemon) {
		return ""
	}
	return fmt.Sprintf("nobody is asked at %s: %v", a.Socket, p.Err)
}

// instead answers with the daemon's client where err is that the caller may not
// read the daemon's own files, else nil.
func (a *app) instead(ctx context.Context, err error) *control.Client {
	if !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return a.live(ctx)
}

// asDaemon does something with the stores under the state lock, for verbs that
// work with no daemon running; the next `serve` goes on from there.
func (a *app) asDaemon(ctx context.Context, do func(d *daemon.Daemon) error) error {
	d, err := a.open(ctx)
	if err != nil {
		return a.held(ctx, err)
	}
	return errors.Join(do(d), d.Close())
}

// held is err, or what it means that somebody holds the state directory.
func (a *app) held(ctx context.Context, err error) error {
	var held *sqldb.HeldError
	if !errors.As(err, &held) {
		return err
	}
	return a.unheard(a.Present(ctx))
}

// unheard says that somebody works with the state directory and does not answer.
func (a *app) unheard(p daemon.Presence) error {
	gone := a.Gone(p)
	switch {
	case gone != nil:
		return gone
	case p.Other():
		return usage("process %d holds %s, but another listens at %s: %w", p.PID, a.StateDir, a.Socket, p.Err)
	case p.Client != nil:
		return usage("process %d has just begun to work with %s; say it once more", p.PID, a.StateDir)
	case !errors.Is(p.Err, control.ErrNoDaemon):
		return usage("process %d holds %s, but does not answer at %s; wait for it or restart it", p.PID, a.StateDir, a.Socket)
	}
	return usage("process %d holds %s, but nothing listens at %s; if its socket is elsewhere say so with RUNNERD_SOCKET, else wait for it or restart it", p.PID, a.StateDir, a.Socket)
}

// open opens everything that the daemon has, for a verb that works in its place.
func (a *app) open(ctx context.Context) (*daemon.Daemon, error) {
	if p := a.Present(ctx); a.Gone(p) != nil {
		return nil, a.unheard(p) // not beside it
	}
	o := a.Options
	o.Log = quiet(a)
	return daemon.New(ctx, o)
}
