package alert

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"runnerd/db"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ears is who is told.
type ears struct {
	mu    sync.Mutex
	heard []string
	full  []string
	deaf  map[string]int // by URL, how often it still fails
}

func (e *ears) tell(_ context.Context, to task.Delivery, title, text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deaf[to.URL] > 0 {
		e.deaf[to.URL]--
		return errors.New("no answer")
	}
	e.heard = append(e.heard, strings.TrimPrefix(title, "runnerd: "))
	e.full = append(e.full, text)
	return nil
}

// take answers what was heard since.
func (e *ears) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := e.heard
	e.heard = nil
	return heard
}

// playing runs a board in a bubble, over a database of its own.
func playing(t *testing.T, play func(t *testing.T, d *db.DB, e *ears, live func(during func(*Board)))) {
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		d, err := db.Open(t.Context(), db.Options{DSN: path})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		e := &ears{deaf: map[string]int{}}
		play(t, d, e, func(during func(*Board)) {
			b := New(Options{Store: d, Tell: e.tell})
			if err := b.Load(t.Context()); err != nil {
				t.Error(err)
			}
			b.SetRecipients([]Recipient{{To: task.Delivery{To: "notify", URL: "u"}}})
			run(t, b, during)
		})
	})
}

func run(t *testing.T, b *Board, during func(*Board)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	during(b)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func settle() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

func ended(id string, e task.Execution, reason string, marks ...string) task.Run {
	return task.Run{ID: id, Task: "brief", Execution: e, Reason: reason, Marks: marks}
}

func want(t *testing.T, e *ears, want ...string) {
	t.Helper()
	if got := e.take(); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

// TestOncePerTroubleAcrossRestarts: however often it goes wrong, people are told
// once, and once when it is over; a restart changes nothing.
func TestOncePerTroubleAcrossRestarts(t *testing.T) {
	playing(t, func(t *testing.T, d *db.DB, e *ears, live func(func(*Board))) {
		live(func(b *Board) {
			for i := range 5 {
				b.Ended(ended(fmt.Sprint("r", i), task.Failed, "model: 401"))
				settle()
			}
			want(t, e, "brief: failed")
			if !strings.Contains(e.full[0], "run r0, ended: failed: model: 401.") || !strings.Contains(e.full[0], "runnerd show r0") {
				t.Errorf("text %q", e.full[0])
			}
		})
		live(func(b *Board) {
			b.Ended(ended("r9", task.Failed, "model: 401"))
			settle()
			want(t, e)
			if open := b.Open("task/"); len(open) != 1 || open[0].Key != "task/brief/failed" || open[0].ToldAt.IsZero() {
				t.Errorf("open %+v", open)
			}
			b.Ended(ended("r10", task.Cancelled, "by root"))
			settle()
			want(t, e)
			b.Ended(ended("r11", task.Completed, ""))
		}) // ends before the notice is due
		live(func(b *Board) {
			settle()
			want(t, e, "over: brief: failed")
			b.Ended(ended("r12", task.Completed, ""))
			settle()
			want(t, e)
			b.Ended(ended("r13", task.Failed, "again"))
			settle()
			want(t, e, "brief: failed")
		})
		if open, err := d.OpenTroubles(t.Context()); err != nil || len(open) != 1 {
			t.Errorf("stored %v %v", open, err)
		}
	})
}

// TestWhatEndsMean: each status has its trouble, and one takes the place of
// another without a word of recovery.
func TestWhatEndsMean(t *testing.T) {
	playing(t, func(t *testing.T, _ *db.DB, e *ears, live func(func(*Board))) {
		live(func(b *Board) {
			for _, c := range []struct {
				run  task.Run
				want []string
				open []string
			}{
				{ended("r1", task.Limited, "limit of 1 steps reached (limits.steps)"), []string{"brief: budget"}, []string{"task/brief/limit"}},
				{ended("r2", task.Completed, "refused", "refused:1"), []string{"brief: denied"}, []string{"task/brief/denied"}},
				{ended("r3", task.Completed, "", task.MarkUnknownEffect), []string{"brief: unknown"}, []string{"task/brief/unknown/r3"}},
				{ended("r4", task.Completed, "", task.MarkUnknownEffect), []string{"brief: unknown"}, []string{"task/brief/unknown/r3", "task/brief/unknown/r4"}},
				{ended("r5", task.Waiting, ""), nil, []string{"task/brief/unknown/r3", "task/brief/unknown/r4"}},
				{ended("r6", task.Limited, "limits.tokens_per_day of 9"), []string{"brief: budget"}, []string{"task/brief/unknown/r3", "task/brief/unknown/r4", "task/brief/budget"}},
				{ended("r7", task.Completed, ""), []string{"over: brief: unknown", "over: brief: unknown", "over: brief: budget"}, nil},
			} {
				b.Ended(c.run)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				want(t, e, c.want...)
				var open []string
				for _, o := range b.Open("") {
					open = append(open, o.Key)
				}
				if !slices.Equal(open, c.open) {
					t.Errorf("after %s open %v, want %v", c.run.ID, open, c.open)
				}
			}
			// A run that only its delivery failed is Delivery's to tell.
			lost := ended("r8", task.Completed, "not delivered")
			lost.Delivery = task.DeliveryFailed
			b.Ended(lost)
			lost.Delivery = task.DeliveryPending
			lost.AccountDeliveries([]task.DeliveryRecord{{State: task.DestinationPending, Error: "down"}})
			b.Ended(lost)
			settle()
			want(t, e)
			b.Delivery(lost, task.DeliveryRecord{Index: 0, To: "notify", State: task.DestinationPending, Attempts: 1, Error: "down"}) // A6
			b.Delivery(lost, task.DeliveryRecord{Index: 0, To: "notify", State: task.DestinationFailed, Attempts: 8, Error: "down"})
			settle()
			want(t, e, "brief: result not delivered")
			b.Delivery(lost, task.DeliveryRecord{Index: 0, To: "notify", State: task.DestinationDelivered, Attempts: 1})
			settle()
			want(t, e, "over: brief: result not delivered")
		})
	})
}

// TestFloodIsBounded: of many troubles at once a few come alone and the rest as
// one; what was over before anybody heard of it is never told.
func TestFloodIsBounded(t *testing.T) {
	playing(t, func(t *testing.T, _ *db.DB, e *ears, live func(func(*Board))) {
		live(func(b *Board) {
			for i := range 100 {
				b.Raise(task.Trouble{Key: fmt.Sprintf("task/t%03d/failed", i), Event: EventFailure, Title: fmt.Sprintf("t%03d", i), Text: "x"})
			}
			b.Raise(task.Trouble{Key: "task/short/failed", Event: EventFailure, Title: "short"})
			b.Clear("task/short/failed", "over")
			settle()
			want(t, e, "t000", "t001", "t002", "t003", "96 notices")
			if digest := e.full[4]; !strings.Contains(digest, "t053\n") || strings.Contains(digest, "t054\n") || !strings.Contains(digest, "… and 46 more") || strings.Contains(digest, "short") {
				t.Errorf("digest %q", digest)
			}
			b.Raise(task.Trouble{Key: "task/next/failed", Event: EventFailure, Title: "next"})
			settle()
			want(t, e)
			time.Sleep(time.Minute)
			want(t, e, "next")
			for range maxOpen {
				b.Raise(task.Trouble{Key: fmt.Sprint("task/", len(b.troubles), "/failed")})
			}
			if n := len(b.Open("")); n > maxOpen {
				t.Errorf("%d troubles are kept", n)
			}
		})
	})
}

// TestRecipients: each hears what it asked for, a deaf one is tried again and
// does not repeat the notice to the others, and a new one hears what is open.
func TestRecipients(t *testing.T) {
	playing(t, func(t *testing.T, d *db.DB, e *ears, live func(func(*Board))) {
		b := New(Options{Store: d, Tell: func(ctx context.Context, to task.Delivery, title, text string) error {
			return e.tell(ctx, to, to.URL+" "+title, text)
		}})
		heard := func(w ...string) {
			t.Helper()
			got := e.take()
			slices.Sort(got)
			if !slices.Equal(got, w) {
				t.Errorf("heard %q, want %q", got, w)
			}
		}
		run(t, b, func(b *Board) {
			b.Raise(task.Trouble{Key: "file/x", Event: EventConfig, Title: "x"})
			settle()
			heard()
			all := Recipient{To: task.Delivery{To: "notify", URL: "all"}}
			budget := Recipient{To: task.Delivery{To: "notify", URL: "budget"}, Events: []string{EventBudget}}
			b.SetRecipients([]Recipient{all, budget})
			settle()
			heard("all runnerd: x")
			e.deaf["budget"] = 2
			b.Spent("brief", "cost_per_day of 2.00 is spent")
			settle()
			heard("all runnerd: brief: the day's budget is spent")
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			heard("budget runnerd: brief: the day's budget is spent")
			e.deaf["all"] = 1000
			b.Clear("file/x", "good")
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if tried := 1000 - e.deaf["all"]; tried != maxTries {
				t.Errorf("a deaf recipient was tried %d times", tried)
			}
		})
	})
}

// TestTroubleOfTheStoreItself: what cannot be remembered is told all the same.
func TestTroubleOfTheStoreItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &ears{}
		b := New(Options{Store: brokenStore{}, Tell: e.tell, Host: "box"})
		b.SetRecipients([]Recipient{{To: task.Delivery{To: "notify"}}})
		if err := b.Load(t.Context()); err == nil {
			t.Error("no error")
		}
		run(t, b, func(b *Board) {
			b.Daemon("database", "no space left for the database")
			settle()
			b.Daemon("database", "no space left for the database")
			settle()
			want(t, e, "runnerd on box: the daemon's database is in trouble")
			b.Daemon("database", "")
			settle()
			want(t, e, "runnerd on box: over: the daemon's database is in trouble")
		})
	})
}

