package sqldb

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
	dsn := anyDSN(t)
	h, err := Take(ctx, dsn, Main)
	ok(t, err)
	if _, err := Take(ctx, dsn, Main); !errors.Is(err, ErrInUse) {
		t.Errorf("held twice: %v", err)
	}
	other := must[*Hold](t)(Take(ctx, anyDSN(t), Policy))
	ok(t, h.Check(ctx))
	ok(t, h.Close())
	h = must[*Hold](t)(Take(ctx, dsn, Main))
	ok(t, h.Close())
	ok(t, other.Close())
}

// U16: what is held is the database itself, whatever became of the file beside it and
// by whatever way one gets there.
func TestHoldOfTheFileItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	h := must[*Hold](t)(Take(ctx, path, Main))
	defer func() { ok(t, h.Close()) }()
	ok(t, os.WriteFile(path, []byte("a database"), 0o600))
	ok(t, h.Bind())
	link, hard := filepath.Join(t.TempDir(), "link.db"), filepath.Join(t.TempDir(), "hard.db")
	ok(t, os.Symlink(path, link))
	ok(t, os.Link(path, hard))
	for _, way := range []string{path, link, hard, "file:" + path} {
		if _, err := Take(ctx, way, Main); !errors.Is(err, ErrInUse) {
			t.Errorf("held twice by %s: %v", way, err)
		}
	}
	ok(t, os.Remove(path+".lock"))
	if _, err := Take(ctx, path, Main); !errors.Is(err, ErrInUse) {
		t.Errorf("held twice after the lock file was removed: %v", err)
	}
}

// U15: files that were removed or replaced are seen.
func TestHoldSeesWhatBecomesOfTheFile(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, path string){
		"removed":           func(t *testing.T, path string) { ok(t, os.Remove(path)) },
		"moved":             func(t *testing.T, path string) { ok(t, os.Rename(path, path+".away")) },
		"replaced":          func(t *testing.T, path string) { ok(t, os.Rename(path+".other", path)) },
		"its log removed":   func(t *testing.T, path string) { ok(t, os.Remove(path+"-wal")) },
		"its index removed": func(t *testing.T, path string) { ok(t, os.Remove(path+"-shm")) },
	} {
		t.Run("U15 "+name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			for _, suffix := range []string{"", ".other", "-wal", "-shm"} {
				ok(t, os.WriteFile(path+suffix, []byte("a database"), 0o600))
			}
			h := must[*Hold](t)(Take(ctx, path, Main))
			defer func() { ok(t, h.Close()) }()
			for range 2 {
				ok(t, h.Check(ctx))
			}
			do(t, path)
			if err := h.Check(ctx); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("check: %v", err)
			}
		})
	}
}

// What the state directory remembers outlives its holders, and the holder is not
// taken for one that is gone.
func TestLockRemembers(t *testing.T) {
	dir := t.TempDir()
	if m := Remembered(dir); m != (Memory{}) {
		t.Errorf("no file: %+v", m)
	}
	want := Memory{Main: Seen{"m", Marks{Generation: 7, Runs: 12345}}, Policy: Seen{"p", Marks{Changes: 3}}}
	l := must[*Lock](t)(LockState(dir))
	ok(t, l.Remember(want))
	ok(t, l.Remember(Memory{Main: Seen{ID: "m"}}))
	ok(t, l.Remember(want))
	if m := Remembered(dir); m != want {
		t.Errorf("while held: %+v", m)
	}
	ok(t, l.Close())
	if h := must[*HeldError](t)(Holder(dir)); h != nil {
		t.Errorf("held by %+v", h)
	}
	l = must[*Lock](t)(LockState(dir))
	if m := l.Memory(); m != want {
		t.Errorf("the next holder: %+v", m)
	}
	ok(t, l.Close())
	ok(t, os.WriteFile(filepath.Join(dir, LockFile), []byte(`{"main":{"id":"m","ma`), 0o600))
	l = must[*Lock](t)(LockState(dir))
	ok(t, l.Remember(want))
	ok(t, l.Close())
	if m := Remembered(dir); m != want {
		t.Errorf("over half a line: %+v", m)
	}
}
