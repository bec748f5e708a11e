package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"runnerd/dispatch"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the pool until stop is called, which waits for it.
func start(t *testing.T, o dispatch.Options) (p *dispatch.Pool, stop func()) {
	t.Helper()
	p = dispatch.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return p, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if active := p.Active(); len(active) != 0 {
			t.Errorf("Run returned while %v were under way", active)
		}
		if q, ok := o.Store.(*queue); ok {
			if faults := q.faultsSeen(); len(faults) != 0 {
				t.Errorf("the store was misused: %v", faults)
			}
		}
	}
}

// work is a runner that takes so long and then completes, unless it is stopped:
// then it records what the cause asks for.
func work(q *queue, d time.Duration) runnerFunc {
	return func(ctx context.Context, id string) error {
		select {
		case <-time.After(d):
			return q.move(id, task.Completed)
		case <-ctx.Done():
		}
		var cancelled *task.CancelledError
		switch cause := context.Cause(ctx); {
		case errors.As(cause, &cancelled):
			return q.move(id, task.Cancelled, func(r *task.Run) { r.Reason = cancelled.Reason })
		case errors.Is(cause, task.ErrShutdown):
			return q.move(id, task.Interrupted)
		default:
			return fmt.Errorf("stopped without a known cause: %w", cause)
		}
	}
}

func TestWaves(t *testing.T) {
	const workers, sessions, runs = 5, 12, 300
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		begun := time.Now()
		for i := range runs {
			wave := time.Duration(i/100) * 47 * time.Minute
			q.add(run(fmt.Sprintf("r%03d", i), fmt.Sprintf("s%d", i%sessions), begun.Add(wave)))
		}
		var mu sync.Mutex
		busy, most := map[string]bool{}, 0
		seen := map[string]int{}
		inner := work(q, 0)
		runner := runnerFunc(func(ctx context.Context, id string) error {
			r := q.get(id)
			mu.Lock()
			if busy[r.Session] {
				t.Errorf("%s: its session has a run already", id)
			}
			if time.Now().Before(r.NotBefore) {
				t.Errorf("%s: started %s early", id, time.Until(r.NotBefore))
			}
			busy[r.Session] = true
			seen[id]++
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(time.Duration(rand.IntN(20)) * time.Second)
			mu.Lock()
			delete(busy, r.Session)
			mu.Unlock()
			return inner(ctx, id)
		})
		_, stop := start(t, dispatch.Options{Store: q, Runner: runner, Workers: workers})
		time.Sleep(3 * time.Hour)
		stop()
		if len(seen) != runs {
			t.Errorf("%d runs executed, want %d", len(seen), runs)
		}
		for id, n := range seen {
			if n != 1 || q.get(id).Execution != task.Completed {
				t.Errorf("%s: executed %d times, %s", id, n, q.get(id).Execution)
			}
		}
		if most != workers {
			t.Errorf("at most %d at once, want %d", most, workers)
		}
		// Each claim, each end and each recheck may ask once.
		if n := q.called("Claim"); n > 3*runs+3*60*2+10 {
			t.Errorf("%d claims for %d runs", n, runs)
		}
	})
}

// TestStartsWhenReady shows that a run starts at the very instant, also one that
// lies beyond the recheck, and at once after a wake.
func TestStartsWhenReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		at := begun.Add(95*time.Second + 123*time.Millisecond)
		q := newQueue(run("later", "a", at))
		started := map[string]time.Time{}
		p, stop := start(t, dispatch.Options{Store: q, Workers: 1, Runner: runnerFunc(func(_ context.Context, id string) error {
			started[id] = time.Now()
			return q.move(id, task.Completed)
		})})
		time.Sleep(7 * time.Second)
		q.add(run("woken", "b", time.Now()))
		p.Wake()
		p.Wake()
		time.Sleep(2 * time.Minute)
		stop()
		if got := started["woken"].Sub(begun); got != 7*time.Second {
			t.Errorf("the woken run started after %s, want 7s", got)
		}
		if got := started["later"]; !got.Equal(at) {
			t.Errorf("the later run started at %s, want %s", got, at)
		}
	})
}

func TestRecoverFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crashed := run("crashed", "a", time.Now().Add(-time.Minute))
		crashed.Execution = task.Running
		q := newQueue(run("old", "a", time.Now().Add(-time.Hour)), crashed)
		refusals := 3
		q.fail = func(call string) error {
			if call == "Recover" && refusals > 0 {
				refusals--
				return errors.New("disk full")
			}
			return nil
		}
		var order []string
		_, stop := start(t, dispatch.Options{Store: q, Workers: 2, Runner: runnerFunc(func(_ context.Context, id string) error {
			order = append(order, id)
			return q.move(id, task.Completed)
		})})
		time.Sleep(time.Minute)
		stop()
		if want := []string{"crashed", "old"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		if got := q.get("crashed").Attempt; got != 2 {
			t.Errorf("attempt %d, want 2", got)
		}
	})
}

