package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"runnerd/daemon"
	"runnerd/db"
	"runnerd/procgroup"
	"runnerd/task"
	"runnerd/text"
)

type doctorCmd struct {
	JSON bool `help:"Print JSON."`
}

// finding is one thing that doctor looked at.
type finding struct {
	What   string `json:"what"`
	State  string `json:"state"` // ok | warning | fault
	Detail string `json:"detail"`
}

// The states of a finding.
const (
	sound   = "ok"
	warning = "warning"
	fault   = "fault"
)

// Run looks at what `check` does not: the machine, the directories and the
// databases. It changes nothing.
func (c doctorCmd) Run(ctx context.Context, a *app) error {
	p := a.Present(ctx)
	list := []finding{a.examineClock(), a.examineState(p), a.examineDaemon(p), a.examineContainment()}
	list = append(list, a.examineCredentials()...)
	list = append(list, a.examineMain(ctx), a.examinePolicy(ctx), a.examineTogether(ctx))
	list = append(list, a.examineRestore(p)...)
	list = append(list, a.examineFiles(ctx)...)
	if c.JSON {
		if err := writeJSON(a.out, list); err != nil {
			return err
		}
	} else {
		for _, f := range list {
			text.Fprintf(a.out, "%-8s %-16s %s\n", f.State, f.What, f.Detail)
		}
	}
	for _, f := range list {
		if f.State == fault {
			return &exit{task.ExitUsage, errSilent}
		}
	}
	return nil
}

// examineClock tells whether the kernel says that its clock is kept right.
func (a *app) examineClock() finding {
	zone, from, err := a.FindZone()
	if err != nil {
		return finding{"clock", fault, err.Error()}
	}
	said := "zone " + zone.String() + " (" + from + ")"
	var tx unix.Timex
	if _, err := unix.Adjtimex(&tx); err == nil && tx.Status&unix.STA_UNSYNC != 0 {
		return finding{"clock", warning, said + "; no time service keeps it right (systemd-timesyncd or chrony does)"}
	}
	return finding{"clock", sound, said + ", kept right by a time service"}
}

// lowSpace is how little free space is worth a warning.
const lowSpace = 256 << 20

func (a *app) examineState(p daemon.Presence) finding {
	info, err := os.Stat(a.StateDir)
	gone := a.Gone(p)
	switch {
	case gone != nil:
		return finding{"state", fault, gone.Error()}
	case errors.Is(err, fs.ErrNotExist):
		return finding{"state", sound, a.StateDir + " will be made at the first start"}
	case err != nil:
		return finding{"state", fault, err.Error()}
	case info.Mode().Perm()&a.closedTo() != 0:
		return finding{"state", fault, fmt.Sprintf("others can look into %s (mode %04o); chmod 700", a.StateDir, info.Mode().Perm())}
	}
	var space unix.Statfs_t
	if err := unix.Statfs(a.StateDir, &space); err == nil {
		if free := space.Bavail * uint64(space.Bsize); free < lowSpace {
			return finding{"state", warning, fmt.Sprintf("only %d MiB are free for %s", free>>20, a.StateDir)}
		}
	}
	return finding{"state", sound, a.StateDir}
}

// closedTo is what the state directory's mode must not let others do. Connectors that
// run as somebody else go through it to their HOME.
func (a *app) closedTo() fs.FileMode {
	if as, _, _ := daemon.ConnectorUser(a.ConnectorUser); as != nil {
		return 0o066
	}
	return 0o077
}

func (a *app) examineDaemon(p daemon.Presence) finding {
	switch {
	case p.Running && p.Client == nil:
		return finding{"daemon", warning, a.unheard(p).Error()}
	case a.unasked(p) != "":
		return finding{"daemon", warning, "not running; " + a.unasked(p)}
	case !p.Running:
		return finding{"daemon", warning, "not running; nothing fires until `runnerd serve` does"}
	case p.Err != nil:
		return finding{"daemon", fault, p.Err.Error()}
	}
	return finding{"daemon", sound, fmt.Sprintf("running, pid %d", p.PID)}
}

