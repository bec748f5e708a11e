package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"runnerd/internal/npmtest"
)

// scenario is one of the suite's, and what becomes of it.
type scenario struct {
	name string
	// why it is not passed, by design; "" for one that is.
	why string
	// fails are the checks that then fail; those of the scenario that are not
	// among them pass.
	fails []string
}

const (
	noElicitation = "no person is there to be asked: runnerd does not offer elicitation"
	noInput       = "a tool that asks for input gets none; the run reads that it did not"
	noSkills      = "resources are not read, and so no skills"
)

var scenarios = []scenario{
	{name: "initialize"},
	{name: "tools_call"},
	{name: "sse-retry"},
	{name: "request-metadata"},
	{name: "http-standard-headers"},
	{name: "http-custom-headers"},
	{name: "http-invalid-tool-headers"},
	{name: "json-schema-ref-no-deref"},
	{name: "json-schema-2020-12-preservation"},
	{name: "elicitation-sep1034-client-defaults", why: noElicitation, fails: []string{
		"client-elicitation-sep1034-general", "client-elicitation-sep1034-string-default", "client-elicitation-sep1034-integer-default",
		"client-elicitation-sep1034-number-default", "client-elicitation-sep1034-enum-default", "client-elicitation-sep1034-boolean-default",
	}},
	{name: "sep-2322-client-request-state", why: noInput, fails: []string{
		"sep-2322-client-request-state-echoed", "sep-2322-client-jsonrpc-id-different", "sep-2322-client-no-state-omitted",
	}},
}

// left are groups of scenarios that are not run, and why.
var left = map[string]string{
	"auth/":            "runnerd sends the credential that its operator configured; it follows no OAuth flow, for which a person would be needed",
	"sep-2640-client-": noSkills,
}

// TestClient runs the official suite against our client, scenario by scenario.
// One that fails must do so for the reason that stands here.
func TestClient(t *testing.T) {
	node, suite := npmtest.NewNode(t), npmtest.Bin(t, npmtest.Conformance)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			out := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			text, err := exec.CommandContext(ctx, node, suite, "client", "--command", self, "--scenario", s.name, "--timeout", "30000", "--output-dir", out).CombinedOutput()
			var exited *exec.ExitError
			if err != nil && (!errors.As(err, &exited) || len(s.fails) == 0) {
				t.Fatalf("%v\n%s", err, text)
			}
			if failed := failures(t, out); !slices.Equal(failed, slices.Sorted(slices.Values(s.fails))) {
				t.Errorf("failed: %q, want %q (%s)\n%s", failed, s.fails, s.why, text)
			}
		})
	}
}

// failures are the checks that failed or warned, each once, sorted.
func failures(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the suite left %d files with checks (%v), want one", len(files), err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var checks []struct{ ID, Status string }
	if err := json.Unmarshal(data, &checks); err != nil {
		t.Fatal(err)
	}
	var failed []string
	passed := 0
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			passed++
		case "FAILURE", "WARNING":
			failed = append(failed, c.ID)
		}
	}
	if passed+len(failed) == 0 {
		t.Fatalf("the suite checked nothing: %s", data)
	}
	slices.Sort(failed)
	return slices.Compact(failed)
}

// TestEveryScenarioIsKnown fails when the suite has a scenario that stands
// neither in the table nor in a group that is left out.
func TestEveryScenarioIsKnown(t *testing.T) {
	out, err := exec.Command(npmtest.NewNode(t), npmtest.Bin(t, npmtest.Conformance), "list").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, list, found := strings.Cut(string(out), "Client scenarios")
	if !found {
		t.Fatalf("no client scenarios in\n%s", out)
	}
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for _, line := range strings.Split(list, "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	for _, s := range scenarios {
		if !slices.Contains(names, s.name) {
			t.Errorf("the suite has no scenario %s any more", s.name)
		}
	}
	for _, name := range names {
		known := slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name })
		for group := range left {
			known = known || strings.HasPrefix(name, group)
		}
		if !known {
			t.Errorf("scenario %s is new: run it, and record what becomes of it", name)
		}
	}
}
