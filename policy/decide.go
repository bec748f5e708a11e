package policy

import (
	"errors"
	"fmt"

	"runnerd/task"
)

// Decide decides one call. It goes in the order of DESIGN, section 6, and the
// first step that refuses ends it:
//
//	resolve the name → reachable → offered → not disabled → definition as pinned →
//	arguments parse and fit the schema → no known secret in them → deny →
//	not left out by default → read, an allow grant or an ask → limits → dispatch or park
//
// A call that is refused is aborted instead when the run has made the same call
// MaxRepeats times before: a model that repeats itself spends, whatever the answer.
func Decide(e Effective, c Call) Decision {
	d := &decider{e: &e, call: c}
	refused := d.run()
	if refused == nil {
		return d.answer(task.DecisionAllow, refusal{rule: d.rule})
	}
	if refused.kind == task.DecisionDeny && refused.code != CodePolicyError && c.Repeats >= MaxRepeats {
		r := repeated(c.Repeats)
		r.rule += "; it was also refused: " + refused.rule
		refused = r
	}
	return d.answer(refused.kind, *refused)
}

// maxToldLine is how long an allow line may be that a model is told.
const maxToldLine = 1000

// refusal is why a call is not dispatched.
type refusal struct {
	kind task.DecisionKind
	code Code
	rule string // for people
	told string // for the model; empty: the rule
}

func deny(code Code, format string, args ...any) *refusal {
	return &refusal{kind: task.DecisionDeny, code: code, rule: fmt.Sprintf(format, args...)}
}

// decider carries one decision from step to step.
type decider struct {
	e *Effective
	// whole is the policy with the lines that e leaves out for explain; nil: e.
	whole *Effective
	call  Call

	slot  task.Slot
	found bool // the name means the slot
	rules ConnectorRules
	tool  *task.Tool // as it is listed now; nil if it is not
	class Class
	from  string
	args  map[string]any
	rule  string // what allows
	grant *Grant // the allow line that does, if one does
	ask   bool   // a person would permit it
	line  string // the allow line that would permit it
}

func (d *decider) run() *refusal {
	return d.first((*decider).resolve, (*decider).standing, (*decider).arguments, (*decider).secrets, (*decider).denied, (*decider).byDefault, (*decider).permitted)
}

// first is the refusal of the first step that refuses.
func (d *decider) first(steps ...func(*decider) *refusal) *refusal {
	for _, step := range steps {
		if r := step(d); r != nil {
			return r
		}
	}
	return nil
}

// resolve looks the name up in the step's own table. A name that is not there is
// never dispatched: see foreign.
func (d *decider) resolve() *refusal {
	s, ok := slotOf(d.call.Slots, d.call.Name)
	if !ok {
		return d.foreign()
	}
	d.mean(s)
	return nil
}

func (d *decider) notReachable() *refusal {
	return &refusal{
		kind: task.DecisionDeny, code: CodeNotReachable, rule: whyUnreachable(*d.e, d.slot.Connector),
		told: fmt.Sprintf("Connector %s is not enabled for this task", d.slot.Connector),
	}
}

// whyUnreachable names the tier whose list keeps the connector out.
func whyUnreachable(e Effective, connector string) string {
	if _, configured := e.Connectors[connector]; !configured {
		return fmt.Sprintf("connector %s is not configured", connector)
	}
	list, source := Reach(e)
	return fmt.Sprintf("connectors of the %s does not list %s (it lists %v)", source, connector, list.Items())
}

// understood refuses while a rule that could matter holds what cannot be read: it
// would match nothing, or something that its author did not mean.
func (d *decider) understood() *refusal {
	for _, list := range []struct {
		field string
		rules []Grant
	}{{ceiling, d.e.Ceiling}, {"deny", d.e.Deny}, {"allow", d.e.Allow}} {
		for i := range list.rules {
			if g := &list.rules[i]; !g.settledAs(list.field) {
				if err := g.CheckAs(list.field); err != nil {
					return deny(CodePolicyError, "%s (%s): %s", list.field, layerWord(*d.e, list.field), oneLine(err))
				}
			}
		}
	}
	if d.rules.isSettled() {
		return nil
	}
	if err := d.rules.Check(); err != nil {
		return deny(CodePolicyError, "connector %s: %s", d.slot.Connector, oneLine(err))
	}
	return nil
}