func (a *app) examineContainment() finding {
	kept := procgroup.Containment()
	if !strings.HasPrefix(kept, "landlock") {
		return finding{"containment", warning, kept + ": connectors can read what the daemon's user can (docs/rough-edges.md)"}
	}
	text := "connectors are kept from state, config and credentials by " + kept + "; commands of deliver, notify and models are your own and are not"
	as, fettered, err := daemon.ConnectorUser(a.ConnectorUser)
	switch {
	case err != nil:
		return finding{"containment", fault, err.Error()}
	case os.Geteuid() != 0:
		return finding{"containment", sound, text}
	case as != nil:
		return finding{"containment", sound, text + fmt.Sprintf("; they run as uid %d", as.UID)}
	case fettered:
		return finding{"containment", warning, text + "; started by root they run as root without its capabilities, unix sockets and devices, and change only their own directories, /tmp and " +
			"what their entry names; they read what root owns. A daemon with a user of its own, or RUNNERD_CONNECTOR_USER, is better"}
	}
	return finding{"containment", warning, text + "; but they run as root (RUNNERD_CONNECTOR_USER=root) and can change the rest of the machine, and so get around that"}
}

func (a *app) examineCredentials() []finding {
	var list []finding
	for _, dir := range a.CredentialDirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not every place exists
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
				list = append(list, finding{"credential", warning, fmt.Sprintf("others can read %s (mode %04o); chmod 600", filepath.Join(dir, e.Name()), info.Mode().Perm())})
			}
		}
	}
	return list
}

// slow bounds the reading of a whole database.
const slow = 5 * time.Minute

func (a *app) examineMain(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	detail := "nothing has run yet"
	err := a.Reading(ctx, func(main *db.DB) error {
		v, err := main.Verify(ctx)
		detail = fmt.Sprintf("sound; %d links of the receipts' chain hold", v.Links)
		return errors.Join(err, main.Check(ctx))
	})
	if err != nil {
		return finding{"main database", fault, err.Error()}
	}
	return finding{"main database", sound, detail}
}

func (a *app) examinePolicy(ctx context.Context) finding {
	rules, err := a.OpenPolicy(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return finding{"policy database", sound, "will be made at the first start"}
	}
	if err != nil {
		return finding{"policy database", fault, err.Error()}
	}
	bad, err := rules.Verify(ctx)
	if err = errors.Join(err, rules.Close()); err != nil {
		return finding{"policy database", fault, err.Error()}
	}
	if bad != nil {
		return finding{"policy database", fault, fmt.Sprintf("history does not hold: %+v", *bad)}
	}
	return finding{"policy database", sound, "its history holds"}
}

// examineTogether tells whether the databases are each other's.
func (a *app) examineTogether(ctx context.Context) finding {
	if err := a.Together(ctx, daemon.Whole); err != nil {
		return finding{"databases", fault, err.Error()}
	}
	return finding{"databases", sound, "they belong to each other and to the state directory"}
}

// examineFiles looks for the programs that connectors are started with; what is
// in the files `check` says.
func (a *app) examineFiles(ctx context.Context) []finding {
	i, err := a.Inspect(ctx)
	if err != nil {
		return []finding{{"config", fault, err.Error()}}
	}
	state, detail := sound, fmt.Sprintf("%s: %d tasks, %d connectors", a.ConfigDir, len(i.Set.Tasks), len(i.Set.Connectors))
	if n := len(i.Problems()); n > 0 {
		state, detail = fault, fmt.Sprintf("%s: %d problems; `runnerd check` names them", a.ConfigDir, n)
	}
	list := []finding{{"config", state, detail}}
	if n := len(i.Set.Models); n > 0 {
		list = append(list, finding{"models", sound, fmt.Sprintf("%d configured, none was asked: that spends tokens; `runnerd check --models` asks each for one word", n)})
	}
	for _, id := range i.Set.ConnectorIDs() {
		command := i.Set.Connectors[id].Connector.Command
		if command == "" || strings.Contains(command, "${") {
			continue
		}
		if _, err := exec.LookPath(command); err != nil {
			list = append(list, finding{"connector " + id, fault, fmt.Sprintf("%s is not found in PATH; install it or name its place in connectors.yaml", command)})
		}
	}
	return list
}
