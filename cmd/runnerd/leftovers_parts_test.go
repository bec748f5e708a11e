package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"runnerd/internal/daemontest"

	"go.uber.org/goleak"
)

// tidy runs the tests and then looks at what they left behind: a process, a
// goroutine, or a state lock that is still held, fails them all.
type tidy struct{ *testing.M }

// Run implements what testscript.Main runs.
func (m tidy) Run() int {
	// All temporary directories lie in this one, so that what works in them is
	// ours. Its name is short because sockets lie there.
	dir := filepath.Join(os.TempDir(), "r"+strconv.Itoa(os.Getpid()))
	err := errors.Join(os.Mkdir(dir, 0o755), os.Setenv("TMPDIR", dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Most tests that run beside each other wait for processes. -parallel says
	// otherwise.
	err = flag.Set("test.parallel", "6")
	code := m.M.Run()
	err = errors.Join(err, processesLeft(dir), locksHeld(), goleak.Find(), os.RemoveAll(dir))
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "left behind by the tests:", err)
		code = 1
	}
	return code
}

// processesLeft names the living processes that work in dir. Guards of a daemon
// that was killed get a moment to end: other processes can only be polled.
func processesLeft(dir string) error {
	var left []string
	for deadline := time.Now().Add(daemontest.Patience); ; time.Sleep(50 * time.Millisecond) {
		left = left[:0]
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, proc := range all {
			if what := worksIn(proc, dir); what != "" {
				left = append(left, filepath.Base(proc)+": "+what)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("processes: %s", strings.Join(left, "; "))
}

// worksIn is the command line of another process that was started from dir, in
// it, or with an argument or a variable that names it; "" if it was not.
func worksIn(proc, dir string) string {
	if filepath.Base(proc) == strconv.Itoa(os.Getpid()) {
		return ""
	}
	read := func(name string) []byte { data, _ := os.ReadFile(filepath.Join(proc, name)); return data }
	link := func(name string) []byte { to, _ := os.Readlink(filepath.Join(proc, name)); return []byte(to) }
	cmdline := read("cmdline") // empty for a zombie, which is its parent's to take leave of
	for _, place := range [][]byte{cmdline, read("environ"), link("exe"), link("cwd")} {
		if len(cmdline) > 0 && bytes.Contains(place, []byte(dir+"/")) {
			return string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
		}
	}
	return ""
}

// locksHeld names the state locks that this process still has open; those of
// other processes go with them.
func locksHeld() error {
	fds, err := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if to, rerr := os.Readlink(fd); rerr == nil && strings.Contains(to, "runnerd.lock") {
			err = errors.Join(err, fmt.Errorf("lock held: %s", to))
		}
	}
	return err
}
