package policy

import (
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"runnerd/task"
)

func offeredNames(o Offer) string {
	var names []string
	for _, t := range o.Tools {
		names = append(names, t.Slot.Connector+"/"+t.Slot.Tool)
	}
	return strings.Join(names, " ")
}

func TestOfferDefaultSelection(t *testing.T) {
	e := Effective{Connectors: map[string]ConnectorRules{
		"read": rulesWith(map[string]Class{"r": ClassRead}), "readwrite": rulesWith(map[string]Class{"r": ClassRead, "w": ClassWrite}),
		"write": rulesWith(map[string]Class{"w": ClassWrite}), "exec": rulesWith(nil), "none": rulesWith(nil), "down": rulesWith(map[string]Class{"r": ClassRead}),
	}}
	connected := []Connected{
		{ID: "exec", Up: true, Tools: []task.Tool{tool("x")}},
		{ID: "write", Up: true, Tools: []task.Tool{tool("w")}},
		{ID: "readwrite", Up: true, Tools: []task.Tool{tool("w"), tool("r")}},
		{ID: "read", Up: true, Tools: []task.Tool{tool("r")}},
		{ID: "none", Up: true},
		{ID: "down", Down: "refused"},
		{ID: "ghost", Up: true, Tools: []task.Tool{tool("r")}}, // not configured
	}
	o := BuildOffer(e, connected)
	if got := offeredNames(o); got != "read/r readwrite/r readwrite/w" {
		t.Errorf("offered %s", got)
	}
	if !o.Report {
		t.Error("report is not offered")
	}
	want := []string{"connector_down:down", "no_read_tools:exec", "no_read_tools:write"}
	if !reflect.DeepEqual(o.Marks, want) {
		t.Errorf("marks %v", o.Marks)
	}
	hasText(t, "notices", strings.Join(o.Notices, "\n"), "connectors tools exec --suggest", "down: refused")
	for range 10 {
		rand.Shuffle(len(connected), func(i, j int) { connected[i], connected[j] = connected[j], connected[i] })
		if again := BuildOffer(e, connected); !reflect.DeepEqual(again, o) {
			t.Fatal("another order gives another offer")
		}
	}
}

func TestOfferSelection(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(*Effective)
		want   string
		report bool
		down   []string
		notice string
	}{
		{"absent", func(*Effective) {}, "browser/x__y__z files/delete_file files/read_file files/write_file mail/search mail/send_message", true, nil, ""},
		{"empty", func(e *Effective) { e.Tools = task.ListOf[string]() }, "", false, nil, ""},
		{"list", func(e *Effective) { e.Tools = task.ListOf("mail", "browser") }, "browser/x__y__z mail/search mail/send_message", true, nil, ""},
		{"a list keeps a connector without read tools", func(e *Effective) { e.Tools = task.ListOf("browser"); e.Connectors["browser"] = rulesWith(nil) },
			"browser/x__y__z", true, nil, ""},
		{"listed and down", func(e *Effective) {
			e.Tools = task.ListOf("cold", "mail")
			e.Connectors["cold"] = rulesWith(nil)
		}, "mail/search mail/send_message", true, []string{"cold"}, "cold is down"},
		{"listed but unreachable", func(e *Effective) { e.Tools = task.ListOf("mail"); e.TaskConnectors = task.ListOf("files") }, "", true, nil, "tools lists mail, but"},
		{"listed but not configured", func(e *Effective) { e.Tools = task.ListOf("ghost") }, "", true, nil, "ghost is not configured"},
		{"reachable only", func(e *Effective) { e.TaskConnectors = task.ListOf("browser") }, "browser/x__y__z", true, nil, ""},
		{"disabled and denied", func(e *Effective) {
			e.Tools = task.ListOf("files")
			e.Connectors["files"] = ConnectorRules{Pin: PinFirstUse, Disabled: []string{"delete_*"}}
			e.Deny = []Grant{{Connector: "files", Tool: "write_file"}, {Connector: "files", Tool: "read_file", Where: map[string]Condition{"path": {Under: "/x"}}}}
		}, "files/read_file", true, nil, ""},
		{"quarantined", func(e *Effective) {
			e.Tools = task.ListOf("mail")
			e.Connectors["mail"] = ConnectorRules{Pin: PinFirstUse, Pins: map[string]string{"search": tool("search").Hash, "send_message": "old"}}
		}, "mail/search", true, nil, "runnerd connectors accept mail"},
	} {
		e := fixture()
		c.edit(&e)
		o := BuildOffer(e, connectedFixture())
		if got := offeredNames(o); got != c.want || o.Report != c.report {
			t.Errorf("%s: offered %q report %v", c.name, got, o.Report)
		}
		hasText(t, c.name, strings.Join(o.Notices, "\n"), c.notice)
		for _, id := range c.down {
			if o.Down[id] == "" {
				t.Errorf("%s: %s is not down", c.name, id)
			}
		}
		for _, offered := range o.Tools { // what is offered is what Decide resolves
			if offered.Slot.Alias == "" || offered.Tool.Name != offered.Slot.Tool || offered.Class == "" {
				t.Errorf("%s: %+v", c.name, offered)
			}
		}
	}
}

