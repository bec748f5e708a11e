package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// The example of DESIGN, section 5, with all its keys.
const wholeTask = `---
schedule: ["30 7 * * mon-fri", every 15m]
timezone: Europe/Berlin
model: priced
project: ops
connectors: [memory, files]
tools: []
allow:
  - memory/create_*
  - tool: files/write_file
    where: {path: {under: /srv/reports}, mode: {in: [a, 2]}, size: {max: 10, eq: 3}}
deny: [mail/send_*]
on_ask: park
approval_ttl: 1d12h
session: last-output
catch_up: all
catch_up_window: 2h
overlap: queue
jitter: 5m
retry: {backoff: 90s}
limits: {steps: 20, cost: 0.50}
deliver:
  - {to: file, path: "/srv/reports/{{.Due.Format \"2006-01-02\"}}.md"}
  - {to: notify, url: "${credential:ntfy_url}", when: failure, timeout: 5s}
require: [memory]
accept_risk: It only reads my own notes.
ping: https://hc.example.com/x
output_schema: {type: object, required: [a]}
enabled: false
day_match: any
---

  Summarise
what needs me.
`

func TestWholeTask(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/t.md": wholeTask}))
	s := load(t, d.loader())
	if len(s.Problems) > 0 {
		t.Fatal(texts(s.Problems))
	}
	f := s.Tasks["t"]
	want := task.Task{
		ID: "t", File: "tasks/t.md",
		Schedule: task.Schedule{Specs: []string{"30 7 * * mon-fri", "every 15m"}, Zone: "Europe/Berlin", DayMatch: "any"},
		Model:    "priced", Project: "ops", Instructions: "Be brief.", Prompt: "Summarise\nwhat needs me.",
		Session: task.SessionLastOutput, CatchUp: task.CatchUpAll, CatchUpWindow: 2 * time.Hour, Overlap: task.OverlapQueue,
		Jitter: 5 * time.Minute, Retry: task.Retry{Attempts: 2, Backoff: 90 * time.Second}, Require: []string{"memory"},
		Deliver: []task.Delivery{
			{To: "file", When: "always", Path: `/srv/reports/{{.Due.Format "2006-01-02"}}.md`, Timeout: 30 * time.Second},
			{To: "notify", When: "failure", URL: "${credential:ntfy_url}", Timeout: 5 * time.Second},
		},
		AcceptRisk: "It only reads my own notes.", Ping: "https://hc.example.com/x",
		OutputSchema: []byte(`{"required":["a"],"type":"object"}`),
	}
	if !reflect.DeepEqual(f.Task, want) {
		t.Errorf("task\n got %+v\nwant %+v", f.Task, want)
	}
	checkWholePolicy(t, f.Policy)
}

func checkWholePolicy(t *testing.T, p policy.Fields) {
	t.Helper()
	if got := p.Connectors.Items(); !slices.Equal(got, []string{"memory", "files"}) {
		t.Errorf("connectors = %v", got)
	}
	if !p.Tools.Declared() || p.Tools.Len() != 0 {
		t.Errorf("tools = %+v, want declared and empty", p.Tools)
	}
	want := []policy.Grant{
		{Connector: "memory", Tool: "create_*"},
		{Connector: "files", Tool: "write_file", Where: map[string]policy.Condition{
			"path": {Under: "/srv/reports"}, "mode": {In: []any{"a", json.Number("2")}}, "size": {Eq: json.Number("3"), Max: "10"}}},
	}
	if !reflect.DeepEqual(p.Allow.Items(), want) {
		t.Errorf("allow = %+v", p.Allow.Items())
	}
	if got := p.Deny.Items(); len(got) != 1 || got[0].Tool != "send_*" || got[0].Connector != "mail" {
		t.Errorf("deny = %+v", got)
	}
	if *p.OnAsk != policy.OnAskPark || *p.ApprovalTTL != 36*time.Hour || *p.AcceptRisk == "" {
		t.Errorf("on_ask %v, ttl %v", *p.OnAsk, *p.ApprovalTTL)
	}
	l := p.Limits
	if *l.Steps != 20 || *l.Cost != task.MoneyOf(0.5) || *l.ToolCalls != 50 || *l.Wall != 15*time.Minute {
		t.Errorf("limits = %+v: those of the file over the defaults", l)
	}
}

