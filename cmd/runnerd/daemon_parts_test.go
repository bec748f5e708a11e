package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/db"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// gated is a connector whose tool wait, once it has written down that a call
// arrived, answers when a gate file appears. The test binary serves it as a
// process of its own.
func gated() {
	effects, gate := os.Args[1], os.Args[2]
	srv := mcp.NewServer(&mcp.Implementation{Name: "gated", Version: "1"}, nil)
	add := func(name string, do func(context.Context)) {
		srv.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if err := record(effects, fmt.Sprint(name, " ", os.Getpid())); err != nil {
					return nil, err
				}
				do(ctx)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " done"}}}, nil
			})
	}
	add("look", func(context.Context) {})
	for _, name := range []string{"wait", "waitwrite"} {
		add(name, func(ctx context.Context) {
			for ctx.Err() == nil {
				if _, err := os.Stat(gate); err == nil {
					return
				}
				time.Sleep(5 * time.Millisecond) // the gate is opened by another process
			}
		})
	}
	if err := srv.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// instance is the real binary with files of its own. The zero environment is that
// of a service: nothing but what start is given.
type instance struct {
	t   *testing.T
	bin string
	dir string
	a   *app
	env []string
}

// newDaemon writes the files. In them GATED stands for the command and arguments
// of the gated connector.
func newDaemon(t *testing.T, files map[string]string) *instance {
	t.Helper()
	bin, err := breakableBinary()
	if err != nil {
		t.Fatal(err)
	}
	d := &instance{t: t, bin: bin, dir: t.TempDir()}
	all := map[string]string{"models.yaml": "models:\n  default: {provider: scripted, script: s.yaml}\n"}
	for name, text := range files {
		all[name] = strings.ReplaceAll(text, "GATED", d.gatedCommand())
	}
	d.a = testApp(t, all)
	d.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "RUNNERD_CONFIG_DIR=" + d.a.ConfigDir, "RUNNERD_STATE_DIR=" + d.a.StateDir,
		"RUNNERD_CACHE_DIR=" + d.a.CacheDir, "RUNNERD_TIMEZONE=UTC", "RUNNERD_LOG_FORMAT=json",
	}
	return d
}

// gatedCommand links the test binary to the name that makes it the connector.
func (d *instance) gatedCommand() string {
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	program := filepath.Join(d.dir, "gated")
	if err := os.Symlink(self, program); err != nil && !errors.Is(err, os.ErrExist) {
		d.t.Fatal(err)
	}
	return fmt.Sprintf("command: %s, args: [%s, %s]", program, d.effects(), d.gate())
}

func (d *instance) effects() string { return filepath.Join(d.dir, "effects") }
func (d *instance) gate() string    { return filepath.Join(d.dir, "gate") }

