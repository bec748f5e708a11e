package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"runnerd/sqldb"
)

// backup makes one and returns its directory.
func (d *instance) backup() string {
	d.t.Helper()
	dir := filepath.Join(d.t.TempDir(), "backup")
	if out, errw, code := d.command("backup", dir); code != 0 {
		d.t.Fatalf("backup: exit code %d\n%s%s", code, out, errw)
	}
	return dir
}

// killedAfter is a daemon with a backup of n runs, that ran more and was killed, so
// that logs were left behind.
func killedAfter(t *testing.T, n, more int) (d *instance, backup string) {
	d = ran(t, n)
	backup = d.backup()
	p := d.start()
	p.ready()
	d.again(more)
	d.set(`deny=["gated/other"]`)
	p.signal(syscall.SIGKILL)
	<-p.ended
	return d, backup
}

// U17: a backup of a live daemon is restored whole, beside no daemon; what was there is
// set aside with its log, and everything fits.
func TestRestore(t *testing.T) {
	t.Parallel()
	d := ran(t, 2)
	p := d.start()
	p.ready()
	d.again(1)
	backup := d.backup()
	d.again(2)
	d.set(`deny=["gated/other"]`)
	if out, errw, code := d.command("restore", backup); code != 2 || !strings.Contains(errw, "in use by process") {
		t.Errorf("beside a daemon: exit code %d\n%s%s", code, out, errw)
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
	out, errw, code := d.command("restore", backup)
	if code != 0 || !strings.Contains(out, "runnerd.db.aside-") || !strings.Contains(out, "task_policies.db.aside-") || !strings.Contains(out, "3 runs") {
		t.Fatalf("exit code %d\n%s%s", code, out, errw)
	}
	for _, name := range []string{"runnerd.db-wal", "task_policies.db-wal", "runnerd.db.restoring", "restore.unfinished"} {
		if _, err := os.Stat(d.state(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(d.runs("t")); n != 3 {
		t.Errorf("%d runs, want the 3 of the backup", n)
	}
	if out, _, _ := d.command("policy", "history"); !strings.Contains(out, "restored") || !strings.Contains(out, "uid ") || strings.Contains(out, "gated/other") {
		t.Errorf("history:\n%s", out)
	}
	if out, errw, code := d.command("audit", "verify"); code != 0 {
		t.Errorf("audit verify: exit code %d\n%s%s", code, out, errw)
	}
	if log, code := d.serveOnce(); code != 0 {
		t.Errorf("serve: exit code %d\n%s", code, log)
	}
	if out, errw, code := d.command("restore", backup); code != 0 {
		t.Errorf("once more: exit code %d\n%s%s", code, out, errw)
	}
	for _, name := range []string{"runnerd.db", "task_policies.db"} {
		d.remove(name)
	}
	if out, errw, code := d.command("restore", backup); code != 0 || strings.Contains(out, "aside") {
		t.Errorf("where nothing is left: exit code %d\n%s%s", code, out, errw)
	}
	if log, code := d.serveOnce(); code != 0 {
		t.Errorf("serve: exit code %d\n%s", code, log)
	}
}

// U17: a backup that is not whole is refused, and nothing is touched.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	d := ran(t, 1)
	other := ran(t, 1).backup()
	good := d.backup()
	d.again(1)
	before := listing(t, d.a.StateDir)
	for _, c := range []struct {
		name string
		harm func(dir string) error
		says string
	}{
		{"U17 no manifest", func(dir string) error { return os.Remove(filepath.Join(dir, "manifest.json")) }, "manifest.json"},
		{"U17 no such directory", os.RemoveAll, "manifest.json"},
		{"U17 a file missing", func(dir string) error { return os.Remove(filepath.Join(dir, "task_policies.db")) }, "task_policies.db"},
		{"U17 a changed byte", func(dir string) error { return scribble(filepath.Join(dir, "runnerd.db"), 5000) }, "is not the file that was backed up"},
		{"U17 half a file", func(dir string) error { return os.Truncate(filepath.Join(dir, "runnerd.db"), 8192) }, "is not the file that was backed up"},
		{"U17 damaged before it was described", func(dir string) error {
			return errors.Join(scribble(filepath.Join(dir, "runnerd.db"), 8192), describeAgain(dir))
		}, "damaged"},
		{"U17 two of different backups", func(dir string) error {
			data, err := os.ReadFile(filepath.Join(other, "task_policies.db"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "task_policies.db"), data, 0o600), describeAgain(dir))
		}, "not of each other"},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := errors.Join(os.CopyFS(dir, os.DirFS(good)), c.harm(dir)); err != nil {
			t.Fatal(err)
		}
		out, errw, code := d.command("restore", dir)
		if code == 0 || !strings.Contains(errw, c.says) {
			t.Errorf("%s: exit code %d, want %q\n%s%s", c.name, code, c.says, out, errw)
		}
		if after := listing(t, d.a.StateDir); after != before {
			t.Errorf("%s: files were changed:\n%s", c.name, after)
		}
		if left, _ := filepath.Glob(d.state("*.restoring*")); len(left) > 0 {
			t.Errorf("%s: left %v", c.name, left)
		}
	}
	if n := len(d.runs("t")); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// I1: a backup does not go where the daemon keeps its own, whatever link leads there.
func TestBackupRefusesTheDaemonsPlaces(t *testing.T) {
	t.Parallel()
	d := ran(t, 1)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(d.a.ConfigDir, "tasks"), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{d.state("b"), filepath.Join(d.a.ConfigDir, "b"), filepath.Join(link, "b")} {
		out, errw, code := d.command("backup", dir)
		if code != 2 || !strings.Contains(errw, "make backup directory") {
			t.Errorf("backup %s: exit code %d\n%s%s", dir, code, out, errw)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("backup %s: was made", dir)
		}
	}
}

// scribble overwrites a page with what is none.
func scribble(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strings.Repeat("x", 2000)), at)
	return errors.Join(err, f.Close())
}

// describeAgain makes the manifest fit files that were changed.
func describeAgain(dir string) error {
	path := filepath.Join(dir, manifestName)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	for i := range m.Files {
		if m.Files[i], err = describe(dir, m.Files[i].Name); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(path), m.write(path))
}

// U17: copies put over the files by hand, with the old logs left beside them, are not
// served.
func TestCopyOverAStaleLog(t *testing.T) {
	for _, name := range []string{"runnerd.db", "task_policies.db"} {
		t.Run("U17 "+name, func(t *testing.T) {
			t.Parallel()
			d, backup := killedAfter(t, 3, 3)
			bring(d, backup, name)
			_, errw, code := d.command("serve")
			if code != 1 || !strings.Contains(errw, name) || !strings.Contains(errw, "restore DIR") {
				t.Errorf("one copied over: exit code %d\n%s", code, errw)
			}
		})
	}
	t.Run("U17 both", func(t *testing.T) {
		t.Parallel()
		d, backup := killedAfter(t, 3, 3)
		bring(d, backup, "runnerd.db")
		bring(d, backup, "task_policies.db")
		_, errw, code := d.command("serve")
		if code != 1 || !strings.Contains(errw, "restore DIR") {
			t.Errorf("exit code %d\n%s", code, errw)
		}
		if out, errw, code := d.command("restore", backup); code != 0 {
			t.Errorf("restore: exit code %d\n%s%s", code, out, errw)
		}
		if log, code := d.serveOnce(); code != 0 {
			t.Errorf("serve: exit code %d\n%s", code, log)
		}
	})
}

// A restore that was cut off keeps every start away until one was finished.
func TestRestoreCutOff(t *testing.T) {
	t.Parallel()
	d := ran(t, 1)
	backup := d.backup()
	if err := os.WriteFile(d.state("restore.unfinished"), []byte(backup), 0o600); err != nil {
		t.Fatal(err)
	}
	rename(t, d.state("runnerd.db"), d.state("runnerd.db.aside-x"))
	for _, verb := range [][]string{{"serve"}, {"run", "t"}, {"doctor"}} {
		if out, errw, code := d.command(verb...); code == 0 || !strings.Contains(out+errw, "restore "+backup) {
			t.Errorf("%v: exit code %d\n%s%s", verb, code, out, errw)
		}
	}
	if out, errw, code := d.command("restore", backup); code != 0 {
		t.Errorf("restore: exit code %d\n%s%s", code, out, errw)
	}
	if log, code := d.serveOnce(); code != 0 {
		t.Errorf("serve: exit code %d\n%s", code, log)
	}
}

// What a restore that was killed has left behind doctor names, with what to do about
// it, unless one may be under way.
func TestDoctorNamesWhatARestoreLeft(t *testing.T) {
	t.Parallel()
	d := ran(t, 1)
	backup := d.backup()
	doctor := func() string {
		t.Helper()
		out, _, _ := d.command("doctor")
		for line := range strings.Lines(out) {
			if _, found, ok := strings.Cut(line, " restore "); ok && !strings.HasPrefix(line, "ok") {
				return strings.TrimSpace(found)
			}
		}
		return ""
	}
	if said := doctor(); said != "" {
		t.Errorf("before: %s", said)
	}
	left := []string{d.state("runnerd.db.restoring"), d.state("runnerd.db.restoring-wal"), d.state("task_policies.db.restoring")}
	for _, name := range left {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cure := "remove " + strings.Join(left, ", ")
	if said := doctor(); !strings.Contains(said, "nothing was changed") || !strings.Contains(said, cure) {
		t.Errorf("copies left: %q, want %q", said, cure)
	}
	if _, _, code := d.command("doctor"); code != 0 {
		t.Errorf("copies left: exit code %d, want 0 for a warning", code)
	}
	lock, err := sqldb.LockState(d.a.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if said := doctor(); said != "" {
		t.Errorf("while somebody holds the state: %s", said)
	}
	if err := errors.Join(lock.Close(), os.WriteFile(d.state("restore.unfinished"), []byte(backup), 0o600)); err != nil {
		t.Fatal(err)
	}
	if said := doctor(); !strings.Contains(said, "`runnerd restore "+backup+"` once more") || strings.Contains(said, "remove ") {
		t.Errorf("half way: %q", said)
	}
	d.says(0, "restored", "restore", backup)
	if said := doctor(); said != "" {
		t.Errorf("afterwards: %s", said)
	}
}