// Absent, empty and listed are three things.
func TestThreeStates(t *testing.T) {
	for _, tt := range []struct {
		text     string
		declared bool
		items    []string
	}{
		{"prompt: p\n", false, nil},
		{"prompt: p\nconnectors: []\n", true, []string{}},
		{"prompt: p\nconnectors: [mail, memory, mail]\n", true, []string{"mail", "memory"}},
	} {
		d := newDir(t, base(map[string]string{"tasks/t.yaml": tt.text}))
		s := load(t, d.loader())
		got := s.Tasks["t"].Policy.Connectors
		if got.Declared() != tt.declared || !slices.Equal(got.Items(), tt.items) {
			t.Errorf("%q: declared %v, items %v", tt.text, got.Declared(), got.Items())
		}
		if repeated := strings.Count(tt.text, "mail") == 2; repeated != (len(s.Warnings) == 1) {
			t.Errorf("%q: warnings %q", tt.text, texts(s.Warnings))
		}
	}
}

func TestDaemonDefaults(t *testing.T) {
	d := newDir(t, base(map[string]string{
		"runnerd.yaml": "defaults: {model: priced, timezone: Europe/Paris, connectors: [mail], deny: [\"*/delete_*\"], limits: {steps: 7}, retry: {attempts: 5}}\n" +
			"limits: {cost_per_day: 5, runs_per_day: 9}\nretention: {age: 30d, results: 2GiB}\n" +
			"notify: [{url: \"${credential:n}\"}, {to: command, command: [x], events: [approval]}]\n",
		"tasks/plain.yaml":   "prompt: p\n",
		"tasks/own.yaml":     "prompt: p\nconnectors: []\nlimits: {tokens: 9}\nretry: {backoff: 1s}\nschedule: []\n",
		"tasks/grouped.yaml": "prompt: p\nproject: ops\n",
	}))
	s := load(t, d.loader())
	if len(s.Problems) > 0 {
		t.Fatal(texts(s.Problems))
	}
	plain, own, grouped := s.Tasks["plain"], s.Tasks["own"], s.Tasks["grouped"]
	if plain.Task.Model != "priced" || plain.Task.Schedule.Zone != "Europe/Paris" || *plain.Policy.Limits.Steps != 7 || plain.Task.Retry.Attempts != 5 {
		t.Errorf("plain = %+v", plain.Task)
	}
	if got := plain.Policy.Connectors.Items(); !slices.Equal(got, []string{"mail"}) {
		t.Errorf("plain reaches %v", got)
	}
	if !own.Policy.Connectors.Declared() || own.Policy.Connectors.Len() != 0 {
		t.Error("a task's [] gave way to the default")
	}
	if l := own.Policy.Limits; *l.Tokens != 9 || *l.Steps != 7 || *l.ToolCalls != 50 {
		t.Errorf("own limits = %+v", l)
	}
	if r := own.Task.Retry; r.Attempts != 5 || r.Backoff != time.Second {
		t.Errorf("own retry = %+v", r)
	}
	if grouped.Policy.Connectors.Declared() {
		t.Error("a default hides the project's connectors")
	}
	if grouped.Policy.Deny.Len() != 1 {
		t.Error("deny of the defaults is lost")
	}
	dm := s.Daemon
	if *dm.Limits.CostPerDay != task.MoneyOf(5) || *dm.Limits.RunsPerDay != 9 || dm.Limits.Steps != nil {
		t.Errorf("daemon limits = %+v", dm.Limits)
	}
	if dm.Retention != (Retention{30 * 24 * time.Hour, 1000, 2 << 30}) {
		t.Errorf("retention = %+v", dm.Retention)
	}
	if len(dm.Notify) != 2 || dm.Notify[0].To.To != "notify" || dm.Notify[0].Events != nil || dm.Notify[1].Events[0] != EventApproval {
		t.Errorf("notify = %+v", dm.Notify)
	}
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].Error(), "runnerd.yaml:2:24: limits.cost_per_day: models without a price do not count against it: default") {
		t.Errorf("warnings = %q", texts(s.Warnings))
	}
}

