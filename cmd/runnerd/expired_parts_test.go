package main

import (
	"strings"
	"testing"
	"time"

	"runnerd/control"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// expiring is a daemon's task whose call waits for a person, and for no longer than a
// second.
func expiring() map[string]string {
	return map[string]string{
		"s.yaml":          "turns:\n  - call: [{tool: gated/waitwrite, args: {}}]\n  - say: It was not done.\n",
		"connectors.yaml": "mcpServers:\n  gated: {GATED, classes: {waitwrite: write}, flags: []}\n",
		"tasks/park.yaml": "on_ask: park\napproval_ttl: 1s\ntools: [gated]\nprompt: Write.\n",
	}
}

// past waits until the newest approval's time is over, though nobody has said so: the
// daemon looks once a minute.
func (d *instance) past() control.ApprovalRow {
	d.t.Helper()
	var list []control.ApprovalRow
	d.json(&list, "approvals", "--all")
	if len(list) == 0 || list[0].State != task.ApprovalPending {
		d.t.Fatalf("approvals %+v, want one that is pending", list)
	}
	daemontest.Until(d.t, "its time is over", func() bool { return time.Now().After(*list[0].ExpiresAt) })
	return list[0]
}

// I15: who decides about an approval whose time is over is told, nothing is sent, and
// the run goes on at once: through a daemon, and without one as soon as there is one.
func TestDecidingAnExpiredApproval(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"approve", "deny"} {
		t.Run("I15 "+verb, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, expiring())
			d.open()
			p := d.start()
			p.ready()
			for _, way := range []string{"through the daemon", "without one"} {
				d.says(task.ExitWaiting, "waiting for approval", "run", "park")
				ap := d.past()
				if way == "without one" {
					p.stop()
				}
				begun := time.Now()
				d.says(task.ExitUsage, "it has expired", verb, ap.ID)
				if way == "without one" {
					p = d.start()
				}
				daemontest.Until(t, "the run has ended, "+way, func() bool { return d.runs("park")[0].Execution.Finished() })
				run := d.runs("park")[0]
				if took := time.Since(begun); took > 20*time.Second || run.ID != ap.Run || run.Status() != task.StatusDenied || !strings.Contains(run.Reason, "expired") {
					t.Errorf("%s: %s after %s: %s", way, run.Status(), took, run.Reason)
				}
				d.says(task.ExitUsage, "it is expired", verb, ap.ID)
			}
			if n := len(d.calls("waitwrite")); n != 0 {
				t.Errorf("%d calls were sent", n)
			}
			p.stop()
		})
	}
}
