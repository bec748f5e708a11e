package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"runnerd/task"
)

func state(t *testing.T, d *DB, name string) (seen task.FireState) {
	t.Helper()
	_, err := d.Fire(ctx, []string{name}, func(s task.FireState) task.FirePlan { seen = s; return task.FirePlan{} })
	ok(t, err)
	return seen
}

func TestPauses(t *testing.T) {
	d := openTest(t, Options{})
	if s := state(t, d, "brief"); s.Paused != "" || s.Known {
		t.Errorf("new: %+v", s)
	}
	ok(t, d.SetPause(ctx, Pause{Task: "brief", Note: "holiday", By: "ann", At: noon}))
	if s := state(t, d, "brief"); s.Paused != "holiday" {
		t.Errorf("paused: %q", s.Paused)
	}
	if s := state(t, d, "other"); s.Paused != "" {
		t.Errorf("other: %q", s.Paused)
	}
	ok(t, d.SetPause(ctx, Pause{Task: Everything, By: "bob", At: noon}))
	if s := state(t, d, "other"); s.Paused != "paused by bob" {
		t.Errorf("everything: %q", s.Paused)
	}
	want := []Pause{{Task: "*", By: "bob", At: noon}, {Task: "brief", Note: "holiday", By: "ann", At: noon}}
	if got := must[[]Pause](t)(d.Pauses(ctx)); !reflect.DeepEqual(got, want) {
		t.Errorf("pauses %+v", got)
	}
	for _, c := range []struct {
		name string
		was  bool
	}{{Everything, true}, {Everything, false}, {"brief", true}} {
		if was := must[bool](t)(d.Resume(ctx, c.name)); was != c.was {
			t.Errorf("resume %s: %v", c.name, was)
		}
	}
	if s := state(t, d, "brief"); s.Paused != "" {
		t.Errorf("resumed: %q", s.Paused)
	}
}

func TestFireEndsInterruptedRunsToo(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	ok(t, d.Intend(ctx, intent("r1"), ""))
	running := plan("brief", "r2", noon.Add(time.Minute))
	running.Cancel = []string{"r1"}
	_, err := d.Fire(ctx, []string{"brief"}, func(task.FireState) task.FirePlan { return running })
	ok(t, err)
	if e := execution(t, d); e != task.Running {
		t.Fatalf("a running run was ended by the store: %s", e)
	}
	run.Execution = task.Interrupted
	ok(t, d.Update(ctx, run))
	next := plan("brief", "r3", noon.Add(time.Hour))
	next.Cancel = []string{"r1", "r2"}
	_, err = d.Fire(ctx, []string{"brief"}, func(task.FireState) task.FirePlan { return next })
	ok(t, err)
	got := must[task.Run](t)(d.Run(ctx, "r1"))
	if got.Execution != task.Cancelled || got.Reason != task.ReasonReplaced || !got.HasMark(task.MarkUnknownEffect) {
		t.Errorf("r1: %s %q %v", got.Execution, got.Reason, got.Marks)
	}
	active := state(t, d, "brief").Active
	if len(active) != 1 || active[0].ID != "r3" {
		t.Errorf("active %v", active)
	}
}

