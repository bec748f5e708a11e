package deliver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// desk is a real database with runs that have ended.
type desk struct {
	*db.DB
	t  *testing.T
	n  int
	at time.Time
	// marks are those of runs that end from now on.
	marks []string
}

func newDesk(t *testing.T, path string) *desk {
	t.Helper()
	d, err := db.Open(context.Background(), db.Options{DSN: path})
	must(t, err)
	return &desk{DB: d, t: t, at: time.Now()}
}

// ended stores a completed run with an output; each ends a second after the one
// before.
func (d *desk) ended(taskID, output string, to ...task.Delivery) string {
	d.t.Helper()
	ctx := context.Background()
	d.n++
	d.at = d.at.Add(time.Second)
	id := fmt.Sprintf("r%d", d.n)
	hash, err := d.SaveRevision(ctx, task.Task{ID: taskID, Deliver: to, Schedule: task.Schedule{Zone: "UTC"}})
	must(d.t, err)
	must(d.t, d.InsertManual(ctx, task.Run{ID: id, Task: taskID, Revision: hash, Due: d.at, CreatedAt: d.at, NotBefore: d.at}))
	run, ok, err := d.ClaimRun(ctx, id, d.at)
	if err != nil || !ok {
		d.t.Fatal(ok, err)
	}
	run.Marks = append(run.Marks, d.marks...)
	run.Execution, run.FinishedAt, run.Output, run.Delivery = task.Completed, d.at, output, task.DeliveryPending
	must(d.t, d.Update(ctx, run))
	return id
}

func (d *desk) run(id string) task.Run {
	d.t.Helper()
	run, err := d.Run(context.Background(), id)
	must(d.t, err)
	return run
}

// records are a run's destinations as "state attempts".
func (d *desk) records(id string) (list []string) {
	d.t.Helper()
	recs, err := d.Deliveries(context.Background(), id)
	must(d.t, err)
	for _, r := range recs {
		list = append(list, fmt.Sprint(r.State, " ", r.Attempts))
	}
	return list
}

// work runs a worker until until answers true, or fails.
func work(t *testing.T, o WorkerOptions, until func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w, done := NewWorker(o), make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for limit := time.Now().Add(time.Minute); !until(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Error("not settled in time")
			break
		}
	}
	stop()
	must(t, <-done)
}

// TestWorkerRetriesAcrossRestarts: what was delivered is not repeated, what was
// not is tried again by the schedule, also by the next worker, in the order of
// the runs.
func TestWorkerRetriesAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, dir+"/db")
		defer d.Close()
		must(t, os.WriteFile(dir+"/no-dir", nil, 0o644)) // where a directory should be
		good := toShell("cat >>" + dir + "/good")
		bad := toFile(dir + "/no-dir/{{.Run}}")
		first, second := d.ended("a", "one\n", good, bad), d.ended("a", "two\n", good, bad)
		other := d.ended("b", "three\n", toFile(dir+"/other"))
		live := func(worker *Worker, sleep time.Duration) {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- worker.Run(ctx) }()
			time.Sleep(sleep)
			synctest.Wait()
			stop()
			must(t, <-done)
		}
		options := WorkerOptions{Deliverer: New(Options{}), Store: d, Parallel: 2}
		live(NewWorker(options), 15*time.Second)
		if got := d.records(first); !slices.Equal(got, []string{"delivered 1", "pending 2"}) {
			t.Errorf("after 15 s: %v", got)
		}
		if got := d.records(second); !slices.Equal(got, []string{"delivered 1", "pending 0"}) || d.run(second).Status() != task.StatusFailed {
			t.Errorf("the second must wait behind the first where that failed: %v", got)
		}
		if run := d.run(other); run.Delivery != task.DeliveryDelivered || content(t, dir+"/other") != "three\n" {
			t.Errorf("another task waited: %s", run.Delivery)
		}
		if run := d.run(first); run.Delivery != task.DeliveryPending || run.Status() != task.StatusFailed || !strings.HasPrefix(run.Reason, "not delivered yet: ") || run.Execution != task.Completed {
			t.Errorf("while it is tried: %s %s", run.Delivery, run.Status())
		}
		must(t, os.Remove(dir+"/no-dir"))
		live(NewWorker(options), 2*time.Minute)
		for _, id := range []string{first, second} {
			if run := d.run(id); run.Delivery != task.DeliveryDelivered || run.Status() != task.StatusOK || run.Reason != "" {
				t.Errorf("A6 %s, delivered in the end: %s, %s (%s)", id, run.Delivery, run.Status(), run.Reason)
			}
		}
		if got := d.records(first); !slices.Equal(got, []string{"delivered 1", "delivered 3"}) {
			t.Errorf("at the end: %v", got)
		}
		if got := content(t, dir+"/good"); got != "one\ntwo\n" {
			t.Errorf("the good destination got %q", got)
		}
	})
}

