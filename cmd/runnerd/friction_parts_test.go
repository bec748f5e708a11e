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
		"tasks/fails.yaml": "model: gone\nprompt: Look.\ntools: []\n",
	})
	for _, c := range []struct {
		name string
		args string
		code int
		want string // pattern
	}{
		{"friction 6 run x.md", "run disk.md", 0, "(?s)of task disk\n.*Hello"},
		{"friction 6 run tasks/x.md", "run tasks/disk.md", 0, "of task disk\n"},
		{"friction 6 show last", "show last", 0, "of task disk, manual, .*times are of America/New_York, 20.* -0[45]:00"},
		{"friction 6 show nothing", "show", 0, "of task disk"},
		{"friction 6 show TASK", "show disk", 0, "of task disk"},
		{"friction 6 logs TASK", "logs disk", 0, "of task disk"},
		{"friction 6 show a task that has not run", "show early", task.ExitUsage, "task early has not run yet"},
		{"friction 6 list", "list", 0, "(?s)disk.*early"},
		{"friction 6 ls", "ls", 0, "(?s)disk.*early"},
		{"friction 8 runs in the task's zone", "runs", 0, `disk +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d -0[45]:00 `},
		{"friction 6 runs --status", "runs --status failed --json", 0, `^\[\]`},
		{"friction 6 runs --status of some", "runs --status ok,failed -n 1 --json", 0, `"status": "ok"`},
		{"friction 6 runs --status unknown word", "runs --status good", task.ExitUsage, "expected one of queued, running"},
		{"friction 6 runs --since", "runs --since 1h -n 1 --json", 0, `"task": "disk"`},
		{"friction 6 runs --since what is ahead", "runs --since 2999-01-01T00:00:00Z --json", 0, `^\[\]`},
		{"friction 6 next in order of time", "next -n 2", 0, `(?s)^(early.*\n.*disk.*\n.*early.*\n.*disk|disk.*\n.*early.*\n.*disk.*\n.*early)`},
		{"friction 6 why -n", "why disk -n 3", 0, "Nothing is recorded"},
		{"friction 5 pause --all", "pause --all --note moving", 0, "every task paused; `runnerd resume --all`"},
		{"friction 5 status without a daemon keeps the note", "status", 0, "paused +everything: moving; `runnerd resume --all` ends it"},
		{"friction 5 pause one too", "pause disk --note noisy", 0, "task disk paused"},
		{"friction 5 both are shown", "status", 0, "(?s)everything: moving.*disk: noisy; `runnerd resume disk`"},
		{"friction 5 resume one", "resume disk", 0, "(?s)task disk resumed\ntask disk is still paused with every other: moving; `runnerd resume --all`"},
		{"friction 5 pause it again", "pause disk --note noisy", 0, "task disk paused"},
		{"friction 5 resume all", "resume --all", 0, "(?s)every task resumed\ntask disk is still paused: noisy; `runnerd resume disk`"},
		{"friction 5 resume what is not paused", "resume early", 0, "^task early was not paused\n$"},
	} {
		out, errw, code := d.command(strings.Fields(c.args)...)
		if code != c.code || !regexp.MustCompile(c.want).MatchString(out+errw) {
			t.Errorf("%s: runnerd %s: exit code %d, want %d and %q in\n%s%s", c.name, c.args, code, c.code, c.want, out, errw)
		}
	}
}
