package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxSocketPath is sun_path of Linux without its final NUL.
const maxSocketPath = 107

// socketMode lets the socket's group connect; what a peer may do is another matter.
const socketMode = 0o660

// ErrInUse says that a daemon answers on the socket.
var ErrInUse = errors.New("another daemon answers there")

// Listen opens the control socket, mode 0660, and makes its directory if there is
// none. A socket that was left behind is removed only if nobody answers on it; then
// ErrInUse. It refuses a directory in which others could put a socket of their own
// in its place, and a path that the kernel cannot hold. Closing the listener removes
// the socket.
func Listen(path string) (net.Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("open control socket %s: %w", path, err)
	}
	return l, nil
}

func listen(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes, a socket's may have %d; set RUNNERD_SOCKET to a shorter one", len(path), maxSocketPath)
	}
	if !filepath.IsAbs(path) {
		return nil, errors.New("want an absolute path")
	}
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkDir makes the directory or checks it: root's or our own, and not for the
// world to write, unless sticky.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s belongs to uid %d; want root or uid %d", dir, st.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("everybody can write in directory %s; `chmod o-w %s`, or set RUNNERD_SOCKET elsewhere", dir, dir)
	}
	return nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("something that is no socket is there (mode %s); it is left alone, remove it or set RUNNERD_SOCKET elsewhere", info.Mode())
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(ErrInUse, c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether somebody answers: %w", err)
	}
	return os.Remove(path)
}

// Bound tells whether somebody listens on a socket that was opened at a path, although
// no file may stand there any more, so that nobody can ask. pid is 0 where the kernel
// does not show it to us.
func Bound(path string) (pid int, bound bool) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return 0, false
	}
	const listens = "00010000" // __SO_ACCEPTCON
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); strings.HasSuffix(line, " "+path+"\n") && len(f) > 7 && f[3] == listens {
			return ownerOf("socket:[" + f[6] + "]"), true
		}
	}
	return 0, false
}

// ownerOf is the process that has a file open, as far as we may look.
func ownerOf(file string) int {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == file {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2]) // the pattern has digits there
			return pid
		}
	}
	return 0
}
