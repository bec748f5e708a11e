package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/taskpolicy"
	"runnerd/text"
)

type auditCmd struct {
	List   auditListCmd   `cmd:"" default:"withargs" help:"List who did what, and when, newest first."`
	Verify auditVerifyCmd `cmd:"" help:"Check that nothing in the record was changed, added or removed."`
}

type auditListCmd struct {
	Task  string `help:"About one task." placeholder:"TASK"`
	Limit int    `short:"n" help:"How many." default:"100"`
	JSON  bool   `help:"Print JSON."`
}

// auditRow is one line of `audit --json`: a tool call, a person's decision on
// one, or a change of policy.
type auditRow struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // call | approval | policy
	By   string    `json:"by"`
	Task string    `json:"task,omitempty"`
	Run  string    `json:"run,omitempty"`
	What string    `json:"what"`
	// How is the decision and its rule, the approval's state, or the new value.
	How string `json:"how"`
}

func (c auditListCmd) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 || c.Limit > 10_000 {
		return usage("--limit is %d; expected 1 to 10000", c.Limit)
	}
	rows := []auditRow{}
	err := a.Reading(ctx, func(main *db.DB) error {
		receipts, err := main.Receipts(ctx, db.ReceiptFilter{Task: c.Task, Limit: c.Limit})
		approvals, aerr := main.Approvals(ctx, db.ApprovalFilter{Task: c.Task, Limit: c.Limit})
		for _, r := range receipts {
			rows = append(rows, callRow(r))
		}
		for _, v := range approvals {
			if !v.DecidedAt.IsZero() {
				rows = append(rows, decisionRow(v))
			}
		}
		return errors.Join(err, aerr)
	})
	if err == nil {
		err = a.ReadingPolicy(ctx, func(rules *taskpolicy.Store) error {
			f := taskpolicy.HistoryFilter{ID: c.Task, Limit: c.Limit}
			if c.Task != "" {
				f.Scope = "task"
			}
			history, err := rules.History(ctx, f)
			for _, h := range history {
				rows = append(rows, changeRow(h))
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(x, y auditRow) int { return y.At.Compare(x.At) })
	rows = rows[:min(len(rows), c.Limit)]
	if c.JSON {
		return writeJSON(a.out, rows)
	}
	return printAudit(a, rows)
}

func printAudit(a *app, rows []auditRow) error {
	zone, err := a.Zone()
	if err != nil {
		return &exit{task.ExitUsage, err}
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "WHEN\tKIND\tWHO\tWHAT\tHOW\n")
	for _, r := range rows {
		text.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.At.In(zone).Format(time.DateTime), r.Kind, oneLine(r.By, 40), oneLine(r.What, 80), oneLine(r.How, 120))
	}
	return w.Flush()
}

func callRow(r task.Receipt) auditRow {
	how := string(r.Decision)
	if r.Code != "" {
		how += " [" + r.Code + "]"
	}
	if r.Outcome != task.ReceiptNone {
		how += ", " + orText(string(r.Outcome), "under way")
	}
	at := r.StartedAt
	if at.IsZero() {
		at = r.FinishedAt
	}
	name := r.Tool
	if r.Connector != "" {
		name = r.Connector + "/" + r.Tool
	}
	return auditRow{
		At: at.UTC(), Kind: "call", By: "task " + r.Task, Task: r.Task, Run: r.Run,
		What: fmt.Sprintf("%s (%s), arguments %.12s", name, orNone(r.Class), r.ArgsHash), How: how + ": " + r.Rule,
	}
}

func decisionRow(v task.Approval) auditRow {
	how := string(v.State)
	if v.Reason != "" {
		how += ": " + v.Reason
	}
	return auditRow{
		At: v.DecidedAt.UTC(), Kind: "approval", By: orText(v.DecidedBy, "runnerd"), Task: v.Task, Run: v.Run,
		What: fmt.Sprintf("approval %s of %s/%s, arguments %.12s", v.ID, v.Connector, v.Tool, v.ArgsHash), How: how,
	}
}

func changeRow(h taskpolicy.HistoryEntry) auditRow {
	row := auditRow{
		At: h.At, Kind: "policy", By: h.By, What: fmt.Sprintf("%s of %s %s, layer %s", h.Field, h.Scope, h.ID, h.Layer),
		How: fmt.Sprintf("%s, was %s", h.New, h.Old),
	}
	if h.Scope == "task" {
		row.Task = h.ID
	}
	return row
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

type auditVerifyCmd struct {
	JSON bool `help:"Print JSON."`
}

// verifiedView is `audit verify --json`.
type verifiedView struct {
	OK bool `json:"ok"`
	// Links is how many links of the receipts' chain were checked, Checkpoint the
	// last that retention removed.
	Links      int64    `json:"links"`
	Checkpoint int64    `json:"checkpoint"`
	Problems   []string `json:"problems"`
}

// Help says what is found and what is not.
func (auditVerifyCmd) Help() string {
	return "Walks the hash chains of the receipts and of the policy history. Exit code 1 if one is broken, or shorter than the other database remembers. Whoever can write the databases " +
		"can compute a new chain: this finds mistakes and clumsy edits, not a forger."
}

func (c auditVerifyCmd) Run(ctx context.Context, a *app) error {
	v := verifiedView{Problems: []string{}}
	err := a.Reading(ctx, func(main *db.DB) error {
		verified, err := main.Verify(ctx)
		v.Links, v.Checkpoint = verified.Links, verified.Checkpoint
		var broken *db.ChainError
		if errors.As(err, &broken) {
			v.Problems = append(v.Problems, broken.Error())
			return nil
		}
		return err
	})
	if err == nil {
		err = a.ReadingPolicy(ctx, func(rules *taskpolicy.Store) error {
			bad, err := rules.Verify(ctx)
			if bad != nil {
				v.Problems = append(v.Problems, fmt.Sprintf("policy history, row %d: %s", bad.Seq, bad.Reason))
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := a.Together(ctx, sqldb.Look); err != nil { // a chain whose end is missing holds
		v.Problems = append(v.Problems, err.Error())
	}
	v.OK = len(v.Problems) == 0
	switch {
	case c.JSON:
		err = writeJSON(a.out, v)
	case v.OK:
		text.Fprintf(a.out, "ok: %d links of the receipts' chain and the whole policy history%s\n", v.Links, checkpointText(v.Checkpoint))
	default:
		for _, p := range v.Problems {
			text.Fprintf(a.out, "BROKEN: %s\n", p)
		}
	}
	if err == nil && !v.OK {
		err = &exit{task.ExitInternal, errSilent}
	}
	return err
}

func checkpointText(seq int64) string {
	if seq == 0 {
		return ""
	}
	return fmt.Sprintf("; retention has removed up to link %d", seq)
}
