package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

func TestOpenAgainKeepsEverything(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "odd name?#.db")
	d, err := Open(ctx, Options{DSN: path})
	ok(t, err)
	fire(t, d, "brief", "r1", noon)
	ok(t, d.Close())
	d = openTest(t, Options{DSN: path})
	ok(t, d.Ping(ctx))
	if run := must[task.Run](t)(d.Run(ctx, "r1")); run.Task != "brief" {
		t.Errorf("run %+v", run)
	}
	info := must[os.FileInfo](t)(os.Stat(path))
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	log := must[os.FileInfo](t)(os.Stat(path + "-wal"))
	if log.Mode().Perm() != 0o600 {
		t.Errorf("mode of the log %v", log.Mode())
	}
}

func TestOpenRefusesDSN(t *testing.T) {
	for _, dsn := range []string{"", ":memory:", "file:x.db?mode=ro", "mysql://x"} {
		if d, err := Open(ctx, Options{DSN: dsn}); err == nil {
			t.Errorf("%q was opened", dsn)
			_ = d.Close()
		}
	}
}

// TestNewerIsRefused: a database of a newer runnerd is not touched.
func TestNewerIsRefused(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "runnerd.db")
	d, err := Open(ctx, Options{DSN: path})
	ok(t, err)
	_, err = d.sql.Write.ExecContext(ctx, "INSERT INTO migrations (number, name, applied_at) VALUES (99, 'later', 1)")
	ok(t, err)
	ok(t, d.Close())
	before := must[[]byte](t)(os.ReadFile(path))
	for _, readOnly := range []bool{false, true} {
		_, err = Open(ctx, Options{DSN: path, ReadOnly: readOnly})
		var newer *NewerError
		if !errors.As(err, &newer) || newer.Found != 99 || newer.Known != len(migrations()) {
			t.Errorf("read only %v: %v", readOnly, err)
		}
	}
	if after := must[[]byte](t)(os.ReadFile(path)); string(after) != string(before) {
		t.Error("the file was rewritten")
	}
}

func TestDamagedIsRefused(t *testing.T) {
	sqliteOnly(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	d, err := Open(ctx, Options{DSN: good})
	ok(t, err)
	ok(t, d.Close())
	whole := must[[]byte](t)(os.ReadFile(good))
	scribbled := append([]byte{}, whole...)
	for i := 100; i < 4096; i++ {
		scribbled[i] = 0xAA
	}
	for name, content := range map[string][]byte{
		"text":      []byte("this is a letter to my aunt, and it is longer than a hundred bytes, which is what the header of a database has."),
		"short":     []byte("SQLite format 3\x00"),
		"truncated": whole[:len(whole)/2],
		"scribbled": scribbled,
	} {
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, content, 0o600))
		if d, err := Open(ctx, Options{DSN: path}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
			if d != nil {
				_ = d.Close()
			}
		}
		if after := must[[]byte](t)(os.ReadFile(path)); string(after) != string(content) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestForeignTablesAreRefused(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "other.db")
	d, err := Open(ctx, Options{DSN: path})
	ok(t, err)
	_, err = d.sql.Write.ExecContext(ctx, "DROP TABLE migrations")
	ok(t, err)
	ok(t, d.Close())
	if _, err := Open(ctx, Options{DSN: path}); err == nil {
		t.Error("tables without a record of migrations were taken over")
	}
}

// TestMigrationsRunAgain: a step may meet its own result.
func TestMigrationsRunAgain(t *testing.T) {
	d := openTest(t, Options{})
	fire(t, d, "brief", "r1", noon)
	for _, m := range migrations() {
		err := d.sql.Write.RunInTx(ctx, nil, m.Up)
		ok(t, err)
	}
	if _, err := d.Run(ctx, "r1"); err != nil {
		t.Error(err)
	}
}

