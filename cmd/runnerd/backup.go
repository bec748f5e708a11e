package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"runnerd/confine"
	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/taskpolicy"
	"runnerd/text"
)

type backupCmd struct {
	Dir  string `arg:"" help:"Directory to make; it must not exist, or be empty." type:"path"`
	JSON bool   `help:"Print the manifest."`
}

// Help says what is in a backup and how to go back to it.
func (backupCmd) Help() string {
	return "Copies both databases, each as it stands at one moment, beside a manifest with their checksums. The daemon may run. " +
		"To go back: stop the daemon, then `runnerd restore DIR`. " +
		"Credentials and the config directory are not in it."
}

// manifest describes a backup; it is the last file written.
type manifest struct {
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	// Main and Policy are the ids of the databases and how far they had come.
	Main   sqldb.Seen   `json:"main,omitzero"`
	Policy sqldb.Seen   `json:"policy,omitzero"`
	Files  []backupFile `json:"files"`
}

type backupFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// The files of a backup.
const (
	manifestName = "manifest.json"
	mainName     = "runnerd.db"
	policyName   = "task_policies.db"
)

func (c backupCmd) Run(ctx context.Context, a *app) error {
	if err := a.onPostgres("backup", "copies nothing", "pg_dump", "copy"); err != nil {
		return err
	}
	if err := a.Together(ctx, sqldb.Look); err != nil {
		return err
	}
	for _, file := range []string{a.Database, a.PolicyDatabase} {
		if _, err := os.Stat(file); err != nil {
			return usage("there is nothing to back up yet: %v", err)
		}
	}
	dir, err := emptyDir(a.Door(), c.Dir)
	if err != nil {
		return err
	}
	m := manifest{Version: versionText(), At: time.Now().UTC().Truncate(time.Second)}
	if err := a.copyDatabases(ctx, dir); err != nil {
		return err
	}
	known, err := introduce(ctx, filepath.Join(dir, mainName), filepath.Join(dir, policyName), "", "")
	if err != nil {
		return err
	}
	m.Main, m.Policy = known.Main, known.Policy
	for _, name := range []string{mainName, policyName} {
		f, err := describe(dir, name)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	if err := m.write(filepath.Join(dir, manifestName)); err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(a.out, m)
	}
	for _, f := range m.Files {
		text.Fprintf(a.out, "%s  %s, %d bytes\n", f.SHA256[:16], filepath.Join(c.Dir, f.Name), f.Bytes)
	}
	return nil
}

// onPostgres refuses a verb for databases that are no files, and names the tool for
// them; and says what becomes of one that is a file.
func (a *app) onPostgres(verb, does, tool, by string) error {
	var there []string
	files := ""
	for _, d := range []struct {
		role sqldb.Role
		dsn  string
	}{{sqldb.Main, a.Database}, {sqldb.Policy, a.PolicyDatabase}} {
		if sqldb.IsPostgres(d.dsn) {
			there = append(there, string(d.role))
		} else {
			files = fmt.Sprintf(", and %s %s by hand", by, d.dsn)
		}
	}
	if len(there) == 0 {
		return nil
	}
	is := "is"
	if len(there) > 1 {
		is = "are"
	}
	return usage("%s %s on PostgreSQL, where `runnerd %s` %s: stop the daemon, use %s%s; should a start find that the databases are not of one moment, "+
		"`runnerd serve --accept-databases` takes them as they are", strings.Join(there, " and "), is, verb, does, tool, files)
}

// emptyDir makes a directory that nobody but us can read, or takes an empty one.
// What a person typed may lead through links; what it comes to may not.
func emptyDir(door *confine.Door, dir string) (real string, err error) {
	real = confine.Real([]string{dir})[0]
	if err := door.MkdirAll(real, 0o700); err != nil {
		return "", usage("make backup directory: %v", err)
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return "", usage("backup directory: %v", err)
	}
	if len(entries) > 0 {
		return "", usage("%s is not empty, and a backup overwrites nothing; name a new directory", dir)
	}
	return real, nil
}

func (a *app) copyDatabases(ctx context.Context, dir string) error {
	main, err := db.Open(ctx, db.Options{DSN: a.Database, ReadOnly: true})
	if err != nil {
		return err
	}
	if err := errors.Join(main.Backup(ctx, filepath.Join(dir, mainName)), main.Close()); err != nil {
		return err
	}
	rules, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: a.PolicyDatabase})
	if err != nil {
		return err
	}
	return errors.Join(rules.Backup(ctx, filepath.Join(dir, policyName)), rules.Close())
}

func describe(dir, name string) (backupFile, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return backupFile{}, fmt.Errorf("read backup: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return backupFile{}, fmt.Errorf("read backup: %w", err)
	}
	return backupFile{Name: name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

func (m manifest) write(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := confine.New().Replace(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}
