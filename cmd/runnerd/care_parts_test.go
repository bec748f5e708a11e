package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"runnerd/internal/daemontest"
	"runnerd/task"
)

// TestKilledWhileDelivering: the process dies by SIGKILL in the middle of a
// delivery. The next one goes on: the file is there, the command that may have
// done its work is not run again, and the run says so.
func TestKilledWhileDelivering(t *testing.T) {
	dir := t.TempDir()
	d := newDaemon(t, map[string]string{
		"s.yaml": sayHello,
		"tasks/brief.yaml": "tools: []\nprompt: Hello?\ndeliver:\n  - {to: file, path: " + dir + "/file}\n" +
			"  - {to: command, command: [/bin/sh, -c, 'echo sent >>" + dir + "/log; read a b c daemon rest </proc/$PPID/stat; kill -9 $daemon; sleep 5']}\n",
	})
	first := d.start()
	first.ready()
	if _, err := d.a.Present(t.Context()).Client.Start(t.Context(), "brief"); err != nil {
		t.Fatal(err)
	}
	<-first.ended
	second := d.start()
	daemontest.Until(t, "the delivery is settled", func() bool {
		runs := d.runs("brief")
		return len(runs) == 1 && runs[0].Delivery != task.DeliveryPending && runs[0].Execution.Finished()
	})
	run := d.runs("brief")[0]
	if run.Execution != task.Completed || run.Delivery != task.DeliveryFailed || !strings.Contains(run.Reason, "whether it arrived is not known, so it is not repeated") {
		t.Errorf("%s, delivery %s: %s", run.Execution, run.Delivery, run.Reason)
	}
	for file, want := range map[string]string{"file": "Hello.\n", "log": "sent\n"} {
		if got, err := os.ReadFile(dir + "/" + file); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", file, got, err)
		}
	}
	if out, _, _ := d.command("show", run.ID); !strings.Contains(out, "delivery    1 (file): delivered after ") || !strings.Contains(out, "delivery    2 (command): failed after 1 attempts: ") {
		t.Errorf("show says %s", out)
	}
	second.stop()
}

// U12: what the daemon started is gone with it when it is killed, in whatever session
// it is.
func TestKilledDaemonTakesItsCommandsAlong(t *testing.T) {
	for _, kind := range []string{"deliver", "notify", "model"} {
		t.Run("U12 "+kind, func(t *testing.T) {
			dir := t.TempDir()
			line := "setsid /bin/sh -c 'echo $$ >" + dir + "/new; mv " + dir + "/new " + dir + "/away; exec sleep 600' & sleep 600"
			command := fmt.Sprintf("[/bin/sh, -c, %q]", line)
			files := map[string]string{"s.yaml": sayHello, "tasks/brief.yaml": "tools: []\nprompt: Hello?\n"}
			switch kind {
			case "deliver":
				files["tasks/brief.yaml"] += "deliver: [{to: command, command: " + command + "}]\n"
			case "notify":
				files["s.yaml"] = "turns:\n  - say: \"\"\n"
				files["runnerd.yaml"] = "notify: [{to: command, command: " + command + "}]\n"
			case "model":
				files["models.yaml"] = "models:\n  default: {provider: command, command: " + command + "}\n"
			}
			d := newDaemon(t, files)
			first := d.start()
			first.ready()
			if _, err := d.a.Present(t.Context()).Client.Start(t.Context(), "brief"); err != nil {
				t.Fatal(err)
			}
			daemontest.Until(t, "the command runs", func() bool { _, err := os.Stat(dir + "/away"); return err == nil })
			pid, err := strconv.Atoi(strings.TrimSpace(fileText(t, dir+"/away")))
			if err != nil {
				t.Fatal(err)
			}
			if err := first.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-first.ended
			daemontest.Until(t, "the command is gone", func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err != nil || strings.Contains(string(stat), ") Z ")
			})
		})
	}
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sink is a web server on loopback that writes down what comes.
type sink struct {
	mu  sync.Mutex
	got []string
	url string
}

func newSink(t *testing.T, hang <-chan struct{}) *sink {
	t.Helper()
	s := &sink{}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.got = append(s.got, strings.TrimSpace(r.URL.Path+" "+string(body)))
		s.mu.Unlock()
		if hang != nil {
			<-hang
		}
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

func (s *sink) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.got, func(got string) bool { return strings.Contains(got, text) })
}

// hook is the sink as a shoutrrr URL.
func (s *sink) hook(path string) string {
	return strings.Replace(s.url, "http://", "generic://", 1) + path + "?disabletls=yes"
}

// TestSinks delivers, tells and pings for real, and fault case 11: a destination
// that hangs delays neither its own task's next runs nor other tasks.
func TestSinks(t *testing.T) {
	free := make(chan struct{})
	s, hung := newSink(t, nil), newSink(t, free)
	var once sync.Once
	release := func() { once.Do(func() { close(free) }) }
	t.Cleanup(release)
	d := newDaemon(t, map[string]string{
		"s.yaml":          sayHello,
		"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n  silent: {provider: scripted, script: silent.yaml}\n",
		"silent.yaml":     "turns:\n  - say: \"\"\n",
		"runnerd.yaml":    "notify:\n  - {to: notify, url: \"" + s.hook("/notices") + "\"}\n",
		"tasks/good.yaml": "schedule: every 1s\ntools: []\nsession: fresh\nprompt: x\nping: " + s.url + "/ping\ndeliver:\n  - {to: notify, url: \"" + s.hook("/results") + "\"}\n",
		"tasks/bad.yaml":  "schedule: every 1s\ntools: []\nsession: fresh\nmodel: silent\nprompt: x\nping: " + s.url + "/never\n",
		"tasks/slow.yaml": "schedule: every 1s\ntools: []\nsession: fresh\nprompt: x\ndeliver:\n  - {to: notify, url: \"" + hung.hook("/hung") + "\"}\n",
	})
	p := d.start()
	p.ready()
	for _, want := range []string{"/results Hello.", "/ping", "/notices Task bad, run "} {
		daemontest.Until(t, "there is "+want, func() bool { return s.has(want) })
	}
	// Its first delivery hangs until the end: that it runs on shows that nobody waits.
	daemontest.Until(t, "the slow task ran five times", func() bool { return hung.has("/hung Hello.") && len(d.runs("slow")) >= 5 })
	if s.has("/never") {
		t.Error("a failed run was pinged")
	}
	out, _, _ := d.command("status")
	if !strings.Contains(out, "trouble   bad: failed, since ") || !strings.Contains(out, "(told ") {
		t.Errorf("status says %s", out)
	}
	release()
	p.stop()
}
