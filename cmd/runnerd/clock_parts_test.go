package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// moving is a real daemon whose wall clock the test moves.
type moving struct {
	*process
	file  string
	edits int
	base  time.Duration // how far its clock is ahead of the machine's at the start
}

// newMoving starts a daemon whose clock says half past the hour and a minute, so
// that no instant of a task that is due every ten minutes or every hour comes up
// by itself, whatever the hour and the minute of the test are.
func newMoving(t *testing.T, files map[string]string) *moving {
	t.Helper()
	d := newDaemon(t, files)
	now := time.Now()
	m := &moving{file: filepath.Join(d.dir, "clock"), base: now.Truncate(time.Hour).Add(31*time.Minute + 30*time.Second).Sub(now)}
	daemontest.Must(t, os.WriteFile(m.file, []byte(m.base.String()), 0o644))
	m.process = d.start("RUNNERD_CLOCK_FILE=" + m.file)
	m.ready()
	return m
}

// now is what the daemon's clock says once it is moved so far from where it began.
func (m *moving) now(by time.Duration) time.Time { return time.Now().Add(m.base + by) }

// to sets how far the clock is ahead of where it would be and makes the daemon look
// at it at once, by an edit, instead of within 30 seconds.
func (m *moving) to(by time.Duration) (now time.Time) {
	m.t.Helper()
	next := m.file + ".next"
	daemontest.Must(m.t, os.WriteFile(next, []byte((m.base+by).String()), 0o644), os.Rename(next, m.file))
	now = m.now(by)
	m.edits++
	m.write("tasks/nudge.yaml", "prompt: By hand, "+strconv.Itoa(m.edits)+".\n")
	return now
}

// rows are what `why --json` says of a task, oldest first.
func (m *moving) rows(id string) []control.WhyRow {
	m.t.Helper()
	var rows []control.WhyRow
	m.json(&rows, "why", id, "--limit", "1000000")
	slices.SortFunc(rows, func(a, b control.WhyRow) int { return a.Due.Compare(*b.Due) })
	return rows
}

func fired(rows []control.WhyRow) (due []time.Time) {
	for _, r := range rows {
		if r.End == task.EndRun {
			due = append(due, *r.Due)
		}
	}
	return due
}

// whole fails unless each instant of a task that is due every so often, from the
// first row to the last that does not lie ahead of the clock, has exactly one row,
// and each row its reason. What lies ahead has run.
func (m *moving) whole(id string, every, by time.Duration) {
	m.t.Helper()
	rows, now := m.rows(id), m.now(by)
	for i, r := range rows {
		if r.Due.After(now) && r.End != task.EndRun {
			m.t.Errorf("%s: %+v lies ahead of %s", id, r, now)
		}
		if r.Due.After(now) && len(rows) > i {
			rows = rows[:i]
			break
		}
	}
	runs := map[string]bool{}
	for i, r := range rows {
		end := *r.Due
		if r.Until != nil {
			end = *r.Until
			if want := int(end.Sub(*r.Due)/every) + 1; r.Count != want {
				m.t.Errorf("%s: the row from %s to %s counts %d instants, want %d", id, r.Due, end, r.Count, want)
			}
		}
		if i+1 < len(rows) && !end.Add(every).Equal(*rows[i+1].Due) {
			m.t.Errorf("%s: after %s comes %s, want one row every %s", id, end, rows[i+1].Due, every)
		}
		if r.End == task.EndRun && (r.Run == "" || runs[r.Run]) || r.End != task.EndRun && r.Reason == "" {
			m.t.Errorf("%s: %+v explains nothing, or shares its run", id, r)
		}
		runs[r.Run] = true
	}
	// The daemon goes on meanwhile: what it ran after the rows were read is newer.
	got := 0
	for _, r := range m.runs(id) {
		if len(rows) > 0 && !r.Due.After(*rows[len(rows)-1].Due) {
			got++
		}
	}
	if got != len(fired(rows)) {
		m.t.Errorf("%s: %d runs, but %d instants became one", id, got, len(fired(rows)))
	}
}

