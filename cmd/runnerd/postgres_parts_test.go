package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runnerd/task"
)

// Databases on PostgreSQL are neither copied nor put back, which is said with the tool
// that does it, before anything is asked or touched; `file:` is SQLite to every verb.
func TestBackupAndRestoreByKindOfDatabase(t *testing.T) {
	t.Parallel()
	const server = "postgres://runnerd:secret@127.0.0.1:1/agents"
	for _, c := range []struct {
		name     string
		env      []string
		of, file string // what is on PostgreSQL, and the database that is none
	}{
		{"both", []string{"RUNNERD_DATABASE=" + server, "RUNNERD_POLICY_DATABASE=postgresql" + strings.TrimPrefix(server, "postgres")}, "main database and policy database are on PostgreSQL", ""},
		{"main", []string{"RUNNERD_DATABASE=" + server}, "main database is on PostgreSQL", "task_policies.db"},
		{"policy", []string{"RUNNERD_POLICY_DATABASE=" + server}, "policy database is on PostgreSQL", "runnerd.db"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, partnered())
			d.env = append(d.env, c.env...)
			dir := filepath.Join(d.dir, "backup")
			for verb, tool := range map[string]string{"backup": "pg_dump", "restore": "pg_restore"} {
				out, errw, code := d.command(verb, dir)
				if code != task.ExitUsage || !strings.Contains(errw, c.of) || !strings.Contains(errw, tool) || !strings.Contains(errw, c.file) || strings.Contains(errw, "secret") {
					t.Errorf("%s: exit code %d\n%s%s", verb, code, out, errw)
				}
			}
			for _, path := range []string{dir, d.a.StateDir} {
				if _, err := os.Stat(path); err == nil {
					t.Errorf("%s was made", path)
				}
			}
		})
	}
	t.Run("file:", func(t *testing.T) {
		t.Parallel()
		d := newDaemon(t, partnered())
		d.env = append(d.env, "RUNNERD_DATABASE=file:"+d.dir+"/x.db", "RUNNERD_POLICY_DATABASE=file://"+d.dir+"/y.db")
		d.a.Database = d.dir + "/x.db"
		d.again(1)
		backup := d.backup()
		d.again(1)
		d.says(0, "set aside "+d.dir+"/x.db.aside-", "restore", backup)
		if n := len(d.runs("t")); n != 1 {
			t.Errorf("%d runs, want the 1 of the backup", n)
		}
		d.says(0, "they belong to each other", "doctor")
		p := d.start()
		p.ready()
		d.again(1)
		d.backup()
		p.stop()
		if left, _ := filepath.Glob(d.state("*.db")); len(left) > 0 {
			t.Errorf("in the state directory: %v", left)
		}
		if left, _ := filepath.Glob(filepath.Join(d.a.ConfigDir, "file*")); len(left) > 0 {
			t.Errorf("in the config directory: %v", left)
		}
	})
}
