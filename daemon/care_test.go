package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/db"
	"runnerd/task"
)

// notices is a destination of `notify:` that writes each title down, and what it
// was told.
type notices struct{ file string }

func newNotices(t *testing.T) notices { return notices{filepath.Join(t.TempDir(), "notices")} }

// yaml is the `notify:` of runnerd.yaml.
func (n notices) yaml() string {
	return fmt.Sprintf("notify:\n  - to: command\n    command: [/bin/sh, -c, 'echo \"$RUNNERD_TITLE\" >>%s; cat >>%s.text']\n", n.file, n.file)
}

// take answers the titles since, without what each begins with.
func (n notices) take(t *testing.T) (titles []string) {
	t.Helper()
	data, err := os.ReadFile(n.file)
	if err == nil {
		err = os.Remove(n.file)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		_, title, _ := strings.Cut(strings.TrimSpace(line), ": ")
		titles = append(titles, title)
	}
	return titles
}

// played serves a for as long as during takes, in a bubble.
func played(t *testing.T, a *Options, during func(h *Daemon)) {
	t.Helper()
	h, err := New(t.Context(), *a)
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Run(life, nil) }()
	during(h)
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// pass lets a bubble's time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ends(t *testing.T, h *Daemon, id string) map[string]int {
	t.Helper()
	list, err := h.main.Occurrences(context.Background(), db.OccurrenceFilter{Task: id, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for _, o := range list {
		ends[strings.TrimSuffix(string(o.End)+" "+o.Reason, " ")]++
	}
	return ends
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

const careModels = `
models:
  default: {provider: scripted, script: scripts/say.yaml, price: {input: 1, output: 1}}
`

const sayHello = "turns:\n  - say: Hello.\n    usage: {input: 100000, output: 0}\n"

// TestBudgetOfTheDay: fault case 20, and runs_per_day. A task over its budget
// pauses with one notice and resumes by itself the next day.
func TestBudgetOfTheDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, limits, daemon, reason, title string }{
		{"cost", "{cost_per_day: 0.25}", "", "cost_per_day of 0.25 is spent", "brief: the day's budget is spent"},
		{"tokens", "{tokens_per_day: 300000}", "", "tokens_per_day of 300000 are spent", "brief: the day's budget is spent"},
		{"runs", "{runs_per_day: 3}", "", "runs_per_day of 3 is reached", "brief: the day's budget is spent"},
		{"the daemon's", "{}", "limits: {cost_per_day: 0.25}\n", "the daemon's cost_per_day of 0.25 is spent", "the day's budget is spent"},
		{"the daemon's runs", "{}", "limits: {runs_per_day: 3}\n", "the daemon's runs_per_day of 3 is reached", "the day's budget is spent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := newNotices(t)
			a := testApp(t, map[string]string{
				"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml() + c.daemon,
				"tasks/brief.md": "---\nschedule: \"*/10 * * * *\"\ntools: []\nsession: fresh\nlimits: " + c.limits + "\n---\nHello?\n",
			})
			a.Poll = time.Hour
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(20*time.Hour + 5*time.Minute)
				played(t, a, func(h *Daemon) {
					pass(time.Hour)
					same(t, "first day", ends(t, h, "brief"), map[string]int{"run": 3, "skipped budget: " + c.reason: 3})
					same(t, "told", told.take(t), []string{c.title})
					pass(3 * time.Hour) // 00:05
					same(t, "told after midnight", told.take(t), []string{"over: " + c.title})
					pass(30 * time.Minute)
					same(t, "second day", ends(t, h, "brief"), map[string]int{"run": 6, "skipped budget: " + c.reason: 20 + 1})
					same(t, "told", told.take(t), []string{c.title})
				})
			})
		})
	}
}

// D3: the tasks of a project share what it may spend in a day. One that is of no
// project goes on.
func TestProjectsBudgetOfTheDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limits, reason string }{
		{"{cost_per_day: 0.25}", "project ops's cost_per_day of 0.25 is spent"},
		{"{tokens_per_day: 300000}", "project ops's tokens_per_day of 300000 are spent"},
		{"{runs_per_day: 3}", "project ops's runs_per_day of 3 is reached"},
	} {
		t.Run(c.limits, func(t *testing.T) {
			told := newNotices(t)
			of := func(project, minute string) string {
				return "---\nschedule: \"" + minute + " * * * *\"\ntools: []\nsession: fresh\n" + project + "---\nHello?\n"
			}
			a := testApp(t, map[string]string{
				"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml(),
				"projects.yaml": "projects: {ops: {limits: " + c.limits + "}}\n",
				"tasks/a.md":    of("project: ops\n", "10"), "tasks/b.md": of("project: ops\n", "20"), "tasks/c.md": of("", "30"),
			})
			a.Poll = time.Hour
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(20*time.Hour + 5*time.Minute)
				played(t, a, func(h *Daemon) {
					pass(3*time.Hour + 50*time.Minute) // 23:55
					skipped := "skipped budget: " + c.reason
					same(t, "a", ends(t, h, "a"), map[string]int{"run": 2, skipped: 2})
					same(t, "b", ends(t, h, "b"), map[string]int{"run": 1, skipped: 3})
					same(t, "c", ends(t, h, "c"), map[string]int{"run": 4})
					same(t, "told", told.take(t), []string{"project ops: the day's budget is spent"})
					pass(30 * time.Minute) // 00:25
					same(t, "a, next day", ends(t, h, "a"), map[string]int{"run": 3, skipped: 2})
					same(t, "b, next day", ends(t, h, "b"), map[string]int{"run": 2, skipped: 3})
					same(t, "told", told.take(t), []string{"over: project ops: the day's budget is spent"})
				})
			})
		})
	}
}

