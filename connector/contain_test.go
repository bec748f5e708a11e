package connector

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"runnerd/procgroup"
	"runnerd/task"
)

const daemonVerb = "test-daemon"

// testDaemon is a daemon that opens a connector with a family and waits to be
// killed. Its arguments are the state directory and the server's mode.
func testDaemon(args []string) int {
	exe, err := os.Executable()
	if err != nil {
		return 1
	}
	p := New(Options{StateDir: args[0], Environ: []string{"PATH=" + os.Getenv("PATH")}})
	p.Set([]task.Connector{{ID: "x", Command: exe, Args: []string{serverVerb, args[1]}}})
	if err := p.Dial(context.Background(), "x"); err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := p.Call(context.Background(), "x", "family", textArg("")); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	select {}
}

// waitFor polls for what the kernel does in its own time.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waitForFamily waits until the server and two that left it are there.
func waitForFamily(t testing.TB, p *Pool) {
	t.Helper()
	waitFor(t, "the whole family is there", func() bool { return len(marked(p)) >= 3 })
}

// startDaemon runs testDaemon and returns when its connector is up.
func startDaemon(t *testing.T, state, mode string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, daemonVerb, state, mode)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("daemon said %q, %v", line, err)
	}
	return cmd
}

// Case 25 of the faults: none left after close.
func TestFamilyIsGoneAfterClose(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"good", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			p := testPool(t, nil, stdioSpec(t, mode))
			mustCall(t, p, "family", "")
			waitForFamily(t, p)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := marked(p); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestFamilyIsGoneAfterServerDies(t *testing.T) {
	t.Parallel()
	p := testPool(t, nil, stdioSpec(t, "good"))
	mustCall(t, p, "family", "")
	waitForFamily(t, p)
	_, err := p.Call(t.Context(), "x", "die", textArg(""))
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "something broke") {
		t.Errorf("error is %v", err)
	}
	waitFor(t, "the family ends", func() bool { return len(marked(p)) == 0 })
}

// Case 25: none left after the daemon was killed.
func TestFamilyIsGoneAfterDaemonIsKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"good", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			p := testPool(t, nil)
			daemon := startDaemon(t, p.opts.StateDir, mode)
			waitForFamily(t, p)
			if err := daemon.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = daemon.Wait()
			waitFor(t, "the family ends", func() bool { return len(marked(p)) == 0 })
		})
	}
}

// Where the guard was killed too, the next daemon sweeps.
func TestSweep(t *testing.T) {
	p := testPool(t, nil)
	daemon := startDaemon(t, p.opts.StateDir, "good")
	waitForFamily(t, p)
	// Stopped, it cannot clean up after its guard.
	if err := daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, guard := range childrenOf(daemon.Process.Pid) {
		_ = syscall.Kill(guard, syscall.SIGKILL)
	}
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	other := testPool(t, nil)
	if n := other.Sweep(); n != 0 {
		t.Errorf("swept %d of another state directory", n)
	}
	if n := p.Sweep(); n == 0 {
		t.Error("swept nothing")
	}
	if left := marked(p); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A guard that is killed takes its family along, by way of the daemon.
func TestGuardKilled(t *testing.T) {
	p := testPool(t, nil, stdioSpec(t, "good"))
	mustCall(t, p, "family", "")
	waitForFamily(t, p)
	guard, _ := guardOf(p)
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the family ends", func() bool { return len(marked(p)) == 0 })
	waitFor(t, "the session ends", func() bool { return !p.Status()[0].Up })
	if got := mustCall(t, p, "echo", "again"); got.Text != "again" {
		t.Errorf("after it: %+v", got)
	}
}

func TestServerCannotReachProtectedPaths(t *testing.T) {
	if strings.HasPrefix(procgroup.Containment(), "none") {
		t.Skip(procgroup.Containment())
	}
	base := t.TempDir()
	state, config, open := filepath.Join(base, "state"), filepath.Join(base, "config"), filepath.Join(base, "open")
	for _, d := range []string{state, config, open} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "file"), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(state, link); err != nil {
		t.Fatal(err)
	}
	p := testPool(t, func(o *Options) {
		o.StateDir = state
		o.Protected = []string{link, config, filepath.Join(base, "not-there", "yet")}
	}, stdioSpec(t, "good"))
	home := filepath.Join(state, "connectors", "x")

	tests := []struct {
		tool, path string
		ok         bool
	}{
		{"read", filepath.Join(open, "file"), true},
		{"write", filepath.Join(open, "new"), true},
		{"write", filepath.Join(home, "new"), true},
		{"read", filepath.Join(home, "new"), true},
		{"read", "/etc/hostname", true},
		{"read", filepath.Join(state, "file"), false},
		{"read", filepath.Join(link, "file"), false},
		{"write", filepath.Join(state, "new"), false},
		{"read", filepath.Join(config, "file"), false},
		{"write", filepath.Join(state, "connectors", "other"), false},
		{"read", "/proc/" + strconv.Itoa(os.Getpid()) + "/environ", false},
		{"read", "/proc/" + strconv.Itoa(os.Getpid()) + "/root" + config + "/file", false},
	}
	for _, tt := range tests {
		got := mustCall(t, p, tt.tool, tt.path)
		if got.IsError == tt.ok {
			t.Errorf("%s %s: %+v, want ok %v", tt.tool, tt.path, got, tt.ok)
		}
	}
	if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("HOME: %v, %v", info, err)
	}
}

