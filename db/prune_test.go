package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"runnerd/task"
)

// finish ends a run at a time, with one message, one receipt and its output.
func finish(t *testing.T, d *DB, name, id string, due time.Time) {
	t.Helper()
	fire(t, d, name, id, due)
	run, got, err := d.Claim(ctx, due)
	if err != nil || !got || run.ID != id {
		t.Fatalf("claimed %q: %v", run.ID, err)
	}
	msg := &task.Message{Session: name, Run: id, Role: task.RoleAssistant, At: due, Usage: &task.Usage{Input: 1}}
	ok(t, d.Append(ctx, days(due.Format(time.DateOnly)), msg))
	rc := intent(id)
	ok(t, d.Intend(ctx, rc, ""))
	rc.Outcome = task.ReceiptOK
	ok(t, d.Settle(ctx, rc, nil, string(make([]byte, 10_000))))
	run.Execution, run.FinishedAt = task.Completed, due
	ok(t, d.Update(ctx, run))
}

func pruneAll(t *testing.T, d *DB, p Retention, now time.Time) (removed int) {
	t.Helper()
	for range 1000 {
		n, more, err := d.Prune(ctx, p, now, 7)
		ok(t, err)
		if n > 7 {
			t.Fatalf("a step removed %d", n)
		}
		removed += n
		if !more {
			return removed
		}
	}
	t.Fatal("pruning has no end")
	return 0
}

func count(t *testing.T, d *DB, table string) (n int) {
	t.Helper()
	ok(t, d.sql.Read.NewRaw("SELECT COUNT(*) FROM "+table).Scan(ctx, &n))
	return n
}

