package taskpolicy

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun/driver/sqliteshim"
	"go.uber.org/goleak"

	"runnerd/policy"
	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

// patient is a bound that only what hangs comes to, however busy the machine is.
const patient = 5 * time.Minute

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{DSN: path, ReadWait: patient, WriteWait: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func dbPath(t testing.TB) string { return filepath.Join(t.TempDir(), "task_policies.db") }

// files is a task of a project, with two connectors.
func files() []Row {
	return []Row{
		{policy.ScopeTask, "brief", policy.Fields{
			Allow:  task.ListOf(policy.Grant{Connector: "mail", Tool: "send_*"}),
			OnAsk:  ptr(policy.OnAskPark),
			Limits: ptr(policy.DefaultLimits()),
		}},
		{policy.ScopeProject, "ops", policy.Fields{Connectors: task.ListOf("mail")}},
		{policy.ScopeConnector, "mail", policy.Fields{
			Classes: map[string]policy.Class{"search": policy.ClassRead},
			Flags:   task.ListOf(policy.Flag{Kind: policy.FlagUntrusted}),
		}},
		{policy.ScopeConnector, "web", policy.Fields{Origin: &policy.Origin{Package: "builtin:fetch"}}},
	}
}

func seeded(t testing.TB) *Store {
	t.Helper()
	s := open(t, dbPath(t))
	if err := s.SyncFiles(t.Context(), files(), policy.Fields{Limits: &policy.Limits{CostPerDay: ptr(task.Money(5_000_000))}}, "files"); err != nil {
		t.Fatal(err)
	}
	return s
}

func effective(t testing.TB, s *Store) policy.Effective {
	t.Helper()
	e, err := s.Effective(t.Context(), "brief", "brief", "ops")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// set patches "FIELD=JSON" pairs.
func set(t testing.TB, s *Store, scope policy.Scope, id string, pairs ...string) ([]string, error) {
	t.Helper()
	patch := map[string]json.RawMessage{}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		patch[name] = json.RawMessage(value)
	}
	return s.Set(t.Context(), Change{Scope: scope, ID: id, Patch: patch, By: "test"})
}

// raw changes the database as no code of ours would.
func raw(t testing.TB, s *Store, query string, args ...any) {
	t.Helper()
	if _, err := s.sql.Write.DB.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, what string, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: want an error with %q, have %v", what, part, err)
	}
}

func TestEffectiveOfFiles(t *testing.T) {
	s := seeded(t)
	e := effective(t, s)
	if e.TaskConnectors.Declared() || e.SessionConnectors.Declared() || !slices.Equal(e.ProjectConnectors.Items(), []string{"mail"}) {
		t.Errorf("tiers %v %v %v", e.TaskConnectors, e.SessionConnectors, e.ProjectConnectors)
	}
	if len(e.Allow) != 1 || e.Allow[0].String() != "mail/send_*" || e.OnAsk != policy.OnAskPark || e.ApprovalTTL != 24*time.Hour {
		t.Errorf("%+v", e)
	}
	if *e.Limits.Steps != 25 || *e.Day.CostPerDay != 5_000_000 {
		t.Errorf("limits %+v day %+v", e.Limits, e.Day)
	}
	mail, web := e.Connectors["mail"], e.Connectors["web"]
	if mail.Classes["search"] != policy.ClassRead || len(mail.Flags) != 1 || mail.Pin != policy.PinFirstUse || mail.Pins != nil {
		t.Errorf("mail %+v", mail)
	}
	if web.Flags != nil || web.Origin.Package != "builtin:fetch" {
		t.Errorf("web %+v", web)
	}
	if e.Sources["allow"] != policy.LayerFile || e.Sources["deny"] != policy.LayerDefault {
		t.Errorf("sources %v", e.Sources)
	}
	if _, err := s.Effective(t.Context(), "brief", "brief", ""); err != nil {
		t.Errorf("without a project: %v", err)
	}
}

// Absent, empty and listed stay apart on their way through the database.
func TestThreeStates(t *testing.T) {
	for _, list := range []task.List[string]{{}, task.ListOf[string](), task.ListOf("mail", "web")} {
		s := open(t, dbPath(t))
		rows := files()
		rows[0].Connectors, rows[0].Tools, rows[1].Connectors = list, list, list
		rows[3].Flags = task.List[policy.Flag]{}
		if list.Declared() {
			rows[3].Flags = task.ListOf[policy.Flag]()
		}
		if err := s.SyncFiles(t.Context(), rows, policy.Fields{}, "files"); err != nil {
			t.Fatal(err)
		}
		e := effective(t, s)
		for _, got := range []task.List[string]{e.TaskConnectors, e.Tools, e.ProjectConnectors} {
			if !reflect.DeepEqual(got, list) {
				t.Errorf("%v came back as %v", list, got)
			}
		}
		if (e.Connectors["web"].Flags != nil) != list.Declared() {
			t.Errorf("flags %v of %v", e.Connectors["web"].Flags, list)
		}
	}
}

