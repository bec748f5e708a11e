package main

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
func (h *house) openCare(ctx context.Context, a *app) {
	h.care.command = a.again()
	h.care.minFree.Store(minFree)
	h.care.deliverer = deliver.New(deliver.Options{
		Resolve: h.secrets.ResolveSecret, ResolvePath: h.secrets.ResolvePath, Redact: h.redact.Text, Door: a.door(), Starter: h.starter, Logger: h.log,
	})
	h.care.pings = deliver.NewPinger(deliver.PingerOptions{Resolve: h.secrets.ResolveSecret, Redact: h.redact.Text, Logger: h.log})
	h.care.board = alert.New(alert.Options{
		Store: h.main, Host: hostName(), Logger: h.log,
		Tell: func(ctx context.Context, to task.Delivery, title, text string) error {
			return h.care.deliverer.Tell(ctx, to, title, text).Err
		},
	})
	h.care.delivery = deliver.NewWorker(deliver.WorkerOptions{
		Deliverer: h.care.deliverer, Store: h.main, Logger: h.log,
		Tried: h.care.board.Delivery, Settled: func(run task.Run) { h.ping(run) },
	})
	if err := h.care.board.Load(ctx); err != nil {
		h.log.Error("open troubles not read", zap.Error(err))
	}
}