func TestFireRefusesBadPlans(t *testing.T) {
	d := openTest(t, Options{})
	for name, spoil := range map[string]func(*task.FirePlan){
		"run without occurrence": func(p *task.FirePlan) { p.Occurrences = nil },
		"run of another task":    func(p *task.FirePlan) { p.Runs[0].Task = "other" },
		"foreign occurrence":     func(p *task.FirePlan) { p.Occurrences[0].Task = "other" },
		"occurrence without due": func(p *task.FirePlan) { p.Occurrences[0].Due = time.Time{} },
		"skip with a run":        func(p *task.FirePlan) { p.Occurrences[0].End = task.EndSkipped },
		"foreign cursor":         func(p *task.FirePlan) { p.Cursor.Task = "other" },
		"run twice":              func(p *task.FirePlan) { p.Runs = append(p.Runs, p.Runs[0]) },
		"run without id": func(p *task.FirePlan) {
			p.Runs[0].ID, p.Occurrences[0].RunID, p.Occurrences[0].End = "", "", task.EndMissed
		},
		"run that runs already": func(p *task.FirePlan) { p.Runs[0].Execution = task.Running },
	} {
		p := plan("brief", "r1", noon)
		spoil(&p)
		if _, err := d.Fire(ctx, []string{"brief"}, func(task.FireState) task.FirePlan { return p }); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if s := state(t, d, "brief"); s.Known || len(s.Active) != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestFireNamesTwice(t *testing.T) {
	d := openTest(t, Options{})
	calls := 0
	runs, err := d.Fire(ctx, []string{"brief", "brief"}, func(task.FireState) task.FirePlan {
		calls++
		return plan("brief", fmt.Sprint("r", calls), noon)
	})
	if err != nil || len(runs) != 1 || calls != 1 {
		t.Errorf("%d runs, %d calls, %v", len(runs), calls, err)
	}
}

func TestEnqueueHookIsInTheTransaction(t *testing.T) {
	var seen []string
	var fail error
	d := openTest(t, Options{OnEnqueue: func(ctx context.Context, tx *sql.Tx, runs []task.Run) error {
		for _, r := range runs {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM runs WHERE id = '"+r.ID+"'").Scan(&n); err != nil || n != 1 {
				return fmt.Errorf("run %s is not there: %d %w", r.ID, n, err)
			}
			seen = append(seen, r.ID)
		}
		return fail
	}})
	fire(t, d, "brief", "r1", noon)
	ok(t, d.InsertManual(ctx, task.Run{ID: "m1", Task: "other", Revision: "s"}))
	if !reflect.DeepEqual(seen, []string{"r1", "m1"}) {
		t.Errorf("enqueued %v", seen)
	}
	fail = errors.New("queue is down")
	if err := d.InsertManual(ctx, task.Run{ID: "m2", Task: "third", Revision: "s"}); !errors.Is(err, fail) {
		t.Errorf("hook's error: %v", err)
	}
	if _, err := d.Run(ctx, "m2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("run of a failed hook: %v", err)
	}
}

func TestInsertManual(t *testing.T) {
	d := openTest(t, Options{})
	ok(t, d.InsertManual(ctx, task.Run{ID: "m1", Task: "brief", Revision: "s", CreatedAt: noon}))
	got := must[task.Run](t)(d.Run(ctx, "m1"))
	if got.Trigger != task.TriggerManual || got.Attempt != 1 || got.Session != "brief" || !got.NotBefore.Equal(noon) || !got.Due.IsZero() {
		t.Errorf("manual run %+v", got)
	}
	var active *ActiveError
	if err := d.InsertManual(ctx, task.Run{ID: "m2", Task: "brief"}); !errors.As(err, &active) || active.Run.ID != "m1" {
		t.Errorf("second: %v", err)
	}
	if _, known := must[map[string]task.Cursor](t)(d.Cursors(ctx))["brief"]; known {
		t.Error("a manual run made a cursor")
	}
}

func TestClaimRun(t *testing.T) {
	d := openTest(t, Options{})
	fire(t, d, "a", "a0", noon)
	fire(t, d, "a", "a1", noon.Add(-time.Microsecond))
	for _, c := range []struct {
		id   string
		now  time.Time
		want bool
	}{{"nobody", noon, false}, {"a1", noon.Add(-time.Second), false}, {"a1", noon, true}, {"a1", noon, false}, {"a0", noon, false}} {
		run, got, err := d.ClaimRun(ctx, c.id, c.now)
		if err != nil || got != c.want || got && (run.ID != c.id || run.Execution != task.Running) {
			t.Errorf("claim %s: %v %+v %v", c.id, got, run, err)
		}
	}
}

func TestListings(t *testing.T) {
	d := openTest(t, Options{})
	for i := range 5 {
		fire(t, d, "a", fmt.Sprint("a", i), noon.Add(time.Duration(i)*time.Minute))
	}
	fire(t, d, "b", "b0", noon)
	ok(t, d.InsertManual(ctx, task.Run{ID: "c0", Task: "c", CreatedAt: noon.Add(time.Hour)}))
	run, _, err := d.Claim(ctx, noon)
	ok(t, err)
	run.Execution, run.Output = task.Failed, "long"
	ok(t, d.Update(ctx, run))
	for _, c := range []struct {
		name string
		f    RunFilter
		want []string
	}{
		{"all", RunFilter{}, []string{"c0", "a4", "a3", "a2", "a1", "b0", "a0"}},
		{"limit", RunFilter{Limit: 2}, []string{"c0", "a4"}},
		{"task", RunFilter{Task: "a", Limit: 2}, []string{"a4", "a3"}},
		{"page", RunFilter{Task: "a", Before: "a3", Limit: 2}, []string{"a2", "a1"}},
		{"page of all", RunFilter{Before: "a1"}, []string{"b0", "a0"}},
		{"page before nothing", RunFilter{Before: "nobody"}, nil},
		{"execution", RunFilter{Executions: []task.Execution{task.Failed, task.Completed}}, []string{"a0"}},
		{"active", RunFilter{Task: "a", Active: true}, []string{"a4", "a3", "a2", "a1"}},
		{"time", RunFilter{Since: noon.Add(time.Minute), Until: noon.Add(3 * time.Minute)}, []string{"a2", "a1"}},
	} {
		var got []string
		for _, r := range must[[]task.Run](t)(d.Runs(ctx, c.f)) {
			got = append(got, r.ID)
			if r.Output != "" {
				t.Errorf("%s: output in a listing", c.name)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	last := must[map[string]task.Run](t)(d.LastRuns(ctx))
	if len(last) != 3 || last["a"].ID != "a4" || last["b"].ID != "b0" || last["c"].ID != "c0" {
		t.Errorf("last runs %v", last)
	}
	for prefix, want := range map[string]error{"a": ErrAmbiguous, "a2": nil, "b": nil, "x": ErrNotFound, "": ErrNotFound} {
		if _, err := d.FindRun(ctx, prefix); !errors.Is(err, want) {
			t.Errorf("find %q: %v, want %v", prefix, err, want)
		}
	}
	if out := must[task.Run](t)(d.FindRun(ctx, "a0")).Output; out != "long" {
		t.Errorf("output %q", out)
	}
	if n := must[int64](t)(d.RunsBetween(ctx, noon.Add(time.Minute), noon.Add(3*time.Minute), "a")); n != 2 {
		t.Errorf("%d runs between", n)
	}
}

func TestOccurrences(t *testing.T) {
	d := openTest(t, Options{})
	at := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	rows := []task.Occurrence{
		{Task: "a", ScheduleRevision: "s", Due: at(0), Until: at(10), Count: 11, End: task.EndMissed, Reason: task.ReasonDown, RecordedAt: noon},
		{Task: "a", ScheduleRevision: "s", Due: at(20), Count: 1, End: task.EndSkipped, Reason: task.ReasonOverlap, RecordedAt: noon},
		{Task: "a", ScheduleRevision: "s", Due: at(30), Count: 1, End: task.EndRun, RunID: "r1", RecordedAt: noon},
	}
	p := plan("a", "r1", at(30))
	p.Occurrences = rows
	_, err := d.Fire(ctx, []string{"a"}, func(task.FireState) task.FirePlan { return p })
	ok(t, err)
	got := must[[]task.Occurrence](t)(d.Occurrences(ctx, OccurrenceFilter{Task: "a"}))
	if !reflect.DeepEqual(got, []task.Occurrence{rows[2], rows[1], rows[0]}) {
		t.Errorf("occurrences %+v", got)
	}
	got = must[[]task.Occurrence](t)(d.Occurrences(ctx, OccurrenceFilter{Task: "a", Since: at(20), Until: at(30)}))
	if !reflect.DeepEqual(got, rows[1:2]) {
		t.Errorf("within: %+v", got)
	}
	got = must[[]task.Occurrence](t)(d.Occurrences(ctx, OccurrenceFilter{Task: "a", Ends: []task.End{task.EndMissed}, Limit: 1}))
	if !reflect.DeepEqual(got, rows[:1]) {
		t.Errorf("missed: %+v", got)
	}
	for minute, want := range map[int]*task.Occurrence{0: &rows[0], 5: &rows[0], 10: &rows[0], 11: nil, 20: &rows[1], 30: &rows[2], 31: nil} {
		o, err := d.OccurrenceAt(ctx, "a", at(minute))
		if want == nil && !errors.Is(err, ErrNotFound) || want != nil && (err != nil || !reflect.DeepEqual(o, *want)) {
			t.Errorf("at minute %d: %+v, %v", minute, o, err)
		}
	}
}

func TestEvents(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	ok(t, d.Append(ctx, task.Days{}, userMessage("r1")))
	ok(t, d.Refuse(ctx, parked("r1"), nil, approval("a1", "r1")))
	run.Execution = task.Failed
	ok(t, d.Update(ctx, run))
	fire(t, d, "other", "r2", noon)
	type short struct {
		kind EventKind
		ref  string
	}
	want := []short{
		{EventRun, "queued"}, {EventRun, "running"}, {EventMessage, "1"}, {EventReceipt, "1"}, {EventApproval, "a1"},
		{EventApproval, "a1"}, {EventMessage, "2"}, {EventRun, "failed"},
	}
	var got []short
	events := must[[]Event](t)(d.Events(ctx, EventFilter{Run: "r1"}))
	for _, e := range events {
		got = append(got, short{e.Kind, e.Ref})
		if e.Task != "brief" || e.Run != "r1" || e.At.IsZero() {
			t.Errorf("event %+v", e)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("events %v\nwant   %v", got, want)
	}
	after := must[[]Event](t)(d.Events(ctx, EventFilter{After: events[2].Seq, Task: "brief"}))
	if !reflect.DeepEqual(after, events[3:]) {
		t.Errorf("resumed: %v", after)
	}
	all := must[[]Event](t)(d.Events(ctx, EventFilter{Limit: 1, After: events[7].Seq}))
	if last := must[int64](t)(d.LastEvent(ctx)); len(all) != 1 || all[0].Run != "r2" || last != all[0].Seq {
		t.Errorf("rest %v, last %d", all, last)
	}
}

func TestRevisionsSchedulesFiles(t *testing.T) {
	d := openTest(t, Options{})
	spec := task.Task{ID: "brief", Prompt: "go", Schedule: task.Schedule{Specs: []string{"@daily"}, Zone: "UTC"}, OutputSchema: []byte(`{"a":1}`)}
	edited := spec
	edited.Prompt = "go on"
	hash := must[string](t)(d.SaveRevision(ctx, spec))
	hashes := must[[]string](t)(d.SaveRevisions(ctx, []task.Task{spec, edited, edited}))
	if hashes[0] != hash || hashes[1] == hash || hashes[1] != hashes[2] || len(hash) != 64 {
		t.Errorf("hashes %v", hashes)
	}
	if same := must[string](t)(RevisionHash(spec)); same != hash {
		t.Errorf("hash %s", same)
	}
	if got := must[task.Task](t)(d.Revision(ctx, hash)); !reflect.DeepEqual(got, spec) {
		t.Errorf("revision %+v", got)
	}
	if _, err := d.Revision(ctx, "nothing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown revision: %v", err)
	}

	ok(t, d.SaveSchedules(ctx, map[string]task.Schedule{"s1": spec.Schedule}))
	ok(t, d.SaveSchedules(ctx, map[string]task.Schedule{"s1": spec.Schedule, "s2": {Zone: "UTC"}}))
	s, found, err := d.OldSchedule(ctx, "s1")
	if err != nil || !found || !reflect.DeepEqual(s, spec.Schedule) {
		t.Errorf("schedule %v %v %v", s, found, err)
	}
	if _, found, err := d.OldSchedule(ctx, "s9"); found || err != nil {
		t.Errorf("unknown schedule: %v %v", found, err)
	}

	ok(t, d.SaveFiles(ctx, map[string][]byte{"tasks/a.md": []byte("one\x00"), "empty": nil}))
	ok(t, d.SaveFiles(ctx, map[string][]byte{"tasks/a.md": []byte("two\x00")}))
	if got := must[[]byte](t)(d.LastGood(ctx, "tasks/a.md")); string(got) != "two\x00" {
		t.Errorf("last good %q", got)
	}
	ok(t, d.ForgetFiles(ctx, func(path string) bool { return path == "tasks/a.md" }))
	if _, err := d.LastGood(ctx, "tasks/a.md"); !errors.Is(err, ErrNotFound) {
		t.Errorf("forgotten: %v", err)
	}
	if files := must[map[string][]byte](t)(d.Files(ctx)); len(files) != 1 || len(files["empty"]) != 0 {
		t.Errorf("files %v", files)
	}
}
