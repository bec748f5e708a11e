package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/db"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// counting is a connector that writes one line to a file for each write that
// reaches it, before it answers: what it counts has happened. The test binary
// serves it as a process of its own.
func counting() {
	file := os.Args[1]
	srv := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	for _, name := range []string{"look", "note"} {
		srv.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if err := record(file, name+" "+string(req.Params.Arguments)); err != nil {
					return nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			})
	}
	if err := srv.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

func record(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Sync(), f.Close())
}

// breakableBinary is the daemon with the named crash points, built once.
var breakableBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runnerd-crash-*")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "runnerd")
	build := exec.Command("go", "build", "-tags", "crashtest", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return bin, nil
})

// patient is a daemon in a directory of its own that tests kill and start again.
type patient struct {
	t    *testing.T
	bin  string
	dir  string
	a    *app
	tool string // the file that the counting connector writes
}

const killScript = `
turns:
  - call: [{tool: count/look, args: {}}]
  - call: [{tool: count/note, args: {text: "RUN"}}, {tool: count/wipe, args: {}}]
  - say: I noted it. The other call was refused or its outcome is not known.
`

func newPatient(t *testing.T, schedule string) *patient {
	t.Helper()
	bin, err := breakableBinary()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	counter := filepath.Join(dir, "counter")
	if err := os.Link(self, counter); err != nil {
		if err := os.Symlink(self, counter); err != nil {
			t.Fatal(err)
		}
	}
	p := &patient{t: t, bin: bin, dir: dir, tool: filepath.Join(dir, "effects")}
	p.a = testApp(t, map[string]string{
		"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n",
		"s.yaml":          killScript,
		"connectors.yaml": "mcpServers:\n  count: {command: " + counter + ", args: [" + p.tool + "], classes: {look: read, note: write}, flags: []}\n",
		"tasks/job.yaml":  "schedule: " + schedule + "\ncatch_up: once\nsession: fresh\nallow: [count/note]\nretry: {attempts: 50, backoff: 10ms}\nprompt: Note it.\n",
	})
	return p
}

// start runs the daemon until it ends by itself or is killed.
func (p *patient) start(crashAt string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(p.bin, "--config", p.a.ConfigDir, "--state", p.a.StateDir, "serve")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "RUNNERD_CRASH_AT=" + crashAt, "RUNNERD_CACHE_DIR=" + p.a.CacheDir, "RUNNERD_TIMEZONE=UTC", "RUNNERD_SHUTDOWN_GRACE=1s"}
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = log.Close()                                // the child has its own
	p.t.Cleanup(func() { _ = cmd.Process.Kill() }) // of a test that failed; else it is gone
	return cmd
}

// ready waits until the n-th daemon has said that it is.
func (p *patient) ready(n int) {
	p.t.Helper()
	for deadline := time.Now().Add(daemontest.Patience); strings.Count(p.log(), `"msg":"ready"`) < n; time.Sleep(20 * time.Millisecond) { // another process's log is polled
		if time.Now().After(deadline) {
			p.t.Fatalf("the daemon did not get ready\n%s", p.log())
		}
	}
}

// stop ends the daemon in an orderly way.
func (p *patient) stop(cmd *exec.Cmd) {
	p.t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		p.t.Errorf("daemon ended: %v\n%s", err, p.log())
	}
}

func (p *patient) log() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// effects are the calls that reached the connector.
func (p *patient) effects() (reads, writes int) {
	f, err := os.Open(p.tool)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0
	}
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "look") {
			reads++
		} else {
			writes++
		}
	}
	return reads, writes
}

// settled waits until the database holds at least n runs and none is active.
func (p *patient) settled(n int) []task.Run {
	p.t.Helper()
	for deadline := time.Now().Add(daemontest.Patience); ; time.Sleep(20 * time.Millisecond) { // another process's state is polled
		runs, active := p.runs()
		if len(runs) >= n && active == 0 {
			return runs
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%d runs, %d active, want %d settled\n%s", len(runs), active, n, p.log())
		}
	}
}

func (p *patient) runs() (runs []task.Run, active int) {
	main, err := p.a.OpenMain(context.Background())
	if err != nil {
		return nil, 0 // not created yet
	}
	defer main.Close()
	runs, err = main.Runs(context.Background(), db.RunFilter{Limit: 10000})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range runs {
		if r.Execution.Active() {
			active++
		}
	}
	return runs, active
}