// TestBudgetThatDoesNotPayForACall: what is left of the day's budget is not
// enough, so a run is stopped. The task is not started again only to be stopped.
func TestBudgetThatDoesNotPayForACall(t *testing.T) {
	t.Parallel()
	told := newNotices(t)
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml(),
		"tasks/brief.md": "---\nschedule: \"0 * * * *\"\ntools: []\nsession: fresh\nlimits: {tokens_per_day: 100005}\n---\nHello?\n",
	})
	a.Poll = time.Minute
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Minute)
		played(t, a, func(h *Daemon) {
			pass(10 * time.Hour)
			same(t, "first day", ends(t, h, "brief"), map[string]int{"run": 2, "skipped budget: what is left of the day's budget does not pay for another call": 8})
			same(t, "told", told.take(t), []string{"brief: budget"})
			// An edited limit applies at once.
			file := filepath.Join(a.ConfigDir, "tasks/brief.md")
			text, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, []byte(strings.Replace(string(text), "100005", "300000", 1)), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Hour)
			same(t, "told", told.take(t), []string{"over: brief: budget"})
			same(t, "after the edit", ends(t, h, "brief")["run"], 3)
		})
	})
}

// TestFailuresAreToldOnce: a task that fails each hour is told once, over a
// restart too, and once when it works again.
func TestFailuresAreToldOnce(t *testing.T) {
	t.Parallel()
	told := newNotices(t)
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "scripts/say.yaml": "turns:\n  - say: \"\"\n", "runnerd.yaml": told.yaml(),
		"tasks/brief.md": "---\nschedule: \"0 * * * *\"\ntools: []\nsession: fresh\n---\nHello?\n",
		"tasks/bad.md":   "---\nshedule: \"0 * * * *\"\n---\nHello?\n",
	})
	a.Poll = time.Hour
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Minute)
		played(t, a, func(*Daemon) {
			pass(5 * time.Hour)
			same(t, "told", told.take(t), []string{"file tasks/bad.md is refused", "brief: failed"})
		})
		played(t, a, func(h *Daemon) {
			pass(5 * time.Hour)
			same(t, "told after a restart", told.take(t), []string(nil))
			open, err := h.main.OpenTroubles(t.Context())
			if err != nil || len(open) != 2 {
				t.Errorf("open troubles: %v %v", open, err)
			}
		})
		for name, text := range map[string]string{"scripts/say.yaml": sayHello, "tasks/bad.md": "---\nenabled: false\n---\nHello?\n"} {
			if err := os.WriteFile(filepath.Join(a.ConfigDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		played(t, a, func(*Daemon) {
			pass(5 * time.Hour)
			same(t, "told when it works", told.take(t), []string{"over: file tasks/bad.md is refused", "over: brief: failed"})
		})
	})
}

// TestWaitingApprovalsAreTold with the exact command that allows the call.
func TestWaitingApprovalsAreTold(t *testing.T) {
	t.Parallel()
	told := newNotices(t)
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "connectors.yaml": weekConnectors, "runnerd.yaml": told.yaml(),
		"scripts/say.yaml": "turns:\n  - call: [{tool: desk/wipe, args: {}}]\n  - say: Done.\n",
		"tasks/brief.md":   "---\nschedule: \"0 9 * * *\"\non_ask: park\napproval_ttl: 2h\ntools: [desk]\nsession: fresh\n---\nWipe.\n",
	})
	a.Dial, a.Poll, a.Command = deskServer(map[string]int{}), time.Hour, "runnerd --state /s"
	synctest.Test(t, func(t *testing.T) {
		played(t, a, func(h *Daemon) {
			pass(10 * time.Hour)
			same(t, "told", told.take(t), []string{"brief: approval needed for desk/wipe"})
			pending, err := h.main.Approvals(t.Context(), db.ApprovalFilter{})
			if err != nil || len(pending) != 1 {
				t.Fatal(pending, err)
			}
			text, err := os.ReadFile(told.file + ".text")
			if want := "runnerd --state /s approve " + pending[0].ID + "\n"; err != nil || !strings.Contains(string(text), want) {
				t.Errorf("no %q in %q", want, text)
			}
			pass(2 * time.Hour)
			got := told.take(t)
			slices.Sort(got)
			same(t, "told when it expired", got, []string{"brief: denied", "over: brief: approval needed for desk/wipe"})
		})
	})
}