func TestEffectiveRefuses(t *testing.T) {
	for _, c := range []struct{ name, query, part string }{
		{"no task row", "DELETE FROM policy_rows WHERE scope = 'task'", `task "brief": no policy row`},
		{"no session row", "DELETE FROM policy_rows WHERE scope = 'session'", `session "brief"`},
		{"no project row", "DELETE FROM policy_rows WHERE scope = 'project'", `project "ops"`},
		{"an override alone is no row", "UPDATE policy_rows SET layer = 'override' WHERE scope = 'task'", "no policy row"},
		{"connectors a string", `UPDATE policy_rows SET connectors = '"mail"' WHERE scope = 'task'`, "connectors of the task: want a list"},
		{"connectors no JSON", `UPDATE policy_rows SET connectors = 'mail' WHERE scope = 'session'`, "connectors of the session"},
		{"connectors a number", `UPDATE policy_rows SET connectors = 5 WHERE scope = 'project'`, "connectors of the project"},
		{"connectors JSON null", `UPDATE policy_rows SET connectors = 'null' WHERE scope = 'task'`, "connectors of the task"},
		{"connectors empty text", `UPDATE policy_rows SET connectors = '' WHERE scope = 'task'`, "connectors of the task"},
		{"allow unreadable", `UPDATE policy_rows SET allow = '{' WHERE scope = 'task'`, "allow is unreadable"},
		{"deny unreadable", `UPDATE policy_rows SET deny = '["mail"]' WHERE scope = 'task'`, "deny is unreadable"},
		{"B3 a pattern in deny", `UPDATE policy_rows SET deny = '["files/[w]rite_*"]' WHERE scope = 'task'`, "not understood"},
		{"B3 a pattern in allow", `UPDATE policy_rows SET allow = '[{"connector":"mail","tool":"{a,b}"}]' WHERE scope = 'task'`, "not understood"},
		{"B3 a pattern in disabled_tools", `UPDATE policy_rows SET disabled_tools = '["[w]rite_file"]' WHERE id = 'web'`, "connector web: disabled_tools"},
		{"B3 a pattern in classes", `UPDATE policy_rows SET classes = '{"[r]ead_*":"exec"}' WHERE id = 'mail'`, "connector mail: classes"},
		{"B3 a pattern in flags", `UPDATE policy_rows SET flags = '[{"tool":"a\b","kind":"egress"}]' WHERE id = 'mail'`, "connector mail: flags"},
		{"B7 a host", `UPDATE policy_rows SET deny = '[{"tool":"web/get","where":{"url":{"host":"ex*.com"}}}]' WHERE scope = 'task'`, "bad host"},
		{"W1 a where without a word", `UPDATE policy_rows SET allow = '[{"tool":"mail/send","where":{}}]' WHERE scope = 'task'`, "nothing is said here"},
		{"W1 a where of null", `UPDATE policy_rows SET allow = '[{"tool":"mail/send","where":null}]' WHERE scope = 'task'`, "nothing is said here"},
		{"W6 times in deny", `UPDATE policy_rows SET deny = '[{"tool":"mail/send","times":1}]' WHERE scope = 'task'`, "times on a line of deny"},
		{"limits unreadable", `UPDATE policy_rows SET limits = '{"step":1}' WHERE scope = 'task'`, "limits of the task is unreadable"},
		{"classes unreadable", `UPDATE policy_rows SET classes = '[]' WHERE id = 'mail'`, "connector mail: classes is unreadable"},
		{"pins unreadable", `INSERT INTO policy_pins VALUES ('mail', 'null')`, "connector mail: stored pins"},
		{"a separator in a value", `UPDATE policy_rows SET accept_risk = '"a' || char(30) || 'b"' WHERE scope = 'task'`, "row of a task is unreadable"},
		{"table gone", `DROP TABLE policy_pins`, "policy_pins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := seeded(t)
			effective(t, s)
			raw(t, s, c.query)
			e, err := s.Effective(t.Context(), "brief", "brief", "ops")
			wantError(t, c.name, err, c.part)
			if e.Connectors != nil {
				t.Error("an error comes with a policy")
			}
		})
	}
}

func TestEffectiveForgives(t *testing.T) {
	s := seeded(t)
	raw(t, s, `UPDATE policy_rows SET tools = '"memory"' WHERE scope = 'task'`)
	e := effective(t, s)
	if e.Tools.Declared() || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "counts as absent") {
		t.Errorf("tools %v warnings %v", e.Tools, e.Warnings)
	}
	raw(t, s, `UPDATE policy_rows SET tools = '["mail",5,"mail","web",null]' WHERE scope = 'task'`)
	e = effective(t, s)
	if !slices.Equal(e.Tools.Items(), []string{"mail", "web"}) || len(e.Warnings) != 2 {
		t.Errorf("tools %v warnings %v", e.Tools, e.Warnings)
	}
}

func TestEffectiveIsFresh(t *testing.T) {
	s := seeded(t)
	for _, step := range []struct{ value, want string }{
		{`["web"]`, `["web"]`}, {`[]`, `[]`}, {`["web","mail"]`, `["web","mail"]`}, {`null`, `null`},
	} {
		if _, err := set(t, s, policy.ScopeTask, "brief", "connectors="+step.value); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(effective(t, s).TaskConnectors); string(got) != step.want {
			t.Errorf("after %s: %s", step.value, got)
		}
	}
}