// startCare makes known what happened while the daemon was down and starts the
// parts.
func (h *house) startCare(ctx context.Context, start func(name string, run func(context.Context) error)) {
	last, err := h.main.LastFinished(ctx)
	if err != nil {
		h.log.Error("last runs not read", zap.Error(err))
	}
	for _, run := range last {
		h.care.board.Ended(run)
	}
	h.lookAtApprovals(ctx)
	start("deliveries", h.care.delivery.Run)
	start("alerts", h.care.board.Run)
	start("pings", h.care.pings.Run)
	start("alive", h.alive)
	start("care", h.lookAfter)
	start("retention", h.retain)
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

// minded is a runner after each of whose runs the house looks at what became of
// it.
type minded struct {
	dispatch.Runner
	h *house
}

func (m minded) Run(ctx context.Context, runID string) error {
	err := m.Runner.Run(ctx, runID)
	m.h.rested(ctx, runID)
	return err
}

// mindedQueue is the same for a run that ends in place of its runner.
type mindedQueue struct {
	dispatch.Store
	h *house
}

func (m mindedQueue) Fail(ctx context.Context, runID, reason string, now time.Time) error {
	err := m.Store.Fail(ctx, runID, reason, now)
	if err == nil {
		m.h.rested(ctx, runID)
	}
	return err
}

// rested looks at a run that has left its worker.
func (h *house) rested(ctx context.Context, runID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	run, err := h.main.Run(ctx, runID)
	switch {
	case err != nil:
		h.log.Error("run not looked at", zap.String("run", runID), zap.Error(err))
		return
	case run.Execution == task.Waiting:
		h.lookAtApprovals(ctx)
		return
	case !run.Execution.Finished():
		return
	}
	h.partners.wake()
	h.lookAtOpenApprovals(ctx)
	if run.Rehearsal() {
		return // nobody hears of it
	}
	h.noteBudget(ctx, run)
	h.care.board.Ended(run)
	if run.Delivery == task.DeliveryPending {
		h.care.delivery.Wake() // the ping waits for it
		return
	}
	h.ping(run)
}

func (h *house) ping(run task.Run) {
	if set := h.applied.Load(); set != nil {
		h.care.pings.Ended(set.Tasks[run.Task].Task, run)
	}
}

// lookAfter looks once a minute at what nobody says.
func (h *house) lookAfter(ctx context.Context) error {
	t := time.NewTicker(h.every)
	defer t.Stop()
	for {
		h.look(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *house) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, everyMinute/2)
	defer cancel()
	h.lookAtOpenApprovals(ctx)
	h.lookAgain()
	err := h.held(ctx)
	if err == nil {
		err = h.main.Ping(ctx)
	}
	if err == nil {
		err = h.rules.Ping(ctx)
	}
	if ctx.Err() == nil {
		h.care.board.Daemon("database", errorText(err))
	}
	h.care.forgetStep(time.Now())
	h.care.board.Daemon("disk", diskTrouble(h.settings.StateDir, h.care.minFree.Load()))
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
func (h *house) turned(t scheduler.Turn) {
	h.meters.turn(t)
	detail := ""
	if t.Failed > 0 {
		detail = fmt.Sprintf("%d tasks are due and cannot be recorded, so they do not run; they are tried again. The log says why.", t.Failed)
	}
	h.care.board.Daemon("clock", detail)
}

// stepTrouble is the key of the notice that the clock went back, which stands for
// stepShown: nothing ends it, and there is no recovery to tell of.
const (
	stepTrouble = "daemon/step"
	stepShown   = time.Hour
)

// stepped hears of a clock that went back. It is told of once, and what waits for a
// time by the clock as it was follows it.
func (h *house) stepped(now time.Time, back time.Duration) {
	h.care.board.Drop(stepTrouble) // an earlier step
	h.care.board.Raise(task.Trouble{
		Key: stepTrouble, Event: alert.EventFailure, Title: "the clock went back",
		Text: fmt.Sprintf("The clock went back by %s, to %s. Tasks go on from there; what has run already does not run again.\n",
			back.Round(time.Second), now.In(h.zone).Format(time.DateTime)),
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := h.main.Rewind(ctx, now, back); err != nil {
		h.log.Error("what waits did not follow the clock", zap.Error(err))
	}
	h.workers.Wake()
	h.care.delivery.Wake()
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
func (h *house) lookAtOpenApprovals(ctx context.Context) {
	if len(h.care.board.Open("approval/")) > 0 {
		h.lookAtApprovals(ctx)
	}
}

func (h *house) lookAtApprovals(ctx context.Context) {
	pending, err := h.main.Approvals(ctx, db.ApprovalFilter{States: []task.ApprovalState{task.ApprovalPending}, Counted: true, Limit: 1000})
	if err != nil {
		h.log.Error("approvals not read", zap.Error(err))
		return
	}
	h.care.board.Approvals(pending, h.care.command)
}

// worksAgain is what a connector's notice says when it has recovered.
const worksAgain = "works again"

// connectorNotice passes on that a connector was given up, or works again.
func (h *house) connectorNotice(id, text string) {
	h.log.Warn("connector", zap.String("connector", id), zap.String("detail", text))
	h.care.board.Connector(id, text == worksAgain, text)
}

// deliverNow delivers what a run in the foreground owes and pings, and answers
// the run as it stands then. It is for a process in which the daemon's parts do
// not run, before the exit code is known.
func (h *house) deliverNow(ctx context.Context, run task.Run) (task.Run, error) {
	if !run.Execution.Finished() || run.Rehearsal() {
		return run, nil
	}
	if run.Delivery == task.DeliveryPending {
		var err error
		if run, err = h.care.delivery.Now(ctx, run.ID); err != nil {
			return run, fmt.Errorf("deliver the result of run %s: %w", run.ID, err)
		}
	}
	if set := h.applied.Load(); set != nil && run.Delivery != task.DeliveryPending {
		h.care.pings.Now(ctx, set.Tasks[run.Task].Task, run)
	}
	return run, nil
}

// alive calls the daemon's own `ping:` while all is well: the service that waits
// for it raises the alarm when it does not come, whatever the reason.
func (h *house) alive(ctx context.Context) error {
	for {
		pause := time.Minute
		if set := h.applied.Load(); set != nil && set.Daemon.Ping.URL != "" {
			pause = set.Daemon.Ping.Every
			if err := h.healthy(ctx); err == nil {
				h.care.pings.Alive(set.Daemon.Ping.URL)
			} else if ctx.Err() == nil {
				h.log.Warn("daemon not well: no ping", zap.Error(err))
			}
		}
		if !waitUntil(ctx, time.Now().Add(pause)) {
			return nil
		}
	}
}
