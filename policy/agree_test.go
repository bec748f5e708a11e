package policy

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"runnerd/task"
)

// maker makes random policies and connectors.
type maker struct{ *rand.Rand }

func (m maker) one(of ...string) string { return of[m.IntN(len(of))] }

func (m maker) some(of ...string) []string {
	picked := []string{}
	for _, s := range of {
		if m.IntN(3) == 0 {
			picked = append(picked, s)
		}
	}
	return picked
}

func (m maker) list(of ...string) task.List[string] {
	if m.IntN(3) == 0 {
		return task.List[string]{}
	}
	return task.ListOf(m.some(of...)...)
}

var (
	makerIDs   = []string{"files", "mail", "x-1", "web"}
	makerTools = []string{"read", "write", "a.b", "a__b", "a_b", "mcp__mail__read", "mail/read", strings.Repeat("long_", 14)}
)

func (m maker) grants() []Grant {
	var list []Grant
	for range m.IntN(4) {
		g := Grant{Connector: m.one("files", "mail", "x-?", "*"), Tool: m.one("read", "write", "*", "a*", "long_*")}
		if m.IntN(2) == 0 {
			g.Where = map[string]Condition{"p": {Eq: "this"}}
		}
		list = append(list, g)
	}
	return list
}

func (m maker) rules(tools []task.Tool) ConnectorRules {
	r := ConnectorRules{Classes: map[string]Class{}, Disabled: m.some("read", "a*", "long_*"), TrustAnnotations: m.IntN(2) == 0}
	r.Pin = PinMode(m.one(string(PinFirstUse), string(PinStrict)))
	for _, name := range m.some(makerTools...) {
		r.Classes[name] = Class(m.one("read", "write", "exec"))
	}
	if m.IntN(3) > 0 {
		return r
	}
	r.Pins = map[string]string{}
	for _, t := range tools {
		switch m.IntN(4) {
		case 0:
		case 1:
			r.Pins[t.Name] = "older"
		default:
			r.Pins[t.Name] = definition(t)
		}
	}
	return r
}

// world is a random policy with random connectors, each up, down or missing.
func (m maker) world() (Effective, []Connected) {
	e := Effective{
		Task: "t", OnAsk: OnAsk(m.one("deny", "park")), Limits: DefaultLimits(), Connectors: map[string]ConnectorRules{},
		TaskConnectors: m.list(makerIDs...), Tools: m.list(makerIDs...), Allow: m.grants(), Deny: m.grants(),
	}
	for i := range e.Allow {
		if n := m.IntN(4); n > 0 {
			e.Allow[i].Times = &n
		}
	}
	if m.IntN(3) == 0 {
		e.Ceiling = m.grants()
	}
	var connected []Connected
	for _, id := range makerIDs {
		c := Connected{ID: id, Up: m.IntN(5) > 0}
		if c.Up {
			for _, name := range m.some(makerTools...) {
				c.Tools = append(c.Tools, annotated(name, m.IntN(2) == 0, false))
			}
		} else {
			c.Down = "exit 1"
		}
		if m.IntN(6) > 0 {
			e.Connectors[id] = m.rules(c.Tools)
			connected = append(connected, c)
		}
	}
	return e, connected
}

// dispatched is what the loop gets for the name: with what it would ask for.
func dispatched(e Effective, connected []Connected, slots []task.Slot, name string) Decision {
	c := Call{Name: name, Arguments: `{"p":"other"}`, Slots: slots}
	for _, id := range Concerns(e, slots, name) {
		if one, ok := connectedAs(connected, id); ok {
			c.Connected = append(c.Connected, one)
		}
	}
	return Decide(e, c)
}

// For every name of every tool, explain says what dispatch does: B1, B2, I13.
func TestExplainIsWhatDispatchDoes(t *testing.T) {
	seen := map[Code]int{}
	for seed := range uint64(2000) {
		m := maker{rand.New(rand.NewPCG(seed, 7))}
		e, connected := m.world()
		var slots []task.Slot
		for _, o := range BuildOffer(e, connected).Tools {
			slots = append(slots, o.Slot)
		}
		for _, row := range Explain(e, connected) {
			for _, name := range namesOf(row, slots) {
				d := dispatched(e, connected, slots, name)
				_, own := slotOf(slots, name)
				want := row.Code
				if row.Offered && !own {
					want = CodeUnknownTool // its name is another one
				}
				if d.Code != want || d.Allowed() && !own || own && d.Kind != row.Decision {
					t.Fatalf("seed %d: %s: dispatch says %s %q (%s), explain %s %q (%s)", seed, name, d.Kind, d.Code, d.Rule, row.Decision, row.Code, row.Rule)
				}
				seen[d.Code]++
			}
		}
		for _, name := range []string{"mcp__ghost__x", "ghost/x", "", "mcp__files__", "no such tool"} {
			if d := dispatched(e, connected, slots, name); d.Code != CodeUnknownTool {
				t.Fatalf("seed %d: %q: %s", seed, name, d.Code)
			}
		}
	}
	for _, code := range []Code{"", CodeNotReachable, CodeNotOffered, CodeDisabled, CodeQuarantined, CodeDenied, CodeNeedsApproval, CodeUnknownTool} {
		if seen[code] < 50 {
			t.Errorf("%q came out %d times only", code, seen[code])
		}
	}
}

