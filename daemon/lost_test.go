package daemon

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/control"
	"runnerd/db"
	"runnerd/task"
)

// U15: nothing is fired into a database that was removed, nor started from it, the
// trouble stays, and every instant has its row once the file is back.
func TestNothingStartsInALostDatabase(t *testing.T) {
	for _, name := range []string{"runnerd.db", "task_policies.db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := newNotices(t)
			a := testApp(t, map[string]string{
				"models.yaml": careModels, "scripts/say.yaml": sayHello, "runnerd.yaml": told.yaml(),
				"tasks/brief.md": "---\nschedule: \"0 * * * *\"\ntools: []\nsession: fresh\ncatch_up: all\n---\nHello?\n",
				"tasks/other.md": "---\ntools: []\n---\nHello?\n",
			})
			a.Poll = time.Hour
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(30 * time.Minute)
				played(t, a, func(h *Daemon) {
					pass(2 * time.Hour)
					before := runIDs(t, h)
					waits := task.Run{ID: "waits", Task: "other", Session: "other", Due: time.Now(), Trigger: task.TriggerManual, Attempt: 1, NotBefore: time.Now().Add(30 * time.Minute), CreatedAt: time.Now()}
					if err := h.main.InsertManual(t.Context(), waits); err != nil {
						t.Fatal(err)
					}
					move(t, a.StateDir+"/"+name, a.StateDir+"/away")
					pass(5 * time.Hour)
					after := runIDs(t, h)
					if len(before) != 2 || !slices.Equal(after, append([]string{"waits"}, before...)) {
						t.Errorf("runs %v, want %v and one that waits", after, before)
					}
					if run, err := h.main.Run(t.Context(), "waits"); err != nil || run.Execution != task.Queued {
						t.Errorf("what waited is %s (%v)", run.Execution, err)
					}
					if err := h.healthy(t.Context()); err == nil || !strings.Contains(err.Error(), name+" was removed") {
						t.Errorf("health: %v", err)
					}
					var no *control.Error
					if _, err := h.startManual(t.Context(), "brief", task.Script{}); !errors.As(err, &no) || no.Code != control.CodeUnavailable || !strings.Contains(no.Message, "was removed") {
						t.Errorf("a manual run: %v", err)
					}
					if got := told.take(t); !slices.Contains(got, "the daemon's database is in trouble") || slices.Contains(got, "over: the daemon's database is in trouble") {
						t.Errorf("told %q", got)
					}
					if open := h.care.board.Open("daemon/database"); len(open) != 1 {
						t.Errorf("open troubles: %+v", open)
					}
					move(t, a.StateDir+"/away", a.StateDir+"/"+name)
					pass(2 * time.Hour)
					if got := ends(t, h, "brief"); got["run"] != 9 {
						t.Errorf("occurrences %v, want one run for each of 9 hours", got)
					}
					if err := h.healthy(t.Context()); err != nil {
						t.Errorf("health: %v", err)
					}
				})
			})
		})
	}
}

func runIDs(t *testing.T, h *Daemon) (ids []string) {
	t.Helper()
	runs, err := h.main.Runs(t.Context(), db.RunFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
