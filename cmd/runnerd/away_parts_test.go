package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runnerd/internal/daemontest"
	"runnerd/task"
)

// troubled tells whether a trouble of the daemon's own is open, and its text.
func (d *instance) troubled(key string) (text string, open bool) {
	d.t.Helper()
	main, err := d.a.OpenMain(d.t.Context())
	if err != nil {
		return "", false
	}
	defer main.Close() //nolint:errcheck // read only
	list, err := main.OpenTroubles(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(t task.Trouble) bool { return t.Key == key })
	if i < 0 {
		return "", false
	}
	return list[i].Text, true
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// U4: tasks/ goes away and comes back, over a restart too; `reload --empty` says that
// it is meant.
func TestTasksDirectoryLost(t *testing.T) {
	t.Parallel()
	files := partnered()
	files["tasks/t.md"] = "---\nschedule: every 1s\nconnectors: [gated]\n---\nLook.\n"
	d := newDaemon(t, files)
	tasks := filepath.Join(d.a.ConfigDir, "tasks")
	p := d.start()
	p.ready()
	lost := func() {
		t.Helper()
		daemontest.Until(t, "the loss is a trouble", func() bool { text, _ := d.troubled("daemon/config"); return strings.Contains(text, "tasks is gone") })
		n := len(d.calls("look"))
		daemontest.Until(t, "the task runs on", func() bool { return len(d.calls("look")) > n+1 })
		for _, verb := range [][]string{{"tasks"}, {"status"}, {"explain", "t"}} {
			if out, errw, code := d.command(verb...); code != 0 || !strings.Contains(out, "t") || verb[0] == "tasks" && !strings.Contains(out, "every 1s") {
				t.Errorf("%v: exit code %d\n%s%s", verb, code, out, errw)
			}
		}
		if out, _, _ := d.command("status"); !strings.Contains(out, "tasks is gone") || !strings.Contains(out, "reload --empty") {
			t.Errorf("status does not say what is wrong and what to do:\n%s", out)
		}
	}
	rename(t, tasks, tasks+".away")
	lost()
	p.stop()
	if out, _, code := d.command("check", "--offline"); code != 2 || !strings.Contains(out, "tasks is gone") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	p = d.start()
	p.ready()
	lost()
	rename(t, tasks+".away", tasks)
	daemontest.Until(t, "the trouble ends", func() bool { _, open := d.troubled("daemon/config"); return !open })
	rename(t, tasks, tasks+".away")
	lost()
	if out, errw, code := d.command("reload"); code != 2 || !strings.Contains(errw, "reload --empty") {
		t.Errorf("reload: exit code %d\n%s%s", code, out, errw)
	}
	if out, errw, code := d.command("reload", "--empty"); code != 0 || !strings.Contains(out, "0 tasks") {
		t.Errorf("reload --empty: exit code %d\n%s%s", code, out, errw)
	}
	daemontest.Until(t, "the trouble ends", func() bool { _, open := d.troubled("daemon/config"); return !open })
	p.stop()
	p = d.start()
	p.ready()
	if out, _, _ := d.command("tasks"); strings.Contains(out, "every 1s") {
		t.Errorf("tasks after it was said to be meant, and a restart:\n%s", out)
	}
	if _, open := d.troubled("daemon/config"); open {
		t.Error("a trouble after it was said to be meant, and a restart")
	}
	p.stop()
}

// U5: the config directory is away and back unchanged; verbs ask the daemon meanwhile.
func TestConfigDirectoryAway(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, partnered())
	p := d.start()
	p.ready()
	rename(t, d.a.ConfigDir, d.a.ConfigDir+".away")
	daemontest.Until(t, "it is a trouble", func() bool { _, open := d.troubled("daemon/config"); return open })
	for _, verb := range [][]string{{"pause", "t"}, {"tasks"}, {"resume", "t"}, {"status"}, {"runs"}, {"why", "t"}, {"next", "t"},
		{"policy", "show", "t"}, {"policy", "set", "t", `deny=["gated/nothing"]`}, {"session", "connectors", "t"}, {"cost"}, {"explain", "t"}} {
		if out, errw, code := d.command(verb...); code != 0 {
			t.Errorf("%v: exit code %d\n%s%s", verb, code, out, errw)
		}
	}
	rename(t, d.a.ConfigDir+".away", d.a.ConfigDir)
	daemontest.Until(t, "the trouble ends", func() bool { _, open := d.troubled("daemon/config"); return !open })
	p.stop()
}