func TestShutdown(t *testing.T) {
	for _, tc := range []struct {
		name  string
		grace time.Duration
		kill  time.Duration // after the end of the context; 0: never
		takes time.Duration
		want  task.Execution
		after time.Duration // how long Run goes on
	}{
		{name: "ends in the grace time", grace: time.Minute, takes: 30 * time.Second, want: task.Completed, after: 20 * time.Second},
		{name: "outlasts the grace time", grace: time.Minute, takes: time.Hour, want: task.Interrupted, after: time.Minute},
		{name: "default grace", takes: time.Hour, want: task.Interrupted, after: dispatch.DefaultGrace},
		{name: "no grace", grace: -1, takes: time.Hour, want: task.Interrupted},
		{name: "second signal", grace: time.Minute, kill: 5 * time.Second, takes: time.Hour, want: task.Interrupted, after: 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(run("one", "a", time.Now()), run("two", "a", time.Now()))
				p, stop := start(t, dispatch.Options{Store: q, Runner: work(q, tc.takes), Grace: tc.grace})
				time.Sleep(10 * time.Second)
				if got := p.Active(); !slices.Equal(got, []string{"one"}) {
					t.Errorf("active %v, want one", got)
				}
				if tc.kill > 0 {
					time.AfterFunc(tc.kill, p.Kill)
				}
				begun := time.Now()
				stop()
				if got := time.Since(begun); got != tc.after {
					t.Errorf("Run went on for %s, want %s", got, tc.after)
				}
				if got := q.get("one").Execution; got != tc.want {
					t.Errorf("the run is %s, want %s", got, tc.want)
				}
				if got := q.get("two").Execution; got != task.Queued {
					t.Errorf("the next run is %s, want queued: nothing is claimed in a shutdown", got)
				}
			})
		})
	}
}

// TestWaitsForStubborn shows that Run does not leave a runner behind that
// ignores its context, and says what it waits for.
func TestWaitsForStubborn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(run("one", "a", time.Now()))
		core, logs := observer.New(zap.WarnLevel)
		_, stop := start(t, dispatch.Options{Store: q, Grace: time.Second, Logger: zap.New(core), Runner: runnerFunc(func(_ context.Context, id string) error {
			time.Sleep(time.Minute)
			return q.move(id, task.Completed)
		})})
		synctest.Wait()
		stop()
		if logs.FilterMessage("waiting for cancelled runs").Len() < 3 {
			t.Errorf("logs: %v", logs.All())
		}
	})
}

func TestKillAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(run("one", "a", time.Now()))
		p := dispatch.New(dispatch.Options{Store: q, Runner: work(q, time.Hour)})
		time.AfterFunc(time.Minute, p.Kill)
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Kill()
		if got := q.get("one").Execution; got != task.Interrupted {
			t.Errorf("the run is %s, want interrupted", got)
		}
		if err := p.Run(t.Context()); err == nil {
			t.Error("a second Run was accepted")
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parked := run("parked", "c", time.Now())
		parked.Execution = task.Waiting
		q := newQueue(run("running", "a", time.Now()), run("queued", "a", time.Now().Add(time.Second)), run("quick", "b", time.Now()), parked)
		inner := work(q, time.Hour)
		p, stop := start(t, dispatch.Options{Store: q, Runner: runnerFunc(func(ctx context.Context, id string) error {
			if id == "quick" {
				return q.move(id, task.Completed)
			}
			return inner(ctx, id)
		})})
		synctest.Wait()
		for _, tc := range []struct {
			id   string
			want error
		}{
			{"queued", nil},
			{"parked", nil},
			{"running", nil},
			{"queued", dispatch.ErrNotActive},
			{"quick", dispatch.ErrNotActive},
			{"nobody", errUnknown},
		} {
			if err := p.Cancel(tc.id, "by test"); !errors.Is(err, tc.want) {
				t.Errorf("Cancel(%s) = %v, want %v", tc.id, err, tc.want)
			}
		}
		synctest.Wait()
		for _, id := range []string{"running", "queued", "parked"} {
			if r := q.get(id); r.Execution != task.Cancelled || r.Reason != "by test" {
				t.Errorf("%s is %s (%q), want cancelled (by test)", id, r.Execution, r.Reason)
			}
		}
		stop()
	})
}

