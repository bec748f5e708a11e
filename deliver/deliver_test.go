package deliver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return string(data)
}

// result is a good run with a text.
func result(to ...task.Delivery) Result {
	due := time.Date(2026, 3, 1, 23, 30, 0, 0, time.UTC)
	return Result{
		Run: task.Run{ID: "r1", Task: "brief", Due: due, CreatedAt: due, StartedAt: due, FinishedAt: due.Add(time.Minute),
			Trigger: task.TriggerSchedule, Attempt: 1, Execution: task.Completed, Delivery: task.DeliveryPending},
		Task: task.Task{ID: "brief", Schedule: task.Schedule{Zone: "Europe/Berlin"}, Deliver: to},
		Text: "All is well.\n",
	}
}

// quick is a Deliverer that does not wait between attempts.
func quick(opts Options) *Deliverer {
	opts.Backoff = time.Microsecond
	return New(opts)
}

// one delivers to one destination.
func one(t *testing.T, d *Deliverer, res Result) Report {
	t.Helper()
	reports := all(d, t.Context(), res)
	if len(reports) != 1 {
		t.Fatalf("%d reports", len(reports))
	}
	return reports[0]
}

func TestWhen(t *testing.T) {
	good := task.Run{Execution: task.Completed}
	for _, c := range []struct {
		name string
		res  Result
		want string // the `when` values that apply, always aside
	}{
		{"ok", Result{Run: good, Text: "x"}, "changed not-empty"},
		{"ok, same text", Result{Run: good, Text: "x\n", Previous: "x", HasPrevious: true}, "not-empty"},
		{"ok, other text", Result{Run: good, Text: "x", Previous: "y", HasPrevious: true}, "changed not-empty"},
		{"first text is empty", Result{Run: good}, "changed"},
		{"still empty", Result{Run: good, HasPrevious: true}, ""},
		{"became empty", Result{Run: good, Previous: "x", HasPrevious: true}, "changed"},
		{"nothing to do", Result{Run: task.Run{Execution: task.Completed, Outcome: task.OutcomeNothingToDo}, Text: "nothing", Previous: "nothing", HasPrevious: true}, ""},
		{"needs attention", Result{Run: task.Run{Execution: task.Completed, Outcome: task.OutcomeNeedsAttention}, Text: "x"}, "attention changed not-empty"},
		{"reported failure", Result{Run: task.Run{Execution: task.Completed, Outcome: task.OutcomeFailed}, Text: "x"}, "failure attention changed not-empty"},
		{"failed", Result{Run: task.Run{Execution: task.Failed}, HasPrevious: true}, "failure attention"},
		{"limited", Result{Run: task.Run{Execution: task.Limited}, HasPrevious: true}, "failure attention"},
		{"denied", Result{Run: task.Run{Execution: task.Completed, Marks: []string{"refused:2"}}, HasPrevious: true}, "failure attention"},
		{"denied, needs attention", Result{Run: task.Run{Execution: task.Completed, Outcome: task.OutcomeNeedsAttention, Marks: []string{"refused:2"}}, HasPrevious: true}, "failure attention"},
		{"unknown", Result{Run: task.Run{Execution: task.Completed, Marks: []string{task.MarkUnknownEffect}}, HasPrevious: true}, "failure attention"},
		{"cancelled", Result{Run: task.Run{Execution: task.Cancelled}, HasPrevious: true}, ""},
	} {
		var got []string
		for _, when := range []string{WhenFailure, WhenAttention, WhenChanged, WhenNotEmpty} {
			ok, err := c.res.applies(when)
			must(t, err)
			if ok {
				got = append(got, when)
			}
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%s: %q, want %q", c.name, g, c.want)
		}
		for _, when := range []string{"", WhenAlways} {
			if ok, err := c.res.applies(when); !ok || err != nil {
				t.Errorf("%s: %q does not apply: %v", c.name, when, err)
			}
		}
	}
}

