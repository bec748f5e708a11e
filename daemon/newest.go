package daemon

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/taskpolicy"
)

// newestRules are the policy of the newest files that anybody has loaded. Where
// those cannot be stored, what stood before is no answer: an edit that takes a
// right away would be missed. A run's project is the one that its file names now.
type newestRules struct {
	*taskpolicy.Store
	d *Daemon
}

// Effective implements agentloop.Policies.
func (n newestRules) Effective(ctx context.Context, taskID, session, project string) (policy.Effective, error) {
	if err := n.d.kept(ctx); err != nil {
		return policy.Effective{}, fmt.Errorf("read policy of task %s: %w", taskID, err)
	}
	if err := n.d.putNewest(ctx); err != nil {
		return policy.Effective{}, fmt.Errorf("read policy of task %s: %w", taskID, err)
	}
	if set := n.d.applied.Load(); set != nil {
		if t, ok := set.Tasks[taskID]; ok {
			project = t.Task.Project
		}
	}
	return n.Store.Effective(ctx, taskID, session, project)
}

// takenUp is after how long files that could not be stored are taken up again.
const takenUp = 5 * time.Second

// follow puts into force what somebody loaded and did not get stored: that one may
// have been cut short, or a database was busy.
func (d *Daemon) follow(ctx context.Context) error {
	for {
		select {
		case <-d.behind:
		case <-ctx.Done():
			return nil
		}
		if !waitFor(ctx, takenUp) {
			return nil
		}
		if err := d.putNewest(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("reload", zap.Error(err))
		}
	}
}
