package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as the kernel recorded it
// when it connected.
type Peer struct {
	PID, UID, GID int
	// Groups are its further groups.
	Groups []int
	// Token says that the request bore the token of the state directory.
	Token bool
}

type peerKey struct{}

// peerFrom is the peer of a request's connection; ok is false for a connection
// that has none, which has no rights.
func peerFrom(ctx context.Context) (p Peer, ok bool) {
	p, ok = ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// peerOf asks the kernel who is at the other end of a unix socket.
func peerOf(c net.Conn) (Peer, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return Peer{}, fmt.Errorf("identify peer: a %T has none", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("identify peer: %w", err)
	}
	var peer Peer
	var cerr error
	err = raw.Control(func(fd uintptr) { peer, cerr = credentials(int(fd)) })
	if err = errors.Join(err, cerr); err != nil {
		return Peer{}, fmt.Errorf("identify peer: %w", err)
	}
	return peer, nil
}

func credentials(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	if cred.Pid == 0 { // a TCP socket answers too, with nobody
		return Peer{}, errors.New("the socket has no peer credentials")
	}
	groups, err := peerGroups(fd)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) { // kernels before 4.13
		return Peer{}, err
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid), Groups: groups}, nil
}

// maxGroups is NGROUPS_MAX of Linux.
const maxGroups = 65536

// peerGroups reads SO_PEERGROUPS, for which x/sys has no function.
func peerGroups(fd int) ([]int, error) {
	for room := 32; ; {
		buf := make([]uint32, room)
		size := uint32(len(buf) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && room < maxGroups:
			room = min(maxGroups, max(room*2, int(size/4)))
			continue
		case errno != 0:
			return nil, errno
		}
		groups := make([]int, 0, size/4)
		for _, g := range buf[:size/4] {
			groups = append(groups, int(g))
		}
		return groups, nil
	}
}

// peerListener identifies each connection as it is accepted and bounds how many
// are open. One that cannot be identified is closed.
type peerListener struct {
	net.Listener
	places chan struct{}
	peerOf func(net.Conn) (Peer, error)
	log    *zap.Logger
}

// fullPause is how long accepting waits while every place is taken.
const fullPause = 50 * time.Millisecond

// Accept implements net.Listener. A connection beyond the bound is closed at once,
// so that a listener that is closed meanwhile is noticed.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
		case <-time.After(fullPause):
			l.log.Warn("connection refused", zap.String(keyDetail, fmt.Sprintf("%d are open", cap(l.places))))
			_ = c.Close()
			continue
		}
		free := sync.OnceFunc(func() { <-l.places })
		peer, err := l.peerOf(c)
		if err != nil {
			l.log.Warn("connection refused", zap.Error(err))
			_ = c.Close()
			free()
			continue
		}
		return &peerConn{Conn: c, peer: peer, free: free}, nil
	}
}

// peerConn is a connection whose peer is known.
type peerConn struct {
	net.Conn
	peer Peer
	free func()
}

func (c *peerConn) Close() error {
	c.free()
	return c.Conn.Close()
}