func TestBodySaysWhatTheRunWas(t *testing.T) {
	for _, c := range []struct {
		edit func(*Result)
		want string
	}{
		{func(*Result) {}, "All is well.\n"},
		{func(r *Result) { r.Text = " \n" }, "[runnerd: task brief, run r1 ended: ok; it left no text]\n"},
		{func(r *Result) { r.Run.Execution, r.Run.Reason = task.Limited, "the limit of\n5 steps" },
			"[runnerd: task brief, run r1 ended: budget: the limit of 5 steps]\n\nAll is well.\n"},
		{func(r *Result) { r.Run.Execution, r.Text = task.Failed, "" },
			"[runnerd: task brief, run r1 ended: failed; it left no text]\n"},
		{func(r *Result) { r.Run.SetRefused(1) }, "[runnerd: task brief, run r1 ended: denied]\n\nAll is well.\n"},
		// I21: whose words may be in it.
		{func(r *Result) { taint(r, "web/get", "files/read_file, written by run r0") },
			"[runnerd: this run read untrusted text: web/get, files/read_file, written by run r0]\n\nAll is well.\n"},
		{func(r *Result) { taint(r, "web/get"); r.Run.SetRefused(1) },
			"[runnerd: task brief, run r1 ended: denied]\n[runnerd: this run read untrusted text: web/get]\n\nAll is well.\n"},
		{func(r *Result) { taint(r, "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8", "a/9") },
			"[runnerd: this run read untrusted text: a/1, a/2, a/3, a/4, a/5, a/6, a/7, a/8, and 1 more]\n\nAll is well.\n"},
		{func(r *Result) { taint(r, "web/get"); r.Task.OutputSchema = []byte(`{}`) }, "All is well.\n"},
		{func(r *Result) {
			taint(r, "web/get")
			r.Task.OutputSchema = []byte(`{}`)
			r.Run.Mark(task.MarkInvalidOutput)
		}, "[runnerd: task brief, run r1 ended: failed]\n[runnerd: this run read untrusted text: web/get]\n\nAll is well.\n"},
	} {
		res := result()
		c.edit(&res)
		if got := body(res); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestDeliverGoesEverywhere(t *testing.T) {
	dir := t.TempDir()
	res := result(
		task.Delivery{To: "pigeon"},
		task.Delivery{To: ToFile, Path: dir + "/a.md"},
		task.Delivery{To: ToFile, Path: dir + "/b.md", When: WhenFailure},
		task.Delivery{To: ToCommand, Command: []string{"false"}},
		task.Delivery{To: ToFile, Path: dir + "/c.md", When: "sometimes"},
		task.Delivery{To: ToFile, Path: dir + "/d.md"},
	)
	reports := all(quick(Options{Attempts: 2}), t.Context(), res)
	want := []struct {
		attempts int
		err      string
	}{{0, `kind "pigeon" is unknown`}, {1, ""}, {0, ""}, {2, "exit status 1"}, {0, `when "sometimes" is unknown`}, {1, ""}}
	for i, r := range reports {
		if r.Index != i || r.Delivery.To != res.Task.Deliver[i].To || r.Attempts != want[i].attempts || r.Attempted != (r.Attempts > 0) {
			t.Errorf("report %d: %+v", i, r)
		}
		if (r.Err == nil) != (want[i].err == "") || (r.Err != nil && !strings.Contains(r.Err.Error(), want[i].err)) {
			t.Errorf("report %d: error %v, want %q", i, r.Err, want[i].err)
		}
	}
	if content(t, dir+"/a.md") != res.Text || content(t, dir+"/d.md") != res.Text {
		t.Error("files do not hold the text")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("directory holds %v", entries)
	}
}

func TestDeliveredAgain(t *testing.T) {
	dir := t.TempDir()
	res := result(toFile(dir+"/always"), task.Delivery{To: ToFile, Path: dir + "/failure", When: WhenFailure})
	res.Run.Delivery = task.DeliveryFailed
	reports := all(quick(Options{}), t.Context(), res)
	if got := content(t, dir+"/always"); got != res.Text {
		t.Errorf("an earlier failed delivery changed the result to %q", got)
	}
	if reports[1].Attempted {
		t.Error("an earlier failed delivery made the run a failure")
	}
}

func TestRetry(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		name     string
		answers  []error // the last one repeats
		want     error
		attempts int
		took     time.Duration
	}{
		{"at once", []error{nil}, nil, 1, 0},
		{"the third time", []error{no, no, nil}, nil, 3, 6 * time.Second},
		{"never", []error{no}, no, 4, 14 * time.Second},
		{"final", []error{no, final{no}, nil}, no, 2, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{Attempts: 4})
			begin, n := time.Now(), 0
			attempts, err := d.retry(t.Context(), 0, func(context.Context) error {
				n++
				return c.answers[min(n, len(c.answers))-1]
			})
			if !errors.Is(err, c.want) || attempts != c.attempts || n != c.attempts || time.Since(begin) != c.took {
				t.Errorf("%s: %v after %d attempts and %s", c.name, err, attempts, time.Since(begin))
			}
		})
	}
}