func TestPruneByAge(t *testing.T) {
	d := openTest(t, Options{})
	day := func(n int) time.Time { return noon.AddDate(0, 0, n) }
	for i := range 10 {
		finish(t, d, "a", fmt.Sprint("a", i), day(i))
	}
	fire(t, d, "old", "active", day(0))
	// The window begins at the message of day 8: older ones are seen by nobody.
	ok(t, d.StartWindow(ctx, "a", 4))
	pruneAll(t, d, Retention{Age: 5 * 24 * time.Hour}, day(10))
	for table, want := range map[string]int{
		"runs":          6, // days 5 to 9, and the active one
		"receipts":      5,
		"receipt_chain": 10, // two links each: the base has moved up
		"spools":        5,
		"messages":      7, // from the window on, and of the runs that are left
		"occurrences":   6,
		"spend":         10, // of the task and in all
	} {
		if got := count(t, d, table); got != want {
			t.Errorf("%s: %d rows, want %d", table, got, want)
		}
	}
	ok(t, d.StartWindow(ctx, "a", 9))
	pruneAll(t, d, Retention{Age: 5 * 24 * time.Hour}, day(10))
	if got := count(t, d, "messages"); got != 5 {
		t.Errorf("messages after the window moved on: %d", got)
	}
	if _, err := d.Run(ctx, "active"); err != nil {
		t.Errorf("an active run was removed: %v", err)
	}
	if _, err := d.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// What a run still owes somebody is not forgotten, however old it is.
func TestPruneKeepsUndelivered(t *testing.T) {
	d := openTest(t, Options{})
	for i := range 3 {
		id := fmt.Sprint("a", i)
		finish(t, d, "a", id, noon.Add(time.Duration(i)*time.Minute))
		run := must[task.Run](t)(d.Run(ctx, id))
		run.Delivery = task.DeliveryPending
		ok(t, d.Update(ctx, run))
	}
	keep := Retention{Age: time.Hour, RunsPerTask: 1}
	pruneAll(t, d, keep, noon.AddDate(0, 0, 1))
	if got := count(t, d, "runs"); got != 3 {
		t.Errorf("%d runs left, want the 3 that are not delivered", got)
	}
	for i := range 3 {
		ok(t, d.FinishDelivery(ctx, fmt.Sprint("a", i), task.DeliveryDelivered, ""))
	}
	pruneAll(t, d, keep, noon.AddDate(0, 0, 1))
	if got := count(t, d, "runs"); got != 0 {
		t.Errorf("%d runs left, want none", got)
	}
}

func TestPruneByCount(t *testing.T) {
	d := openTest(t, Options{})
	for i := range 6 {
		finish(t, d, "a", fmt.Sprint("a", i), noon.Add(time.Duration(i)*time.Minute))
	}
	finish(t, d, "b", "b0", noon.Add(time.Hour))
	if n := pruneAll(t, d, Retention{RunsPerTask: 2}, noon); n < 4 {
		t.Errorf("removed %d", n)
	}
	var left []string
	for _, r := range must[[]task.Run](t)(d.Runs(ctx, RunFilter{})) {
		left = append(left, r.ID)
	}
	if fmt.Sprint(left) != "[b0 a5 a4]" {
		t.Errorf("left %v", left)
	}
	if got := count(t, d, "messages"); got != 7 {
		t.Errorf("%d messages: those in the window were removed", got)
	}
}

func TestPruneSpools(t *testing.T) {
	d := openTest(t, Options{})
	for i := range 5 {
		finish(t, d, "a", fmt.Sprint("a", i), noon.Add(time.Duration(i)*time.Minute))
	}
	if n := pruneAll(t, d, Retention{SpoolBytes: 25_000}, noon); n != 3 {
		t.Errorf("removed %d", n)
	}
	s := must[Stats](t)(d.Stats(ctx))
	if s.SpoolBytes != 20_000 || s.Receipts != 5 || s.Schema != len(migrations()) || (s.Bytes == 0) != (d.sql.Path == "") {
		t.Errorf("stats %+v", s)
	}
	if _, err := d.Spool(ctx, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("the oldest is still there: %v", err)
	}
}

// TestPruneGivesSpaceBack: the file itself becomes smaller.
func TestPruneGivesSpaceBack(t *testing.T) {
	sqliteOnly(t)
	d := openTest(t, Options{})
	started(t, d, "brief", "r1")
	for range 4 {
		rc := intent("r1")
		ok(t, d.Intend(ctx, rc, ""))
		rc.Outcome = task.ReceiptOK
		ok(t, d.Settle(ctx, rc, nil, string(make([]byte, 2<<20))))
	}
	pages := func() (n int) { ok(t, d.sql.Write.NewRaw("PRAGMA page_count").Scan(ctx, &n)); return n }
	before := pages()
	for more := true; more; {
		var err error
		_, more, err = d.Prune(ctx, Retention{SpoolBytes: 1}, noon, 500)
		ok(t, err)
	}
	if after := pages(); after > before-1500 {
		t.Errorf("%d pages of %d are left", after, before)
	}
	ok(t, d.Check(ctx))
}

func TestStatsCountActive(t *testing.T) {
	d := openTest(t, Options{})
	waiting(t, d, "a1", "a2")
	fire(t, d, "other", "r2", noon)
	s := must[Stats](t)(d.Stats(ctx))
	if s.Active[task.Waiting] != 1 || s.Active[task.Queued] != 1 || s.Active[task.Running] != 0 || s.PendingApprovals != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestBackup(t *testing.T) {
	sqliteOnly(t)
	d := openTest(t, Options{})
	fire(t, d, "brief", "r1", noon)
	path := filepath.Join(t.TempDir(), "it's a copy.db")
	ok(t, d.Backup(ctx, path))
	fire(t, d, "brief", "r2", noon.Add(time.Hour))
	if err := d.Backup(ctx, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over an existing file: %v", err)
	}
	if err := d.Backup(ctx, filepath.Join(path, "nowhere")); err == nil {
		t.Error("backed up into nowhere")
	}
	left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path)))
	if info := must[os.FileInfo](t)(os.Stat(path)); len(left) != 1 || info.Mode().Perm() != 0o600 {
		t.Errorf("directory %v, mode %v", left, info.Mode())
	}
	c := openTest(t, Options{DSN: path})
	ok(t, c.Check(ctx))
	if _, err := c.Run(ctx, "r1"); err != nil {
		t.Error(err)
	}
	if _, err := c.Run(ctx, "r2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a later run is in the copy: %v", err)
	}
	// The copy goes on like the original: it can still be shrunk.
	var vacuum int
	ok(t, c.sql.Write.NewRaw("PRAGMA auto_vacuum").Scan(ctx, &vacuum))
	if vacuum != 2 {
		t.Errorf("auto_vacuum %d", vacuum)
	}
}

func TestCheckFindsDamage(t *testing.T) {
	sqliteOnly(t)
	path := filepath.Join(t.TempDir(), "runnerd.db")
	d, err := Open(ctx, Options{DSN: path})
	ok(t, err)
	for i := range 50 {
		fire(t, d, "brief", fmt.Sprint("r", i), noon.Add(time.Duration(i)*time.Minute))
	}
	ok(t, d.Check(ctx))
	ok(t, d.Close())
	content := must[[]byte](t)(os.ReadFile(path))
	for i := len(content) / 2; i < len(content)/2+8192; i++ {
		content[i] = 0x5A
	}
	ok(t, os.WriteFile(path, content, 0o600))
	d = openTest(t, Options{DSN: path})
	if err := d.Check(ctx); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}
