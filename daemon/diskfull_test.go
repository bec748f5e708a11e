package daemon

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"runnerd/db"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// TestDiskFull: fault case 18 through the whole daemon. While the disk is full
// nothing runs, no call is sent without its record and people are told once; when
// there is room again every instant has its row and the task runs.
func TestDiskFull(t *testing.T) {
	told, calls, after := newNotices(t), map[string]int{}, 0
	a := testApp(t, map[string]string{
		"models.yaml": careModels, "connectors.yaml": weekConnectors, "runnerd.yaml": told.yaml(),
		"scripts/say.yaml": "turns:\n  - call: [{tool: desk/note, args: {}}]\n  - say: I've noted it.\n",
		"tasks/brief.md":   "---\nschedule: \"0 * * * *\"\nsession: fresh\ntools: [desk]\nallow: [desk/note]\ncatch_up: skip\n---\nNote.\n",
	})
	daemontest.SmallDisk(t, a.StateDir, 8<<20)
	a.Dial, a.Poll = deskServer(calls), time.Hour
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Minute)
		played(t, a, func(h *Daemon) {
			h.care.minFree.Store(1 << 20)
			pass(3 * time.Hour)
			same(t, "told", told.take(t), []string(nil))
			empty := daemontest.Fill(t, a.StateDir)
			pass(5 * time.Hour)
			if got := told.take(t); !slices.Contains(got, "the daemon's disk is in trouble") || len(got) > 3 {
				t.Errorf("told %q", got)
			}
			full := recorded(t, h)
			empty()
			pass(4 * time.Hour)
			if got := told.take(t); !slices.Contains(got, "over: the daemon's disk is in trouble") || len(got) > 3 {
				t.Errorf("told when there is room %q", got)
			}
			if after = recorded(t, h); full > 4 || after < full+3 {
				t.Errorf("%d calls before there was room again, %d in all", full, after)
			}
			checkAfterFull(t, h)
		})
	})
	if sent := calls["note"]; sent > after {
		t.Errorf("%d calls were sent, %d are on record", sent, after)
	}
}

// recorded is how many calls have a receipt.
func recorded(t *testing.T, h *Daemon) int {
	t.Helper()
	receipts, err := h.main.Receipts(context.Background(), db.ReceiptFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return len(receipts)
}

func checkAfterFull(t *testing.T, h *Daemon) {
	t.Helper()
	ctx := context.Background()
	list, err := h.main.Occurrences(ctx, db.OccurrenceFilter{Task: "brief", Limit: 100})
	if err != nil || len(list) != 12 {
		t.Errorf("%d occurrences, want one for each of 12 hours (%v)", len(list), err)
	}
	runs, err := h.main.Runs(ctx, db.RunFilter{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		if run.Status() != task.StatusOK {
			t.Errorf("after there is room again: %s: %s", run.Status(), run.Reason)
		}
	}
	if _, err := h.main.Verify(ctx); err != nil {
		t.Error(err)
	}
}