func TestConnectorFiles(t *testing.T) {
	d := newDir(t, base(map[string]string{
		"connectors.yaml": "mcpServers:\n  files: {builtin: files, root: /srv/reports}\n  memory:\n    command: npx\n    args: [\"-y\", \"@modelcontextprotocol/server-memory@1.2.3\"]\n" +
			"    env: {MEMORY_FILE_PATH: /var/lib/x.json, EMPTY: \"\"}\n    trust_annotations: true\n    classes: {create_entities: write, \"delete_*\": exec}\n    disabled_tools: [delete_entities]\n" +
			"    flags: [private]\n    tool_flags: {get_page: [untrusted, egress]}\n    pin: strict\n    timeout: {call: 5s}\n",
		"connectors.d/mail.yaml": "mcpServers:\n  mail: {url: \"https://mail.example.com/mcp\", headers: {Authorization: \"Bearer ${credential:mail}\"}, allow_private: true}\n  off: {command: x, disabled: true}\n",
		".mcp.json": `{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "Brave Search": {"type": "stdio", "command": "npx", "args": ["-y", "@brave/search", "${WORK}", "${HOST:-local}", "${env:OWN}", "${credential:k}"],
      "env": {"KEY": "${BRAVE_KEY}"}, "autoApprove": ["x"]},
    "remote": {"type": "http", "url": "https://r.example.com/${PATH_PART}", "env": {}}
  }
}`,
		"tasks/t.yaml": "prompt: p\nconnectors: [off]\n",
	}))
	s := load(t, d.loader())
	if got := texts(s.Problems); len(got) != 1 || got[0] != `tasks/t.yaml:2:14: connectors[0]: unknown connector "off"; expected a connector of connectors.yaml; it is disabled in connectors.d/mail.yaml` {
		t.Errorf("problems = %q", got)
	}
	wantWarnings := []string{
		`.mcp.json:2:3: unknown key "globalShortcut" is ignored`,
		`.mcp.json:4:132: mcpServers.Brave Search.args[5]: a credential in an argument: other processes of this machine can read a command line (/proc/PID/cmdline); pass it under env: where there is one, or as the path of a file`,
		`.mcp.json:5:39: mcpServers.Brave Search: unknown key "autoApprove" is ignored`,
		`.mcp.json:6:84: mcpServers.remote.env: key "env" does not belong to a connector with url; it is ignored`,
	}
	if got := texts(s.Warnings); !slices.Equal(got, wantWarnings) {
		t.Errorf("warnings = %q", got)
	}
	if got := s.ConnectorIDs(); !slices.Equal(got, []string{"brave-search", "files", "mail", "memory", "remote"}) {
		t.Fatalf("connectors = %v", got)
	}
	brave := s.Connectors["brave-search"].Connector
	if want := []string{"-y", "@brave/search", "${env:WORK}", "${env:HOST:-local}", "${env:OWN}", "${credential:k}"}; !slices.Equal(brave.Args, want) {
		t.Errorf("args = %q", brave.Args)
	}
	if brave.Env["KEY"] != "${env:BRAVE_KEY}" || s.Connectors["remote"].Connector.URL != "https://r.example.com/${env:PATH_PART}" {
		t.Errorf("brave %+v, remote %+v", brave, s.Connectors["remote"].Connector)
	}
	checkMemory(t, s.Connectors["memory"])
	if f := s.Connectors["files"]; f.Policy.Origin.Package != "builtin:files" || f.Policy.Origin.Root != "/srv/reports" || f.Policy.Flags.Declared() || f.Policy.Classes != nil {
		t.Errorf("files policy = %+v", f.Policy)
	}
	if m := s.Connectors["mail"]; m.Policy.Origin.URL != "https://mail.example.com/mcp" || !m.Connector.AllowPrivate || m.File != "connectors.d/mail.yaml" {
		t.Errorf("mail = %+v", m)
	}
}

