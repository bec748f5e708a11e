package daemon

import (
	"os"

	"go.uber.org/zap"

	"runnerd/config"
	"runnerd/control"
	"runnerd/systemd"
)

// openDoor settles who may do what on the socket, and answers the token of the
// state directory: in user mode, and as root, every request needs it, and connectors
// cannot read it.
func (d *Daemon) openDoor() (token string, err error) {
	d.service = systemd.Managed(d.options.Getenv)
	if err := d.setRights(d.applied.Load().Daemon.Access); err != nil || d.service && os.Getuid() != 0 {
		return "", err
	}
	return control.EnsureToken(d.options.StateDir)
}

func (d *Daemon) setRights(access config.Access) error {
	rights, err := control.DefaultRights(control.RightsOptions{
		Service: d.service, UID: os.Getuid(),
		Access: control.Access(access),
	})
	if err == nil {
		d.rights.Store(&rights)
	}
	return err
}

// admit follows an edit of `access:`. Names that nobody has here leave everybody
// with the rights that they had.
func (d *Daemon) admit(access config.Access) {
	if d.rights.Load() == nil {
		return // there is no socket, or not yet
	}
	if err := d.setRights(access); err != nil {
		d.log.Error("access stays as it was", zap.Error(err))
	}
}

// rightsOf are what a peer may do at this moment.
func (d *Daemon) rightsOf(p control.Peer) control.Rights {
	if rights := d.rights.Load(); rights != nil {
		return (*rights)(p)
	}
	return control.Rights{}
}
