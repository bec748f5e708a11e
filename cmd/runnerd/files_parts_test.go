package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"runnerd/control"
	"runnerd/internal/daemontest"
	"runnerd/sqldb"
	"runnerd/task"
)

const inForceLine = `"msg":"files in force"`

// inForce waits until files have come into force n times altogether.
func (p *process) inForce(n int) {
	p.t.Helper()
	daemontest.Until(p.t, fmt.Sprintf("files have come into force %d times", n), func() bool { return strings.Count(p.text(), inForceLine) >= n })
}

// quick is a task that is run every second by a model that only answers.
const quick = "schedule: every 1s\ntools: []\nsession: fresh\nprompt: PROMPT\n"

func quickTask(prompt string) string { return strings.ReplaceAll(quick, "PROMPT", prompt) }

// prompted tells whether a run of the task was given the prompt.
func (d *instance) prompted(id, prompt string) bool {
	d.t.Helper()
	for _, r := range d.runs(id) {
		var v control.RunView
		d.json(&v, "show", r.ID)
		if len(v.Messages) > 0 && strings.Contains(v.Messages[0].Text, prompt) {
			return true
		}
	}
	return false
}

// TestEditors saves a file the way editors and configuration tools do, while the
// real daemon watches: each way gives one reload, with the new content in force.
func TestEditors(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name  string
		setup func(t *testing.T, tasks string)
		edit  func(t *testing.T, tasks string, text []byte)
	}{
		{name: "rename over", edit: func(t *testing.T, tasks string, text []byte) {
			daemontest.Must(t, os.WriteFile(filepath.Join(tasks, ".job.yaml.swp"), text, 0o644), os.Rename(filepath.Join(tasks, ".job.yaml.swp"), filepath.Join(tasks, "job.yaml")))
		}},
		{name: "backup, then new file", edit: func(t *testing.T, tasks string, text []byte) {
			daemontest.Must(t, os.Rename(filepath.Join(tasks, "job.yaml"), filepath.Join(tasks, "job.yaml~")), os.WriteFile(filepath.Join(tasks, "job.yaml"), text, 0o644))
		}},
		{name: "truncate and write", edit: func(t *testing.T, tasks string, text []byte) {
			f, err := os.OpenFile(filepath.Join(tasks, "job.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
			daemontest.Must(t, err)
			for len(text) > 0 {
				n := min(len(text), 7)
				_, err := f.Write(text[:n])
				daemontest.Must(t, err)
				text = text[n:]
			}
			daemontest.Must(t, f.Close())
		}},
		{name: "..data swapped", setup: func(t *testing.T, tasks string) {
			mount(t, tasks, "..1", []byte(quickTask("before")))
		}, edit: func(t *testing.T, tasks string, text []byte) {
			mount(t, tasks, "..2", text)
			daemontest.Must(t, os.RemoveAll(filepath.Join(tasks, "..1")))
		}},
		{name: "many files at once", edit: func(t *testing.T, tasks string, text []byte) {
			for i := range 60 {
				daemontest.Must(t, os.WriteFile(filepath.Join(tasks, fmt.Sprintf("extra-%d.yaml", i)), []byte("prompt: By hand.\n"), 0o644))
			}
			daemontest.Must(t, os.WriteFile(filepath.Join(tasks, "job.yaml"), text, 0o644))
		}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{"s.yaml": "turns:\n  - say: Done.\n", "tasks/job.yaml": quickTask("before")})
			tasks := filepath.Join(d.a.ConfigDir, "tasks")
			if way.setup != nil {
				way.setup(t, tasks)
			}
			p := d.start()
			p.ready()
			way.edit(t, tasks, []byte(quickTask("after the edit")))
			daemontest.Until(t, "a run has the new prompt", func() bool { return d.prompted("job", "after the edit") })
			p.inForce(2)
			d.write("tasks/last.yaml", "prompt: By hand.\n")
			p.inForce(3) // whatever else the edit could have caused has come before
			if n := strings.Count(p.text(), inForceLine); n != 3 {
				t.Errorf("files came into force %d times, want 3: the start, the edit, the last file", n)
			}
			if strings.Contains(p.text(), `"msg":"file refused"`) {
				t.Error("a half-written file was read")
			}
			p.stop()
		})
	}
}