func TestReadOnly(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "runnerd.db")
	if _, err := Open(ctx, Options{DSN: path, ReadOnly: true}); !errors.Is(err, ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("reading created the file")
	}
	ok(t, os.WriteFile(path, nil, 0o600))
	var older *OlderError
	if _, err := Open(ctx, Options{DSN: path, ReadOnly: true}); !errors.As(err, &older) {
		t.Errorf("empty file: %v", err)
	}
	d := openTest(t, Options{DSN: path})
	fire(t, d, "brief", "r1", noon)
	r := openTest(t, Options{DSN: path, ReadOnly: true})
	if run := must[task.Run](t)(r.Run(ctx, "r1")); run.ID != "r1" {
		t.Errorf("read %+v", run)
	}
	if _, err := r.Cancel(ctx, "r1", "", noon); !errors.Is(err, ErrReadOnly) {
		t.Errorf("write: %v", err)
	}
	if _, err := r.sql.Read.ExecContext(ctx, "DELETE FROM runs"); err == nil {
		t.Error("the read pool wrote")
	}
	ok(t, r.Ping(ctx))
}

// TestTimesAgree: what bun writes, raw SQL reads, and the other way round, in one
// form: microseconds since the epoch.
func TestTimesAgree(t *testing.T) {
	sqliteOnly(t)
	d := openTest(t, Options{})
	zone := time.FixedZone("odd", 19800)
	when := time.Date(2026, 3, 29, 2, 30, 15, 123456789, zone)
	fire(t, d, "brief", "r1", when)
	var raw int64
	var kind string
	ok(t, d.sql.Write.QueryRowContext(ctx, "SELECT due, typeof(due) FROM runs WHERE id = 'r1'").Scan(&raw, &kind))
	if raw != when.UnixMicro() || kind != "integer" {
		t.Errorf("stored %d as %s, want %d", raw, kind, when.UnixMicro())
	}
	if got := must[task.Run](t)(d.Run(ctx, "r1")).Due; !got.Equal(when.Truncate(time.Microsecond)) || got.Location() != time.UTC {
		t.Errorf("read %v", got)
	}
	_, err := d.sql.Write.ExecContext(ctx, "UPDATE runs SET due = 0 WHERE id = 'r1'")
	ok(t, err)
	if got := must[task.Run](t)(d.Run(ctx, "r1")).Due; !got.Equal(time.Unix(0, 0)) {
		t.Errorf("the epoch came back as %v", got)
	}
	// Every time column of the schema holds integers or nothing.
	rows, err := d.sql.Read.QueryContext(ctx, `SELECT DISTINCT typeof(due), typeof(not_before), typeof(created_at), typeof(started_at) FROM runs`)
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var a, b, c, e string
		ok(t, rows.Scan(&a, &b, &c, &e))
		if a != "integer" || b != "integer" || c != "integer" || e != "null" {
			t.Errorf("columns hold %s %s %s %s", a, b, c, e)
		}
	}
	ok(t, rows.Err())
	var s stamp
	if err := s.Scan("2026-01-01"); err == nil {
		t.Error("a text was read as a time")
	}
}

// TestDiskFull: nothing is written by halves, the error says what it is, and the
// same call succeeds when there is space again.
func TestDiskFull(t *testing.T) {
	sqliteOnly(t)
	d := openTest(t, Options{})
	started(t, d, "brief", "r1")
	var pages int
	ok(t, d.sql.Write.NewRaw("PRAGMA page_count").Scan(ctx, &pages))
	_, err := d.sql.Write.ExecContext(ctx, "PRAGMA max_page_count = "+strconv.Itoa(pages))
	ok(t, err)
	r := intent("r1")
	ok(t, d.Intend(ctx, r, ""))
	r.Outcome = task.ReceiptOK
	msg := &task.Message{Session: "brief", Run: "r1", Role: task.RoleTool, Text: "x", At: noon}
	err = d.Settle(ctx, r, msg, string(make([]byte, 1<<20)))
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("disk full: %v", err)
	}
	if rc := must[task.Receipt](t)(d.Receipt(ctx, r.Seq)); rc.Outcome != task.ReceiptPending {
		t.Errorf("half written: %s", rc.Outcome)
	}
	_, err = d.sql.Write.ExecContext(ctx, "PRAGMA max_page_count = 1000000")
	ok(t, err)
	ok(t, d.Settle(ctx, r, msg, string(make([]byte, 1<<20))))
	if _, err := d.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// TestBusy: another process that holds the write lock is waited for, but not for