func TestRetryIsBounded(t *testing.T) {
	no := errors.New("no")
	slow := func(ctx context.Context) error { <-ctx.Done(); return no }
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		attempts, err := New(Options{Attempts: 100}).retry(t.Context(), time.Minute, slow)
		if !errors.Is(err, no) || attempts != 5 || time.Since(begin) != 5*time.Minute {
			t.Errorf("deadline: %v after %d attempts and %s", err, attempts, time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		attempts, err := New(Options{}).retry(ctx, 0, slow)
		if !errors.Is(err, context.DeadlineExceeded) || attempts != 1 || time.Since(begin) != 31*time.Second {
			t.Errorf("in the pause: %v after %d attempts and %s", err, attempts, time.Since(begin))
		}
	})
}

func TestCheck(t *testing.T) {
	d := New(Options{})
	for _, c := range []struct {
		to   task.Delivery
		want string
	}{
		{task.Delivery{To: ToFile, Path: `/srv/{{.Task}}/{{.Due.Format "2006"}}.md`, When: WhenChanged}, ""},
		{task.Delivery{To: ToCommand, Command: []string{"mail"}}, ""},
		{task.Delivery{To: ToNotify, URL: "ntfy://ntfy.sh/topic"}, ""},
		{task.Delivery{To: ToNotify, URL: "${credential:ntfy_url}"}, ""},
		{task.Delivery{To: ToFile, Path: "/srv/{{.Text}}"}, "Text"},
		{task.Delivery{To: ToFile, Path: "/srv/{{"}, "path template"},
		{task.Delivery{To: ToCommand}, "command is empty"},
		{task.Delivery{To: ToNotify, URL: "nosuch://secret-token@host"}, `no notification service is called "nosuch"`},
		{task.Delivery{To: ToNotify, URL: "://"}, "cannot be read"},
		{task.Delivery{To: ToNotify, URL: "logger://"}, "delivers nowhere"},
		{task.Delivery{To: ToNotify, URL: "slack+https://example.com"}, "no custom URL"},
		{task.Delivery{To: ToFile, Path: "/a", When: "never"}, `when "never"`},
		{task.Delivery{To: ""}, `kind ""`},
	} {
		err := d.Check(c.to)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.to, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret-token") {
			t.Errorf("the error shows the URL: %v", err)
		}
	}
}

func TestSecretsStayOut(t *testing.T) {
	dir := t.TempDir()
	secret := "hunter2-hunter2"
	d := quick(Options{
		Resolve: func(s string) (string, error) { return strings.ReplaceAll(s, "${credential:x}", secret), nil },
		Redact:  func(s string) string { return strings.ReplaceAll(s, secret, "***") },
	})
	res := result(task.Delivery{To: ToFile, Path: dir + "/f"},
		task.Delivery{To: ToCommand, Command: []string{"sh", "-c", "cat >" + dir + "/stdin; echo told ${credential:x}; exit 1"}})
	res.Text = "the password is " + secret
	reports := all(d, t.Context(), res)
	for _, file := range []string{"f", "stdin"} {
		if got := content(t, filepath.Join(dir, file)); got != "the password is ***\n" {
			t.Errorf("%s: %q", file, got)
		}
	}
	if err := reports[1].Err; err == nil || !strings.Contains(err.Error(), "told ***") {
		t.Errorf("error %v", err)
	}
}

func TestReferencesAreNotLeftIn(t *testing.T) {
	d := quick(Options{})
	for _, to := range []task.Delivery{
		{To: ToFile, Path: "/${env:HOME}/x"}, {To: ToCommand, Command: []string{"echo", "${credential:x}"}}, {To: ToNotify, URL: "${credential:x}"},
	} {
		if r := one(t, d, result(to)); r.Attempted || r.Err == nil || !strings.Contains(r.Err.Error(), "cannot be resolved") {
			t.Errorf("%+v: %+v", to, r)
		}
	}
}

// all takes a result to every destination of its task, as Tell takes a notice to one:
// with the few quick attempts of deliver.
func all(d *Deliverer, ctx context.Context, res Result) []Report {
	reports := make([]Report, len(res.Task.Deliver))
	var wg sync.WaitGroup
	res.Run = res.Run.BeforeDelivery()
	for i, to := range res.Task.Deliver {
		reports[i] = Report{Index: i, Delivery: to}
		applies, err := d.Applies(res, i)
		if err != nil || !applies {
			reports[i].Err = err
			d.log(res.Run, reports[i])
			continue
		}
		wg.Go(func() {
			d.deliver(ctx, &reports[i], d.message(res))
			d.log(res.Run, reports[i])
		})
	}
	wg.Wait()
	return reports
}

// taint makes the result that of a run which read untrusted text from the sources.
func taint(r *Result, sources ...string) {
	for _, s := range sources {
		r.Run.Mark(task.MarkUntrusted + ":" + s)
	}
}