// check holds the record against what happened. It answers how many writes the
// record knows of.
func (p *patient) check() {
	p.t.Helper()
	main, err := p.a.OpenMain(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	defer main.Close()
	ctx := context.Background()
	runs, active := p.runs()
	if active != 0 {
		p.t.Errorf("%d runs are still active", active)
	}
	sent, unknown, reads := 0, 0, 0
	for _, r := range runs {
		receipts, err := main.RunReceipts(ctx, r.ID)
		if err != nil {
			p.t.Fatal(err)
		}
		runUnknown := 0
		for _, rc := range receipts {
			switch {
			case rc.Outcome == task.ReceiptPending:
				p.t.Errorf("run %s: receipt %d has no outcome", r.ID, rc.Seq)
			case rc.Decision == task.DecisionAllow && rc.Class == "read":
				reads++
			case rc.Decision == task.DecisionAllow && rc.Outcome == task.ReceiptUnknown:
				runUnknown++
				sent++
			case rc.Decision == task.DecisionAllow:
				sent++
			}
		}
		unknown += runUnknown
		if (runUnknown > 0) != (r.Status() == task.StatusUnknown) {
			p.t.Errorf("run %s: %d unknown outcomes, status %s", r.ID, runUnknown, r.Status())
		}
	}
	gotReads, gotWrites := p.effects()
	if gotWrites > sent || gotWrites < sent-unknown {
		p.t.Errorf("%d writes reached the server; the record has %d, %d of them unknown", gotWrites, sent, unknown)
	}
	if gotReads > reads {
		p.t.Errorf("%d reads reached the server, the record has %d", gotReads, reads)
	}
	p.checkOccurrences(main, runs)
	if _, err := main.Verify(ctx); err != nil {
		p.t.Errorf("receipts: %v", err)
	}
}

// checkOccurrences: each run has its occurrence, none is there twice, none is
// missing between the first and the last.
func (p *patient) checkOccurrences(main *db.DB, runs []task.Run) {
	p.t.Helper()
	list, err := main.Occurrences(context.Background(), db.OccurrenceFilter{Task: "job", Limit: 100000})
	if err != nil {
		p.t.Fatal(err)
	}
	byRun := map[string]bool{}
	for i, o := range list {
		if o.End == task.EndRun {
			byRun[o.RunID] = true
		}
		if i > 0 && !o.Due.Before(list[i-1].Due) {
			p.t.Errorf("occurrence %s stands twice", o.Due)
		}
	}
	for _, r := range runs {
		if !byRun[r.ID] {
			p.t.Errorf("run %s has no occurrence", r.ID)
		}
	}
	if every, ok := interval(p.a); ok && len(list) > 1 {
		span := list[0].Due.Sub(list[len(list)-1].Due)
		if want := int(span/every) + 1; len(list) != want {
			p.t.Errorf("%d occurrences in %s of every %s, want %d: each instant has exactly one row", len(list), span, every, want)
		}
	}
}

func interval(a *app) (time.Duration, bool) {
	text, err := os.ReadFile(filepath.Join(a.ConfigDir, "tasks/job.yaml"))
	if err != nil {
		return 0, false
	}
	var d string
	if _, err := fmt.Sscanf(string(text), "schedule: every %s", &d); err != nil {
		return 0, false
	}
	every, err := time.ParseDuration(d)
	return every, err == nil
}

// TestKillAtEachDurableStep ends the real daemon, as kill -9 does, just before and
// just after each durable step of a run, starts it again, and holds the record
// against what reached the connector. Of intend, call and settle the first is the
// read's, the second the write's.
func TestKillAtEachDurableStep(t *testing.T) {
	for _, step := range []string{
		"fire 1", "claim 1", "append 1", "append 2", "intend 1", "call 1", "settle 1", "append 3",
		"intend 2", "call 2", "settle 2", "refuse 1", "append 4", "update 1",
	} {
		for _, when := range []string{"before", "after"} {
			if at := when + " " + step; at != "before claim 1" { // the same as after fire 1
				t.Run(at, func(t *testing.T) {
					t.Parallel()
					killAt(t, at)
				})
			}
		}
	}
}

func killAt(t *testing.T, at string) {
	p := newPatient(t, "at "+time.Now().Add(1500*time.Millisecond).UTC().Format("2006-01-02T15:04:05Z"))
	err := p.start(at).Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the daemon ended with %v, want it killed %s\n%s", err, at, p.log())
	}
	ready := strings.Count(p.log(), `"msg":"ready"`) // it may have been killed before
	cmd := p.start("")
	p.ready(ready + 1)
	runs := p.settled(1)
	p.stop(cmd)
	p.check()
	if len(runs) != 1 {
		t.Fatalf("%d runs, want one", len(runs))
	}
	// Between the write's intent and its outcome nobody can know.
	wantWrites, wantStatus := 1, task.StatusOK
	switch at {
	case "after intend 2", "before call 2":
		wantWrites, wantStatus = 0, task.StatusUnknown
	case "after call 2", "before settle 2":
		wantStatus = task.StatusUnknown
	}
	reads, writes := p.effects()
	if status := runs[0].Status(); writes != wantWrites || status != wantStatus {
		t.Errorf("%d writes reached the server, status %s (%s); want %d, %s", writes, status, runs[0].Reason, wantWrites, wantStatus)
	}
	if reads > 2 {
		t.Errorf("the read was made %d times, want at most twice", reads)
	}
}

// TestRandomKills kills the daemon again and again at random moments while it
// runs a task every second, and holds the whole record against what happened.
func TestRandomKills(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 20
	}
	p := newPatient(t, "every 1s")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range kills {
		cmd := p.start("")
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond) // where in a run the kill falls is the point
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
	}
	// No more instants: what is left is finished.
	edit(t, filepath.Join(p.a.ConfigDir, "tasks/job.yaml"), "schedule: every 1s", "schedule: at 2099-01-01T00:00:00Z")
	ready := strings.Count(p.log(), `"msg":"ready"`)
	cmd := p.start("")
	p.ready(ready + 1)
	p.settled(1)
	p.stop(cmd)
	p.check()
	reads, writes := p.effects()
	runs, _ := p.runs()
	t.Logf("%d kills, %d runs, %d reads, %d writes", kills, len(runs), reads, writes)
}

func edit(t *testing.T, file, old, new string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not hold %q", file, old)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
