package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"runnerd/internal/daemontest"
	"runnerd/task"
)

// ending is a task that ends in one way.
type ending struct {
	name string
	// keys are those of its file, turns its model's.
	keys, turns string
	status      task.Status
	// says is a part of what run prints.
	says string
	// interrupt sends the person's Ctrl-C once its tool was called.
	interrupt bool
}

// endings are every way in which a run can end, as far as a task can make it.
var endings = []ending{
	{name: "ok", turns: "- say: Hello.", status: task.StatusOK},
	{name: "read", turns: "- call: [{tool: gated/look}]\n- say: Hello.", status: task.StatusOK, says: "allowed gated/look"},
	{name: "nothing-to-do", turns: "- call: [{tool: report, args: {outcome: nothing_to_do}}]\n- say: Nothing.", status: task.StatusOK, says: "outcome nothing_to_do"},
	{name: "failed", turns: "- call: [{tool: report, args: {outcome: failed, summary: no}}]\n- say: No.", status: task.StatusFailed, says: "the agent reported failed: no"},
	{name: "attention", turns: "- call: [{tool: report, args: {outcome: needs_attention}}]\n- say: Look.", status: task.StatusFailed},
	{name: "model", turns: "- error: {kind: auth, message: bad key}", status: task.StatusFailed, says: "bad key"},
	{name: "denied", turns: "- call: [{tool: gated/waitwrite}]\n- say: I could not.", status: task.StatusDenied, says: "refused gated/waitwrite"},
	{name: "wrong-name", turns: "- call: [{tool: gated/nothing}]\n- say: I could not.", status: task.StatusOK, says: "unknown_tool"},
	{name: "budget", keys: "limits: {steps: 1}", turns: "- call: [{tool: gated/look}]\n- say: Hello.", status: task.StatusBudget, says: "limits.steps"},
	{name: "waiting", keys: "on_ask: park", turns: "- call: [{tool: gated/waitwrite}]\n- say: Done.", status: task.StatusWaiting, says: "runnerd approvals"},
	{name: "unknown", keys: "tools: [hasty]\nallow: [hasty/waitwrite]", turns: "- call: [{tool: hasty/waitwrite}]\n- say: I do not know.", status: task.StatusUnknown, says: "unknown_effect"},
	{name: "cancelled", turns: "- call: [{tool: gated/wait}]\n- say: Hello.", status: task.StatusCancelled, says: "interrupted by a signal", interrupt: true},
	{name: "empty", turns: "- say: \" \"", status: task.StatusFailed, says: "empty answer"},
	{name: "claim", turns: "- say: I've saved the note.", status: task.StatusFailed, says: "unverified_claims"},
	{name: "output", keys: "output_schema: {type: object}", turns: "- say: Hello.", status: task.StatusFailed, says: "output_schema"},
	{name: "required-down", keys: "tools: [dead]\nretry: {attempts: 1}", turns: "- say: Hello.", status: task.StatusFailed, says: "required_down:dead"},
	{name: "retried", keys: "tools: [dead]\nretry: {attempts: 2, backoff: 1s}", turns: "- say: Hello.", status: task.StatusFailed, says: "required_down:dead"},
	{name: "optional-down", keys: "tools: [gated, dead]\noptional: [dead]", turns: "- say: Hello.", status: task.StatusOK, says: "connector_down:dead"},
	{name: "no-tools", keys: "tools: []", turns: "- say: Hello.", status: task.StatusOK},
	{name: "no-report", keys: "report: required", turns: "- say: Hello.\n- say: Hello again.", status: task.StatusFailed, says: "report_missing"},
	{name: "repeated", turns: strings.Repeat("- call: [{tool: gated/look}]\n", 5), status: task.StatusFailed, says: "repeated_call"},
	{name: "delivered", keys: "deliver: [{to: command, command: [/bin/true]}]", turns: "- say: Hello.", status: task.StatusOK, says: "delivery delivered"},
	{name: "undelivered", keys: "deliver: [{to: command, command: [/bin/false]}, {to: command, command: [/bin/true]}]", turns: "- say: Hello.", status: task.StatusFailed, says: "not delivered"},
	{name: "refused-delivery", keys: "deliver: [{to: command, command: [/bin/sh, -c, 'echo no such place >&2; exit 7']}]", turns: "- say: Hello.", status: task.StatusFailed, says: "no such place"},
	{name: "undelivered-failure", keys: "deliver: [{to: command, command: [/bin/false], when: failure}]", turns: "- error: {kind: auth, message: bad key}", status: task.StatusFailed, says: "bad key"},
	{name: "not-for-this", keys: "deliver: [{to: command, command: [/bin/false], when: failure}]", turns: "- say: Hello.", status: task.StatusOK},
}