// mount lays job.yaml out as a mounted ConfigMap is: a link through ..data, which
// is swapped at once.
func mount(t *testing.T, tasks, version string, text []byte) {
	t.Helper()
	daemontest.Must(t, os.Mkdir(filepath.Join(tasks, version), 0o755), os.WriteFile(filepath.Join(tasks, version, "job.yaml"), text, 0o644))
	daemontest.Must(t, os.Symlink(version, filepath.Join(tasks, "..data_tmp")), os.Rename(filepath.Join(tasks, "..data_tmp"), filepath.Join(tasks, "..data")))
	if _, err := os.Readlink(filepath.Join(tasks, "job.yaml")); err != nil {
		daemontest.Must(t, os.Remove(filepath.Join(tasks, "job.yaml")), os.Symlink("..data/job.yaml", filepath.Join(tasks, "job.yaml")))
	}
}

// TestBrokenFileKeepsLastGood spoils a file of a running task in every way that
// gets a file refused: the last good revision runs on, also after a restart, and
// status and check name what is wrong.
func TestBrokenFileKeepsLastGood(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.yaml")
	daemontest.Must(t, os.WriteFile(elsewhere, []byte(quickTask("elsewhere")), 0o644))
	ways := []struct {
		name, want string
		spoil      func(t *testing.T, file string)
	}{
		{"unknown key", "job.yaml:1:1: ", func(t *testing.T, file string) {
			edit(t, file, "schedule:", "shedule:")
		}},
		{"half-written", "job.yaml:4:", func(t *testing.T, file string) {
			daemontest.Must(t, os.WriteFile(file, []byte("schedule: every 1s\ntools: []\nsession: fresh\nprompt: \"unfini"), 0o644))
		}},
		{"empty", "job.yaml", func(t *testing.T, file string) { daemontest.Must(t, os.Truncate(file, 0)) }},
		{"world-writable", "job.yaml: ", func(t *testing.T, file string) { daemontest.Must(t, os.Chmod(file, 0o666)) }},
		{"wrong owner", "job.yaml: ", func(t *testing.T, file string) {
			if os.Getuid() != 0 {
				t.Skip("only root can give a file away")
			}
			daemontest.Must(t, os.Chown(file, 12345, 12345))
		}},
		{"link to elsewhere", "job.yaml: ", func(t *testing.T, file string) {
			daemontest.Must(t, os.Remove(file), os.Symlink(elsewhere, file))
		}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{"s.yaml": "turns:\n  - say: Done.\n", "tasks/job.yaml": quickTask("good")})
			p := d.start()
			p.ready()
			daemontest.Until(t, "the good file runs", func() bool { return len(d.runs("job")) > 0 })
			way.spoil(t, filepath.Join(d.a.ConfigDir, "tasks/job.yaml"))
			p.logs(`"msg":"last good revision stays in force"`)
			d.runsOn(t)
			d.named(t, way.want)
			p.stop()
			d.named(t, way.want)
			p = d.start()
			p.logs(`"msg":"last good revision stays in force"`)
			d.runsOn(t)
			p.stop()
			if d.prompted("job", "elsewhere") {
				t.Error("a file from outside the config directory was run")
			}
		})
	}
}

// runsOn waits for a run that begins from now on.
func (d *instance) runsOn(t *testing.T) {
	t.Helper()
	now := time.Now()
	daemontest.Until(t, "the last good revision runs on", func() bool {
		runs := d.runs("job")
		return len(runs) > 0 && runs[0].StartedAt.After(now) && runs[0].Status() == task.StatusOK
	})
}

// named expects status and check to tell of the file.
func (d *instance) named(t *testing.T, want string) {
	t.Helper()
	var status struct{ Problems []string }
	d.json(&status, "status")
	if !strings.Contains(strings.Join(status.Problems, "\n"), want) {
		t.Errorf("status names %q, want %s", status.Problems, want)
	}
	out, _, code := d.command("check", "--offline")
	if code != task.ExitUsage || !strings.Contains(out, want) {
		t.Errorf("check ends with %d and does not name %s:\n%s", code, want, out)
	}
}