// The write tool of a default-offered connector is visible and still needs a grant.
func TestOfferIsNoPermission(t *testing.T) {
	e := fixture()
	o := BuildOffer(e, connectedFixture())
	i := slices.IndexFunc(o.Tools, func(t Offered) bool { return t.Slot.Tool == "write_file" })
	if i < 0 {
		t.Fatal("write_file is not visible")
	}
	d := Decide(e, Call{Name: o.Tools[i].Slot.Alias, Arguments: `{}`, Slots: []task.Slot{o.Tools[i].Slot}, Connected: connectedFixture()})
	if d.Code != CodeNeedsApproval {
		t.Errorf("%+v", d)
	}
}

func TestExplain(t *testing.T) {
	e := fixture()
	e.TaskConnectors = task.ListOf("files", "mail", "cold")
	e.Connectors["cold"] = rulesWith(nil)
	e.Allow = []Grant{{Connector: "files", Tool: "write_file", Where: map[string]Condition{"path": {Under: "/srv/reports"}}}, mustGrant(t, "mail/send_*")}
	e.Deny = []Grant{mustGrant(t, "files/delete_file")}
	rows := Explain(e, connectedFixture())
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join([]string{r.Connector + "/" + r.Tool, string(r.Class), map[bool]string{true: "offered", false: "hidden"}[r.Offered], string(r.Decision), string(r.Code)}, " "))
		if r.Rule == "" {
			t.Errorf("%+v", r)
		}
	}
	want := []string{
		"browser/x__y__z read hidden deny not_reachable",
		"cold/* exec hidden deny unknown_tool",
		"files/delete_file exec hidden deny denied",
		"files/read_file read offered allow ",
		"files/write_file write offered deny needs_approval",
		"mail/search read offered allow ",
		"mail/send_message exec offered allow ",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	hasText(t, "conditional", rows[4].Rule, "allow: files/write_file where path under /srv/reports (task file); otherwise")
}

// What a line permits so often is said with what a further call gets.
func TestExplainTimes(t *testing.T) {
	times := func(pair string, n int) Grant {
		g := mustGrant(t, pair)
		g.Times = &n
		return g
	}
	for _, c := range []struct {
		name  string
		allow []Grant
		onAsk OnAsk
		want  string
	}{
		{"then refused", []Grant{times("files/write_file", 2)}, OnAskDeny, "allow: files/write_file, 2 times a run (task file); then deny (needs_approval)"},
		{"then asked", []Grant{times("files/*", 1)}, OnAskPark, "allow: files/*, once a run (task file); then park (needs_approval)"},
		{"then by another line", []Grant{times("files/*", 1), mustGrant(t, "*/write_file")}, OnAskDeny, "allow: files/*, once a run (task file); then allow: */write_file (task file)"},
		{"lines of the same words are counted together", []Grant{times("files/*", 1), times("files/*", 3)}, OnAskDeny,
			"allow: files/*, once a run (task file); then allow: files/*, 3 times a run (task file); then deny (needs_approval)"},
		{"without", []Grant{mustGrant(t, "files/*")}, OnAskDeny, "allow: files/* (task file)"},
	} {
		e := fixture()
		e.Allow, e.OnAsk = c.allow, c.onAsk
		for _, r := range Explain(e, connectedFixture()) {
			if r.Tool == "write_file" && (r.Rule != c.want || r.Decision != task.DecisionAllow) {
				t.Errorf("%s: %s %s, want %s", c.name, r.Decision, r.Rule, c.want)
			}
		}
	}
}

