package agentloop

import (
	"context"
	"fmt"

	"runnerd/policy"
	"runnerd/task"
)

// inherit marks a new run that begins with what an earlier run of its session read
// or said, if that run had read untrusted text: what a stranger wrote has no less
// power on the day after. The mark is stored before the model is asked anything,
// since a window that moves on no longer shows where it came from.
//
// Without a readable policy the marks of the earlier runs alone count; no call is
// sent then anyway.
func (a *attempt) inherit(ctx context.Context) error {
	if a.spec.Session == task.SessionFresh || a.run.HasMark(task.MarkUntrusted) {
		return nil
	}
	eff, err := a.effective(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	window, err := a.Store.Window(ctx, a.run.Session)
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	seen := map[string]bool{a.run.ID: true}
	for i := len(window) - 1; i >= 0; i-- {
		id := window[i].Run
		if seen[id] {
			continue
		}
		seen[id] = true
		if a.readUntrusted(ctx, eff, id) {
			a.run.Mark(untrustedFrom("run " + id))
			return a.Store.Update(ctx, a.run)
		}
	}
	return nil
}

// readUntrusted tells whether another run read untrusted text: by its mark, or by
// its receipts and the flags as they are now. A run that retention has removed, or
// that cannot be read, may have.
func (a *attempt) readUntrusted(ctx context.Context, eff policy.Effective, run string) bool {
	r, err := a.Store.Run(ctx, run)
	if err != nil || r.HasMark(task.MarkUntrusted) {
		return true
	}
	receipts, err := a.Store.RunReceipts(ctx, run)
	return err != nil || anyUntrusted(eff, receipts)
}

// anyUntrusted tells whether one of the calls was sent to a tool that brings in
// untrusted text.
func anyUntrusted(eff policy.Effective, receipts []task.Receipt) bool {
	return len(untrustedSources(eff, receipts)) > 0
}

// untrustedSources are the tools that bring in untrusted text among those that the
// calls were sent to.
func untrustedSources(eff policy.Effective, receipts []task.Receipt) (sources []string) {
	for _, rc := range receipts {
		if rc.Decision == task.DecisionAllow && policy.HasFlag(eff.Connectors[rc.Connector], rc.Tool, policy.FlagUntrusted) {
			sources = append(sources, rc.Connector+"/"+rc.Tool)
		}
	}
	return sources
}

// sawUntrusted tells whether untrusted text was read in this run, or by an earlier
// one whose words it began with or read from a store.
func (a *attempt) sawUntrusted(eff policy.Effective) bool {
	for _, source := range untrustedSources(eff, a.receipts) {
		a.run.Mark(untrustedFrom(source))
	}
	return a.run.HasMark(task.MarkUntrusted)
}

// untrustedFrom is the mark that says what the untrusted text came from. It names
// connectors, tools and runs only: nothing that a stranger has worded.
func untrustedFrom(source string) string { return task.MarkUntrusted + ":" + source }
