// Package daemontest holds what tests of the daemon, inside and out, share.
package daemontest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk is a state directory on a disk of its own; the test is skipped where
// nothing can be mounted.
func SmallDisk(t *testing.T, dir string, size int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Fill leaves no room on the disk below dir, and returns how to make room again.
func Fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	f, err := os.Create(dir + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range []int{1 << 16, 1 << 12, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, block))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(dir + "/filler"); err != nil {
			t.Fatal(err)
		}
	}
}
