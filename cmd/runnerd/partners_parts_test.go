package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"runnerd/daemon"
	"runnerd/internal/daemontest"
)

// partnered are files of a task that runs when it is told to and notes something
// every time.
func partnered() map[string]string {
	return map[string]string{
		"s.yaml":          "turns:\n  - call: [{tool: gated/look, args: {}}]\n  - say: Looked.\n",
		"connectors.yaml": "mcpServers:\n  gated: {GATED, classes: {look: read}, flags: []}\n",
		"tasks/t.md":      "---\nconnectors: [gated]\n---\nLook.\n",
	}
}

// serveOnce runs serve with arguments until it ends by itself, as a start that is
// refused does, or is ready and is stopped.
func (d *instance) serveOnce(args ...string) (log string, code int) {
	d.t.Helper()
	log = filepath.Join(d.t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(d.bin, append([]string{"serve"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, f, f
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	text := func() string { b, _ := os.ReadFile(log); return string(b) }
	daemontest.Until(d.t, "serve is ready or ends", func() bool {
		select {
		case <-ended:
			return true
		default:
			return strings.Contains(text(), `"msg":"ready"`)
		}
	})
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-ended
	return text(), cmd.ProcessState.ExitCode()
}

// lines are what was printed and is no log line.
func lines(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "{") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func (d *instance) state(name string) string { return filepath.Join(d.a.StateDir, name) }

// remove removes a database with its log.
func (d *instance) remove(name string) {
	d.t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(d.state(name) + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.t.Fatal(err)
		}
	}
}

// copyTo copies files of the state directory, those that there are.
func (d *instance) copyTo(dir string, names ...string) {
	d.t.Helper()
	for _, name := range names {
		data, err := os.ReadFile(d.state(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600)); err != nil {
			d.t.Fatal(err)
		}
	}
}

// ran is a daemon with files, n runs and an override on record, all closed in order.
func ran(t *testing.T, n int) *instance {
	d := newDaemon(t, partnered())
	for range n {
		if out, errw, code := d.command("run", "t"); code != 0 {
			t.Fatalf("run: exit code %d\n%s%s", code, out, errw)
		}
	}
	d.set(`deny=["gated/nothing"]`)
	return d
}

func (d *instance) set(field string) {
	d.t.Helper()
	if out, errw, code := d.command("policy", "set", "t", field); code != 0 {
		d.t.Fatalf("policy set: exit code %d\n%s%s", code, out, errw)
	}
}

// TestStartRefusesAPartnerThatIsNot: what a start says to databases that do not belong
// together, that the other verbs say the same and make nothing, and what lets it
// start once.
func TestStartRefusesAPartnerThatIsNot(t *testing.T) {
	ofPolicy := [][]string{{"policy", "show", "t"}, {"policy", "history"}, {"audit"}, {"audit", "verify"}, {"explain", "t"}, {"connectors"}, {"connectors", "tools", "gated"}}
	ofMain := [][]string{{"runs"}, {"why", "t"}, {"show"}, {"tasks"}, {"approvals"}, {"cost"}, {"audit"}, {"audit", "verify"}, {"status"}}
	for _, c := range []struct {
		name   string
		damage func(d *instance, other string)
		says   []string // in the one sentence
		flags  []string
		all    bool       // try every verb
		blind  [][]string // verbs that would show what is gone as nothing
	}{
		{"U1 policy database gone", func(d *instance, _ string) { d.remove("task_policies.db") },
			[]string{"policy database", "task_policies.db is missing", "policy changes missing", "--new-policy"}, []string{"--new-policy"}, true, ofPolicy},
		{"U1 policy database empty", func(d *instance, _ string) { d.remove("task_policies.db"); truncate(d, "task_policies.db") },
			[]string{"task_policies.db is missing", "--new-policy"}, []string{"--new-policy"}, false, ofPolicy},
		{"U1 main database gone", func(d *instance, _ string) { d.remove("runnerd.db") },
			[]string{"runnerd.db is missing", "2 runs", "2 receipts", "--new-main"}, []string{"--new-main"}, true, ofMain},
		{"U1 main database empty", func(d *instance, _ string) { d.remove("runnerd.db"); truncate(d, "runnerd.db") },
			[]string{"runnerd.db is missing", "2 runs", "--new-main"}, []string{"--new-main"}, false, ofMain},
		{"U1 both gone", func(d *instance, _ string) { d.remove("runnerd.db"); d.remove("task_policies.db") },
			[]string{"both databases are missing", "2 runs", "policy changes", "--new-main --new-policy"}, []string{"--new-main", "--new-policy"}, false, nil},
		{"U1 policy database of another", func(d *instance, other string) { d.remove("task_policies.db"); bring(d, other, "task_policies.db") },
			[]string{"not of each other", "--accept-databases"}, []string{"--accept-databases"}, false, nil},
		{"U1 main database of another", func(d *instance, other string) { d.remove("runnerd.db"); bring(d, other, "runnerd.db") },
			[]string{"not of each other", "--accept-databases"}, []string{"--accept-databases"}, false, nil},
		{"U6 both of another", func(d *instance, other string) {
			for _, name := range []string{"runnerd.db", "task_policies.db"} {
				d.remove(name)
				bring(d, other, name)
			}
		}, []string{"not those that the state directory was last used with", "--accept-databases"}, []string{"--accept-databases"}, false, nil},
		{"U17 older main database", func(d *instance, _ string) {
			old := d.t.TempDir()
			d.copyTo(old, "runnerd.db")
			d.again(2)
			d.remove("runnerd.db")
			bring(d, old, "runnerd.db")
		}, []string{"runnerd.db is older than the policy database remembers", "2 runs", "--accept-databases"}, []string{"--accept-databases"}, true, [][]string{{"audit", "verify"}}},
		{"U17 older policy database", func(d *instance, _ string) {
			old := d.t.TempDir()
			d.copyTo(old, "task_policies.db")
			d.set(`deny=["gated/other"]`)
			d.remove("task_policies.db")
			bring(d, old, "task_policies.db")
		}, []string{"task_policies.db is older than the main database remembers", "1 policy change missing", "--accept-databases"}, []string{"--accept-databases"}, false, nil},
		{"U17 both older", func(d *instance, _ string) {
			old := d.t.TempDir()
			d.copyTo(old, "runnerd.db", "task_policies.db")
			d.again(1)
			for _, name := range []string{"runnerd.db", "task_policies.db"} {
				d.remove(name)
				bring(d, old, name)
			}
		}, []string{"runnerd.db is older than the state directory remembers", "1 run", "--accept-databases"}, []string{"--accept-databases"}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := ran(t, 2)
			other := t.TempDir()
			foreign := ran(t, 1)
			foreign.copyTo(other, "runnerd.db", "task_policies.db")
			c.damage(d, other)
			before := listing(t, d.a.StateDir)
			refused := func(args ...string) {
				t.Helper()
				out, errw, code := d.command(args...)
				text := out + lines(errw)
				for _, want := range c.says {
					if !strings.Contains(text, want) {
						t.Errorf("%v does not say %q:\n%s", args, want, text)
					}
				}
				if code == 0 && !slices.Contains([]string{"status", "explain", "policy", "connectors"}, args[0]) {
					t.Errorf("%v: exit code 0", args)
				}
			}
			refused("doctor")
			if c.all {
				for _, verb := range [][]string{{"run", "t"}, {"approve", "x"}, {"policy", "set", "t", "on_ask=\"park\""}, {"pause", "t"},
					{"check", "--offline"}, {"status"}, {"backup", filepath.Join(t.TempDir(), "b")}} {
					refused(verb...)
				}
			}
			for _, verb := range c.blind {
				refused(verb...)
			}
			refused("serve")
			if _, _, code := d.command("serve"); code != 1 {
				t.Errorf("serve: exit code %d, want 1", code)
			}
			if after := listing(t, d.a.StateDir); after != before {
				t.Errorf("files were made or changed:\n%s\nbefore:\n%s", after, before)
			}
			if log, code := d.serveOnce(c.flags...); code != 0 {
				t.Fatalf("serve %v: exit code %d\n%s", c.flags, code, log)
			}
			for _, verb := range [][]string{{"policy", "history"}, {"audit"}} {
				if out, _, code := d.command(verb...); code != 0 || !strings.Contains(out, "accepted") || !strings.Contains(out, "uid ") {
					t.Errorf("%v: exit code %d, want what was accepted and by whom:\n%s", verb, code, out)
				}
			}
			if log, code := d.serveOnce(c.flags...); code != 2 || !strings.Contains(log, "nothing to accept") {
				t.Errorf("the flags once more: exit code %d\n%s", code, log)
			}
			if log, code := d.serveOnce(); code != 0 {
				t.Errorf("the next start: exit code %d\n%s", code, log)
			}
			if out, errw, code := d.command("doctor"); strings.Contains(out, "fault") && strings.Contains(out, "database") {
				t.Errorf("doctor: exit code %d\n%s%s", code, out, errw)
			}
		})
	}
}

func truncate(d *instance, name string) {
	if err := os.WriteFile(d.state(name), nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func bring(d *instance, from, name string) {
	data, err := os.ReadFile(filepath.Join(from, name))
	if err := errors.Join(err, os.WriteFile(d.state(name), data, 0o600)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *instance) again(n int) {
	d.t.Helper()
	for range n {
		if out, errw, code := d.command("run", "t"); code != 0 {
			d.t.Fatalf("run: exit code %d\n%s%s", code, out, errw)
		}
	}
}

// listing is the databases of a directory with their sizes.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	names, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %d\n", filepath.Base(name), info.Size())
	}
	return out.String()
}

// U18: the log of a database that was killed is gone or garbage. The other one, or
// the state directory, remembers.
func TestLostLogIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(d *instance)
		says []string
	}{
		{"U18 main log gone", func(d *instance) { _ = os.Remove(d.state("runnerd.db-wal")) }, []string{"runnerd.db", "3 runs"}},
		{"U18 main log garbage", func(d *instance) { garbage(d, "runnerd.db-wal") }, []string{"runnerd.db", "3 runs"}},
		{"U18 policy log gone", func(d *instance) { _ = os.Remove(d.state("task_policies.db-wal")) }, []string{"task_policies.db", "policy change"}},
		{"U18 both logs gone", func(d *instance) {
			_ = os.Remove(d.state("runnerd.db-wal"))
			_ = os.Remove(d.state("task_policies.db-wal"))
		}, []string{"runnerd.db", "3 runs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := ran(t, 1)
			p := d.start()
			p.ready()
			d.again(3)
			d.set(`deny=["gated/other"]`)
			var note string
			daemontest.Until(t, "the state directory was noted after the change", func() bool {
				data, _ := os.ReadFile(d.state("runnerd.lock"))
				now := strings.TrimSpace(string(data))
				settled := now == note && strings.Contains(now, `"runs":4`)
				if note = now; !settled {
					time.Sleep(2 * daemon.NotePause) // for the next note, if one is due
				}
				return settled
			})
			p.signal(syscall.SIGKILL)
			<-p.ended
			c.lose(d)
			out, errw, code := d.command("serve")
			for _, want := range c.says {
				if !strings.Contains(lines(errw), want) {
					t.Errorf("serve does not say %q", want)
				}
			}
			if code != 1 {
				t.Errorf("exit code %d\n%s%s", code, out, errw)
			}
		})
	}
}

func garbage(d *instance, name string) {
	if err := os.WriteFile(d.state(name), []byte(strings.Repeat("no log ", 10000)), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// A kill alone is no reason to refuse anything.
func TestStartAfterAKill(t *testing.T) {
	d := ran(t, 1)
	for range 3 {
		p := d.start()
		p.ready()
		d.again(1)
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
	if log, code := d.serveOnce(); code != 0 {
		t.Errorf("exit code %d\n%s", code, log)
	}
}

// U16: both lock files removed, a second daemon is refused all the same.
func TestSecondDaemonWithoutLockFiles(t *testing.T) {
	d := ran(t, 1)
	p := d.start()
	p.ready()
	for _, name := range []string{"runnerd.lock", "runnerd.db.lock", "task_policies.db.lock"} {
		if err := os.Remove(d.state(name)); err != nil {
			t.Fatal(err)
		}
	}
	out, errw, code := d.command("serve")
	if code == 0 || !strings.Contains(errw, "another runnerd works with this database") {
		t.Errorf("U16 second daemon: exit code %d\n%s%s", code, out, errw)
	}
	p.stop()
}

// U6: a policy database is held too, and belongs to one main database.
func TestPolicyDatabaseOfAnother(t *testing.T) {
	a, b := ran(t, 1), ran(t, 1)
	p := b.start()
	p.ready()
	a.env = append(a.env, "RUNNERD_POLICY_DATABASE="+b.state("task_policies.db"))
	if out, errw, code := a.command("serve"); code == 0 || !strings.Contains(errw, "another runnerd works with this database") {
		t.Errorf("U6 beside its daemon: exit code %d\n%s%s", code, out, errw)
	}
	p.stop()
	if out, errw, code := a.command("serve"); code != 1 || !strings.Contains(errw, "not of each other") {
		t.Errorf("U6 alone: exit code %d\n%s%s", code, out, errw)
	}
}

// U15: databases that are removed or replaced under a running daemon.
func TestDatabaseRemovedUnderADaemon(t *testing.T) {
	for _, name := range []string{"runnerd.db", "task_policies.db"} {
		t.Run("U15 "+name, func(t *testing.T) {
			t.Parallel()
			files := partnered()
			files["tasks/t.md"] = "---\nschedule: every 1s\nconnectors: [gated]\n---\nLook.\n"
			d := newDaemon(t, files)
			p := d.start()
			p.ready()
			daemontest.Until(t, "calls arrive", func() bool { return len(d.calls("look")) > 0 })
			d.remove(name)
			p.logs("was removed while runnerd works with it")
			n, started := len(d.calls("look")), strings.Count(p.text(), `"msg":"run started"`)
			daemontest.Until(t, "nothing is fired, tried again and again", func() bool { return strings.Count(p.text(), `"msg":"fire tasks"`) >= 4 })
			if more := strings.Count(p.text(), `"msg":"run started"`); more > started+1 {
				t.Errorf("%d runs were started after the database was removed", more-started)
			}
			if more := len(d.calls("look")); more > n+1 {
				t.Errorf("%d calls after the database was removed", more-n)
			}
			if out, _, code := d.command("doctor"); code == 0 || !strings.Contains(out, "was removed") {
				t.Errorf("doctor: exit code %d\n%s", code, out)
			}
			if out, _, _ := d.command("status"); !strings.Contains(out, "was removed") {
				t.Errorf("status:\n%s", out)
			}
		})
	}
}