// TestCancelTooLate cancels a run whose runner has just put it to rest and does
// not look at its context any more.
func TestCancelTooLate(t *testing.T) {
	for _, rest := range []task.Execution{task.Queued, task.Waiting, task.Interrupted} {
		t.Run(string(rest), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(run("one", "a", time.Now()))
				refusals := 2
				q.fail = func(call string) error {
					if call == "Cancel" && refusals > 0 {
						refusals--
						return errors.New("busy")
					}
					return nil
				}
				p, stop := start(t, dispatch.Options{Store: q, Workers: 1, Runner: runnerFunc(func(_ context.Context, id string) error {
					err := q.move(id, rest, func(r *task.Run) { r.NotBefore = time.Now().Add(time.Hour) })
					time.Sleep(time.Second)
					return err
				})})
				synctest.Wait()
				if err := p.Cancel("one", "first"); err != nil {
					t.Error(err)
				}
				if err := p.Cancel("one", "second"); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
				if r := q.get("one"); r.Execution != task.Cancelled || r.Reason != "first" {
					t.Errorf("the run is %s (%q), want cancelled (first)", r.Execution, r.Reason)
				}
				stop()
			})
		})
	}
}

// TestReclaimed retries with no backoff: the run may be claimed again before its
// first worker has gone.
func TestReclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(run("one", "a", time.Now()))
		attempts := 0
		var p *dispatch.Pool
		var stop func()
		ready := make(chan struct{})
		p, stop = start(t, dispatch.Options{Store: q, Workers: 2, Runner: runnerFunc(func(ctx context.Context, id string) error {
			<-ready
			attempts++
			if attempts == 1 {
				err := q.move(id, task.Queued)
				p.Wake()
				time.Sleep(time.Second)
				return err
			}
			return work(q, time.Minute)(ctx, id)
		})})
		close(ready)
		time.Sleep(10 * time.Second)
		if got := p.Active(); !slices.Equal(got, []string{"one"}) {
			t.Errorf("active %v, want the second attempt", got)
		}
		if err := p.Cancel("one", "enough"); err != nil {
			t.Error(err)
		}
		stop()
		if r := q.get("one"); attempts != 2 || r.Execution != task.Cancelled {
			t.Errorf("%d attempts, %s; want 2, cancelled", attempts, r.Execution)
		}
	})
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(run("bad", "a", time.Now()), run("next", "a", time.Now()))
		refusals := 2
		q.fail = func(call string) error {
			if call == "Fail" && refusals > 0 {
				refusals--
				return errors.New("disk full")
			}
			return nil
		}
		core, logs := observer.New(zap.InfoLevel)
		_, stop := start(t, dispatch.Options{
			Store: q, Workers: 1, Logger: zap.New(core),
			Redact: func(s string) string { return strings.ReplaceAll(s, "hunter22", "[secret]") },
			Runner: runnerFunc(func(_ context.Context, id string) error {
				if id == "bad" {
					panic("nil map with hunter22 " + strings.Repeat("ü", 5000))
				}
				return q.move(id, task.Completed)
			}),
		})
		time.Sleep(time.Minute)
		stop()
		r := q.get("bad")
		if r.Execution != task.Failed || !strings.HasPrefix(r.Reason, "internal error: nil map with [secret] ü") || len(r.Reason) > 2100 {
			t.Errorf("the run is %s with %q", r.Execution, r.Reason)
		}
		if got := q.get("next").Execution; got != task.Completed {
			t.Errorf("the next run is %s, want completed", got)
		}
		entries := logs.FilterMessage("runner panicked").All()
		if len(entries) != 1 || !strings.Contains(fmt.Sprint(entries[0].ContextMap()["stack"]), "pool_test.go") {
			t.Errorf("no stack in the log: %v", entries)
		}
	})
}

// TestRunnerError is about runners that give up: one that recorded an end keeps
// it, one that did not is failed, and one that a shutdown stopped is left for the
// next start.
func TestRunnerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(run("recorded", "a", time.Now()), run("lost", "b", time.Now()), run("stopped", "c", time.Now()))
		_, stop := start(t, dispatch.Options{Store: q, Grace: time.Second, Runner: runnerFunc(func(ctx context.Context, id string) error {
			switch id {
			case "recorded":
				return errors.Join(q.move(id, task.Limited), errors.New("notice not sent"))
			case "stopped":
				<-ctx.Done()
			}
			return errors.New("database is locked")
		})})
		time.Sleep(time.Minute)
		stop()
		for id, want := range map[string]task.Execution{"recorded": task.Limited, "lost": task.Failed, "stopped": task.Running} {
			if got := q.get(id).Execution; got != want {
				t.Errorf("%s is %s, want %s", id, got, want)
			}
		}
		if got := q.get("lost").Reason; got != "database is locked" {
			t.Errorf("reason %q", got)
		}
	})
}

