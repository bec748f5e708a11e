package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"runnerd/scheduler"
	"runnerd/task"
)

// clock is a time of 2026-03-04 UTC, a Wednesday.
func clock(t testing.TB, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	if !strings.Contains(text, "T") {
		text = "2026-03-04T" + text
	}
	if strings.Count(text, ":") == 1 {
		text += ":00"
	}
	return at(t, text+"Z")
}

func show(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Format(time.DateOnly) != "2026-03-04":
		return t.Format("2006-01-02T15:04:05")
	case t.Second() != 0:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

// render writes a plan as words, one row each.
func render(plan task.FirePlan) string {
	var out []string
	runs := map[string]task.Run{}
	for _, run := range plan.Runs {
		runs[run.ID] = run
	}
	for _, o := range plan.Occurrences {
		line := show(o.Due)
		if o.Count > 1 {
			line += fmt.Sprintf("..%s(%d)", show(o.Until), o.Count)
		}
		line += " " + string(o.End)
		if run, ok := runs[o.RunID]; ok && run.Due.Equal(o.Due) {
			line += " " + string(run.Trigger) + " " + show(run.NotBefore)
		}
		if o.Reason != "" {
			line += " " + o.Reason
		}
		out = append(out, line)
	}
	for _, id := range plan.Cancel {
		out = append(out, "cancel "+id)
	}
	if !plan.Withdraw.IsZero() {
		out = append(out, "withdraw "+show(plan.Withdraw))
	}
	cursor := "cursor " + show(plan.Cursor.Through)
	if !plan.Cursor.LastFired.IsZero() {
		cursor += " fired " + show(plan.Cursor.LastFired)
	}
	if plan.Cursor.Retired {
		cursor += " retired"
	}
	return strings.Join(append(out, cursor), "\n")
}

func ids() func() string {
	n := 0
	return func() string {
		n++
		return fmt.Sprintf("new-%d", n)
	}
}

func baseTask() task.Task {
	return task.Task{
		ID: "brief", Enabled: true, CatchUp: task.CatchUpOnce, CatchUpWindow: 24 * time.Hour, Overlap: task.OverlapSkip,
	}
}

// planCase is a task with `*/5 * * * *` in UTC unless told otherwise.
type planCase struct {
	name             string
	specs            string // several with |
	old              string
	through, fired   string
	ran              string // due instants that became runs, several with |
	now              string
	unknown, retired bool // of the stored cursor
	forgotten        bool // the old schedule is not at hand
	gone             bool
	edit             func(*task.Task)
	active           []task.Run
	paused, refused  string
	allowed          []*scheduler.Allowance
	want             string
}

func (c planCase) plan(t *testing.T) task.FirePlan {
	t.Helper()
	if c.specs == "" {
		c.specs = "*/5 * * * *"
	}
	f := scheduler.Firing{
		Task: baseTask(), Revision: "spec", Schedule: parse(t, "UTC", "", strings.Split(c.specs, "|")...),
		Retired: c.gone, Refused: c.refused, Allowances: c.allowed, Now: clock(t, c.now), Host: "host", NewID: ids(),
	}
	if c.edit != nil {
		c.edit(&f.Task)
	}
	state := task.FireState{Task: f.Task.ID, Known: !c.unknown, Active: c.active, Paused: c.paused}
	if state.Known {
		state.Cursor = task.Cursor{
			Task: f.Task.ID, ScheduleRevision: f.Schedule.Revision(),
			Through: clock(t, c.through), LastFired: clock(t, c.fired), Retired: c.retired,
		}
	}
	for _, due := range strings.FieldsFunc(c.ran, func(c rune) bool { return c == '|' }) {
		state.Ran = append(state.Ran, clock(t, due))
	}
	if c.old != "" {
		f.Old = parse(t, "UTC", "", strings.Split(c.old, "|")...)
		state.Cursor.ScheduleRevision = f.Old.Revision()
		if c.forgotten {
			f.Old = nil
		}
	}
	return scheduler.Plan(f, state)
}

func runPlanCases(t *testing.T, cases []planCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := render(c.plan(t)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func catchUp(mode task.CatchUp, window time.Duration) func(*task.Task) {
	return func(t *task.Task) { t.CatchUp, t.CatchUpWindow = mode, window }
}

func TestPlanFires(t *testing.T) {
	runPlanCases(t, []planCase{
		{name: "nothing due", through: "09:00", now: "09:04:59", want: "cursor 09:04:59"},
		{name: "on time", through: "09:00", now: "09:05", want: "09:05 run schedule 09:05\ncursor 09:05 fired 09:05"},
		{name: "60 s late", through: "09:00", now: "09:06", want: "09:05 run schedule 09:05\ncursor 09:06 fired 09:05"},
		{name: "61 s late", through: "09:00", now: "09:06:01", want: "09:05 run catch_up 09:06:01\ncursor 09:06:01 fired 09:05"},
		{name: "evaluated already", through: "09:05", fired: "09:05", now: "09:05", want: "cursor 09:05 fired 09:05"},
		{name: "once: the newest within the window", through: "08:50", now: "09:07", edit: catchUp(task.CatchUpOnce, 10*time.Minute),
			want: "08:55 missed window passed\n09:00 missed newer instant\n09:05 run catch_up 09:07\ncursor 09:07 fired 09:05"},
		{name: "once: the newest on time is the one", through: "08:50", now: "09:05:10", edit: catchUp(task.CatchUpOnce, time.Hour),
			want: "08:55 missed newer instant\n09:00 missed newer instant\n09:05 run schedule 09:05\ncursor 09:05:10 fired 09:05"},
		{name: "once: all older than the window", through: "08:50", now: "09:04", edit: catchUp(task.CatchUpOnce, time.Minute),
			want: "08:55 missed window passed\n09:00 missed window passed\ncursor 09:04"},
		{name: "skip", through: "08:50", now: "09:05:30", edit: catchUp(task.CatchUpSkip, time.Hour),
			want: "08:55 missed down\n09:00 missed down\n09:05 run schedule 09:05\ncursor 09:05:30 fired 09:05"},
		{name: "skip, none on time", through: "08:50", now: "09:03", edit: catchUp(task.CatchUpSkip, time.Hour),
			want: "08:55 missed down\n09:00 missed down\ncursor 09:03"},
		{name: "all: paced, oldest first", through: "08:40", now: "09:05:30", edit: catchUp(task.CatchUpAll, 16*time.Minute),
			want: "08:45 missed window passed\n08:50 run catch_up 09:05:30\n08:55 run catch_up 09:05:40\n" +
				"09:00 run catch_up 09:05:50\n09:05 run schedule 09:05:30\ncursor 09:05:30 fired 09:05"},
		{name: "the window has no say in what is on time", through: "09:00", now: "09:05:30", edit: catchUp(task.CatchUpOnce, 0),
			want: "09:05 run schedule 09:05\ncursor 09:05:30 fired 09:05"},
		{name: "disabled", through: "08:50", now: "09:05", edit: func(t *task.Task) { t.Enabled = false },
			want: "08:55 skipped disabled\n09:00 skipped disabled\n09:05 skipped disabled\ncursor 09:05"},
		{name: "paused", through: "09:00", now: "09:05", paused: "until Monday", want: "09:05 skipped paused: until Monday\ncursor 09:05"},
		{name: "over budget", through: "08:55", now: "09:05", refused: "budget: 2.00 spent",
			want: "09:00 missed newer instant\n09:05 skipped budget: 2.00 spent\ncursor 09:05"},
		{name: "two specs, one instant", specs: "0 9 * * *|every 1h", through: "08:30", now: "09:00",
			want: "09:00 run schedule 09:00\ncursor 09:00 fired 09:00"},
	})
}

func active(id string, execution task.Execution) task.Run {
	run := task.Run{ID: id, Task: "brief", Execution: execution, Attempt: 1}
	if execution != task.Queued {
		run.StartedAt = time.Unix(1, 0)
	}
	return run
}

func overlap(mode task.Overlap) func(*task.Task) {
	return func(t *task.Task) { t.Overlap = mode }
}

func TestPlanOverlap(t *testing.T) {
	backoff := active("r1", task.Queued)
	backoff.StartedAt = time.Unix(1, 0)
	both := func(t *task.Task) { t.Overlap, t.CatchUp = task.OverlapSkip, task.CatchUpAll }
	fires := "09:05 run schedule 09:05\ncursor 09:05 fired 09:05"
	var cases []planCase
	for _, execution := range []task.Execution{task.Queued, task.Running, task.Waiting, task.Interrupted} {
		cases = append(cases, planCase{
			name: "skip while " + string(execution), active: []task.Run{active("r1", execution)},
			want: "09:05 skipped overlap: run r1 is " + string(execution) + "\ncursor 09:05",
		})
	}
	cases = append(cases,
		planCase{name: "queue behind a running one", edit: overlap(task.OverlapQueue), active: []task.Run{active("r1", task.Running)}, want: fires},
		planCase{name: "queue holds one", edit: overlap(task.OverlapQueue),
			active: []task.Run{active("r1", task.Running), active("r2", task.Queued)}, want: "09:05 skipped already queued: run r2\ncursor 09:05"},
		planCase{name: "a run in backoff is the active one, not the queued one", edit: overlap(task.OverlapQueue), active: []task.Run{backoff}, want: fires},
		planCase{name: "replace", edit: overlap(task.OverlapReplace),
			active: []task.Run{active("r1", task.Waiting), active("r2", task.Queued)},
			want:   "09:05 run schedule 09:05\ncancel r1\ncancel r2\ncursor 09:05 fired 09:05"},
		planCase{name: "replace ends nothing when nothing starts", edit: overlap(task.OverlapReplace), paused: "note",
			active: []task.Run{active("r1", task.Running)}, want: "09:05 skipped paused: note\ncursor 09:05"},
		planCase{name: "replace ends nothing over budget", edit: overlap(task.OverlapReplace), refused: "budget",
			active: []task.Run{active("r1", task.Running)}, want: "09:05 skipped budget\ncursor 09:05"},
	)
	for i := range cases {
		cases[i].through, cases[i].now = "09:00", "09:05"
	}
	cases = append(cases, planCase{
		name: "catch-up runs do not block each other, an earlier run does", through: "08:50", now: "09:05", edit: both,
		active: []task.Run{active("r1", task.Interrupted)},
		want: "08:55 skipped overlap: run r1 is interrupted\n09:00 skipped overlap: run r1 is interrupted\n" +
			"09:05 skipped overlap: run r1 is interrupted\ncursor 09:05",
	})
	runPlanCases(t, cases)
}

func TestPlanCursor(t *testing.T) {
	runPlanCases(t, []planCase{
		{name: "first sight records nothing", unknown: true, now: "09:05:30", want: "cursor 09:05:30"},
		{name: "a passed single instant, caught up", specs: "at 2026-03-04T08:00", unknown: true, now: "09:00",
			want: "08:00 run catch_up 09:00\ncursor 09:00 fired 08:00"},
		{name: "a passed single instant out of its window", specs: "at 2026-03-04T08:00", unknown: true, now: "09:00",
			edit: catchUp(task.CatchUpOnce, time.Minute), want: "08:00 missed window passed\ncursor 09:00"},
		{name: "a passed single instant, skip", specs: "at 2026-03-04T08:00", unknown: true, now: "09:00",
			edit: catchUp(task.CatchUpSkip, time.Hour), want: "08:00 missed already past\ncursor 09:00"},
		{name: "a single instant seen on time", specs: "at 2026-03-04T08:00", unknown: true, now: "08:00:20",
			want: "08:00 run schedule 08:00\ncursor 08:00:20 fired 08:00"},
		{name: "a single instant never again", specs: "at 2026-03-04T08:00", through: "09:00", fired: "08:00", now: "10:00",
			want: "cursor 10:00 fired 08:00"},
		{name: "edited", old: "*/10 * * * *", through: "08:45", fired: "08:40", now: "09:05",
			want: "08:50 missed schedule changed\n09:00 missed schedule changed\ncursor 09:05 fired 08:40"},
		{name: "edited, the old schedule unknown", through: "08:45", now: "09:05", old: "*/10 * * * *", forgotten: true, want: "cursor 09:05"},
		{name: "edited, last fired ahead", old: "@daily", through: "09:30", fired: "09:30", now: "09:05",
			want: "withdraw 09:05\ncursor 09:05 fired 09:30"},
		{name: "edited, a single instant that the old one had", old: "at 2026-03-04T08:00|@daily", specs: "at 2026-03-04T08:00|@hourly",
			through: "08:30", fired: "08:00", now: "08:40", want: "cursor 08:40 fired 08:00"},
		{name: "edited, a new single instant that is past", old: "@daily", specs: "@daily|at 2026-03-04T08:00", through: "08:30", now: "08:40",
			want: "08:00 run catch_up 08:40\ncursor 08:40 fired 08:00"},
		{name: "clock went back", through: "11:00", fired: "", now: "09:00", want: "withdraw 09:00\ncursor 09:00"},
		{name: "clock went back behind the last fired", through: "11:00", fired: "10:30", now: "09:00",
			want: "withdraw 09:00\ncursor 09:00 fired 10:30"},
		{name: "U2 what lies before the last fired runs", through: "09:00", fired: "10:30", now: "09:05",
			want: "09:05 run schedule 09:05\ncursor 09:05 fired 10:30"},
		{name: "U2 what ran does not again", through: "09:00", fired: "09:10", ran: "09:05|09:10", now: "09:10", want: "cursor 09:10 fired 09:10"},
		{name: "U2 what ran is not the newest to be caught up", through: "08:50", fired: "09:05", ran: "08:55|09:05", now: "09:07",
			want: "09:00 run catch_up 09:07\ncursor 09:07 fired 09:05"},
		{name: "U2 a single instant that ran", specs: "at 2026-03-04T08:00", old: "@daily", through: "07:00", fired: "08:00", ran: "08:00",
			now: "08:30", want: "cursor 08:30 fired 08:00"},
		{name: "U2 gone while the clock was ahead", gone: true, retired: true, through: "11:00", now: "09:00",
			want: "withdraw 09:00\ncursor 09:00 retired"},
		{name: "a clock that was years ahead does not silence the task", through: "2036-03-04T09:00:00", fired: "2036-03-04T09:00:00", now: "09:00",
			want: "withdraw 09:00\ncursor 09:00 fired 2036-03-04T09:00:00"},
		{name: "slewed back by less than a second", through: "09:00:00", now: "08:59:59", want: "cursor 09:00"},
		{name: "gone", gone: true, old: "*/10 * * * *", through: "08:45", now: "09:05",
			want: "08:50 missed schedule changed\n09:00 missed schedule changed\ncursor 09:05 retired"},
		{name: "gone already", gone: true, retired: true, through: "08:45", now: "09:05", want: "cursor 08:45 retired"},
		{name: "gone before it was ever seen", specs: "at 2026-03-04T08:00", gone: true, unknown: true, now: "09:00", want: "cursor 09:00 retired"},
		{name: "back again, not caught up", retired: true, through: "08:45", fired: "08:40", now: "09:05", want: "cursor 09:05 fired 08:40"},
		{name: "by hand only", specs: "at 2030-01-01T00:00", through: "08:45", now: "09:05", want: "cursor 09:05"},
	})
}

func TestPlanRevisions(t *testing.T) {
	c := planCase{old: "*/10 * * * *", through: "08:45", now: "09:05"}
	plan := c.plan(t)
	oldRevision := parse(t, "UTC", "", "*/10 * * * *").Revision()
	newRevision := parse(t, "UTC", "", "*/5 * * * *").Revision()
	if plan.Cursor.ScheduleRevision != newRevision {
		t.Error("the cursor is not of the new schedule")
	}
	for _, o := range plan.Occurrences {
		if o.ScheduleRevision != oldRevision {
			t.Errorf("row of %s is not of the old schedule", show(o.Due))
		}
	}
}

func TestPlanRange(t *testing.T) {
	for _, c := range []struct {
		name, spec, through, now string
		rows, count              int
		first, until             string
	}{
		{"1,000 have rows", "* * * * *", "2026-03-03T16:20:00", "09:00", 1000, 1, "2026-03-03T16:21:00", ""},
		{"1,001 share one", "* * * * *", "2026-03-03T16:19:00", "09:00", 1001, 1, "2026-03-03T16:20:00", "2026-03-03T16:20:00"},
		{"minutely, three days", "* * * * *", "2026-03-01T09:00:00", "09:00", 1001, 3*1440 - 1000, "2026-03-01T09:01:00", "2026-03-03T16:20:00"},
		{"secondly, a year", "every 1s", "2025-03-04T09:00:00", "09:00", 1001, 365*86400 - 1000, "2025-03-04T09:00:01", "08:43:20"},
		{"a clock from 1970", "0 * * * *", "1970-01-01T00:00:00", "09:00", 1001, 492393 - 1000, "1970-01-01T01:00:00", "2026-01-21T17:00:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := planCase{specs: c.spec, through: c.through, now: c.now, edit: catchUp(task.CatchUpSkip, 0)}.plan(t)
			first := plan.Occurrences[0]
			if len(plan.Occurrences) != c.rows || first.Count != c.count || show(first.Due) != show(clock(t, c.first)) ||
				!first.Until.Equal(clock(t, c.until)) {
				t.Errorf("%d rows, first %+v", len(plan.Occurrences), first)
			}
			if !slices.IsSortedFunc(plan.Occurrences, func(a, b task.Occurrence) int { return a.Due.Compare(b.Due) }) {
				t.Error("rows are not in order")
			}
		})
	}
}

func TestPlanRun(t *testing.T) {
	plan := planCase{through: "09:00", now: "09:05:01", edit: func(t *task.Task) { t.Jitter = 5 * time.Minute }}.plan(t)
	due := clock(t, "09:05")
	want := task.Run{
		ID: "new-1", Task: "brief", Session: "brief", Revision: "spec", Due: due, Trigger: task.TriggerSchedule, Attempt: 1,
		NotBefore: due.Add(scheduler.Jitter("brief", "host", 5*time.Minute)),
		Execution: task.Queued, Delivery: task.DeliveryNone, CreatedAt: clock(t, "09:05:01"),
	}
	if len(plan.Runs) != 1 || fmt.Sprint(plan.Runs[0]) != fmt.Sprint(want) {
		t.Errorf("runs %+v\nwant %+v", plan.Runs, want)
	}
	if o := plan.Occurrences[0]; !o.Due.Equal(due) || o.RunID != "new-1" {
		t.Errorf("occurrence %+v", o)
	}
}

func TestJitter(t *testing.T) {
	const most = 5 * time.Minute
	seen := map[time.Duration]bool{}
	for i := range 200 {
		id := fmt.Sprintf("task-%d", i)
		j := scheduler.Jitter(id, "host", most)
		if j < 0 || j > most || j != scheduler.Jitter(id, "host", most) {
			t.Fatalf("jitter of %s: %v", id, j)
		}
		seen[j] = true
	}
	if len(seen) < 190 {
		t.Errorf("200 tasks have only %d jitters", len(seen))
	}
	if scheduler.Jitter("a", "one", most) == scheduler.Jitter("a", "two", most) {
		t.Error("two hosts share a jitter")
	}
	for _, none := range []time.Duration{0, -time.Second} {
		if j := scheduler.Jitter("a", "host", none); j != 0 {
			t.Errorf("jitter up to %v: %v", none, j)
		}
	}
}

// Firings under one limit share what it has left.
func TestPlanAllowances(t *testing.T) {
	shared := &scheduler.Allowance{Left: 3, Reason: "budget: in all"}
	own := &scheduler.Allowance{Left: 1, Reason: "budget: own"}
	fires := planCase{through: "08:50", now: "09:05", edit: catchUp(task.CatchUpAll, time.Hour)}
	first, second, blocked := fires, fires, fires
	first.name, first.allowed = "its own is spent", []*scheduler.Allowance{own, shared}
	first.want = "08:55 run catch_up 09:05\n09:00 skipped budget: own\n09:05 skipped budget: own\ncursor 09:05 fired 08:55"
	second.name, second.allowed = "what is left in all", []*scheduler.Allowance{shared}
	second.want = "08:55 run catch_up 09:05\n09:00 run catch_up 09:05:10\n09:05 skipped budget: in all\ncursor 09:05 fired 09:00"
	blocked.name, blocked.allowed, blocked.paused = "what does not run takes nothing", []*scheduler.Allowance{{Left: 1}}, "note"
	blocked.want = "08:55 skipped paused: note\n09:00 skipped paused: note\n09:05 skipped paused: note\ncursor 09:05"
	runPlanCases(t, []planCase{first, second, blocked})
	if blocked.allowed[0].Left != 1 {
		t.Errorf("%d left, want 1", blocked.allowed[0].Left)
	}
}
