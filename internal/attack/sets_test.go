package attack

import (
	"encoding/json"
	"maps"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"

	"runnerd/policy"
	"runnerd/task"
)

// set is a place of work as a table of data: what its tools are and what was granted
// there. It is played against policy alone, call by call, so that thousands of bent
// calls cost less than one process.
type set struct {
	name   string
	tools  []Tool // all of one connector named as the set, all of class write
	duties []duty
}

// duty is what a task does at a set, by which lines.
type duty struct {
	name, lines string
	job         []string // "tool {arguments}"
	open        map[string]func(any) bool
}

// sets are none of the desks': other tools, other shapes of arguments, other lines.
var sets = []set{
	{name: "office", tools: []Tool{
		fn("send", "to:array! cc:array bcc:array subject:string! body:string! reply_to:string headers:object priority:integer"),
		fn("share", "file:any! with:any! role:string expires:any notify:boolean"),
		fn("book", "room:string! slot:object! guests:array note:string"),
	}, duties: []duty{
		{
			name:  "minutes to the team",
			lines: `allow: [{tool: office/send, where: {to: {eq: [ann@corp.test, bob@corp.test]}, subject: {in: [Minutes 12, Minutes 13]}, body: any}, times: 1}]`,
			job:   []string{`send {"to":["ann@corp.test","bob@corp.test"],"subject":"Minutes 12","body":"All agreed."}`},
			open:  map[string]func(any) bool{"office/send body": nil, "office/send subject": oneOf("Minutes 12", "Minutes 13")},
		},
		{
			name:  "one file to one reader",
			lines: `allow: [{tool: office/share, where: {file: {eq: "9"}, with: {eq: ann@corp.test}, role: {eq: reader}}}]`,
			job:   []string{`share {"file":"9","with":"ann@corp.test","role":"reader"}`},
		},
		{
			name:  "a room, nested",
			lines: `allow: [{tool: office/book, where: {room: {eq: "Café 1"}, slot: {eq: {day: "2026-12-01", hours: [9, 10.5]}}, guests: {in: [[bob@corp.test], [ann@corp.test, bob@corp.test]]}}}]`,
			job:   []string{`book {"room":"Café 1","slot":{"day":"2026-12-01","hours":[9,10.5]},"guests":["bob@corp.test"]}`},
			open: map[string]func(any) bool{"office/book guests": func(v any) bool {
				return alike(v, []any{"bob@corp.test"}) || alike(v, []any{"ann@corp.test", "bob@corp.test"})
			}},
		},
	}},
	{name: "bank", tools: []Tool{
		fn("transfer", "from:string! to:string! cents:any! currency:string reference:string splits:array"),
		fn("limit", "card:integer! daily:number! until:string"),
		fn("order", "id:any! active:boolean payee:object amount:number"),
	}, duties: []duty{
		{
			name:  "rent",
			lines: `allow: [{tool: bank/transfer, where: {from: {eq: DE02}, to: {eq: DE89}, cents: {eq: 120050}, reference: {eq: Rent}}}]`,
			job:   []string{`transfer {"from":"DE02","to":"DE89","cents":120050,"reference":"Rent"}`},
		},
		{
			name:  "small sums",
			lines: `allow: [{tool: bank/transfer, where: {from: {eq: DE02}, to: {in: [DE89, GB29]}, cents: {min: 1, max: 3000}}, times: 2}]`,
			job:   []string{`transfer {"from":"DE02","to":"GB29","cents":2999}`, `transfer {"from":"DE02","to":"DE89","cents":3000}`},
			open:  map[string]func(any) bool{"bank/transfer to": oneOf("DE89", "GB29"), "bank/transfer cents": number(1, 3000)},
		},
		{
			name:  "a card's limit and a standing order",
			lines: `allow: [{tool: bank/limit, where: {card: {eq: 4}, daily: {eq: 0.3}}}, {tool: bank/order, where: {id: {eq: 7}, active: {eq: false}, payee: {eq: {name: Ann, iban: DE89}}}}]`,
			job:   []string{`limit {"card":4,"daily":0.3}`, `order {"id":7,"active":false,"payee":{"name":"Ann","iban":"DE89"}}`},
		},
	}},
	{name: "travel", tools: []Tool{
		fn("hotel", "name:string! nights:integer! guests:array! card:string options:object"),
		fn("ticket", "legs:array! class:string seats:integer refund_to:string"),
		fn("fetch", "url:string! headers:object"),
	}, duties: []duty{
		{
			name:  "a hotel for two nights",
			lines: `allow: [{tool: travel/hotel, where: {name: {eq: "Hôtel Élan"}, nights: {min: 1, max: 2}, guests: {eq: [{name: Ann}]}}}]`,
			job:   []string{`hotel {"name":"Hôtel Élan","nights":2,"guests":[{"name":"Ann"}]}`},
			open:  map[string]func(any) bool{"travel/hotel nights": number(1, 2)},
		},
		{
			name:  "a train both ways",
			lines: `allow: [{tool: travel/ticket, where: {legs: {eq: [[BER, PAR], [PAR, BER]]}, seats: {eq: 1}, refund_to: absent}}]`,
			job:   []string{`ticket {"legs":[["BER","PAR"],["PAR","BER"]],"seats":1}`},
		},
		{
			name:  "a page of the wiki",
			lines: `allow: [{tool: travel/fetch, where: {url: {host: wiki.corp.test}}}]`,
			job:   []string{`fetch {"url":"https://wiki.corp.test/rails"}`},
			open: map[string]func(any) bool{"travel/fetch url": func(v any) bool {
				s, ok := v.(string)
				rest, there := strings.CutPrefix(s, "https://wiki.corp.test")
				return ok && (there && (rest == "" || rest[0] == '/') || atWiki(s))
			}},
		},
	}},
	{name: "chat", tools: []Tool{
		fn("post", "channel:string! text:string! thread:any attachments:array as:string silent:boolean"),
		fn("invite", "channel:string! users:array!"),
		fn("topic", "channel:any! topic:string!"),
	}, duties: []duty{
		{
			name:  "the brief in its channel",
			lines: `allow: [{tool: chat/post, where: {channel: {eq: "#brief"}, text: {max_length: 40}, thread: absent}, times: 1}]`,
			job:   []string{`post {"channel":"#brief","text":"Nothing new today."}`},
			open:  map[string]func(any) bool{"chat/post text": short(40)},
		},
		{
			name:  "one user to one channel",
			lines: `allow: [{tool: chat/invite, where: {channel: {eq: "#ops"}, users: {eq: [ann]}}}, {tool: chat/topic, where: {channel: {eq: "#ops"}, topic: {eq: On call}}}]`,
			job:   []string{`invite {"channel":"#ops","users":["ann"]}`, `topic {"channel":"#ops","topic":"On call"}`},
		},
		{
			name:  "the same word twice",
			lines: `allow: [{tool: chat/post, where: {channel: {eq: "#ops"}, text: {eq: ping}}, times: 2}]`,
			job:   []string{`post {"channel":"#ops","text":"ping"}`, `post {"channel":"#ops","text":"ping"}`},
		},
	}},
}

