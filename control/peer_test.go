package control

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func itoa(n int) string { return strconv.Itoa(n) }

func contextWithCancel() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }

// connectAs changes the credentials of this thread alone, which Go's own functions
// would do for all threads, and connects.
func connectAs(socket string, uid, gid int, groups []int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	list := make([]uint32, len(groups)+1)
	for i, g := range groups {
		list[i] = uint32(g)
	}
	for _, call := range [][4]uintptr{
		{syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0},
		{syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, errno := syscall.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return -1, errors.Join(errno, syscall.Close(fd))
		}
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return -1, errors.Join(err, syscall.Close(fd))
	}
	return fd, nil
}

// roundTrip makes one request on an open connection and answers the status.
func roundTrip(t *testing.T, conn net.Conn, method, path string) int {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequest(method, "http://x"+path, strings.NewReader("")))
	ok(t, req.Write(conn))
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	ok(t, err)
	ok(t, resp.Body.Close())
	return resp.StatusCode
}

// A connection without credentials has no rights, whoever Rights would let in.
func TestConnectionWithoutPeerIsClosed(t *testing.T) {
	r := newStores(t)
	o := r.options()
	o.Rights = func(Peer) Rights { return Rights{Read: true, Run: true, Approve: true} }
	s := New(o)
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	serving(t, s, l)
	conn := must[net.Conn](t)(net.Dial("tcp", l.Addr().String()))
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection stays open: %d %v", n, err)
	}
	if r.logs.FilterMessage("connection refused").Len() != 1 {
		t.Error("nothing logged")
	}
	if _, known := peerFrom(ctx); known {
		t.Error("a context without a peer has one")
	}
}

type ctxT = context.Context

func withPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}
