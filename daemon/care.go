package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"runnerd/alert"
	"runnerd/config"
	"runnerd/db"
	"runnerd/deliver"
	"runnerd/dispatch"
	"runnerd/scheduler"
	"runnerd/task"
	"runnerd/text"
)

// care is what the daemon does around its runs: it delivers what they say, feeds
// dead man's switches and tells people of troubles.
type care struct {
	deliverer *deliver.Deliverer
	delivery  *deliver.Worker
	pings     *deliver.Pinger
	board     *alert.Board
	budget    budget
	// turn is how many more runs may start under each budget, as the turn of the clock
	// at that time has it; only the clock's goroutine uses it.
	turn struct {
		at     time.Time
		shared map[string]*scheduler.Allowance
	}
	// command is how people call runnerd for this daemon.
	command string
	// minFree is how many bytes of disk must be free below the state directory.
	minFree atomic.Uint64
}

// minFree is room for some thousand runs of the ordinary size.
const minFree = 64 << 20

// openCare builds the parts and reads what people were told before. It comes
// before any file is read: a broken one is told once, not once a start.
func (d *Daemon) openCare(ctx context.Context) {
	d.care.command = d.options.Command
	d.care.minFree.Store(minFree)
	d.care.deliverer = deliver.New(deliver.Options{
		Resolve: d.secrets.ResolveSecret, ResolvePath: d.secrets.ResolvePath, Redact: d.redact.Text, Door: d.options.Door(), Starter: d.starter, Logger: d.log,
	})
	d.care.pings = deliver.NewPinger(deliver.PingerOptions{Resolve: d.secrets.ResolveSecret, Redact: d.redact.Text, Logger: d.log})
	d.care.board = alert.New(alert.Options{
		Store: d.main, Host: HostName(), Logger: d.log,
		Tell: func(ctx context.Context, to task.Delivery, title, text string) error {
			return d.care.deliverer.Tell(ctx, to, title, text).Err
		},
	})
	d.care.delivery = deliver.NewWorker(deliver.WorkerOptions{
		Deliverer: d.care.deliverer, Store: d.main, Logger: d.log,
		Tried: d.care.board.Delivery, Settled: func(run task.Run) { d.ping(run) },
	})
	if err := d.care.board.Load(ctx); err != nil {
		d.log.Error("open troubles not read", zap.Error(err))
	}
}

// startCare makes known what happened while the daemon was down and starts the
// parts.
func (d *Daemon) startCare(ctx context.Context, start func(name string, run func(context.Context) error)) {
	last, err := d.main.LastFinished(ctx)
	if err != nil {
		d.log.Error("last runs not read", zap.Error(err))
	}
	for _, run := range last {
		d.care.board.Ended(run)
	}
	d.lookAtApprovals(ctx)
	start("deliveries", d.care.delivery.Run)
	start("alerts", d.care.board.Run)
	start("pings", d.care.pings.Run)
	start("alive", d.alive)
	start("care", d.lookAfter)
	start("retention", d.retain)
}

// see takes a set of files over that has come into force.
func (c *care) see(set *config.Set, wrong []config.Problem) {
	to := make([]alert.Recipient, len(set.Daemon.Notify))
	for i, n := range set.Daemon.Notify {
		to[i] = alert.Recipient{To: n.To, Events: n.Events}
	}
	broken := map[string]string{}
	for _, p := range set.Problems {
		broken[p.File] += text.Field(p.Error()) + "\n"
	}
	c.board.SetRecipients(to)
	faulty := map[string]string{}
	for _, p := range wrong {
		faulty[p.File] += p.Error() + "\n"
	}
	c.board.Files(broken, faulty)
	c.board.Forget(func(id string) bool {
		_, ok := set.Tasks[id]
		return ok || broken["tasks/"+id+".md"] != "" || broken["tasks/"+id+".yaml"] != ""
	})
}

// minded is a runner after each of whose runs the daemon looks at what became of
// it.
type minded struct {
	dispatch.Runner
	d *Daemon
}

func (m minded) Run(ctx context.Context, runID string) error {
	err := m.Runner.Run(ctx, runID)
	m.d.rested(ctx, runID)
	return err
}

// mindedQueue is the same for a run that ends in place of its runner.
type mindedQueue struct {
	dispatch.Store
	d *Daemon
}

func (m mindedQueue) Fail(ctx context.Context, runID, reason string, now time.Time) error {
	err := m.Store.Fail(ctx, runID, reason, now)
	if err == nil {
		m.d.rested(ctx, runID)
	}
	return err
}

// rested looks at a run that has left its worker.
func (d *Daemon) rested(ctx context.Context, runID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	run, err := d.main.Run(ctx, runID)
	switch {
	case err != nil:
		d.log.Error("run not looked at", zap.String("run", runID), zap.Error(err))
		return
	case run.Execution == task.Waiting:
		d.lookAtApprovals(ctx)
		return
	case !run.Execution.Finished():
		return
	}
	d.partners.wake()
	d.lookAtOpenApprovals(ctx)
	if run.Rehearsal() {
		return // nobody hears of it
	}
	d.noteBudget(ctx, run)
	d.care.board.Ended(run)
	if run.Delivery == task.DeliveryPending {
		d.care.delivery.Wake() // the ping waits for it
		return
	}
	d.ping(run)
}

func (d *Daemon) ping(run task.Run) {
	if set := d.applied.Load(); set != nil {
		d.care.pings.Ended(set.Tasks[run.Task].Task, run)
	}
}

