package agentloop

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"runnerd/policy"
	"runnerd/task"
)

// preflight fails a run before it spends anything if it cannot do its work: a
// connector that the task needs is not there, or not one of those that it could use
// by default has a tool for it. What is down may be up for a later attempt; what is
// not configured will not be by waiting.
func (a *attempt) preflight(ctx context.Context) error {
	eff, err := a.effective(ctx)
	if err != nil {
		return a.unreadable(ctx, err)
	}
	lost := a.Files.Lost()
	for file := range lost {
		a.run.Mark(task.MarkConfigBroken + ":" + file)
	}
	if err := a.checkNeeds(ctx, eff, lost); err != nil || a.toolMode() == toolsNone {
		return err
	}
	offer, err := a.offer(ctx)
	if err != nil {
		return err
	}
	return a.checkTools(eff, offer, lost)
}

// checkTools looks whether a task that names no tools gets some.
func (a *attempt) checkTools(eff policy.Effective, offer policy.Offer, lost map[string]string) error {
	without := policy.WithoutTools(eff, offer, a.spec.Optional)
	reach, _ := policy.Reach(eff)
	none := !eff.Tools.Declared() && len(policy.Selection(eff)) == 0 && (reach.Len() > 0 || !reach.Declared())
	if len(without) == 0 && (!none || len(lost) == 0) {
		return nil
	}
	a.run.Mark(task.MarkNoTools)
	reason := "no_tools: of the connectors that the task may use none has a tool for it: " + cmp.Or(listed(without), broken(lost))
	if len(without) > 0 && len(offer.Down) > 0 {
		return &retryable{reason: reason}
	}
	return a.fail("%s", reason)
}

// broken says which connector files cannot be read, and where they are wrong.
func broken(lost map[string]string) string {
	var parts []string
	for _, file := range slices.Sorted(maps.Keys(lost)) {
		parts = append(parts, lost[file])
	}
	return strings.Join(parts, "; ")
}

// checkNeeds looks at each connector that the task needs.
func (a *attempt) checkNeeds(ctx context.Context, eff policy.Effective, lost map[string]string) error {
	absent, missing := false, map[string]string{}
	for _, id := range a.needed(eff) {
		if _, configured := eff.Connectors[id]; !configured {
			absent, missing[id] = true, "not configured: "+cmp.Or(broken(lost), "no file defines it")
		} else if _, err := a.Connectors.Tools(ctx, id); err != nil {
			missing[id] = "down: " + err.Error()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		a.run.Mark(task.MarkRequiredDown + ":" + id)
	}
	reason := "the task needs what is not there: " + listed(missing)
	if absent {
		return a.fail("%s", reason)
	}
	return &retryable{reason: reason}
}

func (a *attempt) needed(eff policy.Effective) []string {
	return policy.Needed(eff, a.spec.Require, a.spec.Optional)
}

func listed(why map[string]string) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(why)) {
		parts = append(parts, fmt.Sprintf("connector %s is %s", id, why[id]))
	}
	return strings.Join(parts, "; ")
}

// lookAtNeeds keeps the marks of needed connectors as they were at the last look: one
// that was down then, or had no tool to offer, was not there for the answer.
func (a *attempt) lookAtNeeds(eff policy.Effective, offer policy.Offer) {
	a.forgetLook()
	for _, id := range a.needed(eff) {
		if why, down := offer.Down[id]; down {
			a.lacks(task.MarkRequiredDown+":"+id, fmt.Sprintf("connector %s, which the task needs, is down: %s", id, why))
		}
	}
	bare := policy.Bare(eff, offer, a.spec.Require, a.spec.Optional)
	for _, id := range slices.Sorted(maps.Keys(bare)) {
		a.lacks(task.MarkNoTools+":"+id, fmt.Sprintf("connector %s has no tool for the task: %s", id, bare[id]))
	}
}

// lacks marks what was not there at the last look; the first is the run's reason if
// it gets no other.
func (a *attempt) lacks(mark, why string) {
	a.run.Mark(mark)
	if a.lacking == "" {
		a.lacking = why
	}
}

func (a *attempt) forgetLook() {
	a.lacking = ""
	a.run.Marks = slices.DeleteFunc(slices.Clone(a.run.Marks), func(m string) bool {
		kind, _, _ := strings.Cut(m, ":")
		return kind == task.MarkRequiredDown || kind == task.MarkNoTools
	})
}
