package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"runnerd/daemon"
	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/taskpolicy"
	"runnerd/text"
)

type restoreCmd struct {
	Dir string `arg:"" help:"Directory that runnerd backup made." type:"path"`
}

// Help says what becomes of what is there.
func (restoreCmd) Help() string {
	return "Verifies the backup against its manifest, and each database by itself and with the other, then puts both in place. No daemon may run. What was there is " +
		"renamed and stays; its new names are printed. What happened since the backup is not known any more: scheduled instants since then are caught up as after a stop, " +
		"and a write that a task did since then may be done again. History keeps who restored what."
}

// Run verifies everything before it touches anything. A restore that is cut off half
// way leaves a mark, which keeps every start away until one was finished.
func (c restoreCmd) Run(ctx context.Context, a *app) (err error) {
	if err := a.onPostgres("restore", "puts nothing back", "pg_restore, or psql, on what pg_dump wrote", "put back"); err != nil {
		return err
	}
	m, err := readManifest(c.Dir)
	if err != nil {
		return usage("%s is no whole backup, so nothing was changed: %w", c.Dir, err)
	}
	if err := os.MkdirAll(a.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	var held daemon.Stack
	defer func() { err = errors.Join(err, held.Close()) }()
	lock, err := a.takeBoth(ctx, &held)
	if err != nil {
		return err
	}
	known, err := c.prepare(ctx, a, m)
	if err != nil {
		return err
	}
	names, err := a.putInPlace(c.Dir)
	for _, name := range names {
		text.Fprintf(a.out, "set aside %s\n", name)
	}
	if err != nil {
		return fmt.Errorf("restore is not finished, run it once more: %w", err)
	}
	if err := lock.Remember(known); err != nil {
		return fmt.Errorf("note the databases in the state directory: %w", err)
	}
	if err := os.Remove(daemon.RestoreMark(a.StateDir)); err != nil {
		return fmt.Errorf("take the mark of a restore away: %w", err)
	}
	text.Fprintf(a.out, "restored  %s of %s: %d runs, %d policy changes\n", c.Dir, m.At.Format(time.RFC3339), known.Main.Marks.Runs, known.Policy.Marks.Changes)
	return nil
}

// takeBoth holds the state directory and both databases, so that no daemon lives.
func (a *app) takeBoth(ctx context.Context, held *daemon.Stack) (*sqldb.Lock, error) {
	lock, err := sqldb.LockState(a.StateDir)
	if err != nil {
		return nil, err
	}
	held.Push("state lock", lock.Close)
	for dsn, role := range map[string]sqldb.Role{a.Database: sqldb.Main, a.PolicyDatabase: sqldb.Policy} {
		hold, err := sqldb.Take(ctx, dsn, role)
		if err != nil {
			return nil, err
		}
		held.Push("hold of the "+string(role), hold.Close)
	}
	return lock, nil
}

// readManifest reads a backup's manifest and holds its files against it.
func readManifest(dir string) (m manifest, err error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w", manifestName, err)
	}
	sums := map[string]backupFile{}
	for _, f := range m.Files {
		sums[f.Name] = f
	}
	for _, name := range []string{mainName, policyName} {
		want, ok := sums[name]
		if !ok {
			return m, fmt.Errorf("%s does not list %s", manifestName, name)
		}
		found, err := describe(dir, name)
		if err != nil {
			return m, err
		}
		if found != want {
			return m, fmt.Errorf("%s is not the file that was backed up: %d bytes with SHA-256 %.12s…, want %d with %.12s…", name, found.Bytes, found.SHA256, want.Bytes, want.SHA256)
		}
		if _, err := os.Stat(filepath.Join(dir, name+"-wal")); err == nil {
			return m, fmt.Errorf("%s-wal stands beside it: somebody opened the copy", name)
		}
	}
	return m, nil
}

// The names of copies before they are in place.
const preparing = ".restoring"

// examineRestore names what a restore has left behind that was killed: nothing while
// somebody holds the state, for it may be under way.
func (a *app) examineRestore(p daemon.Presence) []finding {
	left := sqldb.Left(a.Database+preparing, a.PolicyDatabase+preparing)
	from, cut := daemon.CutRestore(a.StateDir)
	switch {
	case p.Running:
		return nil
	case cut:
		return []finding{{"restore", fault, fmt.Sprintf("one was cut off half way, and nothing starts until one was finished: run `%s restore %s` once more", a.again(), from)}}
	case len(left) > 0:
		return []finding{{"restore", warning, fmt.Sprintf("one was cut off while it copied, and nothing was changed: run it once more, or remove %s", strings.Join(left, ", "))}}
	}
	return nil
}

