package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runnerd/daemon"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// soundFiles are a config whose task t runs well: what the rows below break.
var soundFiles = map[string]string{
	"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n",
	"s.yaml":          "turns:\n  - say: Hello.\n",
	"connectors.yaml": "mcpServers:\n  notes: {builtin: memory}\n",
	"tasks/t.yaml":    "prompt: p\nconnectors: [notes]\n",
}

// TestCheckSaysWhatServeDoes: check is green exactly if the daemon starts with
// these files, reports no problem, and the task runs well in it; and every problem
// of a file that the daemon reports stands in check's words too.
func TestCheckSaysWhatServeDoes(t *testing.T) {
	deliver := func(path string) map[string]string {
		return map[string]string{"tasks/t.yaml": "prompt: p\ndeliver: [{to: file, path: '" + path + "'}]\n"}
	}
	one := func(name, text string) map[string]string { return map[string]string{name: text} }
	for _, c := range []struct {
		name  string
		files map[string]string // laid over the sound ones; "" removes a file
		env   string
		green bool
		// runs: the run itself goes well, with a mark, although check is not green.
		runs bool
	}{
		{name: "nothing is wrong", green: true},
		{name: "another host's odd entry that nobody names", files: one(".mcp.json", `{"mcpServers": {"odd": {"comand": "x"}}}`), green: true},
		{name: "a file that is not read", files: one("tasks/x.markdown", "x"), green: true},
		{name: "an unknown key", files: one("tasks/t.yaml", "prompt: p\nshedule: x\n")},
		{name: "another task is broken", files: one("tasks/u.yaml", "prompt: p\nshedule: x\n")},
		{name: "no YAML", files: one("tasks/t.md", "---\nschedule: */5 * * * *\n---\np\n")},
		{name: "an unknown connector", files: one("tasks/t.yaml", "prompt: p\nconnectors: [note]\n")},
		{name: "a connector with a typo", files: one("connectors.yaml", "mcpServers:\n  notes: {bultin: memory}\n")},
		{name: "another host's entry that is left out", files: map[string]string{
			".mcp.json": `{"mcpServers": {"odd": {"comand": "x"}}}`, "tasks/t.yaml": "prompt: p\nconnectors: [odd]\n"}},
		{name: "a program that is not there", files: one("connectors.yaml", "mcpServers:\n  notes: {command: /no/such/program, flags: []}\n")},
		{name: "a program that ends at once", files: one("connectors.yaml", "mcpServers:\n  notes: {command: 'true', flags: []}\n")},
		{name: "one that may be down", files: map[string]string{
			"connectors.yaml": "mcpServers:\n  notes: {command: /no/such/program, flags: []}\n", "tasks/t.yaml": "prompt: p\nconnectors: [notes]\noptional: [notes]\n"}, green: true},
		{name: "no such model", files: one("tasks/t.yaml", "prompt: p\nmodel: other\n")},
		{name: "no models", files: one("models.yaml", "")},
		{name: "no such script", files: one("s.yaml", "")},
		{name: "a script that cannot be played", files: one("s.yaml", "turns:\n  - shout: Hello.\n")},
		{name: "no such credential", files: one("connectors.yaml", "mcpServers:\n  notes: {builtin: memory, env: {K: '${credential:gone}'}}\n")},
		{name: "no such variable", files: one("connectors.yaml", "mcpServers:\n  notes: {builtin: memory, env: {K: '${env:NO_SUCH_VARIABLE}'}}\n")},
		{name: "no such file in the prompt", files: one("tasks/t.yaml", "prompt: 'read ${file:gone.md}'\nconnectors: [notes]\n")},
		{name: "a schedule that never fires", files: one("tasks/t.yaml", "prompt: p\nschedule: 0 0 30 2 *\n")},
		{name: "a zone", files: one("tasks/t.yaml", "prompt: p\nschedule: '@daily'\ntimezone: europe/berlin\n")},
		{name: "the daemon's zone", env: "RUNNERD_TIMEZONE=Mars/Base"},
		{name: "a pattern", files: one("tasks/t.yaml", "prompt: p\ndeny: ['notes/[r]emember']\n")},
		{name: "a grant of no such tool", files: one("tasks/t.yaml", "prompt: p\nconnectors: [notes]\nallow: [notes/no_such_tool]\n"), runs: true},
		{name: "a path template", files: deliver("/tmp/{{.Du}}.md")},
		{name: "a delivery into the state directory", files: deliver("STATE/x.md")},
		{name: "a delivery into the config directory", files: deliver("CONFIG/models.yaml")},
		{name: "a delivery below a file", files: deliver("CONFIG/../file/x.md")},
		{name: "a money limit without a price", files: one("tasks/t.yaml", "prompt: p\nlimits: {cost: 1}\n")},
		{name: "an output schema", files: one("tasks/t.yaml", "prompt: p\noutput_schema: {type: strin}\n")},
		{name: "who may approve", files: one("runnerd.yaml", "access: {approve: [no-such-user-here]}\n")},
		{name: "whom to tell", files: one("runnerd.yaml", "notify: [{to: notify, url: 'nosuchservice://x'}]\n")},
		{name: "a dead man's switch", files: one("runnerd.yaml", "ping: {url: 'ftp://x'}\n")},
		{name: "a ceiling that refuses what it needs", files: one("runnerd.yaml", "deny: ['nots/*']\n")},
		{name: "a deny of all that it needs", files: one("tasks/t.yaml", "prompt: p\nconnectors: [notes]\ndeny: ['notes/*']\n")},
		{name: "each tool is disabled", files: one("connectors.yaml", "mcpServers:\n  notes: {builtin: memory, disabled_tools: ['*']}\n")},
		{name: "tools out of the project's reach", files: map[string]string{
			"projects.yaml": "projects:\n  ops: {connectors: []}\n", "tasks/t.yaml": "prompt: p\ntools: [notes]\nproject: ops\n"}},
		{name: "a broken project", files: map[string]string{
			"projects.yaml": "projects:\n  ops: {conectors: []}\n", "tasks/t.yaml": "prompt: p\nproject: ops\n"}},
		{name: "a delivery command that is not there", files: one("tasks/t.yaml", "prompt: p\ndeliver: [{to: command, command: [/no/such/program]}]\n")},
		{name: "a notice's command that is not there", files: one("runnerd.yaml", "notify: [{to: command, command: [no-such-program-here]}]\n")},
		{name: "a model's command that is not there", files: one("models.yaml", "models:\n  default: {provider: command, command: [/no/such/program], tool_mode: fenced}\n")},
		{name: "a project that is not there", files: one("tasks/t.yaml", "prompt: p\nproject: ops\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := soundDaemon(t, c.files, c.env)
			report, code := d.checked()
			if report.OK != c.green || (code == 0) != c.green {
				t.Errorf("check: ok %v, exit code %d, want green %v; %q, %q", report.OK, code, c.green, report.Problems, errorsOf(report))
			}
			reported, ran := d.served()
			if green := ran && len(reported) == 0; green != report.OK && !c.runs {
				t.Errorf("check says ok %v; the daemon reports %q, its run went well: %v", report.OK, reported, ran)
			}
			for _, p := range reported {
				if !slices.Contains(report.Problems, p) {
					t.Errorf("the daemon reports %q, check does not: %q", p, report.Problems)
				}
			}
		})
	}
}

