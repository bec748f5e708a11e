package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// lateRound is one way to be due together: tasks that share instants.
type lateRound struct {
	tasks, rounds, instants int
	gap                     time.Duration // between two instants of one daemon
	lead                    time.Duration // from a start to the first of them
	aim                     time.Duration // of p99; 0: none
}

var lateRounds = []lateRound{
	{tasks: 1, rounds: 1, instants: 20, gap: time.Second, lead: 3 * time.Second},
	{tasks: 1000, rounds: 3, instants: 1, lead: 6 * time.Second, aim: 20 * time.Millisecond},
	{tasks: 10_000, rounds: 3, instants: 1, lead: 25 * time.Second, aim: 500 * time.Millisecond},
}

// lateness measures how long after its due instant an occurrence and its run are
// committed, as a reader of the database sees it. The instant that is stored with
// them (recorded_at, created_at) is that of the turn that wrote them, which is
// earlier; both are shown, and the CPU time that it took, which a busy machine
// stretches.
func lateness(ctx context.Context, b *bench) error {
	for _, r := range lateRounds {
		var best sample
		var all []string
		for range r.rounds {
			s, err := b.lateOnce(ctx, r)
			if err != nil {
				return err
			}
			all = append(all, millis(quantile(s.seen, 0.99)))
			if best.seen == nil || quantile(s.seen, 0.99) < quantile(best.seen, 0.99) {
				best = s
			}
		}
		p50, p99 := quantile(best.seen, 0.5), quantile(best.seen, 0.99)
		figure := fmt.Sprintf("p50 %s, p99 %s", millis(p50), millis(p99))
		if r.rounds > 1 {
			figure += fmt.Sprintf(" (p99 of each round: %s)", strings.Join(all, ", "))
		}
		figure += fmt.Sprintf("; turn begun p99 %s; CPU %s", millis(quantile(best.stored, 0.99)), millis(best.cpu))
		what := fmt.Sprintf("lateness, %d due in one second", r.tasks)
		if r.aim == 0 {
			b.add(what, figure, "", unjudged)
			continue
		}
		b.add(what, figure, "p99 < "+r.aim.String(), below(p99, r.aim))
	}
	return nil
}

// sample holds, of every occurrence of a round, how late it was.
type sample struct {
	seen   []time.Duration // visible to a reader
	stored []time.Duration // by its row's own time
	cpu    time.Duration   // what the daemon took for all of it
}

func (b *bench) lateOnce(ctx context.Context, r lateRound) (s sample, err error) {
	place, err := b.site()
	if err != nil {
		return s, err
	}
	defer b.remove(place)
	// The files are written first: that takes its time too.
	first := time.Now().Add(r.lead + time.Duration(r.tasks)*200*time.Microsecond).Truncate(time.Second)
	var dues []time.Time
	var specs []string
	for i := range r.instants {
		at := first.Add(time.Duration(i) * r.gap).UTC()
		dues = append(dues, at)
		specs = append(specs, "at "+at.Format("2006-01-02T15:04:05Z07:00"))
	}
	front := "schedule: [\"" + strings.Join(specs, "\", \"") + "\"]\n"
	if err := place.tasks(r.tasks, func(int) string { return front }); err != nil {
		return s, err
	}
	d, err := place.start(ctx)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if time.Now().After(first) {
		return s, fmt.Errorf("%d tasks were not ready %s after the start", r.tasks, r.lead)
	}
	before := d.onCPU()
	s, err = observe(ctx, place, r.tasks*r.instants, dues)
	s.cpu = d.onCPU() - before
	return s, err
}

// observe looks for new runs in the event log until all have been seen. It looks
// a thousand times a second, and so adds up to a millisecond.
func observe(ctx context.Context, place *site, want int, dues []time.Time) (s sample, err error) {
	store, err := place.open(ctx)
	if err != nil {
		return s, err
	}
	defer store.Close()
	var after int64
	deadline := dues[len(dues)-1].Add(time.Minute)
	for len(s.seen) < want {
		events, err := store.Events(ctx, db.EventFilter{After: after, Limit: 1000})
		if err != nil {
			return s, err
		}
		now := time.Now()
		for _, e := range events {
			after = e.Seq
			if e.Kind == db.EventRun && e.Ref == string(task.Queued) {
				i, _ := slices.BinarySearchFunc(dues, e.At, time.Time.Compare) // the first that is not before
				due := dues[max(0, i-1)]
				s.seen = append(s.seen, now.Sub(due))
				s.stored = append(s.stored, e.At.Sub(due))
			}
		}
		if now.After(deadline) {
			return s, fmt.Errorf("%d of %d runs were seen a minute after the last was due", len(s.seen), want)
		}
		if len(events) == 0 {
			if err := pause(ctx, time.Millisecond); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// open opens a site's main database for reading, beside the daemon.
func (s *site) open(ctx context.Context) (*db.DB, error) {
	return db.Open(ctx, db.Options{DSN: s.state + "/runnerd.db", ReadOnly: true})
}
