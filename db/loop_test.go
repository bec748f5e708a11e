package db

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"runnerd/task"
)

func userMessage(run string) *task.Message {
	return &task.Message{Session: "brief", Run: run, Role: task.RoleUser, Text: "go", At: noon}
}

// TestMessageBytes: what a model wrote comes back byte for byte.
func TestMessageBytes(t *testing.T) {
	d := openTest(t, Options{})
	started(t, d, "brief", "r1")
	cost := task.MoneyOf(0.25)
	want := task.Message{
		Session: "brief", Run: "r1", Step: 1, Role: task.RoleAssistant, Text: "nul \x00 quote ' <&> \u2028", At: noon,
		Calls: []task.ToolCall{
			{ID: "c1", Name: "mcp__a__b", Arguments: `{"x": "\u003c" ,  "y":1}`},
			{ID: "c2", Name: "odd", Arguments: "\xff\xfe not json \x00"},
		},
		Slots: []task.Slot{{Alias: "mcp__a__b", Connector: "a", Tool: "b", Definition: "d"}},
		Usage: &task.Usage{Input: 10, Output: 5, Cost: &cost}, Model: "m", Vendor: "v",
		Opaque: []byte("{\"sig\" :  \"<a>\"}\x00\xff"),
	}
	msg := want
	ok(t, d.Append(ctx, days("2026-05-04"), &msg))
	got := must[[]task.Message](t)(d.RunMessages(ctx, "r1"))
	want.Seq = 1
	if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestAppendNumbersAndBooks(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	price := task.MoneyOf(0.5)
	first, second := userMessage("r1"), userMessage("r1")
	second.Role, second.Usage = task.RoleAssistant, &task.Usage{Input: 100, Output: 20, CacheRead: 7, CacheWrite: 3}
	ok(t, d.Append(ctx, task.Days{Task: "2026-05-04", Total: "2026-05-05"}, first, second))
	if first.Seq != 1 || second.Seq != 2 {
		t.Fatalf("seq %d, %d", first.Seq, second.Seq)
	}
	third := userMessage("r1")
	third.Usage = &task.Usage{Input: 1, Cost: &price}
	ok(t, d.Append(ctx, task.Days{Task: "2026-05-04", Total: "2026-05-05"}, third))

	want := task.Usage{Input: 101, Output: 20, CacheRead: 7, CacheWrite: 3, Cost: &price}
	spent, err := d.Spent(ctx, "brief", task.Days{Task: "2026-05-04", Total: "2026-05-05"})
	ok(t, err)
	if !reflect.DeepEqual(spent, task.DaySpend{Task: want, Total: want}) {
		t.Errorf("spent %+v", spent)
	}
	spent, err = d.Spent(ctx, "brief", days("2026-05-05"))
	ok(t, err)
	if spent.Task.Tokens() != 0 || spent.Total.Tokens() != 121 {
		t.Errorf("other day: %+v", spent)
	}
	// A worker that writes its own copy of the run cannot undo what was booked.
	ok(t, d.Update(ctx, run))
	if got := must[task.Run](t)(d.Run(ctx, "r1")); !reflect.DeepEqual(got.Usage, want) {
		t.Errorf("run usage %+v", got.Usage)
	}
	if err := d.Append(ctx, task.Days{}, third); err == nil {
		t.Error("usage without a day was booked")
	}
	if n := len(must[[]task.Message](t)(d.RunMessages(ctx, "r1"))); n != 3 {
		t.Errorf("%d messages: the failed append left one behind", n)
	}
}

func TestWindow(t *testing.T) {
	d := openTest(t, Options{})
	started(t, d, "brief", "r1")
	if msgs := must[[]task.Message](t)(d.Window(ctx, "brief")); len(msgs) != 0 {
		t.Fatalf("window of a new session: %v", msgs)
	}
	for range 3 {
		ok(t, d.Append(ctx, task.Days{}, userMessage("r1")))
	}
	ok(t, d.StartWindow(ctx, "brief", 3))
	if msgs := must[[]task.Message](t)(d.Window(ctx, "brief")); len(msgs) != 1 || msgs[0].Seq != 3 {
		t.Errorf("window %v", msgs)
	}
	if msgs := must[[]task.Message](t)(d.SessionMessages(ctx, "brief", 1, 0)); len(msgs) != 2 {
		t.Errorf("session after 1: %v", msgs)
	}
	if err := d.StartWindow(ctx, "nobody", 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("window of an unknown session: %v", err)
	}
}

func intent(run string) *task.Receipt {
	return &task.Receipt{
		Run: run, Task: "brief", Step: 1, CallID: "c1", Connector: "files", Tool: "write_file", Class: "write",
		Decision: task.DecisionAllow, Rule: "allow: files/write_file", ArgsHash: task.ArgsHash("{}"), StartedAt: noon,
	}
}

func TestIntendSettle(t *testing.T) {
	d := openTest(t, Options{SpoolItem: 10})
	started(t, d, "brief", "r1")
	r := intent("r1")
	ok(t, d.Intend(ctx, r, ""))
	if r.Seq != 1 {
		t.Fatalf("seq %d", r.Seq)
	}
	if got := must[[]task.Receipt](t)(d.RunReceipts(ctx, "r1")); len(got) != 1 || got[0] != *r {
		t.Fatalf("receipts %+v, want %+v", got, *r)
	}
	r.Outcome, r.FinishedAt = task.ReceiptOK, noon.Add(time.Second)
	msg := &task.Message{Session: "brief", Run: "r1", Role: task.RoleTool, CallID: "c1", Text: "cut", At: noon}
	ok(t, d.Settle(ctx, r, msg, strings.Repeat("x\x00", 20)))
	if got := must[task.Receipt](t)(d.Receipt(ctx, 1)); got != *r {
		t.Errorf("settled %+v, want %+v", got, *r)
	}
	if s := must[Spool](t)(d.Spool(ctx, 1)); s.Text != "x\x00x\x00x\x00x\x00x\x00" || s.Whole != 40 {
		t.Errorf("spool %+v", s)
	}
	if err := d.Settle(ctx, r, msg, ""); !errors.Is(err, ErrConflict) {
		t.Errorf("settled twice: %v", err)
	}
	if n := len(must[[]task.Message](t)(d.RunMessages(ctx, "r1"))); n != 1 {
		t.Errorf("%d messages after a refused settle", n)
	}
	if err := d.Settle(ctx, &task.Receipt{Seq: 9, Outcome: task.ReceiptOK}, nil, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("settled an unknown receipt: %v", err)
	}
}

func TestIntendNeedsARunningRun(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	run.Execution = task.Interrupted
	ok(t, d.Update(ctx, run))
	if err := d.Intend(ctx, intent("r1"), ""); !errors.Is(err, ErrLost) {
		t.Errorf("intent of an interrupted run: %v", err)
	}
	if err := d.Intend(ctx, intent("r9"), ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("intent of an unknown run: %v", err)
	}
	denied := intent("r1")
	denied.Decision = task.DecisionDeny
	if err := d.Intend(ctx, denied, ""); err == nil {
		t.Error("a denied call became an intent")
	}
	if n := len(must[[]task.Receipt](t)(d.Receipts(ctx, ReceiptFilter{}))); n != 0 {
		t.Errorf("%d receipts", n)
	}
}

func TestUpdateChecks(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	stale := run
	stale.Attempt = 7
	if err := d.Update(ctx, stale); !errors.Is(err, ErrLost) {
		t.Errorf("stale attempt: %v", err)
	}
	run.Mark(task.MarkCompacted)
	run.Reason, run.Output, run.Steps, run.Calls, run.Wall = "because\x00", "text", 3, 2, 1500*time.Millisecond
	run.Outcome, run.Execution, run.Delivery = task.OutcomeOK, task.Completed, task.DeliveryPending
	run.FinishedAt = noon.Add(time.Minute)
	ok(t, d.Update(ctx, run))
	want := run
	want.Reason = "because\uFFFD"
	if got := must[task.Run](t)(d.Run(ctx, "r1")); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// Finished: delivery may still be told, execution may not change.
	run.Delivery = task.DeliveryDelivered
	ok(t, d.Update(ctx, run))
	run.Execution = task.Failed
	var moved *task.TransitionError
	if err := d.Update(ctx, run); !errors.As(err, &moved) || moved.From != task.Completed {
		t.Errorf("moved on after the end: %v", err)
	}
	if got := must[task.Run](t)(d.Run(ctx, "r1")); got.Execution != task.Completed || got.Delivery != task.DeliveryDelivered {
		t.Errorf("after: %s %s", got.Execution, got.Delivery)
	}
}

// TestMovesAreTheTable: what CanMove forbids is refused, whatever the pair.
func TestMovesAreTheTable(t *testing.T) {
	d := openTest(t, Options{})
	for _, from := range task.Executions() {
		for _, to := range task.Executions() {
			id := string(from) + "-" + string(to)
			fire(t, d, id, id, noon)
			finished := any(nil)
			if from.Finished() {
				finished = micros(noon)
			}
			if _, err := d.sql.Write.ExecContext(ctx, "UPDATE runs SET execution = ?, finished_at = ? WHERE id = ?", from, finished, id); err != nil {
				t.Fatal(err)
			}
			// An approval keeps a waiting run from going on at once.
			ask := &task.Approval{ID: id, Run: id, Task: id, CreatedAt: noon}
			ok(t, d.Refuse(ctx, &task.Receipt{Run: id, Task: id, Decision: task.DecisionPark, Outcome: task.ReceiptNone}, nil, ask))
			err := d.Update(ctx, task.Run{ID: id, Attempt: 1, Execution: to})
			retry := from == task.Running && to == task.Queued
			if want := (from == to || from.CanMove(to)) && !retry; (err == nil) != want {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			got := must[task.Run](t)(d.Run(ctx, id))
			if got.Execution.Finished() == got.FinishedAt.IsZero() {
				t.Errorf("%s to %s: finished at %v as %s", from, to, got.FinishedAt, got.Execution)
			}
		}
	}
}

func TestRetryCountsUp(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	run.Execution, run.NotBefore, run.Reason = task.Queued, noon.Add(time.Minute), "503"
	if err := d.Update(ctx, run); err == nil {
		t.Error("a retry without its attempt was stored")
	}
	ok(t, d.Retry(ctx, run))
	if err := d.Retry(ctx, run); !errors.Is(err, ErrLost) {
		t.Errorf("retried twice: %v", err)
	}
	if next, got, err := d.NextReady(ctx, noon); err != nil || !got || !next.Equal(noon.Add(time.Minute)) {
		t.Errorf("next ready %v %v %v", next, got, err)
	}
	again, got, err := d.Claim(ctx, noon.Add(time.Minute))
	if err != nil || !got || again.Attempt != 2 || !again.StartedAt.Equal(noon) {
		t.Errorf("claimed %v attempt %d, started %v: %v", got, again.Attempt, again.StartedAt, err)
	}
}

// TestFinishingClosesWhatIsOpen: no receipt of a finished run is left open, and
// no approval can be decided any more.
func TestFinishingClosesWhatIsOpen(t *testing.T) {
	d := openTest(t, Options{})
	run := started(t, d, "brief", "r1")
	ok(t, d.Intend(ctx, intent("r1"), ""))
	ok(t, d.Refuse(ctx, parked("r1"), nil, approval("a1", "r1")))
	ok(t, d.Fail(ctx, "r1", "panic", noon))
	got := must[task.Run](t)(d.Run(ctx, "r1"))
	if got.Status() != task.StatusUnknown || got.Reason != "panic" {
		t.Errorf("status %s, reason %q", got.Status(), got.Reason)
	}
	if rc := must[task.Receipt](t)(d.Receipt(ctx, 1)); rc.Outcome != task.ReceiptUnknown {
		t.Errorf("open receipt ended as %q", rc.Outcome)
	}
	if a := must[task.Approval](t)(d.Approval(ctx, "a1")); a.State != task.ApprovalCancelled {
		t.Errorf("approval is %s", a.State)
	}
	if _, err := d.Verify(ctx); err != nil {
		t.Error(err)
	}
	_ = run
}

// FuzzMessage: whatever a model writes, its argument bytes and opaque blocks come
// back as they were, and its text as far as it is UTF-8.
func FuzzMessage(f *testing.F) {
	f.Add("text", `{"a":1}`, []byte("opaque"))
	f.Add("\x00\xff\u2028</script>", "\xff\x00", []byte("{ \"a\" : 1 }"))
	f.Fuzz(func(t *testing.T, text, arguments string, opaque []byte) {
		want := task.Message{
			Seq: 1, Session: "s", Run: "r", Role: task.RoleAssistant, Text: text, At: noon, Opaque: opaque,
			Calls: []task.ToolCall{{ID: "c", Name: "n", Arguments: arguments}},
		}
		row, err := newMessageRow(&want)
		ok(t, err)
		got := must[task.Message](t)(row.message())
		want.Text = string([]rune(text)) // broken bytes become U+FFFD
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}