func (d *instance) open() {
	d.t.Helper()
	if err := os.WriteFile(d.gate(), nil, 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// calls are the calls of a tool that reached the gated connector, each the pid of
// the process that got it.
func (d *instance) calls(tool string) (pids []int) {
	text, err := os.ReadFile(d.effects())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, pid, ok := strings.Cut(line, " "); ok && name == tool {
			n, err := strconv.Atoi(pid)
			if err != nil {
				d.t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}

// write puts a file of the config directory there.
func (d *instance) write(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.a.ConfigDir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	if err != nil {
		d.t.Fatal(err)
	}
}

// process is a daemon that was started.
type process struct {
	*instance
	cmd   *exec.Cmd
	log   string // file
	ended chan struct{}
	err   error // of Wait, once ended is closed
}

// start runs serve with further variables; the process ends with the test.
func (d *instance) start(env ...string) *process {
	d.t.Helper()
	p := &process{instance: d, ended: make(chan struct{})}
	log, err := os.CreateTemp(d.dir, "log-*")
	if err != nil {
		d.t.Fatal(err)
	}
	p.log = log.Name()
	p.cmd = exec.Command(d.bin, "serve")
	p.cmd.Env = append(slices.Clone(d.env), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	_ = log.Close() // the child has its own
	go func() { p.err = p.cmd.Wait(); close(p.ended) }()
	d.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has usually ended
		<-p.ended
		if d.t.Failed() {
			d.t.Logf("log of %d:\n%s", p.cmd.Process.Pid, p.text())
		}
	})
	return p
}

func (p *process) text() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// logs waits for a line of the log.
func (p *process) logs(text string) {
	p.t.Helper()
	daemontest.Until(p.t, "the log says "+text, func() bool {
		if strings.Contains(p.text(), text) {
			return true
		}
		select {
		case <-p.ended:
			if !strings.Contains(p.text(), text) {
				p.t.Fatalf("the daemon ended (%v) and never said %s", p.err, text)
			}
		default:
		}
		return false
	})
}

func (p *process) ready() { p.t.Helper(); p.logs(`"msg":"ready"`) }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exits waits for the end, which must be an orderly one, and tells how long it
// took.
func (p *process) exits() time.Duration {
	p.t.Helper()
	begun := time.Now()
	select {
	case <-p.ended:
	case <-time.After(daemontest.Patience):
		p.t.Fatal("the daemon does not end")
	}
	if p.err != nil {
		p.t.Errorf("the daemon ended with %v, want exit code 0", p.err)
	}
	return time.Since(begun)
}

func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.exits()
}

// command runs another verb on the same files, and answers what it printed and
// its exit code.
func (d *instance) command(args ...string) (stdout, stderr string, code int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), daemontest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.bin, args...)
	cmd.Env = d.env
	var out, errw bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errw
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		d.t.Fatal(err)
	}
	return out.String(), errw.String(), cmd.ProcessState.ExitCode()
}

// json runs a verb with --json and decodes what it printed.
func (d *instance) json(into any, args ...string) {
	d.t.Helper()
	out, errw, code := d.command(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		d.t.Fatalf("%v: exit code %d, %v\n%s%s", args, code, err, out, errw)
	}
}

// runs are those of a task, newest first; none while there is no database.
func (d *instance) runs(id string) []task.Run {
	d.t.Helper()
	main, err := d.a.OpenMain(context.Background())
	if err != nil {
		return nil
	}
	defer main.Close() //nolint:errcheck // read only
	runs, err := main.Runs(context.Background(), db.RunFilter{Task: id, Limit: 10000})
	if err != nil {
		d.t.Fatal(err)
	}
	return runs
}

// receipts are those of a run.
func (d *instance) receipts(run string) []task.Receipt {
	d.t.Helper()
	main, err := d.a.OpenMain(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	defer main.Close() //nolint:errcheck // read only
	receipts, err := main.RunReceipts(context.Background(), run)
	if err != nil {
		d.t.Fatal(err)
	}
	return receipts
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// manager plays the service manager: it hears the datagrams of sd_notify.
type manager struct {
	t     *testing.T
	path  string
	heard chan string
	past  []string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-*") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, path: filepath.Join(dir, "s"), heard: make(chan string, 10000)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 8192); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return // closed
			}
			m.heard <- string(buf[:n])
		}
	}()
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
		<-done
	})
	return m
}

// hears waits for a datagram with an assignment and answers its other ones.
func (m *manager) hears(assignment string) map[string]string {
	m.t.Helper()
	timeout := time.After(daemontest.Patience)
	for {
		select {
		case text := <-m.heard:
			m.past = append(m.past, text)
			if slices.Contains(strings.Split(strings.TrimSpace(text), "\n"), assignment) {
				return assignments(text)
			}
		case <-timeout:
			m.t.Fatalf("no %s; heard %q", assignment, m.past)
		}
	}
}

func assignments(text string) map[string]string {
	all := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		key, value, _ := strings.Cut(line, "=")
		all[key] = value
	}
	return all
}

// quiet fails if an assignment is heard within d.
func (m *manager) quiet(assignment string, d time.Duration) {
	m.t.Helper()
	for timeout := time.After(d); ; {
		select {
		case text := <-m.heard:
			m.past = append(m.past, text)
			if strings.Contains(text, assignment) {
				m.t.Fatalf("heard %q, want no %s", text, assignment)
			}
		case <-timeout:
			return
		}
	}
}