// TestClockJumps sets the clock of a running daemon three days ahead, then two
// hours back, then on again (fault 5): nothing runs twice, nothing stays silent,
// and what was missed is told and not run all at once.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const offset = 72 * time.Hour
	at := func(d time.Duration) string {
		return "schedule: at " + time.Now().Truncate(time.Hour).Add(d).UTC().Format("2006-01-02T15:04:05Z") + "\ntools: []\nprompt: At.\n"
	}
	m := newMoving(t, map[string]string{
		"s.yaml":          "turns:\n  - say: Done.\n",
		"tasks/tick.yaml": "schedule: every 1s\ncatch_up: skip\nsession: fresh\ntools: []\nprompt: Tick.\n",
		"tasks/once.yaml": "schedule: every 10m\ncatch_up: once\nsession: fresh\ntools: []\nprompt: Once.\n",
		"tasks/all.yaml":  "schedule: every 1h\ncatch_up: all\ncatch_up_window: 150m\nsession: fresh\ntools: []\nprompt: All.\n",
		"tasks/skip.yaml": "schedule: every 1h\ncatch_up: skip\nsession: fresh\ntools: []\nprompt: Skip.\n",
		"tasks/late.yaml": at(60 * time.Hour),
		"tasks/old.yaml":  at(30 * time.Hour),
	})
	daemontest.Until(t, "tick runs", func() bool { return len(m.runs("tick")) > 1 })

	m.ahead(offset)
	now := m.back(offset)
	m.on(offset, now)
	m.stop()
	if strings.Contains(m.text(), "panic") {
		t.Error("the log tells of a panic")
	}
}

// ahead sets the clock days ahead: each task follows its own catch_up.
func (m *moving) ahead(offset time.Duration) {
	m.t.Helper()
	jumped := m.to(offset)
	daemontest.Until(m.t, "tick runs after the jump", func() bool { return m.runs("tick")[0].Due.After(jumped) })
	daemontest.Until(m.t, "what is caught up has run", func() bool {
		return len(m.runs("once")) > 0 && m.runs("once")[0].Execution.Finished() && len(m.runs("late")) > 0 && m.runs("late")[0].Execution.Finished()
	})
	m.everyoneWhole(offset)
	for id, want := range map[string]int{"once": 1, "all": 2, "skip": 0, "late": 1, "old": 0} {
		if due := fired(m.rows(id)); len(due) != want {
			m.t.Errorf("%s: %d instants became runs after the jump, want %d: %s", id, len(due), want, due)
		}
	}
	if rows := m.rows("old"); len(rows) != 1 || rows[0].End != task.EndMissed || rows[0].Reason != task.ReasonWindow+": the clock was set forward" {
		m.t.Errorf("old: %+v, want it missed because its window had passed", rows)
	}
	if out, _, _ := m.command("why", "skip", "--limit", "1"); !strings.Contains(out, "the clock was set forward") || strings.Contains(out, "did not run") {
		m.t.Errorf("why skip: %s", out)
	}
	silent := 0
	for _, r := range m.rows("tick") {
		if r.End == task.EndMissed {
			// What a busy machine was late for, before the step or after it, is another matter.
			if over := r.Due.After(jumped.Add(-offset)) && !r.Due.After(jumped); over && r.Reason != task.ReasonStepped {
				m.t.Errorf("tick: %+v, want it missed because of the step", r)
			}
			silent += max(1, r.Count)
		}
	}
	if want := int(offset / time.Second); silent < want-60 || silent > want+1 {
		m.t.Errorf("tick: %d instants missed, want about %d", silent, want)
	}
}

func (m *moving) everyoneWhole(by time.Duration) {
	m.t.Helper()
	m.whole("tick", time.Second, by)
	m.whole("once", 10*time.Minute, by)
	m.whole("all", time.Hour, by)
	m.whole("skip", time.Hour, by)
}

