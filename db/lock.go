package db

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is the hold of a state directory by one process. The kernel releases it
// when the process dies, however it does.
type Lock struct{ file *os.File }

// holder is what the lock file says of the process that holds it.
type holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

// HeldError says that another process holds the state directory.
type HeldError struct {
	Dir string
	// PID is 0 if the holder has not yet written who it is.
	PID     int
	Command string
	Since   time.Time
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("state directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("state directory %s is in use by process %d (%s) since %s: stop it first, or use another --state",
		e.Dir, e.PID, e.Command, e.Since.Local().Format(time.DateTime))
}

// LockFile is the name of the lock in the state directory.
const LockFile = "runnerd.lock"

// LockState takes the state directory for this process, or answers *HeldError
// without waiting for its holder. The file stays when the lock is released: removing it could let two
// processes lock two files of one name.
func LockState(dir string) (*Lock, error) {
	l, err := lockFile(dir, filepath.Join(dir, LockFile))
	var held *HeldError
	if err != nil && !errors.As(err, &held) {
		err = wrap("lock state directory", err)
	}
	return l, err
}

// lockFile takes the lock in the file at path, which is about what.
func lockFile(what, path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(what, f); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	l := &Lock{file: f}
	if err := l.sign(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// looks is how often a lock is tried again that no living process has signed:
// Holder takes it for the length of a look.
const looks = 10

func take(dir string, f *os.File) error {
	for try := 0; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		held := heldBy(dir, f)
		if try >= looks || held.PID != 0 && alive(held.PID) {
			return held
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func heldBy(dir string, f *os.File) *HeldError {
	var h holder
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err == nil {
		_ = json.Unmarshal(data, &h) // an unsigned lock is held all the same
	}
	return &HeldError{Dir: dir, PID: h.PID, Command: h.Command, Since: h.Since}
}

// sign writes who holds the lock, for the one that finds it held.
func (l *Lock) sign() error {
	data, err := json.Marshal(holder{PID: os.Getpid(), Command: filepath.Base(os.Args[0]), Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(data, '\n'), 0)
	return err
}

// Close releases the lock.
func (l *Lock) Close() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}