func TestLayers(t *testing.T) {
	s := seeded(t)
	if _, err := set(t, s, policy.ScopeTask, "brief", `allow=["web/*"]`, `limits={"steps":3,"cost":0.25}`, `approval_ttl="2h"`); err != nil {
		t.Fatal(err)
	}
	e := effective(t, s)
	if len(e.Allow) != 1 || e.Allow[0].Connector != "web" || e.Sources["allow"] != policy.LayerOverride || e.ApprovalTTL != 2*time.Hour {
		t.Errorf("%+v", e)
	}
	// A whole field is replaced, and still every run is bounded.
	if *e.Limits.Steps != 3 || *e.Limits.Cost != 250_000 || *e.Limits.ToolCalls != 50 {
		t.Errorf("limits %+v", e.Limits)
	}
	if !slices.Equal(e.Hidden, []string{"task brief: allow", "task brief: limits"}) {
		t.Errorf("hidden %v", e.Hidden)
	}
	if _, err := set(t, s, policy.ScopeProject, "ops", `limits={"steps":2,"tokens":10000000}`); err != nil {
		t.Fatal(err)
	}
	if e = effective(t, s); *e.Limits.Steps != 2 || *e.Limits.Tokens != 500_000 {
		t.Errorf("a project's limits widen: %+v", e.Limits)
	}
	if _, err := set(t, s, policy.ScopeConnector, "mail", `disabled_tools=["search"]`, `flags=["private","send_*:egress"]`, `classes=null`); err != nil {
		t.Fatal(err)
	}
	e = effective(t, s)
	if mail := e.Connectors["mail"]; !slices.Equal(mail.Disabled, []string{"search"}) || len(mail.Flags) != 2 || mail.Flags[1] != (policy.Flag{Tool: "send_*", Kind: "egress"}) || len(mail.Classes) != 1 {
		t.Errorf("%+v", mail)
	}
	if !slices.Contains(e.Hidden, "connector mail: flags") {
		t.Errorf("hidden %v", e.Hidden)
	}
}

func TestSetCorrectsAndRefuses(t *testing.T) {
	s := seeded(t)
	for _, c := range []struct {
		scope    policy.Scope
		pair     string
		stored   string // of the override layer; "" is NULL
		warnings int
		err      string
	}{
		{policy.ScopeSession, `connectors=["web","ghost","mail","web"]`, `["web","mail"]`, 1, ""},
		{policy.ScopeSession, `connectors=["ghost"]`, `[]`, 1, ""},
		{policy.ScopeSession, `connectors=[]`, `[]`, 0, ""},
		{policy.ScopeSession, `connectors=["web",7]`, `["web"]`, 1, ""},
		{policy.ScopeSession, `connectors="web"`, "", 0, "want a list"},
		{policy.ScopeSession, `connectors={}`, "", 0, "want a list"},
		{policy.ScopeSession, `connectors=["web/fetch"]`, "", 0, "lists connectors"},
		{policy.ScopeSession, `tools=[]`, "", 0, `has no field "tools"; it has connectors`},
		{policy.ScopeTask, `tools="memory"`, "", 1, ""},
		{policy.ScopeTask, `tools={}`, "", 1, ""},
		{policy.ScopeTask, `tools=["mail/search"]`, "", 0, `lists connectors, not their tools; write "mail"`},
		{policy.ScopeTask, `tools=["mail",null]`, `["mail"]`, 1, ""},
		{policy.ScopeTask, `allow=["mail"]`, "", 0, "connector/tool"},
		{policy.ScopeTask, `allow="mail/x"`, "", 0, "want a list"},
		{policy.ScopeTask, `allow=[{"tool":"files/w","where":{"path":{"under":"/srv"}}}]`, `[{"connector":"files","tool":"w","where":{"path":{"under":"/srv"}}}]`, 0, ""},
		{policy.ScopeTask, `allow=[{"tool":"f/w","where":{"a":"any","b":"absent","c":{"max":19.99},"d":{"eq":[1.50]}},"times":2}]`,
			`[{"connector":"f","tool":"w","where":{"a":"any","b":"absent","c":{"max":19.99},"d":{"eq":[1.50]}},"times":2}]`, 0, ""},
		{policy.ScopeTask, `allow=[{"tool":"f/w","where":{"a":{"eq":null}}}]`, "", 0, "written: absent"},
		{policy.ScopeTask, `allow=[{"tool":"f/w","where":{"a":{"max":"7"}}}]`, "", 0, "wrong type"},
		{policy.ScopeTask, `deny=["files/[w]rite_*"]`, "", 0, "not understood"},
		{policy.ScopeTask, `deny=[{"tool":"f/w","times":2}]`, "", 0, "times on a line of deny"},
		{policy.ScopeConnector, `disabled_tools=["{a,b}"]`, "", 0, "not understood"},
		{policy.ScopeConnector, `classes={"[r]ead_*":"read"}`, "", 0, "not understood"},
		{policy.ScopeConnector, `flags=["a|b:egress"]`, "", 0, "not understood"},
		{policy.ScopeTask, `on_ask="ask"`, "", 0, "one of"},
		{policy.ScopeTask, `on_ask="deny"`, `"deny"`, 0, ""},
		{policy.ScopeTask, `approval_ttl="-1h"`, "", 0, "above 0"},
		{policy.ScopeTask, `approval_ttl=12`, "", 0, "12h"},
		{policy.ScopeTask, `limits={"stepz":1}`, "", 0, "known: steps"},
		{policy.ScopeTask, `accept_risk=true`, "", 0, "want a sentence"},
		{policy.ScopeTask, `nonsense=1`, "", 0, "has no field"},
		{policy.ScopeConnector, `classes={"x":"harmless"}`, "", 0, "read, write or exec"},
		{policy.ScopeConnector, `pin="strict"`, `"strict"`, 0, ""},
		{policy.ScopeConnector, `pin="never"`, "", 0, "one of"},
		{policy.ScopeConnector, `flags=["evil"]`, "", 0, "untrusted"},
		{policy.ScopeConnector, `trust_annotations="yes"`, "", 0, "true or false"},
		{policy.ScopeConnector, `origin={"package":"builtin:files"}`, "", 0, "cannot be set"},
		{"daemon", `limits={}`, "", 0, "unknown scope"},
	} {
		id := map[policy.Scope]string{policy.ScopeConnector: "mail"}[c.scope]
		if id == "" {
			id = "brief"
		}
		name, _, _ := strings.Cut(c.pair, "=")
		if slices.Contains(fieldsOf[c.scope], name) && name != "origin" && c.scope != "daemon" {
			if _, err := set(t, s, c.scope, id, name+"=null"); err != nil {
				t.Fatal(err)
			}
		}
		warnings, err := set(t, s, c.scope, id, c.pair)
		if c.err != "" {
			wantError(t, c.pair, err, c.err)
		} else if err != nil || len(warnings) != c.warnings {
			t.Errorf("%s: warnings %q, error %v", c.pair, warnings, err)
		}
		if !slices.Contains(fieldsOf[c.scope], name) || c.scope == "daemon" {
			continue
		}
		shown, err := s.Show(t.Context(), c.scope, id)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if shown[name].Layer == policy.LayerOverride {
			got = string(shown[name].Value)
		}
		if got != c.stored {
			t.Errorf("%s: stored %q, want %q", c.pair, got, c.stored)
		}
	}
	_, err := set(t, s, policy.ScopeTask, "ghost", "tools=[]")
	if !errors.Is(err, ErrNoRow) {
		t.Errorf("a task that is not there: %v", err)
	}
}

