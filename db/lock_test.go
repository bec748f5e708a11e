package db

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHolder is the other process of TestLockState: it takes the lock, says so,
// and holds it until its input ends.
func TestHolder(t *testing.T) {
	dir := os.Getenv("RUNNERD_TEST_LOCK")
	if dir == "" {
		t.Skip("runs as a child of TestLockState")
	}
	if _, err := LockState(dir); err != nil {
		t.Fatal(err)
	}
	fmt.Println("locked")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	os.Exit(1) // without Close: the kernel releases it
}

func TestLockState(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	child.Env = append(os.Environ(), "RUNNERD_TEST_LOCK="+dir)
	stdin, err := child.StdinPipe()
	ok(t, err)
	stdout, err := child.StdoutPipe()
	ok(t, err)
	ok(t, child.Start())
	out := bufio.NewScanner(stdout)
	for out.Scan() && out.Text() != "locked" {
	}
	var held *HeldError
	_, err = LockState(dir)
	if !errors.As(err, &held) || held.PID != child.Process.Pid || held.Since.IsZero() {
		t.Errorf("held by %d: %v", child.Process.Pid, err)
	}
	if err != nil && !strings.Contains(err.Error(), fmt.Sprint(child.Process.Pid)) {
		t.Errorf("message %q", err)
	}
	if h := must[*HeldError](t)(Holder(dir)); h == nil || h.PID != child.Process.Pid {
		t.Errorf("holder %+v", h)
	}
	ok(t, stdin.Close())
	_ = child.Wait()

	if h := must[*HeldError](t)(Holder(dir)); h != nil {
		t.Errorf("a dead process holds it: %+v", h)
	}
	l, err := LockState(dir)
	ok(t, err)
	if _, err := LockState(dir); !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("twice in one process: %v", err)
	}
	ok(t, l.Close())
	l, err = LockState(dir)
	ok(t, err)
	ok(t, l.Close())
	if _, err := LockState(dir + "/nowhere"); err == nil || errors.As(err, &held) && held.Dir == dir+"/nowhere" {
		t.Errorf("no directory: %v", err)
	}
}

// TestLockWhileOthersLook: looking keeps nobody from taking the lock, even where a
// process that died left its name.
func TestLockWhileOthersLook(t *testing.T) {
	dir := t.TempDir()
	if h := must[*HeldError](t)(Holder(dir)); h != nil {
		t.Errorf("no file: %+v", h)
	}
	ok(t, os.WriteFile(dir+"/"+LockFile, []byte(`{"pid":2147483647}`), 0o600))
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for {
			select {
			case <-stop:
				done <- err
				return
			default:
				_, e := Holder(dir)
				err = errors.Join(err, e)
			}
		}
	}()
	for range 200 {
		l, err := LockState(dir)
		ok(t, err)
		ok(t, l.Close())
	}
	close(stop)
	ok(t, <-done)
}

// Two daemons with a state directory each must not work with one database.
func TestHold(t *testing.T) {
	d := openTest(t, Options{})
	l, err := d.Hold(ctx)
	ok(t, err)
	other := must[*DB](t)(Open(ctx, d.opts))
	defer func() { ok(t, other.Close()) }()
	if _, err := other.Hold(ctx); !errors.Is(err, ErrInUse) {
		t.Errorf("held twice: %v", err)
	}
	if _, err := other.Runs(ctx, RunFilter{}); err != nil {
		t.Errorf("reading beside the holder: %v", err)
	}
	ok(t, l.Close())
	l, err = other.Hold(ctx)
	ok(t, err)
	ok(t, l.Close())
	if d.path == "" {
		return
	}
	link := filepath.Join(t.TempDir(), "link.db")
	ok(t, os.Symlink(d.path, link))
	linked := must[*DB](t)(Open(ctx, Options{DSN: link}))
	defer func() { ok(t, linked.Close()) }()
	if l, err = d.Hold(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := linked.Hold(ctx); !errors.Is(err, ErrInUse) {
		t.Errorf("held twice by a link: %v", err)
	}
	ok(t, l.Close())
}
