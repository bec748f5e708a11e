package policy

import (
	"slices"
	"strings"
	"testing"

	"runnerd/task"
)

func TestClassify(t *testing.T) {
	filesystem := Origin{Package: "@modelcontextprotocol/server-filesystem"}
	for _, c := range []struct {
		name  string
		rules ConnectorRules
		tool  task.Tool
		class Class
		from  string
	}{
		{"nothing known", ConnectorRules{}, tool("search"), ClassExec, "nothing"},
		{"hint without trust", ConnectorRules{}, annotated("delete_all", true, false), ClassExec, "nothing"},
		{"hint with trust", ConnectorRules{TrustAnnotations: true}, annotated("list", true, false), ClassRead, "readOnlyHint"},
		{"trust, no hint", ConnectorRules{TrustAnnotations: true}, tool("list"), ClassWrite, "readOnlyHint"},
		{"trust, destructive", ConnectorRules{TrustAnnotations: true}, annotated("x", false, true), ClassWrite, "readOnlyHint"},
		{"operator beats hint", ConnectorRules{TrustAnnotations: true, Classes: map[string]Class{"x": ClassRead}}, annotated("x", false, true), ClassRead, "classes entry x"},
		{"exact beats glob", ConnectorRules{Classes: map[string]Class{"delete_*": ClassExec, "delete_draft": ClassWrite}}, tool("delete_draft"), ClassWrite, "delete_draft"},
		{"highest glob wins", ConnectorRules{Classes: map[string]Class{"*": ClassRead, "d*": ClassWrite, "*_all": ClassExec}}, tool("delete_all"), ClassExec, "*_all"},
		{"no class at all", ConnectorRules{Classes: map[string]Class{"x": "harmless"}}, tool("x"), ClassExec, "classes"},
		{"empty class", ConnectorRules{Classes: map[string]Class{"x": ""}}, tool("x"), ClassExec, "classes"},
		{"catalogue", ConnectorRules{Origin: filesystem}, tool("read_text_file"), ClassRead, "catalogue"},
		{"catalogue, unlisted tool", ConnectorRules{Origin: filesystem}, tool("format_disk"), ClassExec, "nothing"},
		{"operator beats catalogue", ConnectorRules{Origin: filesystem, Classes: map[string]Class{"read_*": ClassWrite}}, tool("read_text_file"), ClassWrite, "classes"},
		{"catalogue beats hint", ConnectorRules{Origin: Origin{Package: "@modelcontextprotocol/server-everything"}, TrustAnnotations: true}, annotated("get-env", true, false), ClassExec, "catalogue"},
		{"by host", ConnectorRules{Origin: Origin{URL: "https://MCP.notion.com/mcp"}}, tool("notion-fetch"), ClassRead, "mcp.notion.com"},
		{"not over http", ConnectorRules{Origin: Origin{URL: "http://mcp.notion.com/mcp"}}, tool("notion-fetch"), ClassExec, "nothing"},
		{"not on another port", ConnectorRules{Origin: Origin{URL: "https://mcp.notion.com:8443/mcp"}}, tool("notion-fetch"), ClassExec, "nothing"},
		{"a host is no package", ConnectorRules{Origin: Origin{URL: "https://builtin:files/"}}, tool("read_file"), ClassExec, "nothing"},
		{"builtin", ConnectorRules{Origin: Origin{Package: "builtin:shell"}}, tool("run"), ClassExec, "catalogue"},
	} {
		class, from := Classify(c.rules, c.tool)
		if class != c.class {
			t.Errorf("%s: class %s, want %s (%s)", c.name, class, c.class, from)
		}
		hasText(t, c.name, from, c.from)
	}
}

