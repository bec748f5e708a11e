package sqldb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is the hold of a state directory by one process. The kernel releases it
// when the process dies, however it does.
type Lock struct {
	file *os.File
	mu   sync.Mutex
	says holder
	size int // of what was written last
}

// holder is what the lock file says of the process that holds it, and of the
// databases that a state directory was last used with.
type holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
	Memory
}

// Memory is what a state directory remembers of its databases and of the config
// directory whose files were in force last. The zero value remembers nothing.
type Memory struct {
	Main   Seen   `json:"main,omitzero"`
	Policy Seen   `json:"policy,omitzero"`
	Config string `json:"config,omitempty"`
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
		err = &Error{"state directory", dir, fmt.Errorf("lock it: %w", err)}
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
	l.says, l.size = read(f)
	l.says.PID, l.says.Command, l.says.Since = os.Getpid(), filepath.Base(os.Args[0]), time.Now().UTC().Truncate(time.Second)
	if err := l.write(); err != nil {
		return nil, errors.Join(err, f.Close())
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
	h, _ := read(f)
	return &HeldError{Dir: dir, PID: h.PID, Command: h.Command, Since: h.Since}
}

// read is what the file says, and how long that is. What it cannot say, as after a
// power cut, is nothing: an unsigned lock is held all the same.
func read(f *os.File) (h holder, size int) {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return holder{}, len(data)
	}
	return h, len(data)
}

// write puts down who holds the lock, for the one that finds it held, over all that
// was there.
func (l *Lock) write() error {
	data, err := json.Marshal(l.says)
	if err != nil {
		return err
	}
	size := max(len(data)+1, l.size)
	_, err = l.file.WriteAt(append(data, bytes.Repeat([]byte{'\n'}, size-len(data))...), 0)
	l.size = size
	return err
}

// Memory is what the state directory remembers.
func (l *Lock) Memory() Memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.says.Memory
}

// Remember notes how far the databases have come. It is told only what is on the
// disk in both, so that it never knows more than they do.
func (l *Lock) Remember(m Memory) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Config = l.says.Config
	l.says.Memory = m
	return l.write()
}

// RememberConfig notes the config directory whose files are in force.
func (l *Lock) RememberConfig(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.says.Config == dir {
		return nil
	}
	l.says.Config = dir
	return l.write()
}

// Close releases the lock. What the directory remembers stays in the file.
func (l *Lock) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.says.PID, l.says.Command, l.says.Since = 0, "", time.Time{}
	return errors.Join(l.write(), l.file.Close())
}

// Remembered is what the state directory remembers, for those who do not hold it.
func Remembered(dir string) Memory {
	f, err := os.Open(filepath.Join(dir, LockFile))
	if err != nil {
		return Memory{}
	}
	defer f.Close() //nolint:errcheck // nothing was written
	h, _ := read(f)
	return h.Memory
}
