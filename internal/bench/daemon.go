package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is `runnerd serve` as a process.
type daemon struct {
	cmd  *exec.Cmd
	gone chan error
	// ready is how long the start took, startCPU what it cost.
	ready, startCPU time.Duration
}

// readyWait bounds a start, stopWait an end.
const (
	readyWait = 3 * time.Minute
	stopWait  = 2 * time.Minute
)

// start runs the daemon and waits until it says that it is ready, as it says it
// to systemd.
func (s *site) start(ctx context.Context) (*daemon, error) {
	socket := filepath.Join(s.dir, "notify")
	_ = os.Remove(socket)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("listen for readiness: %w", err)
	}
	defer conn.Close()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.binary, "--config", s.config, "--state", s.state, "serve")
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + s.dir, "NOTIFY_SOCKET=" + socket, "RUNNERD_TIMEZONE=UTC",
		"RUNNERD_SOCKET=" + filepath.Join(s.dir, "run", "control"), "RUNNERD_CACHE_DIR=" + filepath.Join(s.dir, "cache"), "RUNNERD_SHUTDOWN_GRACE=1s",
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	d := &daemon{cmd: cmd, gone: make(chan error, 1)}
	go func() { d.gone <- cmd.Wait() }()
	if err := awaitReady(ctx, conn, d.gone); err != nil {
		return nil, errors.Join(err, d.stop(), s.lastWords())
	}
	d.ready = time.Since(begun)
	use, err := d.usage()
	d.startCPU = use.cpu
	return d, err
}

// awaitReady reads datagrams until one says READY.
func awaitReady(ctx context.Context, conn *net.UnixConn, gone chan error) error {
	buf := make([]byte, 4096)
	for deadline := time.Now().Add(readyWait); ; {
		if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if err == nil && bytes.Contains(buf[:n], []byte("READY=1")) {
			return nil
		}
		select {
		case err := <-gone:
			gone <- err
			return fmt.Errorf("the daemon ended before it was ready: %w", err)
		default:
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(errors.New("the daemon did not get ready"), ctx.Err())
		}
	}
}

// lastWords is the end of the daemon's log, as an error.
func (s *site) lastWords() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	return errors.New(string(text))
}

// stop ends the daemon and waits for it.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have gone by itself; gone tells
	select {
	case err := <-d.gone:
		return err
	case <-time.After(stopWait):
	}
	_ = d.cmd.Process.Kill()
	return errors.Join(errors.New("the daemon did not stop"), <-d.gone)
}

// usage is what a process has taken so far.
type usage struct {
	cpu       time.Duration // user and system
	rss, peak int64         // bytes
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

func (d *daemon) usage() (u usage, err error) {
	proc := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return u, err
	}
	// The name, in brackets, may hold spaces; fields are counted after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return u, errors.New("/proc/PID/stat is too short")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return u, err
	}
	u.cpu = time.Duration(user+system) * time.Second / ticksPerSecond
	status, err := os.ReadFile(proc + "status")
	u.rss, u.peak = statusBytes(status, "VmRSS:"), statusBytes(status, "VmHWM:")
	return u, err
}

// onCPU is what the process's threads have run for, finer than usage has it.
func (d *daemon) onCPU() (total time.Duration) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		ran, err := strconv.ParseInt(string(first), 10, 64)
		if err == nil {
			total += time.Duration(ran)
		}
	}
	return total
}

// statusBytes reads one size of /proc/PID/status; 0 if it is not there.
func statusBytes(status []byte, key string) int64 {
	_, rest, _ := bytes.Cut(status, []byte(key))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes * 1024
}

// settle waits until the daemon has done what a start leaves to do: until it
// takes less than a twentieth of a core for three seconds, or most has passed.
func (d *daemon) settle(ctx context.Context, most time.Duration) error {
	last, err := d.usage()
	calm := 0
	for deadline := time.Now().Add(most); err == nil && calm < 3 && time.Now().Before(deadline); {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		var now usage
		if now, err = d.usage(); now.cpu-last.cpu < time.Second/20 {
			calm++
		} else {
			calm = 0
		}
		last = now
	}
	return err
}

// pause sleeps unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// filesystem names the kind of disk that a path is on, as far as it matters to
// what a sync costs.
func filesystem(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "an unknown file system"
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC:
		return "tmpfs, where a sync costs nothing"
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
