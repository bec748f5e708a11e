package db

import (
	"testing"
	"time"

	"runnerd/sqldb"
	"runnerd/task"
)

// U1, U18: the marks count what was ever recorded, once each, and retention lowers
// none of them.
func TestMarksOnlyGrow(t *testing.T) {
	d := openTest(t, Options{})
	s := must[sqldb.State](t)(d.Identity(ctx))
	if s.ID == "" || s.Used || s.Partner.ID != "" || s.Now != (sqldb.Marks{}) {
		t.Errorf("a new database: %+v", s)
	}
	fire(t, d, "a", "r1", noon)
	fire(t, d, "b", "r2", noon)
	partner := sqldb.Seen{ID: "p", Marks: sqldb.Marks{Generation: 3, Changes: 9}}
	s = must[sqldb.State](t)(d.Note(ctx, partner))
	if !s.Used || s.Now.Runs != 2 || s.Now.Generation != 1 || s.Now != s.Noted || s.Partner != partner {
		t.Errorf("noted: %+v", s)
	}
	fire(t, d, "c", "r3", noon)
	run, got, err := d.Claim(ctx, noon)
	if err != nil || !got {
		t.Fatalf("claim: %v", err)
	}
	run.Execution = task.Queued
	ok(t, d.Retry(ctx, run)) // queued once more: no new run
	s = must[sqldb.State](t)(d.Identity(ctx))
	if s.Now.Runs != 3 || s.Noted.Runs != 2 {
		t.Errorf("one run later: %+v", s)
	}
	s = must[sqldb.State](t)(d.Note(ctx, partner))
	_, _, err = d.Prune(ctx, Retention{Age: time.Nanosecond, RunsPerTask: 1}, time.Now().AddDate(1, 0, 0), 100)
	ok(t, err)
	after := must[sqldb.State](t)(d.Identity(ctx))
	if after.Now != s.Now {
		t.Errorf("after retention %+v, before %+v", after.Now, s.Now)
	}
}