func (d *decider) reach() *refusal {
	if !Reachable(*d.e, d.slot.Connector) {
		return d.notReachable()
	}
	return nil
}

func (d *decider) offered() *refusal {
	if Selected(*d.e, d.slot.Connector) {
		return nil
	}
	return deny(CodeNotOffered, "tools (%s) does not list connector %s", layerWord(*d.e, "tools"), d.slot.Connector)
}

// byDefault refuses what the default selection leaves out. It comes last of what
// refuses every call, since nobody wrote it down.
func (d *decider) byDefault() *refusal {
	if c, ok := d.connected(); ok && c.Up && leftOut(*d.e, c) {
		return deny(CodeNotOffered, "connector %s is %s", c.ID, noReadText(c.ID))
	}
	return nil
}

func (d *decider) enabled() *refusal {
	if pattern := disabled(d.rules, d.slot.Tool); pattern != "" {
		return deny(CodeDisabled, "disabled_tools of connector %s lists %s", d.slot.Connector, pattern)
	}
	return nil
}

// pinned compares the definition that the connector lists now with the accepted
// one and with the one that the model saw.
func (d *decider) pinned() *refusal {
	t := d.tool
	if t == nil {
		if c, ok := d.connected(); !ok || !c.Up {
			return deny(CodeUnknownTool, "%s", downText(d.slot.Connector, c.Down))
		}
		return deny(CodeUnknownTool, "connector %s lists no tool %s", d.slot.Connector, quote(d.slot.Tool))
	}
	why := quarantine(d.rules, d.slot.Connector, *t)
	if why == "" && d.slot.Definition != definition(*t) {
		why = fmt.Sprintf("the definition of %s/%s changed after it was offered in this step", d.slot.Connector, d.slot.Tool)
	}
	if why == "" {
		return nil
	}
	r := deny(CodeQuarantined, "%s", why)
	r.told = fmt.Sprintf("The definition of %s is not the accepted one; a person has to review it", quote(d.call.Name))
	return r
}

// quarantine says why a definition may not be used, or "".
func quarantine(rules ConnectorRules, connector string, t task.Tool) string {
	accept := fmt.Sprintf("review it and run: runnerd connectors accept %s", connector)
	if len(rules.Pins) == 0 {
		if rules.Pin == PinFirstUse && rules.Pins == nil {
			return ""
		}
		return fmt.Sprintf("no definition of %s/%s was accepted yet; %s", connector, t.Name, accept)
	}
	switch pin, known := rules.Pins[t.Name]; {
	case !known:
		return fmt.Sprintf("tool %s/%s appeared after the definitions were accepted; %s", connector, t.Name, accept)
	case pin != definition(t):
		return fmt.Sprintf("the definition of %s/%s changed since it was accepted; %s", connector, t.Name, accept)
	}
	return ""
}

func (d *decider) arguments() *refusal {
	args, err := parseArguments(d.call.Arguments)
	if err != nil {
		return deny(CodeInvalidArguments, "%s", clip(err.Error(), 400))
	}
	d.args = args
	if err := d.call.Schemas.fit(*d.tool, args); err != nil {
		if errors.Is(err, errSchema) {
			return deny(CodePolicyError, "connector %s, tool %s: %s", d.slot.Connector, d.slot.Tool, clip(err.Error(), 400))
		}
		return deny(CodeInvalidArguments, "%s", clip(err.Error(), 1000))
	}
	return nil
}

// secrets looks at the bytes as they are and at every string in them, so that an
// escape hides nothing.
func (d *decider) secrets() *refusal {
	if d.call.Secret == nil {
		return nil
	}
	name := d.call.Secret(d.call.Arguments)
	if name == "" {
		eachString(d.args, func(s string) bool {
			name = d.call.Secret(s)
			return name == ""
		})
	}
	if name == "" {
		return nil
	}
	r := deny(CodeSecretInArguments, "the arguments hold the secret %s", quote(name))
	r.told = "The arguments hold a value that must not be sent to a tool"
	return r
}

func (d *decider) denied() *refusal {
	return d.deniedIf(func(g Grant) bool { return d.judge().denies(g, d.args) })
}

