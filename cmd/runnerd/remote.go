package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/term"

	"runnerd/control"
	"runnerd/db"
	"runnerd/task"
	"runnerd/text"
)

// throughDaemon has the running daemon run the task and follows it, with the same
// output and exit codes as a run in this process.
func (c runCmd) throughDaemon(ctx context.Context, a *app, client *control.Client, script task.Script) error {
	start := client.Start
	if script != (task.Script{}) {
		start = func(ctx context.Context, id string) (control.RunRow, error) { return client.Rehearse(ctx, id, script) }
	}
	row, err := start(ctx, c.Task)
	if err != nil {
		return remote(err)
	}
	p := newPrinter(a.out, a.zoneOf(ctx, client, c.Task))
	if c.JSON {
		p.w = io.Discard
	}
	text.Fprintf(p.w, "run %s of task %s%s\n", row.ID, row.Task, c.played())
	run, err := a.follow(ctx, client, row.ID, p)
	if errors.Is(err, context.Canceled) {
		_, cerr := client.Cancel(context.WithoutCancel(ctx), row.ID, "interrupted by a signal")
		run, err = a.follow(context.WithoutCancel(ctx), client, row.ID, p)
		err = errors.Join(remote(cerr), err)
	}
	if err != nil {
		return err
	}
	if run, err = delivered(ctx, client, run); err != nil {
		return err
	}
	if c.JSON {
		if err := writeJSON(a.out, run); err != nil {
			return err
		}
	} else {
		p.endRow(run)
		text.Fprintf(a.out, "whole run   %s show %s\n", a.again(), run.ID)
	}
	if code := run.Status.ExitCode(); code != task.ExitOK {
		return &exit{code, errSilent}
	}
	return nil
}

// zoneOf is a task's time zone, in which its own prompt has the time too.
func (a *app) zoneOf(ctx context.Context, client *control.Client, id string) *time.Location {
	if v, err := client.Task(ctx, id); err == nil {
		if zone, err := time.LoadLocation(v.Timezone); err == nil && v.Timezone != "" {
			return zone
		}
	}
	return a.ownZone()
}

// ownZone is the daemon's zone as far as it can be told from here.
func (a *app) ownZone() *time.Location {
	if zone, err := a.Zone(); err == nil {
		return zone
	}
	return time.Local
}

// deliveryWait bounds how long a person waits for the daemon's first attempts to
// deliver a result: each has 30 s unless its task says otherwise.
const deliveryWait = 2 * time.Minute

// delivered waits until the first attempt of each destination of a finished run has
// been made, since the exit code depends on it.
func delivered(ctx context.Context, client *control.Client, run control.RunRow) (control.RunRow, error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryWait)
	defer cancel()
	for run.Execution.Finished() && task.DeliveryState(run.Delivery) == task.DeliveryPending {
		v, err := client.Run(ctx, run.ID)
		if err == nil {
			run = v.Run
		} else if ctx.Err() == nil {
			return run, remote(err)
		}
		if v.Untried == 0 && err == nil && settles(run) || !waitUntil(ctx, time.Now().Add(follows)) {
			break
		}
	}
	return run, nil
}

// settles tells whether a run whose destinations have all been tried stands as it
// will: delivered, failed, or marked as not there yet.
func settles(run control.RunRow) bool {
	return task.DeliveryState(run.Delivery) != task.DeliveryPending ||
		slices.Contains(run.Marks, task.MarkUndelivered) || slices.Contains(run.Marks, task.MarkHeld)
}

// follow prints a run's transcript as it grows until the run rests: finished,
// waiting for a person, or interrupted by a shutdown.
func (a *app) follow(ctx context.Context, client *control.Client, id string, p *printer) (control.RunRow, error) {
	var last control.RunRow
	var receipts []task.Receipt
	var msgs []task.Message
	told := 1 // the first attempt
	rested := errors.New("the run rests")
	err := client.Events(ctx, 0, control.EventFilter{Run: id}, func(e control.Event) error {
		switch e.Kind {
		case db.EventReceipt:
			if e.Receipt != nil {
				receipts = keepReceipt(receipts, receiptOf(*e.Receipt))
			}
		case db.EventMessage:
			if e.Message != nil {
				msgs = append(msgs, *e.Message)
				p.Messages(msgs, receipts)
			}
		case db.EventRun:
			if e.RunRow != nil {
				last = *e.RunRow
			}
			// An event shows the run as it is now: each attempt is told of once.
			if last.Execution == task.Queued && last.Attempt > told && last.Reason != "" && last.NotBefore != nil {
				told = last.Attempt
				p.Retry(*last.NotBefore, last.Reason)
			}
			p.Trying(last.Execution, last.Reason)
			if rests(task.Execution(e.Ref)) && last.ID != "" && last.Execution == task.Execution(e.Ref) {
				return rested
			}
		}
		return nil
	})
	if errors.Is(err, rested) {
		return last, nil
	}
	return last, remote(err)
}

// rests tells whether a run in this execution goes on by itself soon.
func rests(e task.Execution) bool {
	return e.Finished() || e == task.Waiting || e == task.Interrupted
}

