//go:build crashtest

package daemon

import (
	"context"
	"os"
	"strings"
	"time"

	"runnerd/agentloop"
	"runnerd/dispatch"
	"runnerd/task"
)

// wallClock is the machine's, moved by the duration in the file that
// RUNNERD_CLOCK_FILE names, which a test can rewrite at any moment. Go asks the
// kernel for the time and not the C library, so a preloaded library cannot do
// this.
func wallClock(getenv func(string) string) func() time.Time {
	file := getenv("RUNNERD_CLOCK_FILE")
	if file == "" {
		return time.Now
	}
	return func() time.Time { return time.Now().Add(moved(file)) }
}

// moved is how far the clock is moved now.
func moved(file string) time.Duration {
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	by, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic(err)
	}
	return by
}

// onClock lets the queue and the loop, which take the time from the machine, live
// by the moved clock too, as far as their times meet the scheduler's.
func onClock(s stores, getenv func(string) string) stores {
	if file := getenv("RUNNERD_CLOCK_FILE"); file != "" {
		s.queue, s.loop = movedQueue{s.queue, file}, movedLoop{s.loop, file}
	}
	return s
}

type movedQueue struct {
	dispatch.Store
	file string
}

func (q movedQueue) Claim(ctx context.Context, now time.Time) (task.Run, bool, error) {
	return q.Store.Claim(ctx, now.Add(moved(q.file)))
}

func (q movedQueue) NextReady(ctx context.Context, now time.Time) (time.Time, bool, error) {
	by := moved(q.file)
	at, ok, err := q.Store.NextReady(ctx, now.Add(by))
	return at.Add(-by), ok, err
}

func (q movedQueue) Recover(ctx context.Context, now time.Time) ([]task.Run, error) {
	return q.Store.Recover(ctx, now.Add(moved(q.file)))
}

type movedLoop struct {
	agentloop.Store
	file string
}

func (l movedLoop) Update(ctx context.Context, r task.Run) error {
	if r.Execution.Finished() {
		r.FinishedAt = r.FinishedAt.Add(moved(l.file))
	}
	return l.Store.Update(ctx, r)
}