// deniedIf refuses by the first line of deny, the daemon's before the task's, that
// names the tool and holds.
func (d *decider) deniedIf(holds func(Grant) bool) *refusal {
	for _, lines := range []struct {
		field string
		deny  []Grant
	}{{ceiling, d.e.Ceiling}, {"deny", d.e.Deny}} {
		for _, g := range lines.deny {
			if MatchGrant(g, d.slot.Connector, d.slot.Tool) && holds(g) {
				return deny(CodeDenied, "deny: %s (%s)", g, layerWord(*d.e, lines.field))
			}
		}
	}
	return nil
}

func (d *decider) judge() judge {
	return judge{connector: d.slot.Connector, origin: d.rules.Origin, resolve: d.call.Resolve}
}

// permitted finds what allows the call, then holds it against the limits. A call
// that only a person can permit is refused or parked.
func (d *decider) permitted() *refusal {
	why := d.asks()
	if why == "" {
		return d.limits()
	}
	d.ask = true
	d.line = d.hint()
	if d.e.OnAsk != OnAskPark {
		return d.unasked(why)
	}
	if r := d.limits(); r != nil {
		return r
	}
	if d.call.Waiting >= MaxWaiting {
		return deny(CodeNeedsApproval, "%s; %d calls of this run wait for a person already, and no more are asked for", why, d.call.Waiting)
	}
	return &refusal{kind: task.DecisionPark, code: CodeNeedsApproval, rule: why + "; it waits for a person's approval"}
}

// unasked refuses a call that a person would have to permit, and says how.
func (d *decider) unasked(why string) *refusal {
	r := deny(CodeNeedsApproval, "%s", why)
	r.told = why + ". The task's owner can permit it"
	if d.line != "" {
		r.rule += "; this line in the task file would permit it: " + d.line
	}
	if d.line != "" && len(d.line) <= maxToldLine {
		r.told += " with the line " + d.line
	}
	return r
}

// asks says why the call needs a person, or "" with d.rule set when it does not.
func (d *decider) asks() string {
	pair := d.slot.Connector + "/" + d.slot.Tool
	exposed := d.call.Untrusted && HasFlag(d.rules, d.slot.Tool, FlagEgress)
	if d.class == ClassRead && !exposed {
		d.rule = "read: " + d.from
		return ""
	}
	rule, spent := d.granted()
	if d.call.Approved && rule == "" {
		rule = "approved by a person"
	}
	if d.rule = rule; rule != "" {
		return ""
	}
	if spent != "" {
		return spent
	}
	if exposed && d.class == ClassRead {
		return pair + " sends data out, untrusted text was read in this run and no allow line matches this call" + d.nearMiss()
	}
	return fmt.Sprintf("%s is of class %s (%s) and no allow line matches this call%s", pair, d.class, d.from, d.nearMiss())
}

// nearMiss names the first allow line that there is for the tool, and by which
// argument the call misses it; empty where no line names the tool.
func (d *decider) nearMiss() string {
	for _, g := range d.e.Allow {
		if MatchGrant(g, d.slot.Connector, d.slot.Tool) {
			if why := d.judge().missed(g, d.args); why != "" {
				return fmt.Sprintf("; the line %s (%s) is there, but %s", g, layerWord(*d.e, "allow"), why)
			}
		}
	}
	return ""
}

func (d *decider) limits() *refusal {
	if most := d.e.Limits.ToolCalls; most != nil && d.call.ToolCalls >= *most {
		return &refusal{kind: task.DecisionAbort, code: CodeLimit, rule: fmt.Sprintf("limits: tool_calls is %d and as many were made", *most)}
	}
	if d.call.Repeats >= MaxRepeats {
		return repeated(d.call.Repeats)
	}
	return nil
}

func repeated(times int) *refusal {
	return &refusal{
		kind: task.DecisionAbort, code: CodeRepeatedCall,
		rule: fmt.Sprintf("the same call with the same arguments was made %d times before", times),
	}
}

// ceiling is the daemon's own deny among the fields that rules come from.
const ceiling = "ceiling"

// layerWord says where a field of the task comes from, in words.
func layerWord(e Effective, field string) string {
	if field == ceiling {
		return "runnerd.yaml"
	}
	switch e.Sources[field] {
	case LayerFile:
		return "task file"
	case LayerOverride:
		return "override"
	}
	return "default"
}