// ever.
func TestBusy(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "runnerd.db")
	holder := openTest(t, Options{DSN: path})
	d := openTest(t, Options{DSN: path, BusyTimeout: 20 * time.Millisecond})
	tx, err := holder.sql.Write.BeginTx(ctx, nil)
	ok(t, err)
	if _, err := d.Cancel(ctx, "r1", "", noon); !errors.Is(err, ErrBusy) {
		t.Errorf("locked: %v", err)
	}
	if _, err := d.Cursors(ctx); err != nil {
		t.Errorf("a reader waited for a writer: %v", err)
	}
	ok(t, tx.Rollback())
	ok(t, d.Ping(ctx))
}

// TestTimeoutBoundsAWriter: one that hangs loses its turn, others go on.
func TestTimeoutBoundsAWriter(t *testing.T) {
	d := openTest(t, Options{})
	d.opts.Timeout = time.Second
	holds, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := d.Fire(ctx, []string{"brief"}, func(task.FireState) task.FirePlan {
			close(holds)
			<-release
			return plan("brief", "r1", noon)
		})
		done <- err
	}()
	select {
	case <-holds:
	case err := <-done:
		t.Fatalf("the writer did not get its turn: %v", err)
	}
	var err error
	for range 20 {
		if err = d.Ping(ctx); err == nil {
			break
		}
	}
	ok(t, err)
	close(release)
	if err := <-done; err == nil {
		t.Error("the hanging writer wrote")
	}
	if cursors := must[map[string]task.Cursor](t)(d.Cursors(ctx)); len(cursors) != 0 {
		t.Errorf("it left %v", cursors)
	}
}

func TestWritersDoNotCollide(t *testing.T) {
	d := openTest(t, Options{})
	errs := make(chan error, 8)
	for i := range 8 {
		go func() {
			name := "task-" + strconv.Itoa(i)
			var err error
			for j := range 20 {
				due := noon.Add(time.Duration(j) * time.Minute)
				_, e := d.Fire(ctx, []string{name}, func(task.FireState) task.FirePlan { return plan(name, name+strconv.Itoa(j), due) })
				_, f := d.Runs(ctx, RunFilter{Task: name})
				err = errors.Join(err, e, f)
			}
			errs <- err
		}()
	}
	for range 8 {
		ok(t, <-errs)
	}
	if n := must[int64](t)(d.RunsBetween(ctx, noon, noon.Add(time.Hour))); n != 160 {
		t.Errorf("%d runs", n)
	}
}

// TestInsideSynctest: the daemon's tests put it into a bubble with a clock of its
// own, in which it must open, work and close.
func TestInsideSynctest(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "runnerd.db")
	synctest.Test(t, func(t *testing.T) {
		d, err := Open(ctx, Options{DSN: path})
		ok(t, err)
		for i := range 14 {
			fire(t, d, "brief", "r"+strconv.Itoa(i), time.Now())
			run, got, err := d.Claim(ctx, time.Now())
			if err != nil || !got {
				t.Fatal(got, err)
			}
			run.Execution = task.Completed
			ok(t, d.Update(ctx, run))
			if end := must[task.Run](t)(d.Run(ctx, run.ID)).FinishedAt; !end.Equal(time.Now()) {
				t.Errorf("finished at %v", end)
			}
			time.Sleep(24 * time.Hour)
		}
		ok(t, d.Close())
	})
}

// TestSyncOfTransactions: only what may be written ahead is not synced by itself,
// whatever came before it on the one connection.
func TestSyncOfTransactions(t *testing.T) {
	sqliteOnly(t)
	d := openTest(t, Options{})
	level := func(write func(context.Context, func(context.Context, bun.Tx) error) error) (n int) {
		t.Helper()
		ok(t, write(ctx, func(ctx context.Context, tx bun.Tx) error {
			return tx.NewRaw("PRAGMA synchronous").Scan(ctx, &n)
		}))
		return n
	}
	const normal, full = 1, 2
	for i, want := range []int{full, normal, normal, full, full, normal, full} {
		write := d.writing
		if want == normal {
			write = d.writingAhead
		}
		if got := level(write); got != want {
			t.Errorf("transaction %d has synchronous %d, want %d", i, got, want)
		}
	}
	level(d.writingAhead)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := d.writing(gone, func(context.Context, bun.Tx) error { return nil }); err == nil {
		t.Error("a write whose context has ended was made")
	}
	if got := level(d.writing); got != full {
		t.Errorf("synchronous %d after a failed begin, want %d", got, full)
	}
}