// What explain says of lines that count is what call after call gets.
func TestExplainCountsAsDispatchDoes(t *testing.T) {
	counted := 0
	for seed := range uint64(3000) {
		m := maker{rand.New(rand.NewPCG(seed, 11))}
		e, connected := m.world()
		slots := Slots(connected)
		for _, row := range Explain(e, connected) {
			i := slices.IndexFunc(slots, func(s task.Slot) bool { return s.Connector == row.Connector && s.Tool == row.Tool })
			if i < 0 || row.Decision != task.DecisionAllow {
				continue
			}
			used, chain := map[string]int{}, []string{}
			for range 20 {
				d := Decide(e, Call{Name: slots[i].Alias, Arguments: `{"p":"other"}`, Slots: slots, Connected: connected, Used: func(rule string) int { return used[rule] }})
				words := fmt.Sprintf("%s (%s)", d.Kind, d.Code)
				if d.Allowed() {
					words = d.Rule
				}
				if used[d.Rule]++; len(chain) == 0 || chain[len(chain)-1] != words {
					chain = append(chain, words)
				}
				if !d.Allowed() {
					break
				}
			}
			_, rule, _ := strings.Cut("; otherwise "+row.Rule, "; otherwise ")
			if i := strings.LastIndex(rule, "; otherwise "); i >= 0 {
				rule = rule[i+len("; otherwise "):]
			}
			said := []string{}
			for part := range strings.SplitSeq(rule, "; then ") {
				part = limitPart.ReplaceAllString(part, "")
				if len(said) == 0 || said[len(said)-1] != part { // lines of the same words count together
					said = append(said, part)
				}
			}
			if strings.Join(said, "; ") != strings.Join(chain, "; ") {
				t.Fatalf("seed %d: %s/%s: calls get %q, explain says %q", seed, row.Connector, row.Tool, chain, row.Rule)
			}
			if len(chain) > 1 {
				counted++
			}
		}
	}
	if counted < 100 {
		t.Errorf("%d rows only whose lines count", counted)
	}
}

var limitPart = regexp.MustCompile(`, (once|[0-9]+ times) a run`)

// An allow line that check calls useless lets no call of any tool through.
func TestUselessLinesAreUseless(t *testing.T) {
	useless := 0
	for seed := range uint64(2000) {
		m := maker{rand.New(rand.NewPCG(seed, 13))}
		e, connected := m.world()
		slots := Slots(connected)
		for _, a := range Advise(e, connected) {
			if len(a.Path) == 0 || a.Path[0] != "allow" || !strings.Contains(a.Text, "can never be used") {
				continue
			}
			useless++
			with := e
			n, err := strconv.Atoi(a.Path[1])
			if err != nil {
				t.Fatal(err)
			}
			with.Allow = []Grant{e.Allow[n]}
			for _, s := range slots {
				for _, args := range []string{`{"p":"this"}`, `{"p":"other"}`, `{}`} {
					if d := Decide(with, Call{Name: s.Alias, Arguments: args, Slots: slots, Connected: connected}); strings.HasPrefix(d.Rule, "allow:") {
						t.Fatalf("seed %d: %s, and yet %s/%s %s: %s", seed, a.Text, s.Connector, s.Tool, args, d.Rule)
					}
				}
			}
		}
	}
	if useless < 100 {
		t.Errorf("%d useless lines only", useless)
	}
}

// namesOf are the names by which a model may ask for the tool of a row.
func namesOf(row Row, slots []task.Slot) []string {
	tool := row.Tool
	if tool == "*" {
		tool = "zzz"
	}
	names := []string{
		Alias(row.Connector, tool), fmt.Sprintf("mcp__%s__%s", row.Connector, tool), row.Connector + "/" + tool,
		hashedAlias(row.Connector, sanitise(tool), tool, 20),
	}
	for _, s := range slots {
		if s.Connector == row.Connector && s.Tool == tool {
			names = append(names, s.Alias)
		}
	}
	return names
}

// A bare name means the tool of that name on a connector that the task selects.
func TestBareNames(t *testing.T) {
	e := fixture()
	e.Deny = []Grant{mustGrant(t, "mail/send_*")}
	o := BuildOffer(e, connectedFixture())
	var slots []task.Slot
	for _, tool := range o.Tools {
		slots = append(slots, tool.Slot)
	}
	for name, want := range map[string]Code{"send_message": CodeDenied, "search": CodeUnknownTool, "nothing": CodeUnknownTool, "report": CodeUnknownTool} {
		if d := dispatched(e, connectedFixture(), slots, name); d.Code != want {
			t.Errorf("%s: %s (%s), want %s", name, d.Code, d.Rule, want)
		}
	}
	d := dispatched(e, connectedFixture(), slots, "search")
	hasText(t, "the right name is said", d.Answer, "mcp__mail__search")
	e.Tools = task.ListOf("files")
	if d := dispatched(e, connectedFixture(), slots, "send_message"); d.Code != CodeUnknownTool {
		t.Errorf("of a connector that is not selected: %s", d.Code)
	}
}