// A patch with one bad field changes nothing.
func TestSetIsWhole(t *testing.T) {
	s := seeded(t)
	if _, err := set(t, s, policy.ScopeTask, "brief", "connectors=[]", "on_ask=5"); err == nil {
		t.Fatal("accepted")
	}
	if effective(t, s).TaskConnectors.Declared() {
		t.Error("half of the patch was applied")
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("history after a rollback: %v %v", bad, err)
	}
}

func TestShow(t *testing.T) {
	s := seeded(t)
	before := time.Now().Add(-time.Second)
	if _, err := s.Set(t.Context(), Change{policy.ScopeTask, "brief", map[string]json.RawMessage{"tools": json.RawMessage(`[]`)}, "uid 1000"}); err != nil {
		t.Fatal(err)
	}
	shown, err := s.Show(t.Context(), policy.ScopeTask, "brief")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		value string
		layer policy.Layer
		by    string
	}{
		"tools": {`[]`, policy.LayerOverride, "uid 1000"}, "allow": {`[{"connector":"mail","tool":"send_*"}]`, policy.LayerFile, "files"},
		"connectors": {`null`, policy.LayerDefault, ""}, "approval_ttl": {`"24h0m0s"`, policy.LayerDefault, ""},
		"limits": {`{"steps":25,"tool_calls":50,"tokens":500000,"wall":"15m0s"}`, policy.LayerFile, "files"},
	} {
		got := shown[name]
		if string(got.Value) != want.value || got.Layer != want.layer || got.By != want.by || (want.by != "") != got.ChangedAt.After(before) {
			t.Errorf("%s: %s %+v", name, got.Value, got)
		}
	}
	if len(shown) != 9 || string(shown[Ceiling].Value) != "null" {
		t.Errorf("%d fields", len(shown))
	}
	if _, err := s.Show(t.Context(), policy.ScopeTask, "ghost"); !errors.Is(err, ErrNoRow) {
		t.Errorf("%v", err)
	}
}

