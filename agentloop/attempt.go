package agentloop

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	wall      *time.Timer   // ends the work; set again when the limit changes

	msgs      []task.Message // of this run, oldest first
	receipts  []task.Receipt
	approvals []task.Approval

	model     llm.Model
	modelSpec task.ModelSpec
	fenced    bool
	// instructions are the project's, resolved.
	instructions string
	// overflowed tells that the vendor has said once that the context is full.
	overflowed bool
	room       int // tokens that the history may take, as of the last request
	lastOffer  policy.Offer
	offered    bool   // lastOffer is one
	lacking    string // what was not there at the last look
	advised    bool
	// What policy said last; checked before each spend.
	limits      policy.Limits
	budgets     policy.Effective // for its limits per day
	approvalTTL time.Duration
	badRow      int // calls in a row that could not be made
}

func (r *Runner) load(ctx context.Context, runID string) (*attempt, error) {
	run, err := r.Store.Run(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", runID, err)
	}
	if run.Execution != task.Running {
		return nil, fmt.Errorf("run %s is %s, not claimed", runID, run.Execution)
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
		limits: policy.DefaultLimits(), approvalTTL: policy.DefaultApprovalTTL,
		log: r.Logger.With(zap.String("run", run.ID), zap.String("task", run.Task)),
	}
	return a, a.read(ctx)
}

// read loads what earlier attempts have left.
func (a *attempt) read(ctx context.Context) (err error) {
	if a.msgs, err = a.Store.RunMessages(ctx, a.run.ID); err != nil {
		return fmt.Errorf("read messages of run %s: %w", a.run.ID, err)
	}
	if a.receipts, err = a.Store.RunReceipts(ctx, a.run.ID); err != nil {
		return fmt.Errorf("read receipts of run %s: %w", a.run.ID, err)
	}
	if a.approvals, err = a.Store.RunApprovals(ctx, a.run.ID); err != nil {
		return fmt.Errorf("read approvals of run %s: %w", a.run.ID, err)
	}
	a.forgetLook() // what was down for an earlier attempt need not be down for this one
	return nil
}

// errWall is the cause of a context that the wall limit ended.
var errWall = errors.New("wall limit")

// withWall bounds the work by what is left of the wall limit. The limit is the
// one in force at each moment: adopt sets the timer again.
func (a *attempt) withWall(ctx context.Context) (work context.Context, release func()) {
	work, cancel := context.WithCancelCause(ctx)
	a.wall = time.AfterFunc(a.wallLeft(), func() { cancel(errWall) })
	if _, err := a.effective(ctx); err != nil {
		a.log.Error("policy unreadable", zap.Error(err))
	}
	return work, func() {
		a.wall.Stop()
		cancel(nil)
	}
}

// wallLeft is what is left of the wall limit, which counts worker time only,
// over all attempts.
func (a *attempt) wallLeft() time.Duration {
	if a.limits.Wall == nil {
		return math.MaxInt64
	}
	return max(*a.limits.Wall-a.wallSpent-time.Since(a.started), 0)
}

// work is the run: open it, answer what an earlier attempt left unanswered, then
// step until the model has said its last word.
func (a *attempt) work(ctx context.Context) error {
	if a.run.Attempt > max(a.spec.Retry.Attempts, 1) {
		return a.fail("gave up after %d attempts (retry.attempts)", a.run.Attempt-1)
	}
	if last := a.lastWord(); last != nil && !a.owesReport() && !a.wroteCall(last) {
		return nil // a crash came between the answer and the end
	}
	if err := a.openModel(ctx); err != nil {
		return err
	}
	if err := a.instruct(); err != nil {
		return err
	}
	if len(a.msgs) == 0 {
		if err := a.inherit(ctx); err != nil {
			return err
		}
		if err := a.open(ctx); err != nil {
			return err
		}
	}
	if err := a.beginWindow(ctx); err != nil {
		return err
	}
	for {
		if err := a.answerCalls(ctx); err != nil {
			return err
		}
		if a.lastWord() != nil {
			if again, err := a.goOn(ctx); err != nil || !again {
				return err
			}
		}
		if err := a.step(ctx); err != nil {
			return err
		}
	}
}

// goOn tells whether the model's last word is not the run's: it was told what is
// wrong with it, or reminded of what it owes.
func (a *attempt) goOn(ctx context.Context) (bool, error) {
	if told, err := a.tellCall(ctx); told || err != nil {
		return told, err
	}
	return a.remind(ctx)
}

// open stores the message that begins the run, after everything that would make
// spending a token pointless has been checked.
func (a *attempt) open(ctx context.Context) error {
	for _, file := range a.Files.Stale(a.run.Task) {
		a.run.Mark(task.MarkConfigKeptOld + ":" + file)
	}
	if err := a.preflight(ctx); err != nil {
		return err
	}
	text, err := a.opening(ctx)
	if err != nil {
		return err
	}
	msg := &task.Message{Session: a.run.Session, Run: a.run.ID, Role: task.RoleUser, Text: a.Redact.Text(text), At: time.Now()}
	return a.append(ctx, msg)
}

// beginWindow makes a run that is to see nothing older begin the session's window.
// A crash may have come between the two, so it looks every time; a later
// beginning, which a compaction made, stays.
func (a *attempt) beginWindow(ctx context.Context) error {
	if a.spec.Session == task.SessionKeep || a.spec.Session == "" {
		return nil
	}
	window, err := a.Store.Window(ctx, a.run.Session)
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	if len(window) == 0 || window[0].Seq >= a.msgs[0].Seq {
		return nil
	}
	if err := a.Store.StartWindow(ctx, a.run.Session, a.msgs[0].Seq); err != nil {
		return fmt.Errorf("move window: %w", err)
	}
	return nil
}

// lastWord returns the message with which the model ended the run, or nil.
func (a *attempt) lastWord() *task.Message {
	if len(a.msgs) == 0 {
		return nil
	}
	last := &a.msgs[len(a.msgs)-1]
	if last.LastWord() {
		return last
	}
	return nil
}

// append stores a message, although the run may be cancelled meanwhile: what was
// spent on it is booked with it.
func (a *attempt) append(ctx context.Context, msg *task.Message) error {
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel()
	if err := a.Store.Append(final, a.days(), msg); err != nil {
		return fmt.Errorf("store message: %w", err)
	}
	a.msgs = append(a.msgs, *msg)
	return nil
}

func (a *attempt) days() task.Days {
	now, project := time.Now(), a.spec.Project
	if a.budgets.Task != "" {
		project = a.budgets.Project
	}
	return task.Days{Task: now.In(a.zone).Format(time.DateOnly), Total: now.In(a.Zone).Format(time.DateOnly), Project: project}
}

// effective freshens the files that a decision depends on and reads the policy
// as it stands now (DESIGN, section 6, "fresh on each call"). What the session may
// reach holds for a rehearsal too, whose own session nobody knows.
func (a *attempt) effective(ctx context.Context) (policy.Effective, error) {
	if err := a.Files.Freshen(ctx, a.run.Task); err != nil {
		a.log.Warn("files not freshened", zap.Error(err))
	}
	eff, err := a.Policies.Effective(ctx, a.run.Task, a.spec.SessionID(), a.spec.Project)
	if err == nil {
		a.adopt(eff)
	}
	return eff, err
}

// adopt puts the newest limits into force.
func (a *attempt) adopt(eff policy.Effective) {
	a.limits, a.budgets, a.approvalTTL = eff.Limits, eff, eff.ApprovalTTL
	a.wall.Reset(a.wallLeft())
	a.warn("policy value ignored", eff.Warnings)
}
