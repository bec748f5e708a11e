package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"runnerd/control"
	"runnerd/task"
)

// stage is a daemon's files with one task that writes, delivers, pings, has limits per
// day and tells somebody of failures.
type stage struct {
	*instance
	desk    string
	pings   atomic.Int64
	pages   string // written by the command that is told of troubles
	results string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	desk := t.TempDir()
	s := &stage{desk: desk, pages: filepath.Join(desk, "pages"), results: filepath.Join(desk, "results")}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.pings.Add(1) }))
	t.Cleanup(server.Close)
	s.instance = newDaemon(t, map[string]string{
		"connectors.yaml": "mcpServers:\n  files: {builtin: files, root: " + desk + "}\n",
		"runnerd.yaml":    "notify:\n  - {to: command, command: [/usr/bin/tee, -a, " + s.pages + "]}\n",
		"s.yaml":          "loop: last\nturns:\n  - {say: The real model speaks., usage: {input: 5, output: 5}}\n",
		"tasks/note.yaml": "prompt: Note it.\nlimits: {tokens_per_day: 100000, runs_per_day: 1}\nping: " + server.URL + "\nconnectors: [files]\n" +
			"deliver: [{to: file, path: " + s.results + "}]\n" +
			"allow: [{tool: files/write_file, where: {path: {under: " + desk + "}, content: any}}]\n",
		"played.yaml": "turns:\n  - call: [{tool: files/write_file, args: {path: note.md, content: rehearsed}}]\n    usage: {input: 900, output: 40}\n" +
			"  - call: [{tool: files/delete_file, args: {path: note.md}}]\n  - say: Noted.\n",
	})
	return s
}

func (s *stage) script() string { return filepath.Join(s.a.ConfigDir, "played.yaml") }

// TestRehearsalLeavesNothing is F10, item 8 and friction line 3: beside a daemon and without one, a
// rehearsal does what policy allows, is shown as one, and leaves session, last status,
// alerts, delivery, ping and the day's totals as they were.
func TestRehearsalLeavesNothing(t *testing.T) {
	t.Parallel()
	var outputs []string
	for _, way := range []string{"F10 in the foreground", "F10 beside a daemon"} {
		t.Run(way, func(t *testing.T) {
			s := newStage(t)
			if strings.Contains(way, "daemon") {
				s.start().ready()
			}
			out, errw, code := s.command("run", "note", "--script", s.script())
			if code != task.ExitDenied || !strings.Contains(out, "needs_approval") {
				t.Errorf("rehearsal: exit code %d\n%s%s", code, out, errw)
			}
			outputs = append(outputs, unnamed(out))
			if text, err := os.ReadFile(filepath.Join(s.desk, "note.md")); string(text) != "rehearsed" {
				t.Errorf("the allowed call wrote %q, %v", text, err)
			}
			s.untouched(t)
			s.realRun(t)
		})
	}
	if len(outputs) == 2 && outputs[0] != outputs[1] {
		t.Errorf("in the foreground\n%s\nbeside a daemon\n%s", outputs[0], outputs[1])
	}
}

// unnamed takes out what differs from run to run.
func unnamed(out string) string {
	out = regexp.MustCompile(`\d\d:\d\d:\d\d`).ReplaceAllString(out, "TIME")
	out = regexp.MustCompile(`(run|show) [0-9a-v]{20}`).ReplaceAllString(out, "$1 ID")
	return regexp.MustCompile(`(?m)^spent .*|now [A-Z].*|/tmp/\S+|wrote .*`).ReplaceAllString(out, "")
}

// untouched looks everywhere that a real run would have left something.
func (s *stage) untouched(t *testing.T) {
	t.Helper()
	var rows []control.RunRow
	s.json(&rows, "runs")
	if len(rows) != 1 || !slices.Contains(rows[0].Marks, task.MarkRehearsal) || rows[0].Delivery != string(task.DeliveryNone) {
		t.Fatalf("runs: %+v", rows)
	}
	for verb, want := range map[string]string{"runs": `note .* rehearsal +denied`, "show": `of task note, rehearsal, `, "status": `config `} {
		args := []string{verb}
		if verb == "show" {
			args = append(args, rows[0].ID)
		}
		out, _, _ := s.command(args...)
		if !regexp.MustCompile(want).MatchString(out) || verb == "status" && strings.Contains(out, "attention") {
			t.Errorf("%s:\n%s", verb, out)
		}
	}
	var tasks []control.TaskRow
	s.json(&tasks, "tasks")
	if len(tasks) != 1 || tasks[0].LastStatus != "" {
		t.Errorf("last status: %+v", tasks)
	}
	var cost json.RawMessage
	s.json(&cost, "cost")
	if strings.Contains(string(cost), "900") || strings.Contains(string(cost), "note") {
		t.Errorf("cost: %s", cost)
	}
	for _, path := range []string{s.results, s.pages} {
		if text, err := os.ReadFile(path); err == nil {
			t.Errorf("%s holds %q", path, text)
		}
	}
	if n := s.pings.Load(); n != 0 {
		t.Errorf("%d pings", n)
	}
}

// realRun runs the task for real afterwards: its model sees nothing of the rehearsal.
func (s *stage) realRun(t *testing.T) {
	t.Helper()
	if out, errw, code := s.command("run", "note"); code != task.ExitOK || strings.Contains(out, "rehears") {
		t.Errorf("real run: exit code %d\n%s%s", code, out, errw)
	}
	out, _, _ := s.command("session", "show", "note")
	if strings.Contains(out, "rehearsed") {
		t.Errorf("session: %s", out)
	}
	if text, err := os.ReadFile(s.results); !strings.Contains(string(text), "The real model speaks.") {
		t.Errorf("delivered %q, %v", text, err)
	}
}

// TestRehearsalTakesTheRightToApprove: who may only run tasks does not choose their
// calls.
func TestRehearsalTakesTheRightToApprove(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start().ready()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", s.a.Socket)
	}}}
	defer client.CloseIdleConnections()
	post := func(body string) int {
		resp, err := client.Post("http://runnerd/api/tasks/note/run", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := post(`{"script": {"name": "s", "text": "turns: [{say: x}]"}}`); code != http.StatusForbidden {
		t.Errorf("without the token: %d", code)
	}
}

// TestScriptsAreReadAgain is friction line 4: an edited script is played from the next turn on; a broken
// one leaves the last good one in force and is a trouble.
func TestScriptsAreReadAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start().ready()
	says := func(want string) {
		t.Helper()
		if out, errw, code := s.command("run", "note"); code != task.ExitOK || !strings.Contains(out, want) {
			t.Errorf("want %q, exit code %d\n%s%s", want, code, out, errw)
		}
	}
	says("The real model speaks.")
	s.write("s.yaml", "loop: last\nturns:\n  - {say: It speaks anew.}\n")
	says("It speaks anew.")
	s.write("s.yaml", "loop: last\nturns:\n  - {sya: It speaks anew.}\n")
	says("It speaks anew.")
	if out, errw, _ := s.command("check"); !strings.Contains(out+errw, `unknown key "sya"`) {
		t.Errorf("check:\n%s%s", out, errw)
	}
	s.command("reload")
	if out, _, _ := s.command("status"); !strings.Contains(out, `unknown key "sya"`) {
		t.Errorf("status:\n%s", out)
	}
	s.write("s.yaml", "loop: last\nturns:\n  - {say: Well again.}\n")
	says("Well again.")
	s.command("reload")
	if out, _, _ := s.command("status"); strings.Contains(out, "sya") {
		t.Errorf("status:\n%s", out)
	}
}
