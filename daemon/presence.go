package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"runnerd/control"
	"runnerd/sqldb"
)

// Presence is what can be told from outside of the daemon of a state directory.
type Presence struct {
	// Running says that it answers at the socket, or that a process holds the
	// directory (a daemon that does not answer, or a run in the foreground), or
	// listens at a socket whose file was removed.
	Running bool
	// PID is 0 where nobody says it.
	PID int
	// Client asks it; nil where it does not answer.
	Client *control.Client
	// Err is what is wrong with one that answers, or why none does.
	Err error
}

// presenceWait is how long a daemon may take to say that it is there, within 15 s as it
// promises. One that systemd holds a socket for and cannot start never says so.
const presenceWait = 20 * time.Second

// Present tells whether a daemon works with this state directory. The socket decides:
// files may have been removed under one that lives. Who holds the directory, or once
// opened the socket, counts where nobody answers for it.
func (s Settings) Present(ctx context.Context) Presence {
	ctx, cancel := context.WithTimeout(ctx, presenceWait)
	defer cancel()
	p := Presence{Running: true, Client: s.client()}
	p.PID, p.Err = p.Client.PID(ctx)
	absent := errors.Is(p.Err, control.ErrNoDaemon)
	if absent || p.Other() || errors.Is(p.Err, context.DeadlineExceeded) {
		p.Client.Close()
		p.Running, p.PID, p.Client = false, 0, nil
	}
	if held, err := sqldb.Holder(s.StateDir); err == nil && held != nil {
		p.Running = true
		if p.PID == 0 {
			p.PID = held.PID
		}
	}
	if !p.Running && absent {
		p.PID, p.Running = control.Bound(s.Socket)
	}
	return p
}

// Other says that the daemon of another state directory listens at the socket.
func (p Presence) Other() bool {
	var told *control.Error
	return errors.As(p.Err, &told) && told.Code == control.CodeElsewhere
}

// View is how status shows it.
func (p Presence) View() control.DaemonView {
	return control.DaemonView{Running: p.Running, PID: p.PID, Silent: p.Running && p.Client == nil}
}

// client speaks to the daemon of these settings and to no other.
func (s Settings) client() *control.Client {
	return control.NewClient(s.Socket, func() string {
		token, err := control.ReadToken(s.StateDir)
		if err != nil {
			return "" // the daemon says what is missing
		}
		return token
	}).Of(s.StateDir)
}

// Gone says of a daemon that lives that its state directory does not.
func (s Settings) Gone(p Presence) error {
	if _, err := os.Stat(s.StateDir); !p.Running || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("process %d works with %s, which is gone: what it records is lost; stop it, put the directory back or `runnerd restore DIR` a backup, and start it again", p.PID, s.StateDir)
}
