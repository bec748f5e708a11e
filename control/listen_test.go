package control

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run", "s")
	l := must[net.Listener](t)(Listen(path))
	info := must[os.FileInfo](t)(os.Stat(path))
	if info.Mode().Type() != fs.ModeSocket || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %s, want a socket 0660", info.Mode())
	}
	if _, err := Listen(path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second daemon: %v, want ErrInUse", err)
	}
	ok(t, l.Close())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after close: %v", err)
	}

	stale := must[net.Listener](t)(net.Listen("unix", path))
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	ok(t, stale.Close())
	l = must[net.Listener](t)(Listen(path))
	ok(t, l.Close())
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	ok(t, os.WriteFile(file, []byte("precious"), 0o600))
	open := filepath.Join(dir, "open")
	ok(t, os.Mkdir(open, 0o700))
	ok(t, os.Chmod(open, 0o777))
	for path, want := range map[string]string{
		file:                               "no socket",
		filepath.Join(open, "s"):           "everybody can write",
		filepath.Join(file, "s"):           "not a directory",
		"/tmp/" + strings.Repeat("x", 103): "108 bytes",
		"relative/s":                       "absolute",
	} {
		l, err := Listen(path)
		if err == nil {
			t.Errorf("%s: open", path)
			ok(t, l.Close())
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want one that says %q", path, err, want)
		}
	}
	if data := must[[]byte](t)(os.ReadFile(file)); string(data) != "precious" {
		t.Error("the file is gone")
	}
	if os.Getuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		ok(t, os.Mkdir(foreign, 0o700))
		ok(t, os.Chown(foreign, 65534, 65534))
		if _, err := Listen(filepath.Join(foreign, "s")); err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") {
			t.Errorf("another user's directory: %v", err)
		}
	}
	ok(t, os.Chmod(open, 0o777|fs.ModeSticky))
	l := must[net.Listener](t)(Listen(filepath.Join(open, "s")))
	ok(t, l.Close())
}

// A daemon that is alive but too busy to take a connection keeps its socket.
func TestListenLeavesABusySocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd := must[int](t)(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))
	t.Cleanup(func() { ok(t, syscall.Close(fd)) })
	ok(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	ok(t, syscall.Listen(fd, 0))
	for full := false; !full; {
		c, err := net.Dial("unix", path)
		if full = err != nil; !full {
			t.Cleanup(func() { ok(t, c.Close()) })
		}
	}
	if l, err := Listen(path); err == nil {
		ok(t, l.Close())
		t.Error("the socket was taken over")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
}

// The longest path that the kernel takes works.
func TestListenLongestPath(t *testing.T) {
	dir := must[string](t)(os.MkdirTemp("/tmp", "s"))
	t.Cleanup(func() { ok(t, os.RemoveAll(dir)) })
	path := dir + "/" + strings.Repeat("x", maxSocketPath-len(dir)-1)
	l := must[net.Listener](t)(Listen(path))
	ok(t, l.Close())
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, tokenFile)
	if _, err := ReadToken(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no token yet: %v", err)
	}
	first := must[string](t)(EnsureToken(dir))
	info := must[os.FileInfo](t)(os.Stat(path))
	if info.Mode() != 0o600 || len(first) != 64 {
		t.Errorf("mode %s, token of %d", info.Mode(), len(first))
	}
	if again := must[string](t)(EnsureToken(dir)); again != first {
		t.Error("a sound token is replaced")
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	ok(t, os.WriteFile(elsewhere, []byte(strings.Repeat("a", 64)+"\n"), 0o600))
	last := first
	for name, spoil := range map[string]func() error{
		"readable by the group": func() error { return os.Chmod(path, 0o640) },
		"short":                 func() error { return os.WriteFile(path, []byte("abc\n"), 0o600) },
		"not hex":               func() error { return os.WriteFile(path, []byte(strings.Repeat("z", 64)+"\n"), 0o600) },
		"long":                  func() error { return os.WriteFile(path, []byte(strings.Repeat("a", 65)+"\n"), 0o600) },
		"a link":                func() error { return errors.Join(os.Remove(path), os.Symlink(elsewhere, path)) },
	} {
		ok(t, spoil())
		if _, err := ReadToken(dir); !errors.Is(err, errToken) {
			t.Errorf("%s: read gives %v", name, err)
		}
		token := must[string](t)(EnsureToken(dir))
		if got := must[string](t)(ReadToken(dir)); got != token || token == last || token == first {
			t.Errorf("%s: the token was not replaced", name)
		}
		if mode := must[os.FileInfo](t)(os.Lstat(path)).Mode(); mode != 0o600 {
			t.Errorf("%s: mode %s", name, mode)
		}
		last = token
	}
	if bears("", "") {
		t.Error("no token is a token")
	}
}

func TestEnsureTokenWithoutDirectory(t *testing.T) {
	if _, err := EnsureToken(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestNoDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := NewClient(path, nil)
	defer c.Close()
	if _, err := c.Tasks(ctx); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), path) {
		t.Errorf("no socket: %v", err)
	}
	stale := must[net.Listener](t)(net.Listen("unix", path))
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	ok(t, stale.Close())
	if _, err := c.Tasks(ctx); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("stale socket: %v", err)
	}
	if err := c.Events(ctx, 0, EventFilter{}, func(Event) error { return nil }); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("events: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Tasks(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