func TestReachability(t *testing.T) {
	s := seeded(t)
	check := func(what string, scope policy.Scope, id, want string) {
		t.Helper()
		r, err := s.Reachability(t.Context(), scope, id, "ops")
		got, _ := json.Marshal(r)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v", what, got, err)
		}
	}
	check("project's", policy.ScopeSession, "brief", `{"connector_ids":null,"effective":["mail"],"source":"project"}`)
	if _, err := set(t, s, policy.ScopeSession, "brief", `connectors=["web"]`); err != nil {
		t.Fatal(err)
	}
	check("own", policy.ScopeSession, "brief", `{"connector_ids":["web"],"effective":["web"],"source":"session"}`)
	if _, err := set(t, s, policy.ScopeTask, "brief", `connectors=[]`); err != nil {
		t.Fatal(err)
	}
	check("task's", policy.ScopeSession, "brief", `{"connector_ids":["web"],"effective":[],"source":"task"}`)
	check("project", policy.ScopeProject, "ops", `{"connector_ids":["mail"],"effective":["mail"],"source":"project"}`)
	if _, err := s.Reachability(t.Context(), policy.ScopeSession, "ghost", ""); !errors.Is(err, ErrNoRow) {
		t.Errorf("%v", err)
	}
	own, err := s.Own(t.Context(), policy.ScopeTask, "brief")
	if err != nil || !own.Connectors.Declared() || own.Connectors.Len() != 0 || own.Allow.Len() != 1 || *own.OnAsk != policy.OnAskPark || own.ApprovalTTL != nil {
		t.Errorf("own %+v %v", own, err)
	}
}

func TestSyncFiles(t *testing.T) {
	s := seeded(t)
	count := func() int {
		t.Helper()
		h, err := s.History(t.Context(), HistoryFilter{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return len(h)
	}
	day := policy.Limits{CostPerDay: ptr(task.Money(5_000_000))}
	before := count()
	if err := s.SyncFiles(t.Context(), files(), policy.Fields{Limits: &day}, "files"); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != before {
		t.Errorf("%d history rows for no change", got-before)
	}

	rows := files()
	rows[0].Fields.OnAsk = nil
	if err := s.SyncFiles(t.Context(), rows, policy.Fields{Limits: &day}, "uid 7"); err != nil {
		t.Fatal(err)
	}
	h, err := s.History(t.Context(), HistoryFilter{Scope: policy.ScopeTask, ID: "brief", Limit: 1})
	if err != nil || count() != before+1 || h[0].Field != "on_ask" || string(h[0].Old) != `"park"` || string(h[0].New) != "null" || h[0].By != "uid 7" {
		t.Errorf("history %+v %v", h, err)
	}

	// The task's file goes: its row stays. Its project and a connector go for good.
	if err := s.SyncFiles(t.Context(), rows[2:3], policy.Fields{Limits: &day}, "files"); err != nil {
		t.Fatal(err)
	}
	after := count()
	if err := s.SyncFiles(t.Context(), rows[2:3], policy.Fields{Limits: &day}, "files"); err != nil || count() != after {
		t.Errorf("the same once more: %d history rows, %v", count()-after, err)
	}
	e, err := s.Effective(t.Context(), "brief", "brief", "")
	if err != nil || len(e.Connectors) != 1 || len(e.Allow) != 1 {
		t.Errorf("a retired task's policy: %+v %v", e, err)
	}
	_, err = s.Effective(t.Context(), "brief", "brief", "ops")
	wantError(t, "the project is gone", err, "project")
	var retired int
	if err := s.sql.Read.DB.QueryRow("SELECT retired FROM policy_rows WHERE scope = 'task' AND layer = 'file'").Scan(&retired); err != nil || retired != 1 {
		t.Errorf("retired = %d %v", retired, err)
	}
	if err := s.SyncFiles(t.Context(), files(), policy.Fields{Limits: &day}, "files"); err != nil {
		t.Fatal(err)
	}
	if e := effective(t, s); len(e.Connectors) != 2 {
		t.Errorf("%+v", e.Connectors)
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("%v %v", bad, err)
	}

	wantError(t, "twice", s.SyncFiles(t.Context(), append(files(), files()[0]), policy.Fields{Limits: &day}, "f"), "there twice")
	wantError(t, "a session", s.SyncFiles(t.Context(), []Row{{Scope: policy.ScopeSession, ID: "x"}}, policy.Fields{Limits: &day}, "f"), "say nothing")
	wantError(t, "a foreign field", s.SyncFiles(t.Context(), []Row{{policy.ScopeProject, "x", policy.Fields{Tools: task.ListOf("a")}}}, policy.Fields{Limits: &day}, "f"), "does not belong")
}

// An override of a connector that no file configures makes no connector.
func TestOverrideMakesNoConnector(t *testing.T) {
	s := seeded(t)
	if _, err := set(t, s, policy.ScopeConnector, "web", `classes={"*":"read"}`); err != nil {
		t.Fatal(err)
	}
	if err := s.SyncFiles(t.Context(), files()[:3], policy.Fields{}, "files"); err != nil {
		t.Fatal(err)
	}
	if _, there := effective(t, s).Connectors["web"]; there {
		t.Error("web is still configured")
	}
}

func defined(name, description string) task.Tool {
	d := task.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)}
	d.Hash = d.DefinitionHash()
	return d
}