func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		name     string
		edit     func(*Effective, []Connected)
		severity Severity
		where    string
		text     string
		mark     string
	}{
		{"misspelt grant", func(e *Effective, _ []Connected) { e.Allow = []Grant{{Connector: "files", Tool: "wirte_file"}} },
			SeverityError, "allow (task file)", "did you mean files/write_file?", "unused_rule:files/wirte_file"},
		{"deny of nothing", func(e *Effective, _ []Connected) { e.Deny = []Grant{{Connector: "mail", Tool: "forward_*"}} },
			SeverityError, "deny (task file)", "matches no tool of connector mail", "unused_rule:mail/forward_*"},
		{"no such connector", func(e *Effective, _ []Connected) { e.Allow = []Grant{{Connector: "mial", Tool: "*"}} },
			SeverityError, "allow", "no configured connector", "unused_rule:mial/*"},
		{"grant out of reach", func(e *Effective, _ []Connected) {
			e.TaskConnectors = task.ListOf("files")
			e.Allow = []Grant{{Connector: "mail", Tool: "send_message"}}
		}, SeverityWarning, "allow", "can never be used", "unused_rule:mail/send_message"},
		{"grant of what tools leaves out", func(e *Effective, _ []Connected) {
			e.Tools = task.ListOf("files")
			e.Allow = []Grant{{Connector: "files", Tool: "write_file"}, {Connector: "m*", Tool: "send_message"}}
		}, SeverityWarning, "allow", "m*/send_message can never be used: tools (default) does not list connector mail", "unused_rule:m*/send_message"},
		{"grant of what is denied", func(e *Effective, _ []Connected) {
			e.Allow = []Grant{{Connector: "mail", Tool: "send_*"}}
			e.Deny = []Grant{{Connector: "mail", Tool: "send_message"}}
		}, SeverityWarning, "allow", "mail/send_* can never be used: deny: mail/send_message (task file)", "unused_rule:mail/send_*"},
		{"grant of what the daemon denies", func(e *Effective, c []Connected) {
			c[0].Up = false
			e.Allow = []Grant{{Connector: "mail", Tool: "send_message"}}
			e.Ceiling = []Grant{{Connector: "*", Tool: "send_*"}}
		}, SeverityWarning, "allow", "can never be used: deny: */send_* (runnerd.yaml)", "unused_rule:mail/send_message"},
		{"grant of what is disabled", func(e *Effective, _ []Connected) {
			r := e.Connectors["mail"]
			r.Disabled = []string{"send_*"}
			e.Connectors["mail"] = r
			e.Allow = []Grant{{Connector: "mail", Tool: "send_message"}}
		}, SeverityWarning, "allow", "can never be used: disabled_tools of connector mail lists send_*", "unused_rule:mail/send_message"},
		{"misspelt disabled tool", func(e *Effective, _ []Connected) {
			r := e.Connectors["mail"]
			r.Disabled = []string{"sned"}
			e.Connectors["mail"] = r
		},
			SeverityError, "connector mail: disabled_tools", `"sned"`, ""},
		{"class of nothing", func(e *Effective, _ []Connected) { e.Connectors["mail"].Classes["sned"] = ClassRead },
			SeverityWarning, "connector mail: classes", `"sned"`, ""},
		{"hint contradicts", func(e *Effective, c []Connected) { c[0].Tools[0] = annotated("search", false, true) },
			SeverityWarning, "connector mail: classes", "destructive; the entry stands", "hint_contradicts:mail/search"},
		{"left out", func(e *Effective, _ []Connected) { e.Connectors["browser"] = rulesWith(nil) },
			SeverityWarning, "tools (default)", "connectors tools browser --suggest", "no_read_tools:browser"},
		{"hidden by an override", func(e *Effective, _ []Connected) { e.Hidden = []string{"task brief: allow"} },
			SeverityWarning, "task brief: allow", "override hides", ""},
		{"all three", func(e *Effective, _ []Connected) { trifecta(e) }, SeverityError, "task brief", "accept_risk", ""},
	} {
		e, connected := fixture(), connectedFixture()
		c.edit(&e, connected)
		found := Advise(e, connected)
		i := slices.IndexFunc(found, func(a Advice) bool { return a.Severity == c.severity && strings.Contains(a.Text, c.text) })
		if i < 0 {
			t.Errorf("%s: found %+v", c.name, found)
			continue
		}
		if found[i].Mark != c.mark || !strings.Contains(found[i].Where, c.where) {
			t.Errorf("%s: %+v", c.name, found[i])
		}
	}
	e := fixture()
	e.Allow = []Grant{{Connector: "*", Tool: "s*"}, {Connector: "mail", Tool: "*"}} // partly of use
	e.Tools, e.Deny = task.ListOf("mail"), []Grant{mustGrant(t, "mail/search"), {Connector: "mail", Tool: "send_message", Where: map[string]Condition{"to": {Eq: "x"}}}}
	for _, a := range Advise(e, connectedFixture()) {
		if strings.Contains(a.Text, "never be used") {
			t.Errorf("advised of a line that can be used: %+v", a)
		}
	}
	if found := Advise(fixture(), connectedFixture()); len(found) > 1 || len(found) == 1 && !strings.Contains(found[0].Text, "send_") {
		t.Errorf("remarks about a policy in order: %+v", found)
	}
}

