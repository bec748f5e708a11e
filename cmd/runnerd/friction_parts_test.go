package main

import (
	"regexp"
	"strings"
	"testing"

	"runnerd/task"
)

// TestFriction holds the lines of the walk through the README as an operator: what a
// person types, and what must be in the answer.
func TestFriction(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, map[string]string{
		"s.yaml":           "loop: last\nturns:\n  - {say: Hello.}\n",
		"tasks/disk.md":    "---\nschedule: \"0 8 * * *\"\ntimezone: America/New_York\ntools: []\n---\nLook.\n",
		"tasks/early.yaml": "schedule: \"0 1 * * *\"\ntimezone: UTC\nprompt: Look.\ntools: []\n",
		"connectors.yaml":  "mcpServers:\n  web: {builtin: fetch}\n",
		"tasks/pages.yaml": "connectors: [web]\nprompt: Read two pages.\n",
		"tasks/fails.yaml": "model: gone\nprompt: Look.\ntools: []\n",
	})
	for _, c := range []struct {
		name string
		args string
		code int
		want string // pattern
	}{
		{"friction 5 fetch under the defaults", "check", task.ExitUsage, `once web/fetch was read.*needs an allow line of its own: allow: \[\{tool: web/fetch, where: \{.*url: any`},
		{"friction 7 run x.md", "run disk.md", 0, "(?s)of task disk\n.*Hello"},
		{"friction 7 run tasks/x.md", "run tasks/disk.md", 0, "of task disk\n"},
		{"friction 7 show last", "show last", 0, "of task disk, manual, .*times are of America/New_York, 20.* -0[45]:00"},
		{"friction 7 show nothing", "show", 0, "of task disk"},
		{"friction 7 show TASK", "show disk", 0, "of task disk"},
		{"friction 7 logs TASK", "logs disk", 0, "of task disk"},
		{"friction 7 show a task that has not run", "show early", task.ExitUsage, "task early has not run yet"},
		{"friction 7 list", "list", 0, "(?s)disk.*early"},
		{"friction 7 ls", "ls", 0, "(?s)disk.*early"},
		{"friction 8 runs in the task's zone", "runs", 0, `disk +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d -0[45]:00 `},
		{"friction 7 runs --status", "runs --status failed --json", 0, `^\[\]`},
		{"friction 7 runs --status of some", "runs --status ok,failed -n 1 --json", 0, `"status": "ok"`},
		{"friction 7 runs --status unknown word", "runs --status good", task.ExitUsage, "expected one of queued, running"},
		{"friction 7 runs --since", "runs --since 1h -n 1 --json", 0, `"task": "disk"`},
		{"friction 7 runs --since what is ahead", "runs --since 2999-01-01T00:00:00Z --json", 0, `^\[\]`},
		{"friction 7 next in order of time", "next -n 2", 0, `(?s)^(early.*\n.*disk.*\n.*early.*\n.*disk|disk.*\n.*early.*\n.*disk.*\n.*early)`},
		{"friction 7 why -n", "why disk -n 3", 0, "Nothing is recorded"},
		{"friction 6 pause --all", "pause --all --note moving", 0, "every task paused; `runnerd resume --all`"},
		{"friction 6 status without a daemon keeps the note", "status", 0, "paused +everything: moving; `runnerd resume --all` ends it"},
		{"friction 6 pause one too", "pause disk --note noisy", 0, "task disk paused"},
		{"friction 6 both are shown", "status", 0, "(?s)everything: moving.*disk: noisy; `runnerd resume disk`"},
		{"friction 6 resume one", "resume disk", 0, "(?s)task disk resumed\ntask disk is still paused with every other: moving; `runnerd resume --all`"},
		{"friction 6 pause it again", "pause disk --note noisy", 0, "task disk paused"},
		{"friction 6 resume all", "resume --all", 0, "(?s)every task resumed\ntask disk is still paused: noisy; `runnerd resume disk`"},
		{"friction 6 resume what is not paused", "resume early", 0, "^task early was not paused\n$"},
	} {
		out, errw, code := d.command(strings.Fields(c.args)...)
		if code != c.code || !regexp.MustCompile(c.want).MatchString(out+errw) {
			t.Errorf("%s: runnerd %s: exit code %d, want %d and %q in\n%s%s", c.name, c.args, code, c.code, c.want, out, errw)
		}
	}
}

// TestRefusalSaysWhatMissed is friction line 2: a refused call hears which line was
// meant for its tool and which condition of it missed.
func TestRefusalSaysWhatMissed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.write("outside.yaml", "turns:\n  - call: [{tool: files/write_file, args: {path: /srv/elsewhere/a.md, content: x}}]\n  - say: Done.\n")
	out, errw, code := s.command("run", "note", "--script", s.a.ConfigDir+"/outside.yaml")
	want := "path under " + regexp.QuoteMeta(s.desk) + ` \(task file\) is there, but path is "/srv/elsewhere/a.md"`
	if code != task.ExitDenied || !regexp.MustCompile(want).MatchString(out) {
		t.Errorf("exit code %d, want %q in\n%s%s", code, want, out, errw)
	}
}

// TestZonesAreSuggestedInFiles is friction line 7 and F8: a file's zone gets the
// nearest name, as that of `next --tz` does.
func TestZonesAreSuggestedInFiles(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{"Berlin": "did you mean Europe/Berlin?", "europe/berlin": "did you mean Europe/Berlin?"} {
		d := newDaemon(t, map[string]string{"s.yaml": "turns: [{say: x}]\n", "tasks/disk.yaml": "schedule: \"@daily\"\ntimezone: " + zone + "\nprompt: Look.\n"})
		for _, args := range [][]string{{"check"}, {"next", "--cron", "@daily", "--tz", zone}} {
			if out, errw, code := d.command(args...); code != task.ExitUsage || !strings.Contains(out+errw, want) {
				t.Errorf("%s: %v: exit code %d\n%s%s", zone, args, code, out, errw)
			}
		}
	}
}