// TestStoreFails shows that a store that is down is not hammered, whatever wakes
// the pool, and that work goes on when it is back.
func TestStoreFails(t *testing.T) {
	for _, call := range []string{"Recover", "Claim", "NextReady"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				var down atomic.Bool
				down.Store(true)
				q.fail = func(c string) error {
					if c == call && down.Load() {
						return errors.New("disk full")
					}
					return nil
				}
				p, stop := start(t, dispatch.Options{Store: q, Workers: 1, Runner: work(q, time.Second)})
				for range 600 {
					time.Sleep(time.Second)
					p.Wake()
				}
				if n := q.called(call); n < 5 || n > 40 {
					t.Errorf("%d calls of %s in ten minutes of failure, want 5 to 40", n, call)
				}
				down.Store(false)
				q.add(run("one", "a", time.Now()))
				time.Sleep(40 * time.Second)
				if got := q.get("one").Execution; got != task.Completed {
					t.Errorf("the run is %s after the store came back, want completed", got)
				}
				stop()
			})
		})
	}
}

// liar is a store that names a ready time in the past, for ever.
type liar struct{ *queue }

func (l liar) NextReady(ctx context.Context, now time.Time) (time.Time, bool, error) {
	_, _, err := l.queue.NextReady(ctx, now)
	return now.Add(-time.Hour), true, err
}

func TestNeverSpins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		_, stop := start(t, dispatch.Options{Store: liar{q}, Runner: work(q, 0)})
		time.Sleep(time.Minute)
		stop()
		if n := q.called("Claim"); n > 70 {
			t.Errorf("%d claims in a minute of nothing to do", n)
		}
	})
}

// TestAnyOrder calls everything at once, in real time, in any order.
func TestAnyOrder(t *testing.T) {
	for i := range 60 {
		q := newQueue()
		for n := range 20 {
			q.add(run(fmt.Sprintf("r%d", n), fmt.Sprintf("s%d", n%7), time.Now().Add(time.Duration(n)*200*time.Microsecond)))
		}
		p := dispatch.New(dispatch.Options{Store: q, Workers: 3, Grace: time.Duration(i%3) * time.Millisecond, Runner: work(q, time.Millisecond)})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		calls := []func(){
			func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
				if active := p.Active(); len(active) != 0 {
					t.Errorf("Run returned while %v were under way", active)
				}
			},
			func() { time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond); cancel() },
			func() { time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond); p.Kill() },
			func() {
				for n := range 20 {
					if err := p.Cancel(fmt.Sprintf("r%d", n), "stress"); err != nil && !errors.Is(err, dispatch.ErrNotActive) {
						t.Error(err)
					}
				}
			},
			func() {
				for range 50 {
					p.Wake()
					p.Active()
				}
			},
		}
		rand.Shuffle(len(calls), func(a, b int) { calls[a], calls[b] = calls[b], calls[a] })
		for _, call := range calls {
			all.Go(call)
		}
		all.Wait()
		cancel()
		for id := range q.runs {
			if r := q.get(id); r.Execution == task.Running {
				t.Errorf("round %d: %s is still running", i, id)
			}
		}
		if faults := q.faultsSeen(); len(faults) != 0 {
			t.Errorf("round %d: the store was misused: %v", i, faults)
		}
	}
}

// TestRecheck shows that a run whose wake was lost still starts.
func TestRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		_, stop := start(t, dispatch.Options{Store: q, Runner: work(q, 0)})
		synctest.Wait()
		q.add(run("one", "a", time.Now()))
		time.Sleep(5*time.Minute + time.Second)
		if got := q.get("one").Execution; got != task.Completed {
			t.Errorf("the run is %s after the recheck, want completed", got)
		}
		stop()
	})
}

// slow is a store whose claim is committed some time before it answers.
type slow struct {
	*queue
	committed chan struct{}
}

func (s slow) Claim(ctx context.Context, now time.Time) (task.Run, bool, error) {
	r, ok, err := s.queue.Claim(ctx, now)
	if ok {
		s.committed <- struct{}{}
		time.Sleep(20 * time.Millisecond)
	}
	return r, ok, err
}

// TestCancelWhileClaimed cancels a run that the store says is running and that
// no worker has yet. It is not in a bubble, which cannot see through a mutex.
func TestCancelWhileClaimed(t *testing.T) {
	q := newQueue(run("one", "a", time.Now()))
	s := slow{q, make(chan struct{})}
	p, stop := start(t, dispatch.Options{Store: s, Runner: work(q, time.Hour)})
	<-s.committed
	if err := p.Cancel("one", "early"); err != nil {
		t.Error(err)
	}
	stop()
	if got := q.get("one").Execution; got != task.Cancelled {
		t.Errorf("the run is %s, want cancelled", got)
	}
}