func TestCatalogueParses(t *testing.T) {
	entries, err := parseCatalogue(catalogueFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 40 {
		t.Errorf("%d keys", len(entries))
	}
	for _, key := range []string{"builtin:files", "builtin:fetch", "builtin:shell", "builtin:memory",
		"@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-memory", "@modelcontextprotocol/server-everything",
		"@modelcontextprotocol/server-sequential-thinking", "mcp-server-git", "@playwright/mcp"} {
		if entries[key] == nil {
			t.Errorf("no entry %s", key)
		}
	}
	// Nothing whose name says that it deletes, sends or runs may pass as read.
	for key, e := range entries {
		for name, class := range e.classes {
			if class == ClassRead && slices.ContainsFunc(nameWords(name), func(w string) bool {
				return slices.Contains([]string{"delete", "send", "remove", "create", "update", "write", "run", "push", "exec"}, w)
			}) && name != "get_workflow_run" {
				t.Errorf("%s: %s is classed read", key, name)
			}
		}
	}
}

func TestCatalogueRefusesMistakes(t *testing.T) {
	for _, text := range []string{
		"- {why: x, keys: [a], read: [b], exec: [b]}",
		"- {why: x, keys: [a]}\n- {why: y, keys: [a]}",
		"- {keys: [a]}",
		"- {why: x, keys: [a], flags: [bad]}",
		"- {why: x, keys: [a], tool_flags: {b: [egress]}}",
		"- {why: x, keys: [a], unknown: 1}",
		"nonsense",
	} {
		if _, err := parseCatalogue([]byte(text)); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}

func TestHasFlag(t *testing.T) {
	fetch := ConnectorRules{Origin: Origin{Package: "builtin:fetch"}}
	if !HasFlag(fetch, "fetch", FlagEgress) || !HasFlag(fetch, "fetch", FlagUntrusted) || HasFlag(fetch, "fetch", FlagPrivate) {
		t.Error("the catalogue's flags of builtin:fetch")
	}
	fetch.Flags = []Flag{}
	if HasFlag(fetch, "fetch", FlagEgress) {
		t.Error("a declared empty list leaves the catalogue's flags")
	}
	own := ConnectorRules{Flags: []Flag{{Tool: "send_*", Kind: FlagEgress}, {Kind: FlagPrivate}}}
	if !HasFlag(own, "send_mail", FlagEgress) || HasFlag(own, "search", FlagEgress) || !HasFlag(own, "search", FlagPrivate) {
		t.Error("the operator's flags")
	}
}

func TestSuggestClasses(t *testing.T) {
	got := map[string]Class{}
	for _, s := range SuggestClasses(ConnectorRules{}, []task.Tool{
		annotated("delete_all", true, false), annotated("fetchPage", true, false), tool("list_mail"), annotated("list_things", false, false),
		tool("runCommand"), tool("add_note"), annotated("wobble", false, true),
	}) {
		got[s.Tool] = s.Class
		if s.Why == "" || s.Current != ClassExec {
			t.Errorf("%+v", s)
		}
	}
	for name, want := range map[string]Class{
		"delete_all": ClassExec, "fetchPage": ClassRead, "list_mail": ClassRead, "list_things": ClassWrite,
		"runCommand": ClassExec, "add_note": ClassWrite, "wobble": ClassExec,
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

func TestRulesOf(t *testing.T) {
	strict := PinStrict
	if r := RulesOf(Fields{}); r.Pin != PinFirstUse || r.Flags != nil || quarantine(r, "mail", tool("search")) != "" {
		t.Errorf("of nothing: %+v", r)
	}
	if r := RulesOf(Fields{Pin: &strict, Flags: task.ListOf[Flag]()}); r.Pin != PinStrict || r.Flags == nil {
		t.Errorf("of strict and no flags: %+v", r)
	}
}

// W7: a read whose name or hints say otherwise is named; the class stands.
func TestAdviseOnReadsThatDoSomething(t *testing.T) {
	yes, no := true, false
	hinted := func(name string, readOnly, destructive *bool) task.Tool {
		d := tool(name)
		d.Annotations = task.Annotations{ReadOnly: readOnly, Destructive: destructive}
		return d
	}
	for _, c := range []struct {
		tool  task.Tool
		rules ConnectorRules
		want  string
	}{
		{tool("mark_as_read"), rulesWith(map[string]Class{"mark_*": ClassRead}), `by classes entry mark_*, but its name says "mark"`},
		{tool("send_message"), rulesWith(map[string]Class{"*": ClassRead}), `its name says "send"`},
		{tool("deleteDraft"), rulesWith(map[string]Class{"deleteDraft": ClassRead}), `its name says "delete"`},
		{tool("get_or_create_label"), rulesWith(map[string]Class{"*": ClassRead}), `its name says "create"`},
		{tool("read_and_mark"), rulesWith(map[string]Class{"*": ClassRead}), `its name says "mark"`},
		{hinted("look", nil, &yes), rulesWith(map[string]Class{"*": ClassRead}), "the server calls it destructive"},
		{hinted("fetch", &no, nil), ConnectorRules{Pin: PinFirstUse, Origin: Origin{Package: "mcp-server-fetch"}}, "by catalogue entry mcp-server-fetch, but the server calls it not read-only"},
		{tool("get_send_status"), rulesWith(map[string]Class{"*": ClassRead}), ""},
		{tool("query"), rulesWith(map[string]Class{"*": ClassRead}), ""},
		{hinted("mark_as_read", &yes, nil), rulesWith(map[string]Class{"*": ClassRead}), `its name says "mark"`},
		{tool("send_message"), rulesWith(map[string]Class{"*": ClassWrite}), ""},
		{hinted("look", &yes, nil), rulesWith(map[string]Class{"*": ClassRead}), ""},
	} {
		e := Effective{Task: "t", Connectors: map[string]ConnectorRules{"x": c.rules}}
		got := ""
		for _, a := range Advise(e, []Connected{{ID: "x", Up: true, Tools: []task.Tool{c.tool}}}) {
			if strings.HasSuffix(a.Where, ": classes") {
				got += a.Text
			}
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.tool.Name, got, c.want)
		}
	}
	for key, entry := range catalogue() {
		for _, name := range entry.Read {
			if word := effect(name); word != "" {
				t.Errorf("catalogue entry %s: the read %s says %q", key, name, word)
			}
		}
	}
	s := SuggestClasses(ConnectorRules{}, []task.Tool{hinted("mark_as_read", &yes, nil)})[0]
	if s.Class != ClassWrite || !strings.Contains(s.Why, "although the server calls it read-only") {
		t.Errorf("%+v", s)
	}
}

// I18: what nobody vouches for counts as all three, until the operator writes flags.
func TestUnflagged(t *testing.T) {
	all := []string{FlagUntrusted, FlagPrivate, FlagEgress}
	for _, c := range []struct {
		name      string
		rules     ConnectorRules
		want      []string
		unflagged bool
	}{
		{"unknown", ConnectorRules{}, all, true},
		{"unknown package", ConnectorRules{Origin: Origin{Package: "my-mail"}}, all, true},
		{"unknown host", ConnectorRules{Origin: Origin{URL: "https://mail.example.com/mcp"}}, all, true},
		{"a known package elsewhere", ConnectorRules{Origin: Origin{URL: "http://mcp.notion.com/mcp"}}, all, true},
		{"flags: []", ConnectorRules{Flags: []Flag{}}, nil, false},
		{"one flag", ConnectorRules{Flags: []Flag{{Kind: FlagPrivate}}}, []string{FlagPrivate}, false},
		{"builtin", ConnectorRules{Origin: Origin{Package: "builtin:files"}}, []string{FlagPrivate}, false},
		{"catalogued, no flags", ConnectorRules{Origin: Origin{Package: "mcp-server-time"}}, nil, false},
	} {
		var got []string
		for _, kind := range all {
			if HasFlag(c.rules, "look", kind) {
				got = append(got, kind)
			}
		}
		if strings.Join(got, " ") != strings.Join(c.want, " ") || Unflagged(c.rules) != c.unflagged {
			t.Errorf("%s: %v, unflagged %t", c.name, got, Unflagged(c.rules))
		}
	}
	look := ConnectorRules{Classes: map[string]Class{"look": ClassRead}}
	text := FlagAdvice(look, Connected{ID: "x", Up: true, Tools: []task.Tool{tool("look"), tool("wipe")}})
	hasText(t, "advice", text, "`flags: [untrusted, private, egress]`", "`flags: []`", "(x/look)")
	if text := FlagAdvice(rulesWith(nil), Connected{ID: "x"}); text != "" {
		t.Error(text)
	}
}
