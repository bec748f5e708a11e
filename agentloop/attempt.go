package agentloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// attempt is one worker's hold of a run: what the store has of it, and what was
// opened for it.
type attempt struct {
	*Runner
	log       *zap.Logger
	run       task.Run
	spec      task.Task
	zone      *time.Location
	started   time.Time
	wallSpent time.Duration // by earlier attempts

	msgs      []task.Message // of this run, oldest first
	receipts  []task.Receipt
	approvals []task.Approval

	model     llm.Model
	modelSpec task.ModelSpec
	fenced    bool
	compacted bool
	lastOffer policy.Offer
	// limits are the newest that policy gave; checked before each spend.
	limits policy.Limits
	day    policy.Limits
	badRow int // invalid arguments and unknown names in a row
}

func (r *Runner) load(ctx context.Context, runID string) (*attempt, error) {
	run, err := r.Store.Run(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", runID, err)
	}
	spec, err := r.Store.Revision(ctx, run.Revision)
	if err != nil {
		return nil, fmt.Errorf("read revision of run %s: %w", runID, err)
	}
	zone, err := time.LoadLocation(spec.Schedule.Zone)
	if err != nil {
		zone = r.Zone
	}
	a := &attempt{
		Runner: r, run: run, spec: spec, zone: zone, started: time.Now(), wallSpent: run.Wall,
		limits: policy.DefaultLimits(),
		log:    r.Logger.With(zap.String("run", run.ID), zap.String("task", run.Task)),
	}
	if a.msgs, err = r.Store.RunMessages(ctx, runID); err != nil {
		return nil, fmt.Errorf("read messages of run %s: %w", runID, err)
	}
	if a.receipts, err = r.Store.RunReceipts(ctx, runID); err != nil {
		return nil, fmt.Errorf("read receipts of run %s: %w", runID, err)
	}
	if a.approvals, err = r.Store.RunApprovals(ctx, runID); err != nil {
		return nil, fmt.Errorf("read approvals of run %s: %w", runID, err)
	}
	return a, nil
}

// errWall is the cause of a context that the wall limit ended.
var errWall = errors.New("wall limit")

// withWall bounds the work by what is left of the wall limit, which counts
// worker time only, over all attempts. The limit is the one in force now.
func (a *attempt) withWall(ctx context.Context) (context.Context, context.CancelFunc) {
	if eff, err := a.effective(ctx); err == nil {
		a.adopt(eff)
	}
	if a.limits.Wall == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, max(*a.limits.Wall-a.wallSpent, 0), errWall)
}

// work is the run: open it, answer what an earlier attempt left unanswered, then
// step until the model has said its last word.
func (a *attempt) work(ctx context.Context) error {
	if a.run.Attempt > max(a.spec.Retry.Attempts, 1) {
		if err := a.abandon(ctx); err != nil {
			return err
		}
		return a.fail("gave up after %d attempts (retry.attempts)", a.run.Attempt-1)
	}
	if err := a.openModel(ctx); err != nil {
		return err
	}
	if len(a.msgs) == 0 {
		if err := a.open(ctx); err != nil {
			return err
		}
	}
	for {
		if err := a.answerCalls(ctx); err != nil {
			return err
		}
		if a.lastWord() != nil {
			return nil
		}
		if err := a.step(ctx); err != nil {
			return err
		}
	}
}

// open stores the message that begins the run, after everything that would make
// spending a token pointless has been checked.
func (a *attempt) open(ctx context.Context) error {
	if err := a.checkRequired(ctx); err != nil {
		return err
	}
	text, err := a.opening(ctx)
	if err != nil {
		return err
	}
	msg := &task.Message{Session: a.run.Session, Run: a.run.ID, Role: task.RoleUser, Text: a.Redact.Text(text), At: time.Now()}
	if err := a.append(ctx, msg); err != nil {
		return err
	}
	if a.spec.Session == task.SessionKeep || a.spec.Session == "" {
		return nil
	}
	return a.Store.StartWindow(ctx, a.run.Session, msg.Seq)
}

// checkRequired fails the run before it spends anything if a connector that the
// task requires is not up.
func (a *attempt) checkRequired(ctx context.Context) error {
	for _, id := range a.spec.Require {
		if _, err := a.Connectors.Tools(ctx, id); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a.run.Mark(task.MarkRequiredDown + ":" + id)
			return &retryable{reason: fmt.Sprintf("required connector %s is down: %v", id, err)}
		}
	}
	return nil
}

// lastWord returns the message with which the model ended the run, or nil.
func (a *attempt) lastWord() *task.Message {
	if len(a.msgs) == 0 {
		return nil
	}
	last := &a.msgs[len(a.msgs)-1]
	if last.Role == task.RoleAssistant && len(last.Calls) == 0 {
		return last
	}
	return nil
}

func (a *attempt) append(ctx context.Context, msg *task.Message) error {
	if err := a.Store.Append(ctx, a.days(), msg); err != nil {
		return fmt.Errorf("store message: %w", err)
	}
	a.msgs = append(a.msgs, *msg)
	return nil
}

func (a *attempt) days() task.Days {
	now := time.Now()
	return task.Days{Task: now.In(a.zone).Format(time.DateOnly), Total: now.In(a.Zone).Format(time.DateOnly)}
}

// effective freshens the files that a decision depends on and reads the policy
// as it stands now (DESIGN, section 6, "fresh on each call").
func (a *attempt) effective(ctx context.Context) (policy.Effective, error) {
	if err := a.Files.Freshen(ctx, a.run.Task); err != nil {
		a.log.Warn("files not freshened", zap.Error(err))
	}
	return a.Policies.Effective(ctx, a.run.Task, a.run.Session, a.spec.Project)
}

func (a *attempt) adopt(eff policy.Effective) {
	a.limits, a.day = eff.Limits, eff.Day
	for _, w := range eff.Warnings {
		a.log.Warn("policy value ignored", zap.String("detail", w))
	}
}
