package main

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
func (h *house) openDoor(a *app) (token string, err error) {
	h.service = systemd.Managed(a.getenv)
	if err := h.setRights(h.applied.Load().Daemon.Access); err != nil || h.service && os.Getuid() != 0 {
		return "", err
	}
	return control.EnsureToken(h.settings.StateDir)
}

func (h *house) setRights(access config.Access) error {
	rights, err := control.DefaultRights(control.RightsOptions{
		Service: h.service, UID: os.Getuid(),
		Access: control.Access(access),
	})
	if err == nil {
		h.rights.Store(&rights)
	}
	return err
}

// admit follows an edit of `access:`. Names that nobody has here leave everybody
// with the rights that they had.
func (h *house) admit(access config.Access) {
	if h.rights.Load() == nil {
		return // there is no socket, or not yet
	}
	if err := h.setRights(access); err != nil {
		h.log.Error("access stays as it was", zap.Error(err))
	}
}

// rightsOf are what a peer may do at this moment.
func (h *house) rightsOf(p control.Peer) control.Rights {
	if rights := h.rights.Load(); rights != nil {
		return (*rights)(p)
	}
	return control.Rights{}
}
