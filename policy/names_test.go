package policy

import (
	"fmt"
	"math/rand"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"runnerd/task"
)

func TestParseToolName(t *testing.T) {
	for _, c := range []struct {
		name, connector, tool string
		ok                    bool
	}{
		{"mcp__browser__x__y__z", "browser", "x__y__z", true},
		{"mcp__mail__search", "mail", "search", true},
		{"mcp__a___b", "a", "_b", true},
		{"mcp__a__b__", "a", "b__", true},
		{"mcp____b", "", "", false},
		{"mcp__a__", "", "", false},
		{"mcp__a", "", "", false},
		{"mcp_a__b", "", "", false},
		{"search", "", "", false},
		{"", "", "", false},
	} {
		connector, tool, ok := ParseToolName(c.name)
		if connector != c.connector || tool != c.tool || ok != c.ok {
			t.Errorf("%q: got %q %q %v", c.name, connector, tool, ok)
		}
	}
}

var vendorName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func FuzzParseToolName(f *testing.F) {
	f.Add("mcp__a__b")
	f.Add("mcp__a__ü b")
	f.Add("mcp____")
	f.Fuzz(func(t *testing.T, name string) {
		connector, tool, ok := ParseToolName(name)
		if !ok {
			if connector != "" || tool != "" {
				t.Fatalf("parts of a name that is none: %q %q", connector, tool)
			}
			return
		}
		if "mcp__"+connector+"__"+tool != name || strings.Contains(connector, "__") {
			t.Fatalf("%q splits into %q and %q", name, connector, tool)
		}
		if task.ValidConnectorID(connector) && !vendorName.MatchString(Alias(connector, tool)) {
			t.Fatalf("alias %q", Alias(connector, tool))
		}
	})
}

func TestAlias(t *testing.T) {
	if got := Alias("mail", "search"); got != "mcp__mail__search" {
		t.Errorf("plain: %q", got)
	}
	long := strings.Repeat("very_long_", 20)
	for _, name := range []string{"a.b", "a b", "ü", "", long, long + "x", "a/b"} {
		got := Alias("files", name)
		if !vendorName.MatchString(got) || got != Alias("files", name) {
			t.Errorf("%q: alias %q", name, got)
		}
	}
	if Alias("files", "a.b") == Alias("files", "a_b") || Alias("files", long) == Alias("files", long+"x") {
		t.Error("two tools share an alias")
	}
}

func TestSlotsDoNotDependOnOrder(t *testing.T) {
	squatter := Alias("b", "a.b") // a tool whose name is another's alias
	squatter = strings.TrimPrefix(squatter, "mcp__b__")
	connected := []Connected{
		{ID: "a", Tools: []task.Tool{tool("search"), tool("a.b"), tool(strings.Repeat("x", 80))}},
		{ID: "b", Tools: []task.Tool{tool("search"), tool("a.b"), tool("a_b"), tool(squatter)}},
	}
	want := Slots(connected)
	if len(want) != 7 {
		t.Fatalf("got %d slots of 7", len(want))
	}
	seen := map[string]bool{}
	for _, s := range want {
		if seen[s.Alias] || !vendorName.MatchString(s.Alias) || s.Definition == "" {
			t.Errorf("slot %+v", s)
		}
		seen[s.Alias] = true
	}
	for range 20 {
		rand.Shuffle(len(connected), func(i, j int) { connected[i], connected[j] = connected[j], connected[i] })
		for _, c := range connected {
			rand.Shuffle(len(c.Tools), func(i, j int) { c.Tools[i], c.Tools[j] = c.Tools[j], c.Tools[i] })
		}
		if got := Slots(connected); !reflect.DeepEqual(got, want) {
			t.Fatalf("another order gives %v, not %v", got, want)
		}
	}
}

func TestSlotsOfDuplicateNames(t *testing.T) {
	other := tool("read")
	other.Description = "something else"
	other.Hash = other.DefinitionHash()
	got := Slots([]Connected{{ID: "a", Tools: []task.Tool{tool("read"), tool("twice"), other, tool("twice")}}})
	if len(got) != 1 || got[0].Tool != "twice" {
		t.Errorf("got %v", got)
	}
}

func TestReach(t *testing.T) {
	some, none, absent := task.ListOf("mail"), task.ListOf[string](), task.List[string]{}
	for i, c := range []struct {
		task, session, project task.List[string]
		source                 Source
		mail, files            bool
	}{
		{absent, absent, absent, SourceAll, true, true},
		{none, absent, some, SourceTask, false, false},
		{absent, task.ListOf("web"), some, SourceSession, false, false},
		{absent, none, some, SourceSession, false, false},
		{absent, absent, some, SourceProject, true, false},
		{absent, absent, none, SourceProject, false, false},
		{some, none, none, SourceTask, true, false},
		{task.ListOf("ghost"), absent, absent, SourceTask, false, false},
	} {
		e := fixture()
		e.TaskConnectors, e.SessionConnectors, e.ProjectConnectors = c.task, c.session, c.project
		if _, source := Reach(e); source != c.source {
			t.Errorf("%d: source %s, want %s", i, source, c.source)
		}
		if Reachable(e, "mail") != c.mail || Reachable(e, "files") != c.files {
			t.Errorf("%d: mail %v files %v", i, Reachable(e, "mail"), Reachable(e, "files"))
		}
		if Reachable(e, "ghost") {
			t.Errorf("%d: a connector that is not configured is reachable", i)
		}
	}
}

func ExampleAlias() {
	fmt.Println(Alias("browser", "x__y__z"))
	// Output: mcp__browser__x__y__z
}
