package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/text"
)

type approvalsCmd struct {
	List approvalsListCmd `cmd:"" default:"withargs" help:"List approvals that wait for a person."`
	Show approvalsShowCmd `cmd:"" help:"Show one approval with its exact arguments."`
}

type approvalsListCmd struct {
	All  bool   `help:"Decided ones too."`
	Task string `help:"Of one task." placeholder:"TASK"`
	JSON bool   `help:"Print JSON."`
}

func (c approvalsListCmd) Run(ctx context.Context, a *app) error {
	filter := db.ApprovalFilter{Task: c.Task, States: []task.ApprovalState{task.ApprovalPending}, Limit: 1000}
	if c.All {
		filter.States = nil
	}
	rows := []control.ApprovalRow{}
	err := a.Reading(ctx, func(main *db.DB) error {
		list, err := main.Approvals(ctx, filter)
		rows = control.NewApprovalRows(list)
		return err
	})
	if client := a.instead(ctx, err); client != nil {
		rows, err = client.Approvals(ctx, c.state(), c.Task)
	}
	if err != nil {
		return remote(err)
	}
	if c.JSON {
		return writeJSON(a.out, rows)
	}
	if len(rows) == 0 {
		text.Fprintf(a.out, "Nothing waits for approval.\n")
		return nil
	}
	zones := a.zones(ctx)
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "APPROVAL\tTASK\tTOOL\tCLASS\tSTATE\tEXPIRES\tARGUMENTS\n")
	for _, r := range rows {
		text.Fprintf(w, "%s\t%s\t%s/%s\t%s\t%s\t%s\t%s\n", r.ID, r.Task, r.Connector, r.Tool, r.Class, r.State, dayAndTime(r.ExpiresAt, zones(r.Task)), oneLine(r.Preview, 100))
	}
	return w.Flush()
}

// state is the filter as the API has it.
func (c approvalsListCmd) state() string {
	if c.All {
		return "all"
	}
	return string(task.ApprovalPending)
}

type approvalsShowCmd struct {
	ID   string `arg:"" help:"Approval, or its beginning."`
	JSON bool   `help:"Print JSON."`
}

func (c approvalsShowCmd) Run(ctx context.Context, a *app) error {
	ap, err := a.approval(ctx, c.ID)
	v := control.NewApprovalView(ap)
	if client := a.instead(ctx, err); client != nil {
		v, err = client.Approval(ctx, c.ID)
		if ap.Arguments = v.Arguments; ap.Arguments == "" {
			ap.Arguments = string(v.ArgumentsBase64)
		}
	}
	if err != nil {
		return remote(err)
	}
	if c.JSON {
		return writeJSON(a.out, v)
	}
	text.Fprintf(a.out, "approval   %s (%s)\nrun        %s of task %s\ncall       %s/%s, class %s\nexpires    %s\nsha256     %s\narguments  %d bytes, sent exactly as they are:\n%s\n",
		v.ID, v.State, v.Run, v.Task, v.Connector, v.Tool, v.Class, dayAndTime(v.ExpiresAt, a.zones(ctx)(v.Task)), v.ArgsHash, v.ArgumentsBytes, text.Escape(ap.Arguments))
	if v.State == task.ApprovalPending {
		text.Fprintf(a.out, "\n  %s approve %s     lets this one call go, once\n  %s deny %s\n", a.again(), v.ID, a.again(), v.ID)
	}
	return nil
}

// approval finds one by id or prefix.
func (a *app) approval(ctx context.Context, id string) (ap task.Approval, err error) {
	err = a.Reading(ctx, func(main *db.DB) (err error) {
		ap, err = main.FindApproval(ctx, id)
		return err
	})
	if errors.Is(err, db.ErrNotFound) || errors.Is(err, db.ErrAmbiguous) || err == nil && ap.ID == "" {
		return ap, usage("there is no approval %s; `runnerd approvals --all` lists them", id)
	}
	return ap, err
}

type approveCmd struct {
	ID     string `arg:"" help:"Approval, or its beginning."`
	Task   string `help:"Only if it is of this task." placeholder:"TASK"`
	Always bool   `help:"Also print the allow: line that would permit exactly this call; no file is edited."`
	Reason string `help:"A note for the record."`
}

func (c approveCmd) Run(ctx context.Context, a *app) error {
	d, err := a.decide(ctx, task.ApprovalApproved, control.Verdict{ID: c.ID, Task: c.Task, Reason: c.Reason})
	if err != nil {
		return err
	}
	if c.Always {
		printAlways(a, d)
	}
	return nil
}

type denyCmd struct {
	ID     string `arg:"" help:"Approval, or its beginning."`
	Task   string `help:"Only if it is of this task." placeholder:"TASK"`
	Reason string `help:"Why; the model reads it."`
}

