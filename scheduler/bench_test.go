package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"runnerd/task"
)

// discard is a store that keeps nothing and answers first sight each time.
type discard struct{}

func (discard) Cursors(context.Context) (map[string]task.Cursor, error) { return nil, nil }

func (discard) Fire(_ context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	for _, id := range tasks {
		decide(task.FireState{Task: id})
	}
	return nil, nil
}

func manyEntries(n int) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		entries[i].Task = task.Task{
			ID: fmt.Sprintf("task-%06d", i), Enabled: true,
			Schedule: task.Schedule{Specs: []string{fmt.Sprintf("%d %d * * 1-5", i%60, i/60%24)}, Zone: "Europe/Berlin"},
		}
	}
	return entries
}

// settledScheduler has n tasks whose cursors are all in place.
func settledScheduler(b *testing.B, n int) *Scheduler {
	b.Helper()
	s := New(Options{Store: discard{}, NewID: func() string { return "id" }})
	if err := s.Set(manyEntries(n)); err != nil {
		b.Fatal(err)
	}
	s.load(b.Context())
	for s.turn(b.Context()); len(s.pending) > 0; s.turn(b.Context()) {
	}
	return s
}

func BenchmarkIdleTurn(b *testing.B) {
	s := settledScheduler(b, 100_000)
	for b.Loop() {
		s.turn(b.Context())
		s.sleep()
	}
}

// BenchmarkFire is the earliest instant of 100,000 tasks, which some 70 of them
// share, through the heap, the plan and a store that costs nothing.
func BenchmarkFire(b *testing.B) {
	s := settledScheduler(b, 100_000)
	tasks := 0
	for b.Loop() {
		now := s.heap[0].wake
		jobs := s.due(now)
		t := turn{Scheduler: s, now: now.Add(time.Millisecond), tries: 1}
		t.fire(b.Context(), jobs)
		tasks += len(jobs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tasks), "ns/task")
}

func BenchmarkSet(b *testing.B) {
	entries := manyEntries(100_000)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if err := New(Options{}).Set(entries); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		s := settledScheduler(b, 100_000)
		for b.Loop() {
			if err := s.Set(entries); err != nil {
				b.Fatal(err)
			}
		}
	})
}
