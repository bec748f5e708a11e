package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// analyze runs systemd-analyze, which `make test-deps` installs.
func analyze(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(lookPath(t, "systemd-analyze"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if testing.Short() {
		t.Skip(err)
	}
	t.Fatalf("%v; run `make test-deps` as root", err)
	return ""
}

// version is systemd's, as a number.
func version(t *testing.T) int {
	t.Helper()
	m := regexp.MustCompile(`^systemd (\d+)`).FindStringSubmatch(analyze(t, "--version"))
	if m == nil {
		t.Fatal("systemd-analyze --version has no version")
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// install copies the units, with a program that exists, and the named drop-ins.
func install(t *testing.T, dropIns ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	put := func(from, to string) {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "/usr/local/bin/runnerd", "/bin/true")
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("runnerd.service", "runnerd.service")
	put("runnerd.socket", "runnerd.socket")
	for _, d := range dropIns {
		put("runnerd.service.d/"+d+".conf.example", "runnerd.service.d/"+d+".conf")
	}
	return dir
}

// TestUnitsVerify fails on any output of systemd-analyze verify.
func TestUnitsVerify(t *testing.T) {
	dropIns := []string{"paths"}
	if version(t) >= 253 {
		dropIns = append(dropIns, "notify-reload")
	}
	for _, d := range [][]string{nil, dropIns} {
		dir := install(t, d...)
		if out := analyze(t, "verify", filepath.Join(dir, "runnerd.service"), filepath.Join(dir, "runnerd.socket")); out != "" {
			t.Errorf("with drop-ins %v:\n%s", d, out)
		}
	}
}

// TestVerifyFinds shows that the test above could fail.
func TestVerifyFinds(t *testing.T) {
	dir := install(t)
	path := filepath.Join(dir, "runnerd.service")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "KillMode=", "KilMode=", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(lookPath(t, "systemd-analyze"), "verify", path).CombinedOutput()
	if !strings.Contains(string(out), "KilMode") {
		t.Errorf("verify does not see a misspelled key:\n%s", out)
	}
}

func TestUnitExposure(t *testing.T) {
	const most = 2.0
	for _, dropIns := range [][]string{nil, {"paths"}} {
		path := filepath.Join(install(t, dropIns...), "runnerd.service")
		out := analyze(t, "security", "--offline=true", "--no-pager", path)
		m := regexp.MustCompile(`Overall exposure level for runnerd\.service: ([0-9.]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no exposure level in:\n%s", out)
		}
		if level, err := strconv.ParseFloat(m[1], 64); err != nil || level > most {
			t.Errorf("exposure %s with drop-ins %v, want at most %.1f:\n%s", m[1], dropIns, most, out)
		}
	}
}

// TestUnitKeeps guards what no analysis would miss.
func TestUnitKeeps(t *testing.T) {
	data, err := os.ReadFile("runnerd.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			settings[key] = value
		}
	}
	for key, want := range map[string]string{
		"Type":                     "notify",
		"ExecReload":               "/bin/kill -HUP $MAINPID",
		"After":                    "network-online.target time-sync.target",
		"KillMode":                 "mixed", // runs keep their connectors in the grace time
		"Restart":                  "on-failure",
		"StateDirectory":           "runnerd",
		"ConfigurationDirectory":   "runnerd",
		"RuntimeDirectory":         "runnerd",
		"CacheDirectory":           "runnerd",
		"RestartPreventExitStatus": "", // 2 is also a Go crash
		"MemoryDenyWriteExecute":   "", // Node
		"PrivateUsers":             "", // peer credentials
	} {
		if settings[key] != want {
			t.Errorf("%s=%s, want %q", key, settings[key], want)
		}
	}
	for _, key := range []string{"WatchdogSec", "TimeoutStopSec"} {
		if settings[key] == "" {
			t.Errorf("%s is not set", key)
		}
	}
}

func TestSysusers(t *testing.T) {
	path, err := exec.LookPath("systemd-sysusers")
	if err != nil {
		t.Skip("systemd-sysusers is not installed")
	}
	file, err := filepath.Abs("runnerd.sysusers.conf")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "--root="+t.TempDir(), "--dry-run", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Creating user 'runnerd'") {
		t.Errorf("%v\n%s", err, out)
	}
}
