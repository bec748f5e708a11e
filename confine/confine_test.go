package confine

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func isRefused(err error) bool {
	var r *Refused
	return errors.As(err, &r)
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	d := New(dir + "/state")
	must(t, d.Replace(dir+"/a/b/file", []byte("one"), 0o640))
	must(t, os.Chmod(dir+"/a/b/file", 0o600))
	must(t, d.Replace(dir+"/a/b/file", []byte("two"), 0o640))
	info, err := os.Stat(dir + "/a/b/file")
	must(t, err)
	if got := content(t, dir+"/a/b/file"); got != "two" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, mode %s", got, info.Mode())
	}
	// A name of another file with a second name: the other keeps its content.
	must(t, os.Link(dir+"/a/b/file", dir+"/other"))
	must(t, d.Replace(dir+"/a/b/file", []byte("three"), 0o640))
	if got := content(t, dir+"/other"); got != "two" {
		t.Errorf("the other name reads %q", got)
	}
	if entries, err := os.ReadDir(dir + "/a/b"); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// I1: links, devices and pipes are neither followed nor written through.
func TestWhatAChildLaidThere(t *testing.T) {
	dir := t.TempDir()
	victim := dir + "/victim"
	must(t, os.WriteFile(victim, []byte("mine"), 0o600))
	must(t, os.Mkdir(dir+"/vault", 0o755))
	must(t, os.Mkdir(dir+"/out", 0o777))
	must(t, os.Symlink(victim, dir+"/out/link"))
	must(t, os.Symlink("/nowhere/new", dir+"/out/dangling"))
	must(t, os.Symlink("../vault", dir+"/out/day"))
	must(t, os.Symlink("loop", dir+"/out/loop"))
	must(t, syscall.Mkfifo(dir+"/out/pipe", 0o666))
	d := New()
	for _, path := range []string{"link", "dangling", "pipe", "day/x", "day/new/x", "loop", "loop/x", "link/x"} {
		err := d.Replace(filepath.Join(dir, "out", path), []byte("theirs"), 0o644)
		if err == nil || path != "link/x" && !isRefused(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := d.Create(dir+"/out/link", 0o644); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a link: %v", err)
	}
	if err := d.MkdirAll(dir+"/out/day/sub", 0o755); !isRefused(err) {
		t.Errorf("make below a link: %v", err)
	}
	if content(t, victim) != "mine" {
		t.Error("the victim was written to")
	}
	if entries, err := os.ReadDir(dir + "/vault"); err != nil || len(entries) > 0 {
		t.Errorf("in the vault: %v, %v", entries, err)
	}
	for _, path := range []string{"", "relative", dir + "/", "/a\x00b"} {
		if err := d.Replace(path, nil, 0o644); !isRefused(err) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// I1: a link that comes and goes while the daemon writes leads nowhere.
func TestLinksSwappedInALoop(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/vault", 0o755))
	must(t, os.MkdirAll(dir+"/out/day", 0o755))
	must(t, os.Symlink("../vault", dir+"/out/trap"))
	stop := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default: // day is by turns a directory and a link
				_ = os.Rename(dir+"/out/day", dir+"/out/away")
				_ = os.Rename(dir+"/out/trap", dir+"/out/day")
				_ = os.Rename(dir+"/out/day", dir+"/out/trap")
				_ = os.Rename(dir+"/out/away", dir+"/out/day")
			}
		}
	})
	d := New(dir + "/vault")
	written := 0
	for i := range 300 {
		if d.Replace(dir+"/out/day/report"+strconv.Itoa(i%7), []byte("x"), 0o644) == nil {
			written++
		}
	}
	close(stop)
	swaps.Wait()
	if entries, err := os.ReadDir(dir + "/vault"); err != nil || len(entries) > 0 {
		t.Errorf("in the vault: %v, %v", entries, err)
	}
	if written == 0 {
		t.Error("nothing was written at all, so this test shows nothing")
	}
}

// A directory that is moved into a protected place after it was opened is judged by
// where it is.
func TestProtected(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/state/deep", 0o755))
	must(t, os.WriteFile(dir+"/file", nil, 0o600))
	must(t, os.Link(dir+"/file", dir+"/second"))
	must(t, os.Symlink("state", dir+"/link"))
	d := New(dir+"/link", dir+"/file", dir+"/not/yet")
	for path, want := range map[string]bool{
		"state/x": true, "state": true, "state/deep/x": true, "state/new/x": true, "file": true, "second": true, "not/yet": true, "not/yet/x": true,
		"states": false, "not/x": false, "other/../x": false, "link/x": true, "x/../state/y": true,
	} {
		judged, err := d.Judge(dir+"/"+path), d.Replace(dir+"/"+path, []byte("x"), 0o644)
		if isRefused(judged) != want || isRefused(err) != want || !want && err != nil {
			t.Errorf("%s: judged %v, written %v, want refused %v", path, judged, err, want)
		}
	}
	if _, err := os.Stat(dir + "/state/new"); err == nil {
		t.Error("a directory was made")
	}
}

// What root laid where only root can is followed by others, nothing else is.
func TestTrustedLinks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	dir, err := os.MkdirTemp("/tmp", "confine-*")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.MkdirAll(dir+"/data", 0o755))
	must(t, os.Chown(dir+"/data", 65534, 65534))
	must(t, os.Symlink("data", dir+"/srv"))
	must(t, os.Symlink("../data", dir+"/data/own"))
	must(t, os.Lchown(dir+"/data/own", 65534, 65534))
	must(t, os.Symlink("../data", dir+"/data/roots"))
	self, err := os.Executable()
	must(t, err)
	copied := dir + "/test" // the build's directory may be closed to others
	data, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(copied, data, 0o755))
	for path, want := range map[string]string{"srv/a": "ok", "data/own/b": "refused", "srv/own/c": "refused", "data/roots/d": "refused"} {
		cmd := exec.Command(copied, "-test.run=^TestAsOther$")
		cmd.Env = []string{"CONFINE_PATH=" + dir + "/" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "result: "+want+"\n") {
			t.Errorf("%s: %s %v, want %s", path, out, err, want)
		}
	}
}

// TestAsOther is the other user of TestTrustedLinks.
func TestAsOther(t *testing.T) {
	path, ok := os.LookupEnv("CONFINE_PATH")
	if !ok {
		return
	}
	err := New().Replace(path, []byte("x"), 0o644)
	switch {
	case err == nil:
		os.Stdout.WriteString("result: ok\n")
	case isRefused(err):
		os.Stdout.WriteString("result: refused\n")
	default:
		os.Stdout.WriteString("result: " + err.Error() + "\n")
	}
}
