package control

import (
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// Right is one of the three things that a peer may be allowed to do.
type Right string

// The rights. Approving includes everything that could widen what a task may do:
// approvals, policy, and accepting changed definitions.
const (
	RightNone    Right = "" // nothing is needed
	RightRead    Right = "read"
	RightRun     Right = "run"
	RightApprove Right = "approve"
)

// Rights are what a peer may do. The zero value may nothing.
type Rights struct {
	Read, Run, Approve bool
	// Hint tells a peer that was refused what would permit it.
	Hint string
}

// Has tells whether a right is among them.
func (r Rights) Has(right Right) bool {
	switch right {
	case RightNone:
		return true
	case RightRead:
		return r.Read
	case RightRun:
		return r.Run
	case RightApprove:
		return r.Approve
	}
	return false
}

// Access is the `access:` section of runnerd.yaml: who else may do what. A name is
// a user's, @name a group's, a number a uid. Running and approving include reading.
type Access struct {
	Read    []string `json:"read,omitempty"`
	Run     []string `json:"run,omitempty"`
	Approve []string `json:"approve,omitempty"`
}

// RightsOptions say who the daemon is and whom its operator listed.
type RightsOptions struct {
	// Service says that the daemon was started by systemd.
	Service bool
	// UID is the daemon's own.
	UID    int
	Access Access
}

// DefaultRights are the rules of DESIGN, section 6. Connectors share the daemon's own
// uid, so that it proves nothing: as a service it has no right at all, root every
// right. In user mode, and for a service that is root itself, root and the daemon's
// own uid have every right with the token, which connectors cannot read, and none
// without. Others have what Access says; in user mode they need the token too for
// approving.
func DefaultRights(o RightsOptions) (func(Peer) Rights, error) {
	read, rerr := resolve("access.read", o.Access.Read)
	run, uerr := resolve("access.run", o.Access.Run)
	approve, aerr := resolve("access.approve", o.Access.Approve)
	if err := errors.Join(rerr, uerr, aerr); err != nil {
		return nil, err
	}
	locked := o.Service && o.UID != 0
	for _, l := range []struct {
		where string
		people
	}{{"read", read}, {"run", run}, {"approve", approve}} {
		if locked && slices.Contains(l.uids, o.UID) {
			return nil, fmt.Errorf("access.%s lists uid %d, which the daemon itself runs as and which may never do anything there; name a person's account", l.where, o.UID)
		}
	}
	return func(p Peer) Rights {
		switch {
		case locked && p.UID == o.UID:
			return Rights{Hint: serviceHint}
		case locked && p.UID == 0:
			return Rights{Read: true, Run: true, Approve: true}
		case p.UID == o.UID || p.UID == 0:
			return Rights{Read: p.Token, Run: p.Token, Approve: p.Token, Hint: userHint}
		}
		r := Rights{Run: run.has(p), Approve: approve.has(p), Hint: serviceHint}
		r.Read = r.Run || r.Approve || read.has(p)
		if !o.Service {
			r.Approve, r.Hint = r.Approve && p.Token, userHint
		}
		return r
	}, nil
}

const (
	serviceHint = "root may do everything, others need their name under access: in runnerd.yaml; the daemon's own user, which its connectors share, may do nothing here"
	userHint    = "every request needs the token file in the state directory: use `runnerd` as the user that the daemon runs as; others need their name under access: in runnerd.yaml"
)

// people is a resolved list of names.
type people struct{ uids, gids []int }

func (l people) has(p Peer) bool {
	return slices.Contains(l.uids, p.UID) || slices.Contains(l.gids, p.GID) ||
		slices.ContainsFunc(p.Groups, func(g int) bool { return slices.Contains(l.gids, g) })
}

// resolve looks names up. A name that does not exist is an error: a misspelt one
// must not silently lock its owner out.
func resolve(where string, names []string) (people, error) {
	var l people
	for _, name := range names {
		id, group, err := lookup(name)
		switch {
		case err != nil:
			return people{}, fmt.Errorf("%s: %q: want a user, @group or a uid that exists here: %w", where, name, err)
		case group:
			l.gids = append(l.gids, id)
		default:
			l.uids = append(l.uids, id)
		}
	}
	return l, nil
}

func lookup(name string) (id int, group bool, err error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, false, nil
	}
	text := ""
	if rest, isGroup := strings.CutPrefix(name, "@"); isGroup {
		g, err := user.LookupGroup(rest)
		if err != nil {
			return 0, true, err
		}
		group, text = true, g.Gid
	} else {
		u, err := user.Lookup(name)
		if err != nil {
			return 0, false, err
		}
		text = u.Uid
	}
	id, err = strconv.Atoi(text)
	return id, group, err
}
