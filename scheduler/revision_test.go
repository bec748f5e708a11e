package scheduler_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"runnerd/scheduler"
	"runnerd/task"
)

// TestZoneInRevision (U22): the zone is part of what a schedule says only where it
// changes the instants.
func TestZoneInRevision(t *testing.T) {
	for _, c := range []struct {
		name  string
		specs []string
		reads bool
	}{
		{"U22 interval", []string{"every 5m"}, false},
		{"U22 intervals and spaces", []string{"every  1h", " every 90s"}, false},
		{"U22 a time with its own offset", []string{"at 2026-12-24T18:00+01:00", "every 1h"}, false},
		{"U22 a local time", []string{"at 2026-12-24T18:00"}, true},
		{"U22 cron", []string{"0 9 * * *"}, true},
		{"U22 both", []string{"every 5m", "@daily"}, true},
		{"U22 nothing", nil, false},
		{"U22 nonsense", []string{"sometimes"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			berlin := scheduler.Revision(task.Schedule{Specs: c.specs, Zone: "Europe/Berlin"})
			utc := scheduler.Revision(task.Schedule{Specs: c.specs, Zone: "UTC"})
			if (berlin != utc) != c.reads {
				t.Errorf("the zone counts: %v, want %v", berlin != utc, c.reads)
			}
		})
	}
}

// earlier is the revision as it was, with the zone in any case.
func earlier(t *testing.T, s task.Schedule) string {
	t.Helper()
	data, err := json.Marshal([]any{s.Specs, s.Zone, s.DayMatch})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// TestUpgradeKeepsIntervals (U22): a database of an earlier version, whose cursors
// name intervals together with their zone, records nothing as missed by an edit,
// also where the zone changed at the same time.
func TestUpgradeKeepsIntervals(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		t.Run("U22 "+zone, func(t *testing.T) {
			bubble(t, func(r *rig) {
				was := task.Schedule{Specs: []string{"every 10m"}, Zone: "UTC"}
				r.opts.OldSchedule = func(revision string) (task.Schedule, bool) { return was, revision == earlier(t, was) }
				_, err := r.store.Fire(t.Context(), []string{"a", "cron"}, func(state task.FireState) task.FirePlan {
					c := task.Cursor{Task: state.Task, Through: r.now(), ScheduleRevision: earlier(t, was)}
					if state.Task == "cron" {
						c.ScheduleRevision = scheduler.Revision(task.Schedule{Specs: []string{"*/10 * * * *"}, Zone: "UTC"})
					}
					return task.FirePlan{Cursor: c}
				})
				if err != nil {
					t.Fatal(err)
				}
				r.pass(30*time.Minute + 30*time.Second)
				a, cron := entry("a", "every 10m"), entry("cron", "*/10 * * * *")
				a.Task.Schedule.Zone = zone
				r.start(a, cron)
				defer r.stop()
				r.wantRows("a", "1 run, 2 missed newer instant")
				r.wantRows("cron", "1 run, 2 missed newer instant")
				cursors, _ := r.store.Cursors(t.Context())
				if cursors["a"].ScheduleRevision != scheduler.Revision(a.Task.Schedule) {
					t.Error("the cursor keeps its old name")
				}
			})
		})
	}
}
