package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// listenStart is the first descriptor that systemd passes (sd_listen_fds(3)).
const listenStart = 3

// maxListeners bounds what a broken environment can make of us.
const maxListeners = 64

// Listeners takes over the sockets that systemd opened for this process: none if
// it opened none. It is all of them or an error. Call it once, before anything
// else opens files; closing a listener leaves the socket's path to systemd.
func Listeners(getenv func(string) string) ([]net.Listener, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	count, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || count < 0 || count > maxListeners {
		return nil, fmt.Errorf("take over sockets: LISTEN_FDS is %q, want a number up to %d", getenv("LISTEN_FDS"), maxListeners)
	}
	var listeners []net.Listener
	var errs []error
	for fd := listenStart; fd < listenStart+count; fd++ {
		l, err := listener(fd)
		if err != nil {
			errs = append(errs, fmt.Errorf("take over socket %d: %w", fd, err))
			continue
		}
		listeners = append(listeners, l)
	}
	if len(errs) == 0 {
		return listeners, nil
	}
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return nil, errors.Join(errs...)
}

func listener(fd int) (net.Listener, error) {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "listener "+strconv.Itoa(fd))
	if f == nil {
		return nil, errors.New("no such descriptor")
	}
	defer f.Close() // the listener has a copy
	return net.FileListener(f)
}