// prepare copies the backup beside its place, verifies the copies, and makes them
// know each other as they are now.
func (c restoreCmd) prepare(ctx context.Context, a *app, m manifest) (known sqldb.Memory, err error) {
	places := map[string]string{mainName: a.Database, policyName: a.PolicyDatabase}
	defer func() {
		if err != nil {
			err = errors.Join(err, sqldb.Remove(a.Database+preparing, a.PolicyDatabase+preparing))
		}
	}()
	if err := sqldb.Remove(a.Database+preparing, a.PolicyDatabase+preparing); err != nil {
		return known, err
	}
	for name, place := range places {
		if err := sqldb.CopyFile(filepath.Join(c.Dir, name), place+preparing); err != nil {
			return known, fmt.Errorf("copy the backup: %w", err)
		}
	}
	copies := daemon.Settings{Database: a.Database + preparing, PolicyDatabase: a.PolicyDatabase + preparing}
	all := func(ctx context.Context, dsn string, k sqldb.Kind) (sqldb.State, error) {
		return sqldb.LookWhole(ctx, dsn, k, slow)
	}
	if _, err := daemon.Judge(ctx, copies, all, sqldb.Memory{Main: sqldb.Seen{ID: m.Main.ID}, Policy: sqldb.Seen{ID: m.Policy.ID}}, sqldb.Consent{}); err != nil {
		var apart *sqldb.PartnerError
		if errors.As(err, &apart) {
			return known, usage("the backup is of no use, nothing was changed: %s", apart.Problem)
		}
		return known, err
	}
	text := fmt.Sprintf("the backup %s of %s, made by runnerd %s", c.Dir, m.At.Format(time.RFC3339), m.Version)
	return introduce(ctx, copies.Database, copies.PolicyDatabase, "restored", text)
}

// introduce makes two copies of databases know each other as they are, with a row of
// history if there is something to say, and leaves no log beside them.
func introduce(ctx context.Context, mainFile, policyFile, what, text string) (known sqldb.Memory, err error) {
	main, err := db.Open(ctx, db.Options{DSN: mainFile})
	if err != nil {
		return known, err
	}
	defer func() { err = errors.Join(err, main.Close()) }()
	rules, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: policyFile})
	if err != nil {
		return known, err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	policy, err := rules.Identity(ctx)
	if err != nil {
		return known, err
	}
	if what != "" {
		err = verify(ctx, main, rules)
	}
	if err == nil {
		known.Main, err = seen(main.Note(ctx, policy.Seen()))
	}
	if err == nil {
		known.Policy, err = seen(rules.NoteFor(ctx, known.Main, what, text, caller()))
	}
	return known, err
}

// verify holds both records against their chains.
func verify(ctx context.Context, main *db.DB, rules *taskpolicy.Store) error {
	if _, err := main.Verify(ctx); err != nil {
		return err
	}
	bad, err := rules.Verify(ctx)
	if err == nil && bad != nil {
		err = fmt.Errorf("policy history, row %d: %s", bad.Seq, bad.Reason)
	}
	return err
}

func seen(s sqldb.State, err error) (sqldb.Seen, error) { return s.Seen(), err }

// putInPlace sets aside what is there, with its logs, and renames the copies. It
// returns what was set aside under which names.
func (a *app) putInPlace(from string) (names []string, err error) {
	if err := sqldb.WriteFile(daemon.RestoreMark(a.StateDir), from); err != nil {
		return nil, err
	}
	suffix := daemon.Aside(time.Now())
	for _, place := range []string{a.Database, a.PolicyDatabase} {
		moved, err := sqldb.SetAside(place, suffix)
		names = append(names, moved...)
		if err != nil {
			return names, err
		}
	}
	for _, place := range []string{a.Database, a.PolicyDatabase} {
		if err := sqldb.Place(place+preparing, place); err != nil {
			return names, err
		}
	}
	return names, nil
}