// TestDeletedWhileActive deletes a task's file while its run is in a call, and
// puts it back later.
func TestDeletedWhileActive(t *testing.T) {
	t.Parallel()
	files := waiting("wait")
	files["tasks/slow.yaml"] = strings.ReplaceAll(files["tasks/slow.yaml"], "session: fresh\n", "")
	files["tasks/other.yaml"] = "prompt: By hand.\n" // to lose every task at once is another matter
	d := newDaemon(t, files)
	file := filepath.Join(d.a.ConfigDir, "tasks/slow.yaml")
	text, err := os.ReadFile(file)
	daemontest.Must(t, err)
	p := d.start()
	daemontest.Until(t, "a call is under way", func() bool { return len(d.calls("wait")) > 0 })
	daemontest.Must(t, os.Remove(file))
	p.inForce(2)
	d.open()
	daemontest.Until(t, "the run has ended", func() bool { return d.runs("slow")[0].Execution.Finished() })
	first := d.runs("slow")
	if len(first) != 1 || first[0].Status() != task.StatusOK {
		t.Errorf("%d runs, the first %s (%s), want one that is ok", len(first), first[0].Status(), first[0].Reason)
	}
	var tasks []struct{ ID string }
	d.json(&tasks, "tasks")
	var history []control.WhyRow
	d.json(&history, "why", "slow")
	if len(tasks) != 1 || tasks[0].ID != "other" || len(history) == 0 {
		t.Errorf("tasks lists %v, why %v; want no task and a history", tasks, history)
	}

	daemontest.Must(t, os.WriteFile(file, text, 0o644))
	daemontest.Until(t, "the task runs again", func() bool {
		runs := d.runs("slow")
		return len(runs) > len(first) && runs[0].Execution.Finished()
	})
	again := d.runs("slow")[0]
	if again.Session != first[0].Session || again.Status() != task.StatusOK {
		t.Errorf("the restored task ran in session %s: %s, want %s: ok", again.Session, again.Status(), first[0].Session)
	}
	p.stop()
	// Between the two nothing was due: the task was retired.
	d.json(&history, "why", "slow")
	for _, row := range history {
		if row.End == task.EndMissed && row.Reason == task.ReasonDown {
			t.Errorf("%s is recorded as missed while the task was retired", row.Due)
		}
	}
}

// TestTwoDaemons starts a second daemon on the same state.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, waiting("look"))
	p := d.start()
	p.ready()
	_, errw, code := d.command("serve")
	if want := fmt.Sprintf("in use by process %d ", p.cmd.Process.Pid); code == task.ExitOK || !strings.Contains(errw, want) {
		t.Errorf("the second daemon ended with %d: %q, want it to say %q", code, errw, want)
	}
	p.signal(0) // the first one lives
	p.stop()
	if held, err := sqldb.Holder(d.a.StateDir); held != nil || err != nil {
		t.Errorf("the state directory is held by %v (%v)", held, err)
	}
}

// TestConnectorsThatCannotStart names what is wrong with each in check, in the
// list of connectors, and on the run that required it.
func TestConnectorsThatCannotStart(t *testing.T) {
	t.Parallel()
	ways := []struct{ id, want, spec string }{
		{"missing", "no-such-program", "{command: no-such-program}"},
		{"exits", "no licence found", "{command: sh, args: [-c, 'echo no licence found >&2; exit 3']}"},
		{"npx", "ENOTCACHED", "{command: npx, args: [-y, '@modelcontextprotocol/server-nothing@1.2.3'], env: {npm_config_offline: 'true'}}"},
		{"silent", "no answer in time", "{command: sleep, args: ['60'], timeout: {connect: 500ms}}"},
	}
	for _, way := range ways {
		t.Run(way.id, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{
				"s.yaml":          "turns:\n  - say: Done.\n",
				"connectors.yaml": "mcpServers:\n  " + way.id + ": " + way.spec + "\n",
				"tasks/must.yaml": "require: [" + way.id + "]\nretry: {attempts: 1}\nprompt: Hello.\n",
				"tasks/can.yaml":  "tools: [" + way.id + "]\noptional: [" + way.id + "]\nprompt: Hello.\n",
			})
			if out, _, _ := d.command("check"); !strings.Contains(out, "connector "+way.id+": ") || !strings.Contains(out, way.want) {
				t.Errorf("check does not name %q:\n%s", way.want, out)
			}
			var states []struct {
				ID    string
				Up    bool
				Error string
			}
			d.json(&states, "connectors")
			if len(states) != 1 || states[0].Up || !strings.Contains(states[0].Error, way.want) {
				t.Errorf("connectors says %+v, want it down for %q", states, way.want)
			}
			var must, can struct {
				ID, Status, Reason string
				Marks              []string
			}
			d.json(&must, "run", "must")
			if must.Status != "failed" || !strings.Contains(must.Reason, way.id) || !strings.Contains(must.Reason, way.want) {
				t.Errorf("the run that requires it: %+v, want it failed for %q", must, way.want)
			}
			d.json(&can, "run", "can")
			if mark := "connector_down:" + way.id; can.Status != "ok" || !slices.Contains(can.Marks, mark) {
				t.Errorf("the run that is only offered it: %+v, want it ok with the mark %s", can, mark)
			}
		})
	}
}