// I2: no connector can write, or read, what another one keeps: HOME, cache, what npm
// put there for it, temporary files.
func TestNothingSharedIsWritable(t *testing.T) {
	if strings.HasPrefix(procgroup.Containment(), "none") {
		t.Skip(procgroup.Containment())
	}
	for _, cache := range []string{t.TempDir(), ""} {
		other := stdioSpec(t, "good")
		other.ID = "y"
		p := testPool(t, func(o *Options) { o.CacheDir = cache }, stdioSpec(t, "good"), other)
		env := func(id string) map[string]string {
			got, err := p.Call(t.Context(), id, "env", textArg(""))
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]string{}
			for line := range strings.Lines(got.Text) {
				k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
				vars[k] = v
			}
			return vars
		}
		mine, theirs := env("x"), env("y")
		for _, place := range []string{"HOME", "XDG_CACHE_HOME", "npm_config_cache", "TMPDIR"} {
			if err := os.MkdirAll(theirs[place], 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(theirs[place]+"/index.js", []byte("good"), 0o644); err != nil {
				t.Fatal(err)
			}
			if mine[place] == "" || mine[place] == theirs[place] {
				t.Errorf("%s is %q for both", place, mine[place])
			}
			for _, deed := range []string{"write", "read"} {
				if got := mustCall(t, p, deed, theirs[place]+"/index.js"); !got.IsError {
					t.Errorf("%s in another's %s: %+v", deed, place, got)
				}
			}
		}
		if got := mustCall(t, p, "write", mine["TMPDIR"]+"/own"); got.IsError {
			t.Errorf("in its own: %+v", got)
		}
	}
}

// The server must not be able to end its guard or us.
func TestServerCannotSignal(t *testing.T) {
	if !strings.Contains(procgroup.Containment(), "cannot be signalled") {
		t.Skip(procgroup.Containment())
	}
	p := testPool(t, nil, stdioSpec(t, "good"))
	guard := mustCall(t, p, "ppid", "").Text
	pids := []string{guard, strconv.Itoa(os.Getpid())}
	threads, err := os.ReadDir("/proc/" + guard + "/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range threads {
		pids = append(pids, th.Name())
	}
	for _, pid := range pids {
		if got := mustCall(t, p, "kill", pid); !got.IsError || !strings.Contains(got.Text, "not permitted") {
			t.Fatalf("kill %s: %+v", pid, got)
		}
	}
}

// Case 38 of the policy cases: what a socket's owner decides by peer credentials
// stays its business; here the server can connect where the kernel cannot yet
// keep it from that, and nowhere else.
func TestUnixSocket(t *testing.T) {
	base := t.TempDir()
	protected := filepath.Join(base, "run")
	if err := os.Mkdir(protected, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(protected, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := testPool(t, func(o *Options) { o.Protected = []string{protected} }, stdioSpec(t, "good"))
	got := mustCall(t, p, "connect", path)
	if want := strings.Contains(procgroup.Containment(), "nor can sockets"); got.IsError != want {
		t.Errorf("connect: %+v, want refused %v (%s)", got, want, procgroup.Containment())
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "x")
	cache := t.TempDir()
	spec := stdioSpec(t, "good")
	spec.Env = map[string]string{"OWN": "${credential:own}", "LANG": "de"}
	p := testPool(t, func(o *Options) {
		o.CacheDir = cache
		o.Resolve = func(s string) (string, error) { return strings.ReplaceAll(s, "${credential:own}", "resolved"), nil }
	}, spec)
	got := map[string]string{}
	for line := range strings.Lines(mustCall(t, p, "env", "").Text) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[k] = v
	}
	home := filepath.Join(p.opts.StateDir, "connectors", "x")
	want := map[string]string{
		"PATH": os.Getenv("PATH"), "LANG": "de", "OWN": "resolved", "HOME": home,
		"XDG_CACHE_HOME": cache + "/x", "npm_config_cache": cache + "/x/npm", "TMPDIR": cache + "/x/tmp", "npm_config_update_notifier": "false",
		procgroup.MarkVar: got[procgroup.MarkVar],
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s=%q, want %q", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s is not asked for", k)
		}
	}
	if cwd := mustCall(t, p, "cwd", "").Text; cwd != home {
		t.Errorf("cwd is %s, want %s", cwd, home)
	}
}
