// Package systemd speaks with the service manager: readiness, status, reloads
// and the watchdog, credentials, sockets that it opened for us, and its journal.
// Beside it lie the unit files. cmd/runnerd calls it.
//
// It promises that without systemd everything is a no-op or a clear error, that
// it reads no environment but through the function it is given, and that it
// changes none.
package systemd

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sendTimeout bounds each datagram: a manager that does not read must not stop
// the daemon.
const sendTimeout = time.Second

// maxStatus bounds a status text, in bytes; the manager ignores datagrams of
// more than a page.
const maxStatus = 1000

// Notifier tells the service manager how the service is (sd_notify(3)). The zero
// Notifier, and one without a socket, does nothing. It is safe for concurrent
// use.
type Notifier struct {
	socket string

	mu     sync.Mutex
	status string
}

// NewNotifier returns a notifier for the socket that NOTIFY_SOCKET names, if it
// names one.
func NewNotifier(getenv func(string) string) *Notifier {
	return &Notifier{socket: getenv("NOTIFY_SOCKET")}
}

// Ready says that the service is up, or that a reload is done.
func (n *Notifier) Ready(status string) error {
	return n.send("READY=1", n.setStatus(status))
}

// Status sets the one line that `systemctl status` shows.
func (n *Notifier) Status(status string) error { return n.send(n.setStatus(status)) }

// Reloading says that the configuration is being read again; Ready ends it. The
// time goes into the same datagram, as Type=notify-reload demands.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	return n.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// Stopping says that the service has begun to stop.
func (n *Notifier) Stopping(status string) error {
	return n.send("STOPPING=1", n.setStatus(status))
}

// setStatus remembers a status and returns its line.
func (n *Notifier) setStatus(status string) string {
	status = oneLine(status)
	n.mu.Lock()
	n.status = status
	n.mu.Unlock()
	return "STATUS=" + status
}

func (n *Notifier) lastStatus() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

// oneLine keeps a text from becoming further assignments of the datagram.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	if len(s) > maxStatus {
		s = s[:maxStatus]
	}
	return strings.ToValidUTF8(s, "")
}

// send writes the assignments as one datagram.
func (n *Notifier) send(assignments ...string) error {
	if n.socket == "" {
		return nil
	}
	if n.socket[0] != '/' && n.socket[0] != '@' {
		return fmt.Errorf("notify systemd: NOTIFY_SOCKET is %q, want a path or an abstract socket", n.socket)
	}
	conn, err := net.DialTimeout("unixgram", n.socket, sendTimeout)
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	err = conn.SetDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		_, err = conn.Write([]byte(strings.Join(assignments, "\n") + "\n"))
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
