package policy

import (
	"encoding/json"

	"runnerd/task"
)

// The builtin stores, as the catalogue knows them.
const (
	StoreFiles  = "builtin:files"
	StoreMemory = "builtin:memory"
)

// told is the shape of every answer that a model gets in a tool's place.
type told struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}

// answer completes a decision. A call that is not dispatched gets the text for the
// model: what happened, that nothing was run, what would permit it, and nothing
// that invites a way around.
func (d *decider) answer(kind task.DecisionKind, r refusal) Decision {
	out := Decision{
		Kind: kind, Code: r.code, Rule: r.rule,
		Connector: d.slot.Connector, Tool: d.slot.Tool, Definition: d.slot.Definition,
	}
	if d.found {
		out.Class, out.Untrusted = d.class, HasFlag(d.rules, d.slot.Tool, FlagUntrusted)
		if p := d.rules.Origin.Package; p == StoreFiles || p == StoreMemory {
			out.Store = p
		}
	}
	if kind == task.DecisionAllow {
		return out
	}
	if d.ask {
		out.Grant = d.line
	}
	out.Answer = answerText(r)
	return out
}

func answerText(r refusal) string {
	text := r.told
	if text == "" {
		text = r.rule
	}
	if r.code != CodeNotReachable { // its wording is fixed by DESIGN, section 6
		text += ". The call was NOT run."
	}
	data, err := json.Marshal(told{Error: text, ExitCode: 1})
	if err != nil {
		return `{"error":"The call was NOT run.","exit_code":1}`
	}
	return string(data)
}

// Unreadable is the decision about any call while the policy cannot be read: an
// error must not widen rights.
func Unreadable(name string, slots []task.Slot, err error) Decision {
	d := &decider{call: Call{Name: name, Slots: slots}}
	if s, ok := slotOf(slots, name); ok {
		d.slot = s
	} else if connector, tool, ok := ParseToolName(name); ok {
		d.slot = task.Slot{Connector: connector, Tool: tool}
	}
	why := "no reason given"
	if err != nil {
		why = oneLine(err)
	}
	return d.answer(task.DecisionDeny, refusal{
		code: CodePolicyError, rule: "the policy could not be read: " + why,
		told: "The policy for this call could not be read; its operator has been told",
	})
}
