package main

import (
	"context"
	"errors"
	"io/fs"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/sqldb"
)

// client speaks to the daemon of these settings.
func (a *app) client() *control.Client {
	return control.NewClient(a.Socket, func() string {
		token, err := control.ReadToken(a.StateDir)
		if err != nil {
			return "" // the daemon says what is missing
		}
		return token
	})
}

// live answers with the daemon's client if one runs, else nil. Who may not read the
// state directory may still be let in at the socket.
func (a *app) live(ctx context.Context) *control.Client {
	if held, err := sqldb.Holder(a.StateDir); held == nil && !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	c := a.client()
	if err := c.Health(ctx); errors.Is(err, control.ErrNoDaemon) {
		return nil
	}
	return c
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
	var held *sqldb.HeldError
	if errors.As(err, &held) {
		return a.unheard(held.PID)
	}
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

// unheard says that a daemon holds the state directory and does not answer.
func (a *app) unheard(pid int) error {
	return usage("process %d holds %s, but nothing listens at %s; if its socket is elsewhere say so with RUNNERD_SOCKET, else wait for it or restart it", pid, a.StateDir, a.Socket)
}

// open opens everything that the daemon has, for a verb that works in its place.
func (a *app) open(ctx context.Context) (*daemon.Daemon, error) {
	o := a.Options
	o.Log = quiet(a)
	return daemon.New(ctx, o)
}