func TestPins(t *testing.T) {
	s := seeded(t)
	first := []task.Tool{defined("search", "finds"), defined("send", "sends"), defined("odd", "one"), defined("odd", "other")}
	if err := s.Accept(t.Context(), "mail", first, "daemon"); err != nil {
		t.Fatal(err)
	}
	pins := effective(t, s).Connectors["mail"].Pins
	if len(pins) != 2 || pins["search"] != first[0].Hash {
		t.Errorf("pins %v", pins)
	}
	// First use never replaces, and a new tool waits for a person.
	changed := []task.Tool{defined("search", "finds and forwards"), defined("new", "is new")}
	if err := s.Accept(t.Context(), "mail", changed, "daemon"); err != nil {
		t.Fatal(err)
	}
	if got := effective(t, s).Connectors["mail"].Pins; !reflect.DeepEqual(got, pins) {
		t.Errorf("first use replaced pins: %v", got)
	}
	if err := s.AcceptTools(t.Context(), "mail", changed, []string{"search"}, "uid 1000"); err != nil {
		t.Fatal(err)
	}
	if got := effective(t, s).Connectors["mail"].Pins; got["search"] != changed[0].Hash || got["send"] != first[1].Hash || len(got) != 2 {
		t.Errorf("after accepting one: %v", got)
	}
	defs, err := s.Definitions(t.Context(), "mail")
	if err != nil || len(defs) != 2 || defs[0].Description != "finds and forwards" || defs[0].Hash != defs[0].DefinitionHash() || defs[1].Name != "send" {
		t.Errorf("definitions %+v %v", defs, err)
	}
	if err := s.AcceptTools(t.Context(), "mail", changed, nil, "uid 1000"); err != nil {
		t.Fatal(err)
	}
	if got := effective(t, s).Connectors["mail"].Pins; len(got) != 2 || got["new"] == "" || got["send"] != "" {
		t.Errorf("after accepting all: %v", got)
	}
	wantError(t, "unknown name", s.AcceptTools(t.Context(), "mail", changed, []string{"ghost"}, "u"), "lists no tool")
	if err := s.Accept(t.Context(), "ghost", changed, "daemon"); !errors.Is(err, ErrNoRow) {
		t.Errorf("unknown connector: %v", err)
	}
	if err := s.Accept(t.Context(), "web", nil, "daemon"); err != nil || effective(t, s).Connectors["web"].Pins != nil {
		t.Errorf("a connector without tools was pinned: %v", err)
	}
	if _, err := set(t, s, policy.ScopeConnector, "web", `pin="strict"`); err != nil {
		t.Fatal(err)
	}
	wantError(t, "strict", s.Accept(t.Context(), "web", changed, "daemon"), "runnerd connectors accept web")
	h, err := s.History(t.Context(), HistoryFilter{Scope: policy.ScopeConnector, ID: "mail", Limit: 50})
	if err != nil || !slices.ContainsFunc(h, func(e HistoryEntry) bool { return e.Field == "pin send" && string(e.New) == "null" }) {
		t.Errorf("history %v %v", h, err)
	}
}

func TestVerifyFindsEdits(t *testing.T) {
	for _, c := range []struct {
		query string
		seq   int64
	}{
		{"UPDATE policy_history SET new_value = '\"read\"' WHERE seq = 3", 3},
		{"UPDATE policy_history SET by_whom = 'nobody' WHERE seq = 1", 1},
		{"DELETE FROM policy_history WHERE seq = 2", 2},
		{"DELETE FROM policy_history WHERE seq >= 5", 5},
		{"DELETE FROM policy_history", 1},
	} {
		s := seeded(t)
		if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
			t.Fatalf("untouched: %v %v", bad, err)
		}
		raw(t, s, c.query)
		if bad, err := s.Verify(t.Context()); err != nil || bad == nil || bad.Seq != c.seq {
			t.Errorf("%s: %v %v", c.query, bad, err)
		}
	}
}

