package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"runnerd/control"
	"runnerd/db"
	"runnerd/task"
)

// throughDaemon has the running daemon run the task and follows it, with the same
// output and exit codes as a run in this process.
func (c runCmd) throughDaemon(ctx context.Context, a *app) error {
	if c.Script != "" {
		return usage("--script rehearses in this process, but a daemon holds %s; stop it, or give --state another directory", a.StateDir)
	}
	client := a.client()
	row, err := client.Start(ctx, c.Task)
	if err != nil {
		return remote(err)
	}
	p := newPrinter(a.out, time.Local)
	if c.JSON {
		p.w = io.Discard
	}
	fmt.Fprintf(p.w, "run %s of task %s, by the daemon\n", row.ID, row.Task)
	run, err := a.follow(ctx, client, row.ID, p)
	if errors.Is(err, context.Canceled) {
		_, cerr := client.Cancel(context.WithoutCancel(ctx), row.ID, "interrupted by a signal")
		run, err = a.follow(context.WithoutCancel(ctx), client, row.ID, p)
		err = errors.Join(remote(cerr), err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		if err := writeJSON(a.out, run); err != nil {
			return err
		}
	} else {
		p.endRow(run)
		fmt.Fprintf(a.out, "whole run   %s show %s\n", a.again(), run.ID)
	}
	if code := run.Status.ExitCode(); code != task.ExitOK {
		return &exit{code, errSilent}
	}
	return nil
}

// follow prints a run's transcript as it grows until the run rests: finished,
// waiting for a person, or interrupted by a shutdown.
func (a *app) follow(ctx context.Context, client *control.Client, id string, p *printer) (control.RunRow, error) {
	var last control.RunRow
	var receipts []task.Receipt
	var msgs []task.Message
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
				p.messages(msgs, receipts)
			}
		case db.EventRun:
			if e.RunRow != nil {
				last = *e.RunRow
			}
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
	client := a.client()
	after := c.From
	if after == 0 && c.Run_ == "" {
		after = control.FromNow
	}
	printers := map[string]*printer{}
	var receipts []task.Receipt
	rested := errors.New("the run rests")
	err := client.Events(ctx, after, control.EventFilter{Run: c.Run_, Task: c.Task}, func(e control.Event) error {
		if c.JSON {
			if err := writeLine(a.out, e); err != nil {
				return err
			}
		} else {
			receipts = a.tailEvent(printers, receipts, e)
		}
		if c.Run_ != "" && e.Kind == db.EventRun && task.Execution(e.Ref).Finished() {
			return rested
		}
		return nil
	})
	if errors.Is(err, rested) || errors.Is(err, context.Canceled) {
		return nil
	}
	if errors.Is(err, control.ErrNoDaemon) {
		return usage("no daemon runs with %s; `runnerd show RUN` shows a run that has ended", a.StateDir)
	}
	return remote(err)
}

// tailEvent prints one event for a person.
func (a *app) tailEvent(printers map[string]*printer, receipts []task.Receipt, e control.Event) []task.Receipt {
	p := printers[e.Run]
	if p == nil {
		p = newPrinter(a.out, time.Local)
		printers[e.Run] = p
		fmt.Fprintf(a.out, "run %s of task %s\n", e.Run, e.Task)
	}
	switch {
	case e.Receipt != nil:
		rc := receiptOf(*e.Receipt)
		rc.Run = e.Run
		receipts = keepReceipt(receipts, rc)
	case e.Message != nil:
		p.messages([]task.Message{*e.Message}, ofRun(receipts, e.Run))
	case e.RunRow != nil && task.Execution(e.Ref).Finished():
		p.endRow(*e.RunRow)
		delete(printers, e.Run)
	case e.Kind == db.EventRun:
		fmt.Fprintf(a.out, "%s  %s %s\n", e.At.In(p.zone).Format(time.TimeOnly), e.Run, e.Ref)
	}
	return receipts
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