// hall is a set with some lines in force: one run of a task there.
type hall struct {
	s       *set
	e       policy.Effective
	slots   []task.Slot
	conn    []policy.Connected
	schemas *policy.Schemas
	used    map[string]int
}

func enter(t testing.TB, s *set, lines string) *hall {
	f := fieldsOf(t, lines)
	rules := policy.ConnectorRules{Classes: map[string]policy.Class{"*": policy.ClassWrite}, Flags: []policy.Flag{}, Pin: policy.PinFirstUse}
	h := &hall{s: s, schemas: policy.NewSchemas(), used: map[string]int{}, conn: []policy.Connected{{ID: s.name, Up: true}}}
	h.e = policy.Effective{Task: "duty", Session: "duty", Tools: task.ListOf(s.name), Allow: f.Allow.Items(), OnAsk: policy.OnAskDeny,
		Sources: map[string]policy.Layer{"allow": policy.LayerFile}, Connectors: map[string]policy.ConnectorRules{s.name: rules}}
	for _, tool := range s.tools {
		def := task.Tool{Name: tool.Name, InputSchema: json.RawMessage(tool.Schema)}
		def.Hash = def.DefinitionHash()
		h.conn[0].Tools = append(h.conn[0].Tools, def)
		h.slots = append(h.slots, task.Slot{Alias: policy.Alias(s.name, tool.Name), Connector: s.name, Tool: tool.Name, Definition: def.Hash})
	}
	return h
}

func (h *hall) decide(name, args string) policy.Decision {
	return policy.Decide(h.e, policy.Call{
		Name: name, Arguments: args, Slots: h.slots, Connected: h.conn, Schemas: h.schemas, Used: func(rule string) int { return h.used[rule] },
		Resolve: func(_, path string) (string, error) { return path, nil },
	})
}

// allows decides a call and books it if it is let through.
func (h *hall) allows(t testing.TB, tool, args string) policy.Decision {
	t.Helper()
	d := h.decide(policy.Alias(h.s.name, tool), args)
	if rule := d.Rule; d.Allowed() {
		h.used[rule]++
	}
	return d
}