// TestWorkerGivesUp: fault case 19. Execution stays as it was, delivery is failed
// and the run says why.
func TestWorkerGivesUp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, dir+"/db")
		defer d.Close()
		must(t, os.WriteFile(dir+"/no-dir", nil, 0o644))
		id := d.ended("a", "one\n", toFile(dir+"/no-dir/x"), task.Delivery{To: ToFile, Path: dir + "/f", When: WhenFailure})
		var tried []task.DeliveryRecord
		var settled []task.Run
		w := NewWorker(WorkerOptions{
			Deliverer: New(Options{}), Store: d,
			Tried:   func(_ task.Run, rec task.DeliveryRecord) { tried = append(tried, rec) },
			Settled: func(run task.Run) { settled = append(settled, run) },
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(13 * time.Hour)
		synctest.Wait()
		stop()
		must(t, <-done)
		run := d.run(id)
		if run.Execution != task.Completed || run.Delivery != task.DeliveryFailed || run.Status() != task.StatusFailed ||
			!strings.Contains(run.Reason, "not delivered: given up after 8 attempts: deliver to file: ") {
			t.Errorf("%s, %s, %q", run.Execution, run.Delivery, run.Reason)
		}
		if got := d.records(id); !slices.Equal(got, []string{"failed 8", "skipped 0"}) {
			t.Errorf("records %v", got)
		}
		if len(tried) != 8 || len(settled) != 1 || settled[0].Delivery != task.DeliveryFailed || settled[0].Reason != run.Reason {
			t.Errorf("told of %d attempts and %d ends", len(tried), len(settled))
		}
		if took := tried[7].UpdatedAt.Sub(run.FinishedAt); took > 12*time.Hour {
			t.Errorf("the last attempt was after %s", took)
		}
	})
}

// TestWorkerWhen: no destination's `when` applies, or the text is the same as the
// completed run's before.
func TestWorkerWhen(t *testing.T) {
	dir := t.TempDir()
	d := newDesk(t, dir+"/db")
	defer d.Close()
	changed := task.Delivery{To: ToCommand, Command: []string{"/bin/sh", "-c", "cat >>" + dir + "/log"}, When: WhenChanged}
	ids := []string{d.ended("a", "same\n", changed), d.ended("a", "same\n", changed), d.ended("a", "new\n", changed)}
	work(t, WorkerOptions{Deliverer: New(Options{}), Store: d}, func() bool {
		return d.run(ids[2]).Delivery != task.DeliveryPending && d.run(ids[0]).Delivery != task.DeliveryPending && d.run(ids[1]).Delivery != task.DeliveryPending
	})
	for i, want := range []task.DeliveryState{task.DeliveryDelivered, task.DeliveryNone, task.DeliveryDelivered} {
		if got := d.run(ids[i]).Delivery; got != want {
			t.Errorf("run %d: %s, want %s", i, got, want)
		}
	}
	if got := content(t, dir+"/log"); got != "same\nnew\n" {
		t.Errorf("delivered %q", got)
	}
}

// crashing is a store that takes the intent to deliver and then no end, as if the
// process had died in between.
type crashing struct {
	*desk
	alive atomic.Bool // again
}

func (c *crashing) SaveDelivery(ctx context.Context, rec task.DeliveryRecord) error {
	if rec.State != task.DestinationSending && !c.alive.Load() {
		return errors.New("the process is dead")
	}
	return c.desk.SaveDelivery(ctx, rec)
}

// TestCrashBetweenDeliveryAndRecord: a file is written again and is the same, a
// command and a notification are not sent twice and say so.
func TestCrashBetweenDeliveryAndRecord(t *testing.T) {
	dir := t.TempDir()
	hook := newHook(t, 200)
	d := newDesk(t, dir+"/db")
	defer d.Close()
	ids := map[string]string{
		"file":    d.ended("a", "one\n", toFile(dir+"/f")),
		"command": d.ended("b", "two\n", toShell("cat >>"+dir+"/log")),
		"notify":  d.ended("c", "three\n", task.Delivery{To: ToNotify, URL: hook.url}),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var sent atomic.Int32
	w := NewWorker(WorkerOptions{Deliverer: New(Options{}), Store: &crashing{desk: d}, Tried: func(task.Run, task.DeliveryRecord) {
		if int(sent.Add(1)) == len(ids) {
			stop()
		}
	}})
	must(t, w.Run(ctx))
	must(t, os.Remove(dir+"/f"))
	work(t, WorkerOptions{Deliverer: New(Options{}), Store: d}, func() bool {
		list, err := d.Undelivered(t.Context(), 10)
		must(t, err)
		return len(list) == 0
	})
	if run := d.run(ids["file"]); run.Delivery != task.DeliveryDelivered || content(t, dir+"/f") != "one\n" {
		t.Errorf("file: %s", run.Delivery)
	}
	for _, kind := range []string{"command", "notify"} {
		run := d.run(ids[kind])
		if run.Delivery != task.DeliveryFailed || run.Execution != task.Completed || !strings.Contains(run.Reason, "whether it arrived is not known, so it is not repeated") {
			t.Errorf("%s: %s %q", kind, run.Delivery, run.Reason)
		}
	}
	if got := content(t, dir+"/log"); got != "two\n" {
		t.Errorf("the command ran for %q", got)
	}
	if got := hook.received(); len(got) != 1 {
		t.Errorf("the hook was called %d times", len(got))
	}
}

// TestStoreFailsAfterDelivery: the worker remembers what the store did not take,
// sends nothing twice and stores it later.
func TestStoreFailsAfterDelivery(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, dir+"/db")
		defer d.Close()
		id := d.ended("a", "one\n", toShell("cat >>"+dir+"/log"))
		dying := &crashing{desk: d}
		w := NewWorker(WorkerOptions{Deliverer: New(Options{}), Store: dying})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(time.Minute)
		if got := d.records(id); !slices.Equal(got, []string{"sending 1"}) {
			t.Errorf("records %v", got)
		}
		dying.alive.Store(true) // there is space again
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		must(t, <-done)
		if run := d.run(id); run.Delivery != task.DeliveryDelivered || content(t, dir+"/log") != "one\n" {
			t.Errorf("%s, log %q", run.Delivery, content(t, dir+"/log"))
		}
	})
}