func (c denyCmd) Run(ctx context.Context, a *app) error {
	_, err := a.decide(ctx, task.ApprovalDenied, control.Verdict{ID: c.ID, Task: c.Task, Reason: c.Reason})
	return err
}

// decide goes through the daemon, or records the decision itself if none runs:
// then the next `serve` goes on with the run.
func (a *app) decide(ctx context.Context, state task.ApprovalState, v control.Verdict) (control.DecisionView, error) {
	client := a.live(ctx)
	d, err := a.decision(ctx, client, state, v)
	if err != nil {
		return d, remote(err)
	}
	if !d.Decided {
		return d, &exit{task.ExitUsage, fmt.Errorf("approval %s was decided before: it is %s (by %s)", d.Approval.ID, d.Approval.State, orNone(d.Approval.DecidedBy))}
	}
	text.Fprintf(a.out, "%s %s: %s/%s of run %s\n", d.Approval.State, d.Approval.ID, d.Approval.Connector, d.Approval.Tool, d.Approval.Run)
	if client == nil {
		text.Fprintf(a.out, "No daemon runs; the run goes on when `runnerd serve` does.\n")
	}
	return d, nil
}

func (a *app) decision(ctx context.Context, client *control.Client, state task.ApprovalState, v control.Verdict) (d control.DecisionView, err error) {
	if client != nil {
		if state == task.ApprovalApproved {
			return client.Approve(ctx, v)
		}
		return client.Deny(ctx, v)
	}
	if err := a.Together(ctx, sqldb.Look); err != nil {
		return d, err
	}
	ap, err := a.approval(ctx, v.ID)
	if err != nil {
		return d, err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	err = a.asDaemon(ctx, func(d *daemon.Daemon) error {
		ap, err = d.Main().DecideApproval(ctx, db.Verdict{ID: ap.ID, Task: v.Task, State: state, By: caller(), Reason: v.Reason}, now)
		return err
	})
	if errors.Is(err, db.ErrConflict) || errors.Is(err, db.ErrNotFound) {
		return d, &exit{task.ExitUsage, err}
	}
	d = control.DecisionView{Approval: control.NewApprovalRow(ap), Decided: ap.State == state && ap.DecidedAt.Equal(now)}
	if state == task.ApprovalApproved {
		d.Always, d.AlwaysOpen = control.AllowLine(ap)
	}
	return d, err
}

// caller names the person behind a verb that works without the daemon.
func caller() string {
	uid := os.Getuid()
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return fmt.Sprintf("uid %d (%s)", uid, u.Username)
	}
	return fmt.Sprintf("uid %d", uid)
}

func printAlways(a *app, d control.DecisionView) {
	if d.Always == "" {
		text.Fprintf(a.out, "There is no allow: line for this: it is of no call, or its arguments are no JSON object.\n")
		return
	}
	text.Fprintf(a.out, "\nTo permit this call in every run without asking, with these arguments and no others, put this into the file of task %s, or its item into the allow: that is there:\n%s\n", d.Approval.Task, text.Raw("  "+text.Indent(strings.TrimRight(d.Always, "\n"), 2)))
	if len(d.AlwaysOpen) == 0 {
		text.Fprintf(a.out, "It permits one such call a run; `times: N` in the line permits more.\n")
	} else {
		text.Fprintf(a.out, "It leaves these arguments free; narrow them with `where` if you can: %s\n", strings.Join(d.AlwaysOpen, ", "))
	}
}

type cancelCmd struct {
	Run_   string `arg:"" name:"run" help:"Run id, or its beginning."`
	Reason string `help:"A note for the record." default:"cancelled by a person"`
}

func (c cancelCmd) Run(ctx context.Context, a *app) error {
	if client := a.live(ctx); client != nil {
		row, err := client.Cancel(ctx, c.Run_, c.Reason)
		if err != nil {
			return noRun(c.Run_, err)
		}
		text.Fprintf(a.out, "cancelling %s of task %s\n", row.ID, row.Task)
		return nil
	}
	return a.asDaemon(ctx, func(d *daemon.Daemon) error {
		run, err := d.Main().FindRun(ctx, c.Run_)
		if err != nil {
			return noRun(c.Run_, err)
		}
		if err := d.Recover(ctx); err != nil {
			return err
		}
		done, err := d.Main().Cancel(ctx, run.ID, c.Reason, time.Now())
		if err == nil && !done {
			err = usage("run %s has ended: it is %s", run.ID, run.Status())
		}
		if err == nil {
			text.Fprintf(a.out, "cancelled %s of task %s\n", run.ID, run.Task)
		}
		return err
	})
}