// trifecta lets mail bring in untrusted text, files show private data and mail send.
func trifecta(e *Effective) {
	mail, files := e.Connectors["mail"], e.Connectors["files"]
	mail.Flags = []Flag{{Tool: "search", Kind: FlagUntrusted}, {Tool: "send_*", Kind: FlagEgress}}
	files.Flags = []Flag{{Kind: FlagPrivate}}
	e.Connectors["mail"], e.Connectors["files"] = mail, files
	e.Allow = []Grant{{Connector: "mail", Tool: "send_message"}}
}

func TestAdviseTrifecta(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Effective)
		want bool
		down bool
	}{
		{"all three", func(*Effective) {}, true, false},
		{"all three, nothing connected", func(*Effective) {}, true, true},
		{"accepted", func(e *Effective) { e.AcceptRisk = "own mailbox" }, false, false},
		{"accepted with nothing said", func(e *Effective) { e.AcceptRisk = "  " }, true, false},
		{"sending asks", func(e *Effective) { e.Allow = nil }, false, false},
		{"sending asks, nothing connected", func(e *Effective) { e.Allow = nil }, false, true},
		{"files out of reach", func(e *Effective) { e.TaskConnectors = task.ListOf("mail") }, false, false},
		{"files not selected", func(e *Effective) { e.Tools = task.ListOf("mail") }, false, false},
		{"sending denied", func(e *Effective) { e.Deny = []Grant{{Connector: "mail", Tool: "send_*"}} }, false, false},
		{"sending disabled", func(e *Effective) {
			r := e.Connectors["mail"]
			r.Disabled = []string{"send_message"}
			e.Connectors["mail"] = r
		}, false, false},
		{"nothing untrusted", func(e *Effective) { r := e.Connectors["mail"]; r.Flags = r.Flags[1:]; e.Connectors["mail"] = r }, false, false},
	} {
		e, connected := fixture(), connectedFixture()
		trifecta(&e)
		c.edit(&e)
		if c.down {
			connected = nil
		}
		got := slices.ContainsFunc(Advise(e, connected), func(a Advice) bool { return strings.Contains(a.Text, "accept_risk") })
		if got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A read that sends data out works until something untrusted was read; who tries
// the task once must be told.
func TestAdviseAskingReads(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []Flag
		allow []Grant
		want  bool
	}{
		{"untrusted and egress", []Flag{{Kind: FlagUntrusted}, {Kind: FlagEgress}}, nil, true},
		{"granted", []Flag{{Kind: FlagUntrusted}, {Kind: FlagEgress}}, []Grant{mustGrant(t, "browser/*")}, false},
		{"nothing untrusted", []Flag{{Kind: FlagEgress}}, nil, false},
		{"nothing outward", []Flag{{Kind: FlagUntrusted}}, nil, false},
	} {
		e := fixture()
		rules := e.Connectors["browser"]
		rules.Flags = c.flags
		e.Connectors["browser"], e.Allow = rules, c.allow
		got := slices.ContainsFunc(Advise(e, connectedFixture()), func(a Advice) bool {
			return a.Severity == SeverityWarning && strings.Contains(a.Text, "browser/x__y__z sends data out: once browser/x__y__z was read")
		})
		if got != c.want {
			t.Errorf("%s: advised %t, want %t", c.name, got, c.want)
		}
		e.Deny = []Grant{{Connector: "browser", Tool: "*", Where: map[string]Condition{"to": {Any: true}}}}
		if slices.ContainsFunc(Advise(e, connectedFixture()), func(a Advice) bool { return strings.Contains(a.Text, "allow: [") }) {
			t.Errorf("%s: a line is offered that deny excludes", c.name)
		}
	}
}