func TestPrune(t *testing.T) {
	s := seeded(t)
	all, err := s.History(t.Context(), HistoryFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	cut := all[0].At.Add(time.Microsecond)
	if _, err := set(t, s, policy.ScopeTask, "brief", "tools=[]"); err != nil {
		t.Fatal(err)
	}
	removed, err := s.Prune(t.Context(), cut)
	if err != nil || removed != int64(len(all)) {
		t.Errorf("removed %d of %d: %v", removed, len(all), err)
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("after pruning: %v %v", bad, err)
	}
	if removed, err := s.Prune(t.Context(), cut); err != nil || removed != 0 {
		t.Errorf("again: %d %v", removed, err)
	}
	if removed, err := s.Prune(t.Context(), time.Now().Add(time.Hour)); err != nil || removed != 1 {
		t.Errorf("the rest: %d %v", removed, err)
	}
	if _, err := set(t, s, policy.ScopeTask, "brief", "tools=null"); err != nil {
		t.Fatal(err)
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("after the next row: %v %v", bad, err)
	}
	h, err := s.History(t.Context(), HistoryFilter{Since: cut})
	if err != nil || len(h) != 1 || h[0].Seq != int64(len(all))+2 {
		t.Errorf("%+v %v", h, err)
	}
}

func TestBackup(t *testing.T) {
	s := seeded(t)
	copied := filepath.Join(t.TempDir(), "copy of it.db")
	if err := s.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(copied)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	if e := effective(t, open(t, copied)); len(e.Connectors) != 2 {
		t.Errorf("%+v", e)
	}
	if err := s.Backup(t.Context(), copied); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
}

// rawDB is a handle of somebody else.
func rawDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open(sqliteshim.ShimName, "file:"+path+"?_pragma=busy_timeout(1000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestOpenRefuses(t *testing.T) {
	exec := func(query string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			db := rawDB(t, path)
			if _, err := db.Exec(query); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name, part string
		spoil      func(t *testing.T, path string)
	}{
		{"newer", "newer runnerd", exec("INSERT INTO policy_schema VALUES (99, 'future', 0)")},
		{"missing column", "policy_rows", exec("ALTER TABLE policy_rows DROP COLUMN deny")},
		{"missing table", "policy_pins", exec("DROP TABLE policy_pins")},
		{"no version", "version is missing", exec("DELETE FROM policy_schema")},
		{"somebody else's", "not those of a policy database", exec("DROP TABLE policy_schema")},
		{"garbage", "restore DIR", func(t *testing.T, path string) { spoil(t, path, 0, []byte(strings.Repeat("garbage ", 4096))) }},
		{"a broken page", "restore DIR", func(t *testing.T, path string) { spoil(t, path, 4096, make([]byte, 8192)) }},
		{"truncated", "restore DIR", func(t *testing.T, path string) { truncate(t, path, 5000) }},
		{"empty", "the file is empty", func(t *testing.T, path string) { truncate(t, path, 0) }},
		{"gone but for its log", "-wal is there", func(t *testing.T, path string) {
			if err := errors.Join(os.WriteFile(path+"-wal", []byte("x"), 0o600), os.Remove(path)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a directory", "", func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := dbPath(t)
			s := open(t, path)
			if err := s.SyncFiles(t.Context(), files(), policy.Fields{}, "files"); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, path)
			before, _ := os.ReadFile(path)
			again, err := Open(t.Context(), Options{DSN: path})
			if err == nil {
				again.Close()
			}
			wantError(t, c.name, err, c.part)
			if after, _ := os.ReadFile(path); !slices.Equal(after, before) {
				t.Error("the file was written to")
			}
		})
	}
	for _, dsn := range []string{"", ":memory:", filepath.Join(t.TempDir(), "no", "such", "dir.db")} {
		if s, err := Open(t.Context(), Options{DSN: dsn}); err == nil {
			s.Close()
			t.Errorf("opened %q", dsn)
		}
	}
}

func spoil(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func TestOpenAgainKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name %20 #1?.db")
	s := open(t, path)
	if err := s.SyncFiles(t.Context(), files(), policy.Fields{}, "files"); err != nil {
		t.Fatal(err)
	}
	if _, err := set(t, s, policy.ScopeSession, "brief", "connectors=[]"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if e := effective(t, open(t, path)); !e.SessionConnectors.Declared() || e.SessionConnectors.Len() != 0 {
		t.Errorf("%+v", e)
	}
}

// A daemon that was killed leaves a write-ahead log: it is read, not refused.
func TestOpenAfterAKill(t *testing.T) {
	s := seeded(t)
	src := s.opts.DSN
	dst := dbPath(t)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(src + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dst+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if e := effective(t, open(t, dst)); len(e.Connectors) != 2 {
		t.Errorf("%+v", e)
	}
}

// What cannot be had is waited for so long and is then an error; what can be had has
// all the time that a busy machine needs.
func TestLocked(t *testing.T) {
	path := dbPath(t)
	s := open(t, path)
	if err := s.SyncFiles(t.Context(), files(), policy.Fields{}, "files"); err != nil {
		t.Fatal(err)
	}
	other := rawDB(t, path)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	s.opts.WriteWait = 100 * time.Millisecond
	if _, err := set(t, s, policy.ScopeTask, "brief", "tools=[]"); err == nil {
		t.Error("a write beside a writer")
	}
	effective(t, s) // a reader waits for no writer
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}

	// Every reader is stuck: the wait is bounded and the answer an error.
	var held []*sql.Conn
	for range readers {
		conn, err := s.sql.Read.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	s.opts.ReadWait = 100 * time.Millisecond
	if _, err := s.Effective(t.Context(), "brief", "brief", "ops"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with every reader held: %v", err)
	}
	for _, conn := range held {
		conn.Close()
	}
	s.opts.ReadWait = patient
	effective(t, s)
}

func TestOpenLockedExclusively(t *testing.T) {
	path := dbPath(t)
	s := open(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := rawDB(t, path)
	for _, q := range []string{"PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "UPDATE policy_chain SET id = id"} {
		if _, err := other.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(t.Context(), Options{DSN: path, ReadWait: 100 * time.Millisecond, WriteWait: 100 * time.Millisecond})
	if err == nil {
		t.Error("opened beside one that holds the file alone")
		again.Close()
	}
}

func TestConcurrentUse(t *testing.T) {
	s := seeded(t)
	done := make(chan error, 4)
	for i := range 4 {
		go func() {
			var err error
			for range 25 {
				if i == 0 {
					_, err = s.Set(t.Context(), Change{policy.ScopeSession, "brief", map[string]json.RawMessage{"connectors": json.RawMessage(`["web"]`)}, "w"})
					if err == nil {
						_, err = s.Set(t.Context(), Change{policy.ScopeSession, "brief", map[string]json.RawMessage{"connectors": json.RawMessage(`null`)}, "w"})
					}
				} else {
					_, err = s.Effective(t.Context(), "brief", "brief", "ops")
				}
				if err != nil {
					break
				}
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("%v %v", bad, err)
	}
}

// BenchmarkEffective reads the policy beside ten connectors with twenty pins each.
func BenchmarkEffective(b *testing.B) {
	s := open(b, dbPath(b))
	rows := files()[:2]
	var tools []task.Tool
	for i := range 20 {
		tools = append(tools, defined("tool_"+string(rune('a'+i)), "does something"))
	}
	for i := range 10 {
		rows = append(rows, Row{policy.ScopeConnector, "c" + string(rune('a'+i)), policy.Fields{
			Classes: map[string]policy.Class{"tool_a": policy.ClassRead}, Origin: &policy.Origin{Package: "builtin:files", Root: "/srv"},
		}})
	}
	if err := s.SyncFiles(b.Context(), rows, policy.Fields{}, "files"); err != nil {
		b.Fatal(err)
	}
	for _, r := range rows[2:] {
		if err := s.Accept(b.Context(), r.ID, tools, "daemon"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Effective(b.Context(), "brief", "brief", "ops"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCopyTo(t *testing.T) {
	s, to := seeded(t), open(t, dbPath(t))
	if _, err := set(t, s, policy.ScopeTask, "brief", `deny=["mail/*"]`); err != nil {
		t.Fatal(err)
	}
	if err := s.AcceptTools(t.Context(), "mail", []task.Tool{defined("search", "x")}, nil, "u"); err != nil {
		t.Fatal(err)
	}
	if err := s.CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if got, want := effective(t, to), effective(t, s); !reflect.DeepEqual(got, want) || len(want.Deny) != 1 || len(want.Connectors["mail"].Pins) != 1 {
		t.Errorf("the copy says %+v, want %+v", got, want)
	}
	if got, err := to.Definitions(t.Context(), "mail"); err != nil || len(got) != 1 {
		t.Errorf("definitions %v (%v)", got, err)
	}
	// The files can be laid over it.
	if err := to.SyncFiles(t.Context(), files(), policy.Fields{}, "files"); err != nil || len(effective(t, to).Deny) != 1 {
		t.Errorf("after other files: %v", err)
	}
}

// B5: what runnerd.yaml denies is a ceiling: no override of a task, session, project
// or connector takes it away, and it is shown beside the task's own.
func TestCeiling(t *testing.T) {
	s := seeded(t)
	daemon := policy.Fields{Deny: task.ListOf(policy.Grant{Connector: "mail", Tool: "send_*"})}
	if err := s.SyncFiles(t.Context(), files(), daemon, "files"); err != nil {
		t.Fatal(err)
	}
	for scope, patch := range map[policy.Scope]string{
		policy.ScopeTask: `deny=[]`, policy.ScopeSession: `connectors=null`, policy.ScopeProject: `connectors=["mail"]`, policy.ScopeConnector: `disabled_tools=[]`,
	} {
		id := map[policy.Scope]string{policy.ScopeTask: "brief", policy.ScopeSession: "brief", policy.ScopeProject: "ops", policy.ScopeConnector: "mail"}[scope]
		if _, err := set(t, s, scope, id, patch); err != nil {
			t.Fatal(scope, err)
		}
	}
	if _, err := set(t, s, policy.ScopeTask, "brief", `ceiling=[]`); err == nil {
		t.Error("the ceiling was set")
	}
	if _, err := set(t, s, scopeDaemon, daemonID, `deny=[]`); err == nil {
		t.Error("the daemon's deny was overridden")
	}
	if e := effective(t, s); len(e.Ceiling) != 1 || e.Ceiling[0].Tool != "send_*" || len(e.Deny) != 0 {
		t.Errorf("ceiling %v, deny %v", e.Ceiling, e.Deny)
	}
	shown, err := s.Show(t.Context(), policy.ScopeTask, "brief")
	if f := shown[Ceiling]; err != nil || f.Layer != policy.LayerFile || f.By != "files" || !strings.Contains(string(f.Value), "send_*") {
		t.Errorf("shown %+v %v", f, err)
	}
	raw(t, s, "UPDATE policy_rows SET deny = '7' WHERE scope = 'daemon'")
	if _, err := s.Effective(t.Context(), "brief", "brief", "ops"); err == nil {
		t.Error("an unreadable ceiling counts as none")
	}
	raw(t, s, "DELETE FROM policy_rows WHERE scope = 'daemon'")
	if _, err := s.Effective(t.Context(), "brief", "brief", "ops"); !errors.Is(err, ErrNoRow) {
		t.Errorf("a missing ceiling counts as none: %v", err)
	}
}