// TestSlowDeliveryDelaysNoOther: fault case 11.
func TestSlowDeliveryDelaysNoOther(t *testing.T) {
	dir := t.TempDir()
	free := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-free }))
	d := newDesk(t, dir+"/db")
	defer d.Close()
	slow := task.Delivery{To: ToNotify, URL: strings.Replace(srv.URL, "http://", "generic://", 1) + "?disabletls=yes"}
	hung := d.ended("a", "one\n", slow, toFile(dir+"/own"))
	behind := d.ended("a", "two\n", slow, toFile(dir+"/own-2"))
	other := d.ended("b", "three\n", toFile(dir+"/other"))
	work(t, WorkerOptions{Deliverer: New(Options{Timeout: time.Minute}), Store: d, Grace: time.Millisecond}, func() bool {
		return d.run(other).Delivery == task.DeliveryDelivered && slices.Equal(d.records(hung), []string{"sending 1", "delivered 1"})
	})
	if got := d.records(hung); got[0] != "failed 1" {
		t.Errorf("what the shutdown cut off: %v", got)
	}
	if got := d.records(behind); len(got) > 0 && strings.HasPrefix(got[0], "sending") {
		t.Errorf("the second overtook the first: %v", got)
	}
	close(free)
	http.DefaultClient.CloseIdleConnections()
	srv.Close()
}

// TestWorkerSendsMail to a server on loopback that wants it twice.
func TestWorkerSendsMail(t *testing.T) {
	m := newMailbox(t, "451 later", "250 ok")
	d := newDesk(t, t.TempDir()+"/db")
	defer d.Close()
	id := d.ended("a", "Morning.\n", task.Delivery{To: ToNotify, URL: "smtp://" + m.addr + "/?from=runnerd@example.com&to=me@example.com"})
	work(t, WorkerOptions{Deliverer: New(Options{}), Store: d, Pauses: []time.Duration{time.Millisecond}}, func() bool {
		return d.run(id).Delivery == task.DeliveryDelivered
	})
	if got := d.records(id); !slices.Equal(got, []string{"delivered 2"}) || len(m.mail) != 1 || !strings.Contains(m.mail[0], "\nMorning.\n") {
		t.Errorf("%v, mail %q", got, m.mail)
	}
}

func TestNow(t *testing.T) {
	dir := t.TempDir()
	d := newDesk(t, dir+"/db")
	defer d.Close()
	w := NewWorker(WorkerOptions{Deliverer: quick(Options{}), Store: d})
	good := d.ended("a", "one\n", toFile(dir+"/f"), task.Delivery{To: ToFile, Path: dir + "/g", When: WhenFailure})
	bad := d.ended("b", "two\n", toShell("echo no >&2; exit 1"), toFile(dir+"/h"))
	run, err := w.Now(t.Context(), good)
	if err != nil || run.Delivery != task.DeliveryDelivered || d.run(good).Delivery != task.DeliveryDelivered || content(t, dir+"/f") != "one\n" {
		t.Errorf("%s %v", run.Delivery, err)
	}
	run, err = w.Now(t.Context(), bad)
	if err != nil || run.Status() != task.StatusFailed || d.run(bad).Delivery != task.DeliveryPending || !strings.Contains(run.Reason, "exit status 1: no") {
		t.Errorf("%+v %v", run, err)
	}
	if got := append(d.records(good), d.records(bad)...); !slices.Equal(got, []string{"delivered 1", "skipped 0", "pending 1", "delivered 1"}) {
		t.Errorf("records %v", got)
	}
	if again, err := w.Now(t.Context(), good); err != nil || again.Delivery != task.DeliveryDelivered {
		t.Errorf("a second time: %s %v", again.Delivery, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "g")); err == nil {
		t.Error("a destination for failures got a good result")
	}
}
