package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/daemon"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// namesFiles are a task whose one run shows every field: it reads, asks, reports,
// costs and delivers.
func namesFiles(dir string) map[string]string {
	return map[string]string{
		"models.yaml": "models:\n  default: {provider: scripted, script: s.yaml, price: {input: 1, output: 1}}\n",
		"s.yaml": "turns:\n  - call:\n    - {tool: memory/search, args: {query: a}}\n    - {tool: memory/remember, args: {key: a, text: b}}\n" +
			"    usage: {input: 1000, output: 1}\n  - call: [{tool: report, args: {outcome: needs_attention, summary: Look.}}]\n  - say: Done.\n",
		"connectors.yaml": "mcpServers:\n  memory: {builtin: memory}\n",
		"tasks/all.md": "---\nschedule: every 1s\nsession: fresh\nconnectors: [memory]\non_ask: park\ndeliver:\n  - {to: file, path: " +
			filepath.Join(dir, "out") + "}\n---\nTry all.\n",
		"tasks/broken.yaml": "shedule: x\n",
	}
}

// names are the fields that the verb's JSON must have (DESIGN, appendix). A path
// leads into it: "receipts" of an object, of an array its first element. A field
// that can be absent is looked for in all elements.
var names = []struct {
	verb []string // RUN stands for the newest run's id
	path string
	want string
}{
	{[]string{"runs"}, "", "id task due trigger attempt status execution outcome delivery marks started_at finished_at tokens cost reason"},
	{[]string{"show", "RUN"}, "", "run messages receipts"},
	{[]string{"show", "RUN"}, "run", "id task due trigger attempt status execution outcome delivery marks started_at finished_at tokens cost reason"},
	{[]string{"show", "RUN"}, "receipts", "seq connector tool class decision code rule args_hash outcome approval_id started_at finished_at"},
	{[]string{"approvals", "--all"}, "", "id run task connector tool class preview args_hash state expires_at"},
	{[]string{"why", "all"}, "", "due end reason run"},
	{[]string{"tasks"}, "", "id enabled paused schedule timezone next last_status file error"},
	{[]string{"next", "all"}, "", "due utc"},
	{[]string{"policy", "show", "all"}, "tools", "value layer"},
	{[]string{"policy", "show", "all"}, "on_ask", "value layer changed_at by"},
	{[]string{"explain", "all"}, "", "connector tool class offered decision code rule"},
	{[]string{"connectors"}, "", "id kind up tools"},
	{[]string{"connectors", "tools", "memory"}, "", "tool class from"},
	{[]string{"status"}, "", "daemon config state problems tasks active trouble"},
	{[]string{"check"}, "", "ok problems warnings tasks"},
}

// TestNamesOfTheAppendix holds the JSON of each verb, with and without a daemon,
// against the names that others rely on. What is shown must not depend on who
// answers.
func TestNamesOfTheAppendix(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, namesFiles(t.TempDir()))
	p := d.start()
	daemontest.Until(t, "a call waits for a person", func() bool { return len(d.runs("all")) > 0 && d.runs("all")[0].Status() == task.StatusWaiting })
	id := d.runs("all")[0].ID
	var waits []struct{ ID string }
	d.json(&waits, "approvals")
	if len(waits) != 1 {
		t.Fatalf("%d approvals wait, want one", len(waits))
	}
	daemontest.Until(t, "an instant was skipped", func() bool {
		var seen []struct{ End task.End }
		d.json(&seen, "why", "all")
		return slices.ContainsFunc(seen, func(o struct{ End task.End }) bool { return o.End == task.EndSkipped })
	})
	if out, errw, code := d.command("deny", waits[0].ID); code != task.ExitOK {
		t.Fatalf("deny ended with %d: %s%s", code, out, errw)
	}
	daemontest.Until(t, "the run has ended", func() bool {
		return slices.ContainsFunc(d.runs("all"), func(r task.Run) bool {
			return r.ID == id && r.Execution.Finished() && r.Delivery != task.DeliveryPending
		})
	})
	if out, errw, code := d.command("pause", "all"); code != task.ExitOK {
		t.Fatalf("pause ended with %d: %s%s", code, out, errw)
	}
	with := d.namesOf(t, id)
	p.stop()
	without := d.namesOf(t, id)
	for i, n := range names {
		if !slices.Equal(with[i], without[i]) {
			t.Errorf("%s %s: fields with a daemon %q, without %q", n.verb, n.path, with[i], without[i])
		}
	}
}

// namesOf checks every verb and answers the fields that each had.
func (d *instance) namesOf(t *testing.T, run string) (all [][]string) {
	t.Helper()
	for _, n := range names {
		verb := slices.Clone(n.verb)
		for i := range verb {
			verb[i] = strings.ReplaceAll(verb[i], "RUN", run)
		}
		var v any
		d.json(&v, verb...)
		if n.path != "" {
			v = v.(map[string]any)[n.path]
		}
		have := map[string]bool{}
		elements, ok := v.([]any)
		if !ok {
			elements = []any{v}
		}
		for _, e := range elements {
			object, ok := e.(map[string]any)
			if !ok {
				t.Errorf("%s %s: %v is no object", verb, n.path, e)
			}
			for name := range object {
				have[name] = true
			}
		}
		for _, name := range strings.Fields(n.want) {
			if !have[name] {
				t.Errorf("%s %s has no field %s: %v", verb, n.path, name, slices.Sorted(maps.Keys(have)))
			}
		}
		all = append(all, slices.Sorted(maps.Keys(have)))
	}
	return all
}

