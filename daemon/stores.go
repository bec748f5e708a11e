package daemon

import (
	"context"
	"time"

	"runnerd/agentloop"
	"runnerd/dispatch"
	"runnerd/scheduler"
	"runnerd/task"
)

// stores are the main database as each part sees it.
type stores struct {
	clock scheduler.Store
	queue dispatch.Store
	loop  agentloop.Store
	tools agentloop.Connectors
}

// keptClock fires nothing into databases that were lost: nobody will read it. The
// clock's own probe is refused too, so that it counts as stuck.
type keptClock struct {
	scheduler.Store
	d *Daemon
}

func (k keptClock) Fire(ctx context.Context, tasks []string, decide func(task.FireState) task.FirePlan) ([]task.Run, error) {
	if err := k.d.kept(ctx); err != nil {
		return nil, err
	}
	return k.Store.Fire(ctx, tasks, decide)
}

// keptQueue starts no run that lies in them.
type keptQueue struct {
	dispatch.Store
	d *Daemon
}

func (k keptQueue) Claim(ctx context.Context, now time.Time) (task.Run, bool, error) {
	if err := k.d.kept(ctx); err != nil {
		return task.Run{}, false, err
	}
	return k.Store.Claim(ctx, now)
}