// lookAfter looks once a minute at what nobody says.
func (d *Daemon) lookAfter(ctx context.Context) error {
	t := time.NewTicker(d.every)
	defer t.Stop()
	for {
		d.look(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Daemon) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, everyMinute/2)
	defer cancel()
	d.lookAtOpenApprovals(ctx)
	d.lookAgain()
	err := d.held(ctx)
	if err == nil {
		err = d.main.Ping(ctx)
	}
	if err == nil {
		err = d.rules.Ping(ctx)
	}
	if ctx.Err() == nil {
		d.care.board.Daemon("database", errorText(err))
	}
	d.care.forgetStep(time.Now())
	d.care.board.Daemon("disk", diskTrouble(d.options.StateDir, d.care.minFree.Load()))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// diskTrouble says that there is less than enough room below dir, or nothing.
func diskTrouble(dir string, enough uint64) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Sprintf("The state directory %s cannot be looked at: %v.", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < enough {
		return fmt.Sprintf("Only %d MiB are free below the state directory %s. When it is full nothing runs, since nothing can be recorded.", free>>20, dir)
	}
	return ""
}

// turned hears of each turn of the clock that settled something: what the store
// does not take does not fire.
func (d *Daemon) turned(t scheduler.Turn) {
	d.meters.turn(t)
	detail := ""
	if t.Failed > 0 {
		detail = fmt.Sprintf("%d tasks are due and cannot be recorded, so they do not run; they are tried again. The log says why.", t.Failed)
	}
	d.care.board.Daemon("clock", detail)
}

// stepTrouble is the key of the notice that the clock went back, which stands for
// stepShown: nothing ends it, and there is no recovery to tell of.
const (
	stepTrouble = "daemon/step"
	stepShown   = time.Hour
)

// stepped hears of a clock that went back. It is told of once, and what waits for a
// time by the clock as it was follows it.
func (d *Daemon) stepped(now time.Time, back time.Duration) {
	d.care.board.Drop(stepTrouble) // an earlier step
	d.care.board.Raise(task.Trouble{
		Key: stepTrouble, Event: alert.EventFailure, Title: "the clock went back",
		Text: fmt.Sprintf("The clock went back by %s, to %s. Tasks go on from there; what has run already does not run again, and what was recorded as missed ahead of it is withdrawn.\n",
			back.Round(time.Second), now.In(d.zone).Format(time.DateTime)),
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.main.Rewind(ctx, now, back); err != nil {
		d.log.Error("what waits did not follow the clock", zap.Error(err))
	}
	d.workers.Wake()
	d.care.delivery.Wake()
}

// forgetStep takes the notice of a step away in time.
func (c *care) forgetStep(now time.Time) {
	for _, t := range c.board.Open(stepTrouble) {
		if now.Sub(t.OpenedAt).Abs() > stepShown {
			c.board.Drop(stepTrouble)
		}
	}
}

// lookAtOpenApprovals looks whether approvals that people were told of still wait.
func (d *Daemon) lookAtOpenApprovals(ctx context.Context) {
	if len(d.care.board.Open("approval/")) > 0 {
		d.lookAtApprovals(ctx)
	}
}

func (d *Daemon) lookAtApprovals(ctx context.Context) {
	pending, err := d.main.Approvals(ctx, db.ApprovalFilter{States: []task.ApprovalState{task.ApprovalPending}, Counted: true, Limit: 1000})
	if err != nil {
		d.log.Error("approvals not read", zap.Error(err))
		return
	}
	d.care.board.Approvals(pending, d.care.command)
}

// worksAgain is what a connector's notice says when it has recovered.
const worksAgain = "works again"

// connectorNotice passes on that a connector was given up, or works again.
func (d *Daemon) connectorNotice(id, text string) {
	d.log.Warn("connector", zap.String("connector", id), zap.String("detail", text))
	d.care.board.Connector(id, text == worksAgain, text)
}

// DeliverNow delivers what a run in the foreground owes and pings, and returns
// the run as it stands then. It is for a process in which the daemon's parts do
// not run, before the exit code is known.
func (d *Daemon) DeliverNow(ctx context.Context, run task.Run) (task.Run, error) {
	if !run.Execution.Finished() || run.Rehearsal() {
		return run, nil
	}
	if run.Delivery == task.DeliveryPending {
		var err error
		if run, err = d.care.delivery.Now(ctx, run.ID); err != nil {
			return run, fmt.Errorf("deliver the result of run %s: %w", run.ID, err)
		}
	}
	if set := d.applied.Load(); set != nil && run.Delivery != task.DeliveryPending {
		d.care.pings.Now(ctx, set.Tasks[run.Task].Task, run)
	}
	return run, nil
}

// alive calls the daemon's own `ping:` while all is well: the service that waits
// for it raises the alarm when it does not come, whatever the reason.
func (d *Daemon) alive(ctx context.Context) error {
	for {
		pause := time.Minute
		if set := d.applied.Load(); set != nil && set.Daemon.Ping.URL != "" {
			pause = set.Daemon.Ping.Every
			if err := d.healthy(ctx); err == nil {
				d.care.pings.Alive(set.Daemon.Ping.URL)
			} else if ctx.Err() == nil {
				d.log.Warn("daemon not well: no ping", zap.Error(err))
			}
		}
		if !waitUntil(ctx, time.Now().Add(pause)) {
			return nil
		}
	}
}
