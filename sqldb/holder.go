package sqldb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Holder tells who holds the state directory, without taking it; nil if nobody
// does. A lock that is only being looked at does not count, and LockState tries
// again while somebody looks.
func Holder(dir string) (*HeldError, error) {
	f, err := os.Open(filepath.Join(dir, LockFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at state lock: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written; closing releases the look
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		return nil, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("look at state lock: %w", err)
	}
	return heldBy(dir, f), nil
}