type brokenStore struct{}

func (brokenStore) Troubles(context.Context) ([]task.Trouble, error) { return nil, errors.New("full") }
func (brokenStore) SaveTrouble(context.Context, task.Trouble) error  { return errors.New("full") }

func TestApprovalsFilesConnectors(t *testing.T) {
	playing(t, func(t *testing.T, _ *db.DB, e *ears, live func(func(*Board))) {
		live(func(b *Board) {
			ask := task.Approval{ID: "a1", Run: "r1", Task: "brief", Connector: "mail", Tool: "send", Class: "exec", Preview: "to: me", ExpiresAt: time.Now().Add(time.Hour)}
			b.Approvals([]task.Approval{ask}, "runnerd --state /s")
			b.Approvals([]task.Approval{ask}, "runnerd --state /s")
			settle()
			want(t, e, "brief: approval needed for mail/send")
			for _, part := range []string{"runnerd --state /s approve a1\n", "runnerd --state /s deny a1\n", "to: me", "expires at"} {
				if !strings.Contains(e.full[0], part) {
					t.Errorf("no %q in %q", part, e.full[0])
				}
			}
			b.Files(map[string]string{"tasks/brief.md": "tasks/brief.md:2:1: unknown key"}, nil)
			b.Connector("mail", false, "failed 5 times in a row")
			b.Ended(ended("r1", task.Failed, "x"))
			time.Sleep(time.Hour)
			synctest.Wait()
			b.Files(map[string]string{"tasks/brief.md": "tasks/brief.md:3:1: another", "models.yaml": "y"}, nil)
			b.Connector("mail", true, "")
			b.Approvals(nil, "runnerd")
			b.Forget(func(string) bool { return false })
			time.Sleep(time.Hour)
			synctest.Wait()
			b.Files(nil, nil)
			time.Sleep(time.Hour)
			synctest.Wait()
			heard := e.take()
			slices.Sort(heard)
			if w := []string{
				"brief: failed", "connector mail is down", "file models.yaml is refused", "file tasks/brief.md is refused",
				"over: brief: approval needed for mail/send", "over: connector mail is down", "over: file models.yaml is refused", "over: file tasks/brief.md is refused",
			}; !slices.Equal(heard, w) {
				t.Errorf("heard %q, want %q", heard, w)
			}
		})
	})
}

// TestBudgetComesBack: the trouble of a day's budget ends with the day.
func TestBudgetComesBack(t *testing.T) {
	playing(t, func(t *testing.T, _ *db.DB, e *ears, live func(func(*Board))) {
		live(func(b *Board) {
			dawn := time.Now()
			settle()
			b.Spent("brief", "x")
			b.Spent(Everyone, "y")
			b.NewDay("brief", dawn)
			settle()
			want(t, e, "the day's budget is spent", "brief: the day's budget is spent")
			b.NewDay("brief", dawn.Add(24*time.Hour))
			b.NewDay(Everyone, dawn.Add(24*time.Hour))
			settle()
			want(t, e, "over: the day's budget is spent", "over: brief: the day's budget is spent")
		})
	})
}