// TestHelpNamesEverySetting reads the names off the struct that is filled from
// the environment.
func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	out, _, code := newDaemon(t, nil).command("serve", "--help")
	if code != task.ExitOK {
		t.Errorf("exit code %d", code)
	}
	fields := reflect.TypeFor[daemon.Settings]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("env"), ",")
		if name == "" || !strings.Contains(out, "RUNNERD_"+name+" ") {
			t.Errorf("serve --help does not tell of RUNNERD_%s (field %s):\n%s", name, fields.Field(i).Name, out)
		}
	}
}

// TestHelpOfEveryVerb: each verb says how it is used.
func TestHelpOfEveryVerb(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, nil)
	verbs := reflect.TypeFor[cli]()
	for i := range verbs.NumField() {
		f := verbs.Field(i)
		if _, isVerb := f.Tag.Lookup("cmd"); !isVerb {
			continue
		}
		name := strings.ToLower(f.Name)
		out, errw, code := d.command(name, "--help")
		if code != task.ExitOK || !strings.Contains(out, "Usage: runnerd "+name) || errw != "" {
			t.Errorf("%s --help ends with %d:\n%s%s", name, code, out, errw)
		}
	}
}

// TestWrongUsage: each mistake of the caller's is exit code 2, with a sentence on
// standard error and nothing on standard output.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, map[string]string{"tasks/real.yaml": "prompt: Hello.\n", "s.yaml": "turns:\n  - say: Hello.\n"})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "expected"},
		{[]string{"frobnicate"}, "frobnicate"},
		{[]string{"run"}, "<task>"},
		{[]string{"run", "reel"}, "did you mean real"},
		{[]string{"run", "real", "--script", "nothing.yaml"}, "nothing.yaml"},
		{[]string{"show", "nothing"}, "nothing"},
		{[]string{"why", "nothing"}, "no task nothing"},
		{[]string{"explain", "reel"}, "did you mean real"},
		{[]string{"next", "reel"}, "did you mean real"},
		{[]string{"next", "--cron", "99 * * * *"}, "99"},
		{[]string{"next", "--cron", "0 0 * * *", "--tz", "Mars/Olympus"}, "Mars/Olympus"},
		{[]string{"connectors", "tools", "nothing"}, "no connector nothing"},
		{[]string{"schema", "nothing"}, "nothing"},
		{[]string{"mcp", "nothing"}, "nothing"},
		{[]string{"runs", "--limit", "many"}, "many"},
		{[]string{"approve", "nothing"}, "nothing"},
		{[]string{"cancel", "nothing"}, "nothing"},
		{[]string{"policy", "show", "reel"}, "did you mean real"},
		{[]string{"tasks", "--config", "/no/such/place"}, "/no/such/place"},
		{[]string{"serve", "--config", "/no/such/place"}, "/no/such/place"},
	} {
		out, errw, code := d.command(c.args...)
		if code != task.ExitUsage || !strings.Contains(errw, c.want) || out != "" {
			t.Errorf("%q ends with %d, stdout %q, stderr %q; want 2 and %q on stderr", c.args, code, out, errw, c.want)
		}
	}
	for name, value := range map[string]string{"WORKERS": "many", "SHUTDOWN_GRACE": "-1s", "TIMEZONE": "Mars/Olympus", "LOG_LEVEL": "loud", "LOG_FORMAT": "xml"} {
		bad := *d
		bad.env = append(slices.Clone(d.env), fmt.Sprintf("RUNNERD_%s=%s", name, value))
		_, errw, code := bad.command("serve")
		if code != task.ExitUsage || !strings.Contains(errw, value) && !strings.Contains(errw, name) {
			t.Errorf("RUNNERD_%s=%s: serve ends with %d: %q; want 2, naming it", name, value, code, errw)
		}
	}
}

// TestSchemas prints the JSON Schema of each kind of file.
func TestSchemas(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, nil)
	for _, kind := range []string{"task", "models", "connectors", "projects", "runnerd"} {
		out, _, code := d.command("schema", kind)
		var s struct {
			Type       string
			Properties map[string]any
		}
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != task.ExitOK || s.Type != "object" || len(s.Properties) == 0 {
			t.Errorf("schema %s ends with %d (%v):\n%s", kind, code, err, out)
		}
	}
}

// TestBuiltinsByHand speaks MCP with the servers that the binary is, over their
// standard streams, as any other host could.
func TestBuiltinsByHand(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, nil)
	for tool, args := range map[string][]string{
		"read_file": {"files", "--root", d.dir}, "remember": {"memory", "--file", filepath.Join(d.dir, "memory.jsonl")},
	} {
		cmd := exec.Command(d.bin, append([]string{"mcp"}, args...)...)
		client := mcp.NewClient(&mcp.Implementation{Name: "a test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		list, err := session.ListTools(t.Context(), nil)
		if err != nil || !slices.ContainsFunc(list.Tools, func(l *mcp.Tool) bool { return l.Name == tool }) {
			t.Errorf("%v lists %+v (%v), want %s among it", args, list, err, tool)
		}
		if err := session.Close(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