// back sets it two hours back (U2, U3): tasks go on at once, nothing is repeated,
// what was only missed lies ahead again, and the step is told of once.
func (m *moving) back(offset time.Duration) (now time.Time) {
	m.t.Helper()
	ahead := m.runs("tick")
	now = m.to(offset - 2*time.Hour)
	m.logs(`"msg":"the clock went back"`)
	daemontest.Until(m.t, "tick goes on where the clock is", func() bool {
		for _, r := range m.runs("tick") {
			if r.Due.After(now) && r.Due.Before(now.Add(time.Hour)) {
				return true
			}
		}
		return false
	})
	daemontest.Until(m.t, "the missed instants ahead are withdrawn", func() bool {
		rows := m.rows("skip")
		return len(rows) > 0 && !rows[len(rows)-1].Due.After(now)
	})
	m.everyoneWhole(offset - 2*time.Hour)
	var status struct{ Troubles []task.Trouble }
	m.json(&status, "status", "--json")
	if n := len(status.Troubles); n != 1 || status.Troubles[0].Key != "daemon/step" {
		m.t.Errorf("troubles %+v, want the step of the clock", status.Troubles)
	}
	last := ahead[0].Due.Format(time.RFC3339)
	if out, _, _ := m.command("why", "tick", "--at", last); !strings.Contains(out, "That lies ahead: the clock has gone back since") {
		m.t.Errorf("why --at %s: %s", last, out)
	}
	var next []daemon.Instant
	m.json(&next, "next", "late", "--after", m.now(0).Format(time.RFC3339), "--json")
	if len(next) != 1 || next[0].Run == "" {
		m.t.Errorf("next late: %+v, want it to say that it has run", next)
	}
	return now
}

// on lets it pass the instants that lie ahead again, and where it had been.
func (m *moving) on(offset time.Duration, back time.Time) {
	m.t.Helper()
	// An hour on: what was withdrawn is due again, and runs as if nothing had been.
	due := back.Truncate(time.Hour).Add(time.Hour)
	hour := time.Until(due) + 2*time.Second - m.base
	m.to(hour)
	daemontest.Until(m.t, "the withdrawn instant runs", func() bool { return len(fired(m.rows("skip"))) > 0 })
	if got := fired(m.rows("skip")); !got[len(got)-1].Equal(due) || len(got) != 1 {
		m.t.Errorf("skip ran for %s, want %s alone", got, due)
	}
	m.whole("skip", time.Hour, hour)

	// And past where it had been: tick goes on.
	last := m.runs("tick")[0].Due
	for _, r := range m.runs("tick") {
		if r.Due.After(last) {
			last = r.Due
		}
	}
	m.to(offset + time.Minute)
	daemontest.Until(m.t, "tick runs again", func() bool { return m.runs("tick")[0].Due.After(last) })
	m.everyoneWhole(offset + time.Minute)
}

// TestClockStepsYears (U14): a first boot without a clock of its own, and then the
// time arrives: all that was missed is counted and everybody goes on.
func TestClockStepsYears(t *testing.T) {
	t.Parallel()
	const tasks = 60
	files := map[string]string{"s.yaml": "turns:\n  - say: Done.\n"}
	for i := range tasks {
		files["tasks/t"+strconv.Itoa(i)+".yaml"] = "schedule: '* * * * *'\ncatch_up: skip\nsession: fresh\ntools: []\nprompt: Tick.\n"
	}
	m := newMoving(t, files)
	jumped := m.to(40 * 365 * 24 * time.Hour)
	m.to(time.Until(jumped.Truncate(time.Minute).Add(time.Minute)) + time.Second - m.base) // an instant is a second ago
	daemontest.Until(t, "every task has run after the step", func() bool {
		var rows []control.TaskRow
		m.json(&rows, "tasks", "--json")
		ran := 0
		for _, r := range rows {
			if r.LastStatus != "" {
				ran++
			}
		}
		return ran == tasks
	})
	m.stop()
}