// TestBreakerIsTold: fault case 24, the notice. A connector that keeps failing is
// told once, and once when it works again.
func TestBreakerIsTold(t *testing.T) {
	t.Parallel()
	told := newNotices(t)
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "connectors.yaml": weekConnectors, "runnerd.yaml": "notify:\n" + strings.TrimPrefix(told.yaml(), "notify:\n") + "    events: [breaker]\n",
		"scripts/say.yaml": "turns:\n  - call: [{tool: desk/look, args: {}}]\n  - say: Done.\n",
		"tasks/brief.md":   "---\nschedule: \"*/10 * * * *\"\nsession: fresh\n---\nLook.\n",
	})
	var works atomic.Bool
	desk := deskServer(map[string]int{})
	a.Poll = time.Hour
	a.Dial = func(ctx context.Context, c task.Connector) (mcp.Transport, error) {
		if works.Load() {
			return desk(ctx, c)
		}
		return nil, fmt.Errorf("out of order")
	}
	synctest.Test(t, func(t *testing.T) {
		played(t, a, func(*Daemon) {
			pass(5 * time.Hour)
			same(t, "told", told.take(t), []string{"connector desk is down"})
			works.Store(true)
			pass(time.Hour)
			same(t, "told when it works", told.take(t), []string{"over: connector desk is down"})
		})
	})
}

// TestLostDelivery: fault case 19 through the whole daemon, over a restart.
func TestLostDelivery(t *testing.T) {
	t.Parallel()
	told, dir := newNotices(t), t.TempDir()
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml(),
		"tasks/brief.md": "---\nschedule: \"0 9 * * *\"\ntools: []\nsession: fresh\ndeliver:\n" +
			"  - {to: file, path: " + dir + "/good}\n  - {to: command, command: [/bin/sh, -c, 'test -e " + dir + "/open && cat >" + dir + "/bad']}\n---\nHello?\n",
	})
	a.Poll = time.Hour
	synctest.Test(t, func(t *testing.T) {
		var id string
		played(t, a, func(h *Daemon) {
			pass(10 * time.Hour)
			same(t, "told", told.take(t), []string{"brief: result not delivered"})
			runs, err := h.main.Runs(t.Context(), db.RunFilter{})
			if err != nil || len(runs) != 1 || runs[0].Delivery != task.DeliveryPending || runs[0].Status() != task.StatusFailed {
				t.Fatal(runs, err)
			}
			id = runs[0].ID
		})
		played(t, a, func(h *Daemon) {
			pass(12 * time.Hour)
			run, err := h.main.Run(t.Context(), id)
			if err != nil || run.Execution != task.Completed || run.Delivery != task.DeliveryFailed || run.Status() != task.StatusFailed ||
				!strings.Contains(run.Reason, "not delivered: given up after 8 attempts") {
				t.Errorf("%+v %v", run, err)
			}
			same(t, "told again", told.take(t), []string(nil))
			if err := os.WriteFile(dir+"/open", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			pass(12 * time.Hour)
			same(t, "told when it works", told.take(t), []string{"over: brief: result not delivered"})
		})
	})
	if text, err := os.ReadFile(dir + "/bad"); err != nil || string(text) != "Hello.\n" {
		t.Errorf("delivered %q, %v", text, err)
	}
}

// TestLowDisk is told before it is full, and when there is room again.
func TestLowDisk(t *testing.T) {
	t.Parallel()
	told := newNotices(t)
	a := testApp(t, map[string]string{"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml()})
	a.Poll = time.Hour
	synctest.Test(t, func(t *testing.T) {
		played(t, a, func(h *Daemon) {
			h.care.minFree.Store(1 << 62)
			pass(time.Hour)
			same(t, "told", told.take(t), []string{"the daemon's disk is in trouble"})
			h.care.minFree.Store(0)
			pass(time.Hour)
			same(t, "told", told.take(t), []string{"over: the daemon's disk is in trouble"})
		})
	})
}

// TestRetention is applied while the daemon runs, to both databases.
func TestRetention(t *testing.T) {
	t.Parallel()
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": "retention: {age: 2h, runs: 10}\n",
		"tasks/brief.md": "---\nschedule: \"*/10 * * * *\"\ntools: []\nsession: fresh\n---\nHello?\n",
		"tasks/rare.md":  "---\nschedule: \"0 * * * *\"\ntools: []\nsession: fresh\n---\nHello?\n",
	})
	a.Poll = time.Hour
	synctest.Test(t, func(t *testing.T) {
		played(t, a, func(h *Daemon) {
			pass(7 * time.Hour)
			// Up to an hour's runs may have come since the last look.
			for id, want := range map[string][2]int{"brief": {10, 16}, "rare": {2, 3}} {
				runs, err := h.main.Runs(t.Context(), db.RunFilter{Task: id})
				if err != nil || len(runs) < want[0] || len(runs) > want[1] {
					t.Errorf("%s: %d runs are kept, want %v (%v)", id, len(runs), want, err)
				}
			}
			if _, err := h.main.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			if bad, err := h.rules.Verify(t.Context()); err != nil || bad != nil {
				t.Error(bad, err)
			}
		})
	})
}