func errorsOf(r daemon.CheckReport) (list []string) {
	for _, t := range r.Tasks {
		list = append(list, t.Errors...)
	}
	return list
}

// soundDaemon lays files over the sound ones.
func soundDaemon(t *testing.T, files map[string]string, env string) *instance {
	t.Helper()
	all := map[string]string{}
	for _, layer := range []map[string]string{soundFiles, files} {
		for name, text := range layer {
			all[name] = text
		}
	}
	d := newDaemon(t, all)
	if env != "" {
		d.env = append(d.env, env)
	}
	for name, text := range all {
		if text == "" {
			if err := os.Remove(filepath.Join(d.a.ConfigDir, name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if text = strings.Replace(text, "prompt: p\n", "prompt: p\nretry: {attempts: 1}\n", 1); strings.HasSuffix(name, ".yaml") || strings.Contains(text, "CONFIG") {
			d.write(name, strings.NewReplacer("STATE", d.a.StateDir, "CONFIG", d.a.ConfigDir).Replace(text))
		}
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(d.a.ConfigDir), "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// checked is what check says; a check that cannot even begin has no report.
func (d *instance) checked() (report daemon.CheckReport, code int) {
	d.t.Helper()
	out, errw, code := d.command("check", "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil && (code != task.ExitUsage || errw == "") {
		d.t.Fatalf("check: %v, exit code %d\n%s%s", err, code, out, errw)
	}
	return report, code
}

// served starts the daemon, asks it for problems, and runs t in it. A daemon that
// refuses to start reports nothing and runs nothing.
func (d *instance) served() (reported []string, ran bool) {
	d.t.Helper()
	p := d.start()
	up := false
	daemontest.Until(d.t, "the daemon is ready or has ended", func() bool {
		select {
		case <-p.ended:
			return true
		default:
		}
		up = strings.Contains(p.text(), `"msg":"ready"`)
		return up
	})
	if !up {
		return nil, false
	}
	var status struct{ Problems []string }
	d.json(&status, "status")
	_, _, code := d.command("run", "t")
	p.stop()
	return status.Problems, code == task.ExitOK
}