func checkMemory(t *testing.T, f ConnectorFile) {
	t.Helper()
	want := task.Connector{
		ID: "memory", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-memory@1.2.3"},
		Env:            map[string]string{"MEMORY_FILE_PATH": "/var/lib/x.json", "EMPTY": ""},
		ConnectTimeout: 30 * time.Second, CallTimeout: 5 * time.Second, File: "connectors.yaml",
	}
	if !reflect.DeepEqual(f.Connector, want) {
		t.Errorf("memory\n got %+v\nwant %+v", f.Connector, want)
	}
	p := f.Policy
	if !*p.TrustAnnotations || *p.Pin != policy.PinStrict || p.Origin.Package != "@modelcontextprotocol/server-memory" {
		t.Errorf("memory policy = %+v", p)
	}
	if !reflect.DeepEqual(p.Classes, map[string]policy.Class{"create_entities": policy.ClassWrite, "delete_*": policy.ClassExec}) {
		t.Errorf("classes = %v", p.Classes)
	}
	flags := []policy.Flag{{Kind: "private"}, {Tool: "get_page", Kind: "untrusted"}, {Tool: "get_page", Kind: "egress"}}
	if !slices.Equal(p.Flags.Items(), flags) || !slices.Equal(p.DisabledTools.Items(), []string{"delete_entities"}) {
		t.Errorf("flags %v, disabled %v", p.Flags.Items(), p.DisabledTools.Items())
	}
}

func TestModels(t *testing.T) {
	d := newDir(t, base(map[string]string{"models.yaml": "models:\n  default:\n    provider: openai\n    base_url: ${env:BASE}/v1\n    model: m\n    api_key: ${credential:openai}\n" +
		"    tool_mode: fenced\n    context_tokens: 1000\n    price: {input: 0.25, output: 2, cache_read: 0.03}\n    fallback: [play]\n    timeout: 90s\n  play: {provider: scripted, script: scripts/x.yaml}\n"}))
	s := load(t, d.loader())
	if len(s.Problems) > 0 {
		t.Fatal(texts(s.Problems))
	}
	read := 0.03
	want := map[string]task.ModelSpec{
		"default": {
			Name: "default", Provider: "openai", BaseURL: "${env:BASE}/v1", Model: "m", APIKey: "${credential:openai}", ToolMode: "fenced",
			ContextTokens: 1000, MaxOutputTokens: 500, Price: &task.Price{Input: 0.25, Output: 2, CacheRead: &read}, Fallback: []string{"play"}, Timeout: 90 * time.Second,
		},
		"play": {Name: "play", Provider: "scripted", Script: d.path + "/scripts/x.yaml", ToolMode: "auto", ContextTokens: 32768, MaxOutputTokens: 4096, Timeout: 2 * time.Minute},
	}
	if !reflect.DeepEqual(s.Models, want) {
		t.Errorf("models\n got %+v\nwant %+v", s.Models, want)
	}
}