// TestSets: exact lines let the whole job through and nothing else, whatever a call
// is bent into, whatever its refusal tells the attacker, and so do the lines that
// refusals themselves suggest.
func TestSets(t *testing.T) {
	tries := 0
	for i := range sets {
		for _, d := range sets[i].duties {
			t.Run(sets[i].name+"/"+d.name, func(t *testing.T) {
				tries += besiege(t, &sets[i], d)
				lines, open := suggested(t, &sets[i], d)
				d.lines, d.open = lines, open
				tries += besiege(t, &sets[i], d)
			})
		}
	}
	if tries < 5000 {
		t.Errorf("%d calls were tried, want at least 5000", tries)
	}
}

// besiege holds the lines of a duty against every attacker and returns how many
// calls were tried.
func besiege(t *testing.T, s *set, d duty) (tries int) {
	t.Helper()
	e := &errand{open: d.open}
	run := enter(t, s, d.lines)
	for _, j := range d.job {
		e.job = append(e.job, s.name+"/"+j)
		tool, args, _ := strings.Cut(j, " ")
		if got := run.allows(t, tool, args); !got.Allowed() {
			t.Errorf("lines %s refuse the job's %s: %s", d.lines, j, got.Rule)
		}
	}
	for _, j := range d.job { // once more than the job needs
		tool, args, _ := strings.Cut(j, " ")
		if got := run.allows(t, tool, args); got.Allowed() && strings.Contains(d.lines, "times:") {
			t.Errorf("lines %s permit %s once too often", d.lines, j)
		}
	}
	fresh := enter(t, s, d.lines)
	hold := func(name, tool, args string) policy.Decision {
		tries++
		got := fresh.decide(name, args)
		if got.Allowed() && !e.covers(s.name+"/"+tool, args) {
			t.Errorf("lines %s let through %s %s", d.lines, name, args)
		}
		return got
	}
	for _, j := range d.job {
		tool, args, _ := strings.Cut(j, " ")
		alias := policy.Alias(s.name, tool)
		for _, bent := range twisted(args, s.types(tool)) {
			hold(alias, tool, bent)
			for _, other := range s.tools {
				if other.Name != tool {
					hold(policy.Alias(s.name, other.Name), other.Name, bent)
				}
			}
		}
		for _, name := range spellings(alias) {
			hold(name, tool, swapped(args))
		}
		learn(s.types(tool), func(args string) string { return hold(alias, tool, args).Answer })
	}
	return tries
}

func (s *set) types(tool string) map[string]string {
	return (&stage{d: &desk{servers: []Server{{ID: s.name, Tools: s.tools}}}}).schemaOf(s.name, tool)
}

// suggested are the lines that refusals name as a job without any is done, and the
// arguments that they open.
func suggested(t *testing.T, s *set, d duty) (string, map[string]func(any) bool) {
	t.Helper()
	h := enter(t, s, "")
	var order []string
	lines, open := map[string]string{}, map[string]func(any) bool{}
	for _, j := range d.job {
		tool, args, _ := strings.Cut(j, " ")
		got := h.allows(t, tool, args)
		if got.Allowed() {
			continue
		}
		list := fieldsOf(t, got.Grant).Allow.Items()
		if len(list) != 1 {
			t.Fatalf("%s: suggests %q", j, got.Grant)
		}
		g := list[0]
		for name, c := range g.Where {
			if c.Any {
				open[s.name+"/"+tool+" "+name] = nil
			}
		}
		key := j
		if lines[key] == "" {
			order = append(order, key)
		}
		lines[key] = strings.TrimSuffix(strings.TrimPrefix(got.Grant, "allow: ["), "]")
		h.e.Allow = fieldsOf(t, allowing(order, lines)).Allow.Items()
		if got := h.allows(t, tool, args); !got.Allowed() {
			t.Errorf("the line suggested for %s does not permit it: %s", j, got.Rule)
		}
	}
	return allowing(order, lines), open
}

func allowing(order []string, lines map[string]string) string {
	var list []string
	for _, key := range order {
		list = append(list, lines[key])
	}
	return "allow: [" + strings.Join(list, ", ") + "]"
}