const agreementConnectors = `mcpServers:
  gated: {GATED, classes: {look: read, wait: read, waitwrite: write}, flags: []}
  hasty: {GATED, classes: {look: read, waitwrite: write}, flags: [], timeout: {call: 1s}}
  dead: {command: /no/such/program, flags: []}
`

// TestForegroundAgreesWithDaemon (issue 7 item 2, A6): whoever runs a task gets the
// same output, status and exit code, however the run ends.
func TestForegroundAgreesWithDaemon(t *testing.T) {
	t.Parallel()
	files := map[string]string{"connectors.yaml": agreementConnectors}
	models := "models:\n"
	for _, e := range endings {
		models += fmt.Sprintf("  %s: {provider: scripted, script: %s.yaml}\n", e.name, e.name)
		files[e.name+".yaml"] = "turns:\n" + e.turns + "\n"
		keys := e.keys
		if !strings.Contains(keys, "tools:") {
			keys = "tools: [gated]\n" + keys
		}
		files["tasks/"+e.name+".yaml"] = strings.TrimSpace(keys) + "\nmodel: " + e.name + "\nprompt: Do it.\n"
	}
	files["models.yaml"] = models
	d := newDaemon(t, files)
	if err := os.WriteFile(d.effects(), nil, 0o644); err != nil { // so that both connectors may write there
		t.Fatal(err)
	}
	p := d.start()
	p.ready()
	here := *d
	state := filepath.Join(d.dir, "here")
	here.env = append(slices.Clone(d.env), "RUNNERD_STATE_DIR="+state, "RUNNERD_CACHE_DIR="+state+"-cache")
	for _, e := range endings {
		for _, json := range []bool{false, true} {
			if json && !slices.Contains([]string{"ok", "failed", "undelivered"}, e.name) {
				continue // the same row, shown otherwise
			}
			t.Run(fmt.Sprintf("%s json=%v", e.name, json), func(t *testing.T) {
				alone, code := here.plays(t, e, json)
				served, servedCode := d.plays(t, e, json)
				if want := e.status.ExitCode(); code != want || servedCode != want {
					t.Errorf("exit code %d here and %d through the daemon, want %d", code, servedCode, want)
				}
				if a, b := normal(alone, state), normal(served, d.a.StateDir); a != b {
					t.Errorf("here:\n%s\nthrough the daemon:\n%s", a, b)
				}
				if !json && !strings.Contains(alone, e.says) || !strings.Contains(alone, string(e.status)) {
					t.Errorf("it does not say %q and %s:\n%s", e.says, e.status, alone)
				}
			})
		}
	}
	p.stop()
}

// plays runs a task as a person does.
func (d *instance) plays(t *testing.T, e ending, json bool) (stdout string, code int) {
	t.Helper()
	cmd := exec.Command(d.bin, "run", e.name)
	if json {
		cmd.Args = append(cmd.Args, "--json")
	}
	cmd.Env = d.env
	var out, errw bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errw
	before := len(d.calls("wait"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if e.interrupt {
		daemontest.Until(t, "the tool was called", func() bool { return len(d.calls("wait")) > before })
		_ = cmd.Process.Signal(syscall.SIGINT) // Wait tells if it is gone
	}
	err := cmd.Wait()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	if errw.Len() > 0 {
		t.Errorf("on standard error: %s", errw.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// What differs from run to run: ids, times, spans and where the state lies.
var (
	anID   = regexp.MustCompile(`\b[0-9a-v]{20}\b`)
	aTime  = regexp.MustCompile(`\b([A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(\.\d+)?Z?\b`)
	aSpan  = regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|s))+\b`)
	wallMS = regexp.MustCompile(`"wall": [0-9.]+,?\n\s*`)
)

func normal(text, state string) string {
	text = strings.ReplaceAll(text, state, "STATE")
	text = wallMS.ReplaceAllString(text, "")
	text = anID.ReplaceAllString(text, "ID")
	text = aTime.ReplaceAllString(text, "TIME")
	return aSpan.ReplaceAllString(text, "SPAN")
}
