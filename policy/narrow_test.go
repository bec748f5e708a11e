package policy

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"runnerd/task"
)

// TestFreeTextsAreOpened is friction line 10: a line to paste holds no whole text, and
// nothing else of the call is opened.
func TestFreeTextsAreOpened(t *testing.T) {
	prose, long := strings.Repeat("so it goes. ", 20), "/srv/"+strings.Repeat("d", 200)
	args, err := json.Marshal(map[string]string{"path": long, "content": prose, "mode": "append"})
	if err != nil {
		t.Fatal(err)
	}
	g, open, err := LineFor("files", "write_file", string(args))
	if err != nil || strings.Join(open, " ") != "content" || strings.Contains(g.AllowLine(), "so it goes") || !strings.Contains(g.AllowLine(), "content: any") {
		t.Errorf("%s, open %v, %v", g.AllowLine(), open, err)
	}
	if !strings.Contains(g.AllowLine(), long) || !strings.Contains(g.AllowLine(), `mode: {eq: "append"}`) {
		t.Errorf("%s lets more through than the text", g.AllowLine())
	}
}

// An argument that is itself called rest is not opened: its any would open all others.
func TestLongRestIsNotOpened(t *testing.T) {
	args := `{"to":"ann","rest":"` + strings.Repeat("so it goes. ", 20) + `"}`
	g, open, err := LineFor("mail", "send", args)
	if err != nil || len(open) > 0 || (judge{}).allows(g, map[string]any{"to": "ann", "rest": "x", "bcc": "eve"}) {
		t.Errorf("%s, open %v, %v", g.AllowLine(), open, err)
	}
}

// A line that is offered permits something: at dispatch the very call, in explain one
// call at least, whatever the lines of deny say.
func TestOfferedLinesPermit(t *testing.T) {
	offered, schemas := map[string]int{}, NewSchemas()
	for seed := range uint64(1000) {
		m := maker{rand.New(rand.NewPCG(seed, 5))}
		e := fixture()
		e.OnAsk, e.Tools, e.TaskConnectors = OnAsk(m.one("deny", "park")), task.ListOf("mail"), task.ListOf("mail")
		tool := m.pairTool()
		connected := []Connected{{ID: "mail", Up: true, Tools: []task.Tool{tool}}}
		e.Deny, e.Ceiling = m.lines("mail/send"), m.lines("mail/send")
		slots := Slots(connected)
		calls := everyCall(t)
		for _, args := range calls {
			d := Decide(e, Call{Name: slots[0].Alias, Arguments: args, Slots: slots, Connected: connected, Schemas: schemas})
			if d.Grant == "" {
				continue
			}
			offered["dispatch"]++
			if with := granting(t, e, d.Grant); !Decide(with, Call{Name: slots[0].Alias, Arguments: args, Slots: slots, Connected: connected, Schemas: schemas}).Allowed() {
				t.Fatalf("seed %d: %s offers %s, which does not permit it; deny %v %v", seed, args, d.Grant, e.Deny, e.Ceiling)
			}
		}
		rows := Explain(e, connected)
		row := rows[slices.IndexFunc(rows, func(r Row) bool { return r.Connector == "mail" })]
		line := regexp.MustCompile(`allow: \[.*\]$`).FindString(row.Rule)
		if line == "" {
			offered["nothing"]++
			continue
		}
		offered["explain"]++
		with, permits := granting(t, e, line), false
		for _, args := range calls {
			permits = permits || Decide(with, Call{Name: slots[0].Alias, Arguments: args, Slots: slots, Connected: connected, Schemas: schemas}).Allowed()
		}
		if !permits {
			t.Fatalf("seed %d: explain offers %s, which permits nothing; deny %v %v", seed, line, e.Deny, e.Ceiling)
		}
	}
	for _, where := range []string{"dispatch", "explain", "nothing"} {
		if offered[where] < 100 {
			t.Errorf("%s: %d", where, offered[where])
		}
	}
}

// pairTool is mail/send with arguments p and q, some of them required.
func (m maker) pairTool() task.Tool {
	required := m.one(`[]`, `["p"]`, `["p","q"]`)
	t := task.Tool{Name: "send", InputSchema: json.RawMessage(`{"type":"object","required":` + required + `,"properties":{"p":{"type":"string"},"q":{"type":"string"}}}`)}
	t.Hash = t.DefinitionHash()
	return t
}

// lines are random lines for a pair, with conditions on p and q.
func (m maker) lines(pair string) (list []Grant) {
	for range m.IntN(3) {
		g := pairOf(pair)
		g.Where = map[string]Condition{}
		for _, name := range []string{"p", "q", "rest"} {
			if m.IntN(2) > 0 {
				continue
			}
			g.Where[name] = []Condition{{Any: true}, {Absent: true}, {Eq: "this"}, {In: []any{"this", "that"}}, {Eq: "that"}}[m.IntN(5)]
		}
		if len(g.Where) > 0 {
			list = append(list, g)
		}
	}
	return list
}

// everyCall are all arguments p and q of a few values.
func everyCall(t *testing.T) (calls []string) {
	for _, p := range []any{nil, "this", "that", "other"} {
		for _, q := range []any{nil, "this", "that", "other"} {
			args := map[string]any{}
			for name, v := range map[string]any{"p": p, "q": q} {
				if v != nil {
					args[name] = v
				}
			}
			data, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, string(data))
		}
	}
	return calls
}

// granting is the policy with the offered line and no other allow.
func granting(t *testing.T, e Effective, line string) Effective {
	t.Helper()
	var file struct{ Allow []any }
	if err := yaml.Unmarshal([]byte(line), &file); err != nil {
		t.Fatal(err)
	}
	e.Allow = nil
	for _, item := range file.Allow {
		data, err := json.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		g := DecodeGrant(data)
		if err := g.Check(); err != nil {
			t.Fatal(err)
		}
		e.Allow = append(e.Allow, g)
	}
	return e
}
