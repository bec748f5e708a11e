package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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

// peerListener identifies each connection as it is accepted and closes at once one
// that cannot be identified, that comes from what the daemon itself started, or for
// which there is no place. It never waits: whoever comes next is not to wait for a crowd.
type peerListener struct {
	net.Listener
	places *places
	peerOf func(net.Conn) (Peer, error)
	ours   func(pid int) bool
	log    *zap.Logger
}

// Accept implements net.Listener.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, free, err := l.admit(c)
		if err != nil {
			l.places.tell(l.log, err)
			turnAway(c, err)
			continue
		}
		return &peerConn{Conn: c, peer: peer, free: free}, nil
	}
}

func (l *peerListener) admit(c net.Conn) (Peer, func(), error) {
	peer, err := l.peerOf(c)
	if err != nil {
		return peer, nil, err
	}
	if l.ours(peer.PID) {
		return peer, nil, &Error{Status: http.StatusForbidden, Code: CodeForbidden,
			Message: fmt.Sprintf("process %d was started by the daemon, for a connector or a command; such have nothing to do here", peer.PID)}
	}
	free, err := l.places.take(peer)
	return peer, free, err
}

// turnAway says why, where there is an answer, and closes. What the peer has to say is
// not waited for; a socket that is new takes these few bytes at once.
func turnAway(c net.Conn, why error) {
	defer c.Close() //nolint:errcheck // nothing more is said there
	var e *Error
	if !errors.As(why, &e) {
		return
	}
	body, err := json.Marshal(map[string]*Error{"error": e})
	if err != nil || c.SetWriteDeadline(time.Now().Add(turnTime)) != nil {
		return
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		e.Status, http.StatusText(e.Status), len(body), body) // it may be gone
}

// turnTime bounds the writing of a refusal.
const turnTime = 50 * time.Millisecond

// places are how many connections may be open: of one uid, of everybody who has no
// right at all, and together. Root's come on top, so that nobody can take them.
type places struct {
	total, each, strangers int
	rights                 func(Peer) Rights

	mu      sync.Mutex
	byUID   map[int]int
	byPID   map[process]int
	known   int // of uids with a right, root left out
	unknown int

	refused int // since the last line of the log
	told    time.Time
}

func newPlaces(rights func(Peer) Rights) *places {
	return &places{total: maxConns, each: maxConns / 4, strangers: maxConns / 16, rights: rights, byUID: map[int]int{}, byPID: map[process]int{}}
}

// take gives a peer a place until it is freed.
func (p *places) take(peer Peer) (free func(), err error) {
	peer.Token = true // it may yet bear it
	r := p.rights(peer)
	count, limit := &p.known, p.total
	if !r.Read && !r.Run && !r.Approve {
		count, limit = &p.unknown, p.strangers
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byUID[peer.UID] >= p.each:
		return nil, full("uid %d has %d connections open, the most that one may have: %s", peer.UID, p.each, p.most(peer.UID))
	case peer.UID != 0 && *count >= limit:
		return nil, full("%d connections are open, the most that there may be", limit)
	}
	p.byUID[peer.UID]++
	p.byPID[process{peer.UID, peer.PID}]++
	if peer.UID != 0 {
		*count++
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		less(p.byUID, peer.UID)
		less(p.byPID, process{peer.UID, peer.PID})
		if peer.UID != 0 {
			*count--
		}
	}), nil
}

// process is one by the uid that it connected with.
type process struct{ uid, pid int }

func less[K comparable](counts map[K]int, id K) {
	if counts[id]--; counts[id] == 0 {
		delete(counts, id)
	}
}

func full(format string, args ...any) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: fmt.Sprintf(format, args...), Hint: "end what holds them, or try again"}
}

// most names the process of a uid that holds the most places.
func (p *places) most(uid int) string {
	pid, n := 0, 0
	for by, open := range p.byPID {
		if by.uid == uid && (open > n || open == n && by.pid < pid) {
			pid, n = by.pid, open
		}
	}
	return fmt.Sprintf("%d of process %d", n, pid)
}

// tellEvery is how often refused connections are logged, however many there are.
const tellEvery = 10 * time.Second

func (p *places) tell(log *zap.Logger, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused++
	if now := time.Now(); now.Sub(p.told) >= tellEvery {
		log.Warn("connection refused", zap.Error(err), zap.Int("since_last", p.refused))
		p.told, p.refused = now, 0
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