func TestPackageOf(t *testing.T) {
	for _, tt := range []struct{ command, want string }{
		{"npx -y @modelcontextprotocol/server-memory", "@modelcontextprotocol/server-memory"},
		{"/usr/bin/npx --yes @scope/name@1.2.3 --flag", "@scope/name"},
		{"npx name@latest", "name"},
		{"npx -p @scope/name run", "@scope/name"},
		{"npx --package=name run", "name"},
		{"npm exec -y -- name", "name"},
		{"pnpm dlx name", "name"},
		{"bunx name", "name"},
		{"npx name@npm:evil", ""},
		{"npx github:user/name", ""},
		{"npx ./name", ""},
		{"npx --registry=http://evil name", ""},
		{"npx -c name", ""},
		{"npx", ""},
		{"node /opt/node_modules/@scope/name/dist/index.js", "@scope/name"},
		{"/opt/node_modules/a/node_modules/name/cli.js", "name"},
		{"node /opt/node_modules/../evil/node_modules/x", ""},
		{"node --require /evil.js /opt/node_modules/name/x.js", ""},
		{"/opt/node_modules/.bin/name", ""},
		{"uvx mcp-server-fetch", "mcp-server-fetch"},
		{"uvx Mcp_Server[x]==1.0", "mcp-server"},
		{"uvx --from name@1.2 tool", "name"},
		{"uvx --with evil name", ""},
		{"uvx git+https://x/y", ""},
		{"uv tool run name", "name"},
		{"pipx run name", "name"},
		{"docker run -i --rm -e KEY --mount=type=bind mcp/fetch:1.0 --arg", "mcp/fetch"},
		{"podman run --rm ghcr.io:443/a/b@sha256:00", "ghcr.io:443/a/b"},
		{"docker run --entrypoint sh mcp/fetch", ""},
		{"docker exec mcp/fetch", ""},
		{"python server.py", ""},
	} {
		argv := strings.Fields(tt.command)
		if got := packageOf(argv[0], argv[1:]); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.command, got, tt.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "5", "-1s", "1w", "s", "1 h", "99999999d", "1e3s"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: %v, want an error", s, got)
		}
	}
}

// I18: flags of single tools come on top of what a connector has without them; only
// its own `flags:` replace that.
func TestToolFlagsAlone(t *testing.T) {
	d := newDir(t, base(map[string]string{"connectors.yaml": "mcpServers:\n" +
		"  files: {builtin: files, root: /srv, tool_flags: {read_file: [untrusted]}}\n  memory: {builtin: memory, flags: []}\n" +
		"  mail: {command: my-mail, tool_flags: {read: [untrusted]}}\n"}))
	s := load(t, d.loader())
	for id, want := range map[string]string{"files": "[{ private} {read_file untrusted}]", "memory": "[]", "mail": "[{ untrusted} {  private} { egress} {read untrusted}]"} {
		if got := fmt.Sprint(s.Connectors[id].Policy.Flags.Items()); strings.ReplaceAll(got, "  ", " ") != strings.ReplaceAll(want, "  ", " ") {
			t.Errorf("%s: flags %s, want %s (%v)", id, got, want, texts(s.Problems))
		}
	}
}

// B5: deny of runnerd.yaml itself is a ceiling, that of its defaults is not. Where
// the file cannot be read, what it would deny is not known: everything.
func TestDaemonDeny(t *testing.T) {
	d := newDir(t, base(map[string]string{
		"runnerd.yaml":  "deny: [mail/send_*, {tool: files/write_file, where: {path: {under: /srv}}}]\ndefaults: {deny: [mail/*]}\n",
		"tasks/good.md": "---\ndeny: []\n---\nDo it.\n",
	}))
	kept := stored{}
	s := load(t, d.loader(kept.lastGood))
	if len(s.Problems) > 0 || s.Daemon.Deny.Len() != 2 || len(s.Daemon.Deny.Items()[1].Where) != 1 {
		t.Fatalf("%v, deny %v", texts(s.Problems), s.Daemon.Deny)
	}
	if own := s.Tasks["good"].Policy.Deny; !own.Declared() || own.Len() != 0 {
		t.Errorf("the task's own deny is %v", own)
	}
	kept.keep(s)
	d.write("runnerd.yaml", "deny: [mail]\n")
	s = load(t, d.loader(kept.lastGood))
	if len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0].Error(), "runnerd.yaml:1:8: ") || s.Daemon.Deny.Len() != 2 {
		t.Errorf("%v, deny %v", texts(s.Problems), s.Daemon.Deny)
	}
	s = load(t, d.loader())
	if all := s.Daemon.Deny.Items(); len(all) != 1 || all[0].String() != "*/*" {
		t.Errorf("without a last good revision the deny is %v", all)
	}
	d.write("runnerd.yaml", "deny: [ghost/x]\n")
	if s = load(t, d.loader()); len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Error(), `unknown connector "ghost"`) {
		t.Error(texts(s.Problems))
	}
}