// twisted are the arguments of a granted call bent by one value each, as its text
// and as what it says; what bent knows is tried too.
func twisted(args string, types map[string]string) []string {
	in, _ := plain(args)
	list := bent(args, types)
	for _, name := range slices.Sorted(maps.Keys(types)) {
		for _, v := range []any{nil, "", 0, false, []any{}, map[string]any{}, "\u200b", []any{nil}, mallory, []any{mallory}, json.Number("-0.0"), map[string]any{name: in[name]}} {
			list = append(list, jsonOf(merged(in, map[string]any{name: v})))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		for _, v := range nearTo(in[name]) {
			list = append(list, jsonOf(merged(in, map[string]any{name: v})))
		}
		for _, key := range []string{name + " ", name + "\u200b", name + "[]", name + ".0", "$" + name, strings.ToUpper(name), fullWidth(name), name + "\u0000"} {
			list = append(list, jsonOf(merged(in, map[string]any{key: mallory})))
			moved := merged(in, map[string]any{key: in[name]})
			delete(moved, name)
			list = append(list, jsonOf(moved))
		}
		alone := map[string]any{name: in[name]} // a call split in two
		rest := maps.Clone(in)
		delete(rest, name)
		list = append(list, jsonOf(alone), jsonOf(rest))
	}
	return list
}

// nearTo are values that read almost like v, at any depth.
func nearTo(v any) (list []any) {
	switch v := v.(type) {
	case string:
		list = append(list, v+" ", " "+v, v+"\t", v+"\n", v+"\u00a0", v+"\ufeff", "\u202e"+v, v+"\u00ad", v+"\u0301", fullWidth(v), strings.ToUpper(v), strings.ToLower(v),
			strings.NewReplacer("é", "e\u0301", "ô", "o\u0302", "É", "E\u0301").Replace(v), strings.ReplaceAll(v, "@", "%40"), strings.ReplaceAll(v, "-", "\u2010"),
			strings.NewReplacer("a", "\u0430", "e", "\u0435", "o", "\u043e").Replace(v), strings.NewReplacer("I", "l", "0", "O", "1", "l").Replace(v), v+v, v+","+mallory, v+"\r\nBcc: "+mallory,
			mallory+" <"+v+">", "<"+v+">", []any{v}, []any{[]any{v}}, map[string]any{"eq": v}, map[string]any{"$ref": v}, json.Number("7"), strings.Repeat(v, 20))
		for i := range v {
			list = append(list, v[:i]+"\u200d"+v[i:])
		}
	case json.Number:
		n := v.String()
		list = append(list, n, n+" ", "+"+n, "0"+n, n+".0", n+",0", json.Number(n+"e1"), json.Number("-"+n), json.Number(n+"1"), json.Number("1e2"), json.Number("9e99999"), json.Number("1e-400"),
			[]any{v}, map[string]any{"value": v}, []any{v, v}, nil, true, json.Number("18446744073709551617"), json.Number("3000.0000000000000000001"), json.Number("0.30000000000000004"))
	case bool:
		list = append(list, !v, "false", "true", 0, 1, "", nil, []any{v})
	case []any:
		list = append(list, []any{v}, map[string]any{"0": v}, append(slices.Clone(v), v...), append(slices.Clone(v), nil), append(slices.Clone(v), mallory), v[:len(v)-1], jsonOf(v))
		for i := range v {
			for _, other := range nearTo(v[i]) {
				next := slices.Clone(v)
				next[i] = other
				list = append(list, next)
			}
		}
	case map[string]any:
		list = append(list, []any{v}, jsonOf(v), map[string]any{}, merged(v, map[string]any{"cc": mallory}))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			for _, other := range nearTo(v[key]) {
				list = append(list, merged(v, map[string]any{key: other}))
			}
			without := maps.Clone(v)
			delete(without, key)
			list = append(list, without)
		}
	}
	return list
}

func fullWidth(s string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r + 0xfee0
		}
		return r
	}, s)
}

var told = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?|[^\s,:{}\[\]()"]+`)

// learn is an attacker who knows the tool but not the line: he asks, reads the
// refusal, and puts what it says into one argument after another, always with
// something of his own in some other.
func learn(types map[string]string, ask func(args string) string) {
	rnd := rand.New(rand.NewSource(7)) // the same each time
	names := slices.Sorted(maps.Keys(types))
	try := map[string]any{}
	for _, name := range names {
		try[name] = typed(types[name])
	}
	said := ""
	for range 200 {
		if answer := ask(jsonOf(try)); answer != "" {
			said = answer
		}
		words := told.FindAllString(said, -1)
		for range 1 + rnd.Intn(3) {
			name := names[rnd.Intn(len(names))]
			var v any
			switch word := words[rnd.Intn(len(words))]; {
			case rnd.Intn(4) == 0:
				delete(try, name)
				continue
			case rnd.Intn(6) == 0:
				v = typed(types[name])
			case json.Unmarshal([]byte(word), &v) != nil:
				v = word
			}
			if types[name] == "array" {
				v = []any{v}
			}
			try[name] = v
		}
	}
}
