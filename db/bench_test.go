package db

import (
	"fmt"
	"testing"
	"time"

	"runnerd/task"
)

// BenchmarkFire is 10,000 tasks that are due at once, each with a run.
func BenchmarkFire(b *testing.B) {
	d := openTest(b, Options{})
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("task-%05d", i)
	}
	n := 0
	for b.Loop() {
		n++
		due := noon.Add(time.Duration(n) * time.Minute)
		runs, err := d.Fire(ctx, names, func(s task.FireState) task.FirePlan {
			return plan(s.Task, fmt.Sprintf("%08d-%s", n, s.Task), due)
		})
		if err != nil || len(runs) != len(names) {
			b.Fatal(len(runs), err)
		}
		b.StopTimer()
		_, err = d.sql.Write.ExecContext(ctx, "UPDATE runs SET execution = 'completed', finished_at = 1 WHERE finished_at IS NULL")
		ok(b, err)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(names)), "µs/task")
}

// BenchmarkFireOne is one task that is due: the ordinary tick.
func BenchmarkFireOne(b *testing.B) {
	d := openTest(b, Options{})
	n := 0
	for b.Loop() {
		n++
		due := noon.Add(time.Duration(n) * time.Minute)
		_, err := d.Fire(ctx, []string{"brief"}, func(s task.FireState) task.FirePlan {
			p := plan("brief", fmt.Sprintf("r%08d", n), due)
			for _, r := range s.Active {
				p.Cancel = append(p.Cancel, r.ID)
			}
			return p
		})
		ok(b, err)
	}
}

// BenchmarkClaim claims with 1,000 more runs in the queue.
func BenchmarkClaim(b *testing.B) {
	d := openTest(b, Options{})
	n := 0
	fill := func() {
		names := make([]string, 1000)
		for i := range names {
			n++
			names[i] = fmt.Sprintf("task-%08d", n)
		}
		_, err := d.Fire(ctx, names, func(s task.FireState) task.FirePlan { return plan(s.Task, s.Task, noon) })
		ok(b, err)
	}
	fill()
	left := 1000
	for b.Loop() {
		if left--; left == 0 {
			b.StopTimer()
			_, err := d.sql.Write.ExecContext(ctx, "UPDATE runs SET execution = 'completed', finished_at = 1 WHERE execution = 'running'")
			ok(b, err)
			fill()
			left = 1000
			b.StartTimer()
		}
		if _, got, err := d.Claim(ctx, noon); err != nil || !got {
			b.Fatal(got, err)
		}
	}
}

// BenchmarkCall is what one tool call writes: the intent, and the outcome with
// its message.
func BenchmarkCall(b *testing.B) {
	d := openTest(b, Options{})
	fire(b, d, "brief", "r1", noon)
	if _, got, err := d.Claim(ctx, noon); err != nil || !got {
		b.Fatal(got, err)
	}
	for b.Loop() {
		rc := intent("r1")
		ok(b, d.Intend(ctx, rc, ""))
		rc.Outcome = task.ReceiptOK
		msg := &task.Message{Session: "brief", Run: "r1", Role: task.RoleTool, CallID: "c1", Text: "done", At: noon}
		ok(b, d.Settle(ctx, rc, msg, ""))
	}
}

// BenchmarkAppend is one model answer with its usage booked.
func BenchmarkAppend(b *testing.B) {
	d := openTest(b, Options{})
	fire(b, d, "brief", "r1", noon)
	for b.Loop() {
		msg := &task.Message{
			Session: "brief", Run: "r1", Step: 1, Role: task.RoleAssistant, Text: "I will look.", At: noon,
			Calls: []task.ToolCall{{ID: "c1", Name: "mcp__files__read_file", Arguments: `{"path":"/x"}`}},
			Usage: &task.Usage{Input: 1000, Output: 50},
		}
		ok(b, d.Append(ctx, days("2026-05-04"), msg))
	}
}

// BenchmarkMillion asks what is asked often of a million finished runs.
func BenchmarkMillion(b *testing.B) {
	d := openTest(b, Options{Timeout: 10 * time.Minute})
	for _, query := range []string{
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
INSERT INTO runs SELECT printf('run-%08d', i), 'task-' || (i % 1000), 'task-' || (i % 1000), 'spec', i, 'schedule', 1, i, 'completed', '', 'none',
'[]', '', i, i, i, 0, 0, 0, 0, 0, NULL, 1, 1, 'an answer' FROM n`,
		`INSERT INTO occurrences SELECT task, due, 'rev1', NULL, 1, 'run', '', id, due FROM runs`,
	} {
		_, err := d.sql.Write.ExecContext(ctx, query)
		ok(b, err)
	}
	fire(b, d, "task-7", "live", noon)
	for _, c := range []struct {
		name string
		ask  func() error
	}{
		{"runs", func() error { _, err := d.Runs(ctx, RunFilter{}); return err }},
		{"runs of a task", func() error { _, err := d.Runs(ctx, RunFilter{Task: "task-7"}); return err }},
		{"a page in the middle", func() error { _, err := d.Runs(ctx, RunFilter{Before: "run-00500000"}); return err }},
		{"occurrences of a task", func() error { _, err := d.Occurrences(ctx, OccurrenceFilter{Task: "task-7"}); return err }},
		{"last run of 1,000 tasks", func() error { _, err := d.LastRuns(ctx); return err }},
		{"next ready", func() error { _, _, err := d.NextReady(ctx, noon); return err }},
		{"claim nothing", func() error { _, _, err := d.Claim(ctx, noon.Add(-time.Hour)); return err }},
		{"statistics", func() error { _, err := d.Stats(ctx); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				ok(b, c.ask())
			}
		})
	}
}