func receiptOf(r control.ReceiptRow) task.Receipt {
	return task.Receipt{
		Seq: r.Seq, Step: r.Step, CallID: r.CallID, Connector: r.Connector, Tool: r.Tool, Class: r.Class,
		Decision: r.Decision, Code: r.Code, Rule: r.Rule, ArgsHash: r.ArgsHash, Outcome: r.Outcome, ApprovalID: r.ApprovalID,
	}
}

// remote turns an answer of the daemon's into an exit code: what the caller can
// mend is usage, everything else internal.
func remote(err error) error {
	var told *control.Error
	if errors.As(err, &told) && told.Status >= 400 && told.Status < 500 {
		return &exit{task.ExitUsage, err}
	}
	return err
}

type tailCmd struct {
	Run_ string `arg:"" optional:"" name:"run" help:"Run to follow; every run if left out."`
	Task string `help:"Only runs of this task." placeholder:"TASK"`
	From int64  `help:"Go on after this event; default: what comes, or the whole run." placeholder:"SEQ"`
	JSON bool   `help:"Print each event as a line of JSON."`
}

// Run follows the event stream and takes it up again where a cut left it.
func (c tailCmd) Run(ctx context.Context, a *app) error {
	p := a.Present(ctx)
	client := p.Client
	switch {
	case client != nil:
	case p.Running:
		return a.unheard(p)
	case a.unasked(p) != "":
		return usage("%s", a.unasked(p))
	default:
		return usage("no daemon runs with %s; `runnerd show RUN` shows a run that has ended", a.StateDir)
	}
	after := c.From
	if after == 0 && c.Run_ == "" {
		after = control.FromNow
	}
	if err := c.known(ctx, a, client); err != nil {
		return err
	}
	t := tail{a: a, printers: map[string]*printer{}}
	rested := errors.New("the run rests")
	err := client.Events(ctx, after, control.EventFilter{Run: c.Run_, Task: c.Task}, func(e control.Event) error {
		if c.JSON {
			if err := writeLine(a.out, e); err != nil {
				return err
			}
		} else {
			t.event(e)
		}
		if c.Run_ != "" && e.Kind == db.EventRun && task.Execution(e.Ref).Finished() {
			return rested
		}
		return nil
	})
	if errors.Is(err, rested) || errors.Is(err, context.Canceled) {
		return nil
	}
	return noRun(c.Run_, err)
}

// known refuses to wait for what cannot come, and says that it waits.
func (c tailCmd) known(ctx context.Context, a *app, client *control.Client) error {
	if c.Task != "" {
		if _, err := client.Task(ctx, c.Task); err != nil {
			return remote(err)
		}
	}
	if f, ok := a.err.(*os.File); ok && c.Run_ == "" && term.IsTerminal(int(f.Fd())) {
		text.Fprintf(a.err, "following runs as they happen; Ctrl-C ends it\n")
	}
	return nil
}

// tail prints the events of several runs for a person: whenever it turns to
// another run it says to which.
type tail struct {
	a        *app
	printers map[string]*printer
	receipts []task.Receipt
	last     string // run of the last line
}

func (t *tail) event(e control.Event) {
	p := t.printers[e.Run]
	if p == nil {
		p = newPrinter(t.a.out, t.a.ownZone())
		t.printers[e.Run] = p
	}
	if e.Receipt != nil { // shown beside its answer
		rc := receiptOf(*e.Receipt)
		rc.Run = e.Run
		t.receipts = keepReceipt(t.receipts, rc)
		return
	}
	if e.Run != t.last {
		text.Fprintf(t.a.out, "run %s of task %s\n", e.Run, e.Task)
		t.last = e.Run
	}
	switch {
	case e.Message != nil:
		p.Messages([]task.Message{*e.Message}, ofRun(t.receipts, e.Run))
	case e.RunRow != nil && task.Execution(e.Ref).Finished():
		p.endRow(*e.RunRow)
		delete(t.printers, e.Run)
		t.receipts = slices.DeleteFunc(t.receipts, func(rc task.Receipt) bool { return rc.Run == e.Run })
		t.last = ""
	case e.Approval != nil:
		ap := e.Approval
		text.Fprintf(t.a.out, "%s  approval %s (%s): %s/%s %s\n", e.At.In(p.zone).Format(time.TimeOnly), ap.ID, ap.State, ap.Connector, ap.Tool, oneLine(ap.Preview, 120))
	case e.Kind == db.EventRun:
		text.Fprintf(t.a.out, "%s  %s %s\n", e.At.In(p.zone).Format(time.TimeOnly), e.Run, e.Ref)
	}
}

// keepReceipt adds a receipt, or its newer state: it is told at the intent and at
// the outcome.
func keepReceipt(list []task.Receipt, rc task.Receipt) []task.Receipt {
	for i := range list {
		if list[i].Seq == rc.Seq {
			list[i] = rc
			return list
		}
	}
	return append(list, rc)
}

func ofRun(receipts []task.Receipt, run string) []task.Receipt {
	var list []task.Receipt
	for _, r := range receipts {
		if r.Run == run {
			list = append(list, r)
		}
	}
	return list
}
