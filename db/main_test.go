package db

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"runnerd/agentloop"
	"runnerd/dispatch"
	"runnerd/scheduler"
	"runnerd/task"
)

var (
	_ scheduler.Store = (*DB)(nil)
	_ dispatch.Store  = (*DB)(nil)
	_ agentloop.Store = (*DB)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx  = context.Background()
	noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
)

// postgres makes the tests that any database must pass run on PostgreSQL, each
// in a schema of its own: go test ./db -postgres postgres://user@host/database
var postgres = flag.String("postgres", "", "URL of a PostgreSQL database to test on")

func openTest(t testing.TB, o Options) *DB {
	t.Helper()
	if o.DSN == "" && *postgres != "" {
		o.DSN = newSchema(t)
	}
	if o.DSN == "" {
		o.DSN = filepath.Join(t.TempDir(), "runnerd.db")
	}
	d, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// newSchema makes an empty schema that goes when the test ends.
func newSchema(t testing.TB) string {
	t.Helper()
	admin, err := sql.Open("pgx", *postgres)
	ok(t, err)
	name := fmt.Sprintf("test_%d", time.Now().UnixNano())
	_, err = admin.ExecContext(ctx, "CREATE SCHEMA "+name)
	ok(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(ctx, "DROP SCHEMA "+name+" CASCADE")
		if err := errors.Join(err, admin.Close()); err != nil {
			t.Error(err)
		}
	})
	separator := "?"
	if strings.Contains(*postgres, "?") {
		separator = "&"
	}
	return *postgres + separator + "search_path=" + name
}

// sqliteOnly skips what is about files, pragmas or the form of SQL of SQLite.
func sqliteOnly(t testing.TB) {
	if *postgres != "" {
		t.Skip("about SQLite")
	}
}

// must fails the test on an error and passes the value on.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plan is the plan of a task that is due once, with a run of the given id.
func plan(name, id string, due time.Time) task.FirePlan {
	return task.FirePlan{
		Cursor: task.Cursor{Task: name, ScheduleRevision: "rev1", Through: due, LastFired: due},
		Occurrences: []task.Occurrence{{
			Task: name, ScheduleRevision: "rev1", Due: due, Count: 1, End: task.EndRun, RunID: id, RecordedAt: due,
		}},
		Runs: []task.Run{{
			ID: id, Task: name, Session: name, Revision: "spec1", Due: due, Trigger: task.TriggerSchedule,
			Attempt: 1, NotBefore: due, Execution: task.Queued, CreatedAt: due,
		}},
	}
}

func fire(t testing.TB, d *DB, name, id string, due time.Time) {
	t.Helper()
	runs, err := d.Fire(ctx, []string{name}, func(task.FireState) task.FirePlan { return plan(name, id, due) })
	if err != nil || len(runs) != 1 {
		t.Fatalf("fire %s: %d runs, %v", name, len(runs), err)
	}
}

// started fires and claims one run.
func started(t testing.TB, d *DB, name, id string) task.Run {
	t.Helper()
	fire(t, d, name, id, noon)
	run, got, err := d.Claim(ctx, noon)
	if err != nil || !got || run.ID != id {
		t.Fatalf("claim: %v %v %v", run.ID, got, err)
	}
	return run
}

func days(day string) task.Days { return task.Days{Task: day, Total: day} }
