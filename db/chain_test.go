package db

import (
	"errors"
	"strings"
	"testing"
	"time"

	"runnerd/task"
)

// audited is a database with five links: an intent, its outcome, a refusal, an
// intent that is open, and another refusal.
func audited(t *testing.T) *DB {
	d := openTest(t, Options{})
	started(t, d, "brief", "r1")
	first, second := intent("r1"), intent("r1")
	ok(t, d.Intend(ctx, first, ""))
	first.Outcome = task.ReceiptOK
	ok(t, d.Settle(ctx, first, nil, ""))
	ok(t, d.Refuse(ctx, parked("r1"), nil, nil))
	ok(t, d.Intend(ctx, second, ""))
	ok(t, d.Refuse(ctx, parked("r1"), nil, nil))
	return d
}

func TestVerifyFindsTheFirstBadRow(t *testing.T) {
	sqliteOnly(t)
	for name, c := range map[string]struct {
		spoil   string
		receipt int64
		problem string
	}{
		"untouched":          {"SELECT 1", 0, ""},
		"rule changed":       {"UPDATE receipts SET rule = 'allow: all' WHERE seq = 2", 2, "changed"},
		"outcome changed":    {"UPDATE receipts SET outcome = 'error' WHERE seq = 1", 1, "changed"},
		"outcome past chain": {"UPDATE receipts SET outcome = 'ok' WHERE seq = 3", 3, "past the chain"},
		"receipt removed":    {"DELETE FROM receipts WHERE seq = 2", 2, "gone"},
		"receipt added": {"INSERT INTO receipts SELECT 99, run, task, step, call_id, connector, tool, class, definition, decision, code," +
			" rule, args_hash, outcome, approval_id, started_at, finished_at FROM receipts WHERE seq = 1", 99, "past the chain"},
		"link removed":        {"DELETE FROM receipt_chain WHERE seq = 2", 2, "link 2 is missing"},
		"last link removed":   {"DELETE FROM receipt_chain WHERE seq = 5", 0, "missing"},
		"link rewritten":      {"UPDATE receipt_chain SET content = X'00' WHERE seq = 3", 2, "does not follow"},
		"receipts exchanged":  {"UPDATE receipts SET seq = CASE seq WHEN 2 THEN -4 WHEN 4 THEN -2 ELSE seq END", 2, "gone"},
		"head exchanged":      {"UPDATE chain_ends SET head_hash = X'00'", 0, "newest link"},
		"time of start moved": {"UPDATE receipts SET started_at = started_at - 1 WHERE seq = 4", 4, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			d := audited(t)
			_, err := d.sql.Write.ExecContext(ctx, c.spoil)
			ok(t, err)
			v, err := d.Verify(ctx)
			if c.problem == "" {
				if err != nil || v.Links != 5 || v.Checkpoint != 0 {
					t.Fatalf("verified %+v, %v", v, err)
				}
				return
			}
			var bad *ChainError
			if !errors.As(err, &bad) || bad.Receipt != c.receipt || !strings.Contains(bad.Error(), c.problem) {
				t.Errorf("got %v, want receipt %d, %q", err, c.receipt, c.problem)
			}
		})
	}
}

func TestVerifyWhileOthersWrite(t *testing.T) {
	d := audited(t)
	done := make(chan error)
	go func() {
		var err error
		for range 50 {
			err = errors.Join(err, d.Refuse(ctx, parked("r1"), nil, nil))
		}
		done <- err
	}()
	for range 20 {
		if _, err := d.Verify(ctx); err != nil {
			t.Error(err)
		}
	}
	ok(t, <-done)
	if v := must[Verified](t)(d.Verify(ctx)); v.Links != 55 {
		t.Errorf("verified %+v", v)
	}
}

// TestRetentionLeavesACheckpoint: what is removed out of order stays as links
// until the base has passed it, and the rest verifies all the time.
func TestRetentionLeavesACheckpoint(t *testing.T) {
	d := openTest(t, Options{})
	for i, name := range []string{"a", "b", "c"} {
		id := "r" + name
		fire(t, d, name, id, noon.Add(time.Duration(i)*time.Hour))
		run, _, err := d.Claim(ctx, noon.Add(24*time.Hour))
		ok(t, err)
		rc := intent(id)
		rc.Task = name
		ok(t, d.Intend(ctx, rc, ""))
		rc.Outcome = task.ReceiptOK
		ok(t, d.Settle(ctx, rc, nil, ""))
		if name == "a" {
			continue // active: holds the base back
		}
		run.Execution, run.FinishedAt = task.Completed, noon.Add(24*time.Hour)
		ok(t, d.Update(ctx, run))
	}
	prune := func() {
		t.Helper()
		for more := true; more; {
			var err error
			_, more, err = d.Prune(ctx, Retention{Age: time.Hour}, noon.Add(48*time.Hour), 3)
			ok(t, err)
		}
	}
	prune()
	if v := must[Verified](t)(d.Verify(ctx)); v.Checkpoint != 0 || v.Links != 6 {
		t.Errorf("behind an active run: %+v", v)
	}
	if n := len(must[[]task.Receipt](t)(d.Receipts(ctx, ReceiptFilter{}))); n != 1 {
		t.Errorf("%d receipts left", n)
	}
	run := must[task.Run](t)(d.Run(ctx, "ra"))
	run.Execution, run.FinishedAt = task.Completed, noon.Add(24*time.Hour)
	ok(t, d.Update(ctx, run))
	prune()
	if v := must[Verified](t)(d.Verify(ctx)); v.Checkpoint != 6 || v.Links != 0 {
		t.Errorf("after everything is gone: %+v", v)
	}
	started(t, d, "brief", "r9")
	ok(t, d.Intend(ctx, intent("r9"), ""))
	if v := must[Verified](t)(d.Verify(ctx)); v.Checkpoint != 6 || v.Links != 1 {
		t.Errorf("going on from the checkpoint: %+v", v)
	}
	_, err := d.sql.Write.ExecContext(ctx, "UPDATE chain_ends SET base_hash = ?", []byte{0})
	ok(t, err)
	if _, err := d.Verify(ctx); err == nil {
		t.Error("a changed checkpoint was not seen")
	}
}
