package control

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestDefaultRights(t *testing.T) {
	const daemon = 4242
	peer := func(uid int, groups ...int) Peer { return Peer{UID: uid, GID: uid, Groups: groups} }
	token := func(p Peer) Peer { p.Token = true; return p }
	access := Access{Read: []string{"1001"}, Run: []string{"1002"}, Approve: []string{"1003"}}
	for _, c := range []struct {
		name    string
		service bool
		access  Access
		peer    Peer
		want    string
	}{
		{"service, root", true, Access{}, peer(0), "read run approve"},
		{"I3 service, own uid", true, Access{}, peer(daemon), ""},
		{"I3 service, own uid with the token", true, Access{}, token(peer(daemon)), ""},
		{"service, stranger", true, Access{}, peer(1000), ""},
		{"service, stranger with the token", true, Access{}, token(peer(1000)), ""},
		{"service, reader", true, access, peer(1001), "read"},
		{"service, runner", true, access, peer(1002), "read run"},
		{"service, approver", true, access, peer(1003), "read approve"},
		{"service, approver only by a group of the same number", true, access, peer(1, 1003), ""},
		{"I3 user, own uid", false, Access{}, peer(daemon), ""},
		{"user, own uid with the token", false, Access{}, token(peer(daemon)), "read run approve"},
		{"I3 user, root", false, Access{}, peer(0), ""},
		{"user, root with the token", false, Access{}, token(peer(0)), "read run approve"},
		{"user, stranger with the token", false, Access{}, token(peer(1000)), ""},
		{"user, approver", false, access, peer(1003), "read"},
		{"user, approver with the token", false, access, token(peer(1003)), "read approve"},
		{"by further group", true, Access{Approve: []string{"@root"}}, peer(1000, 5, 0), "read approve"},
		{"by first group", true, Access{Run: []string{"@root"}}, Peer{UID: 1000}, "read run"},
		{"I3 own uid in an approving group", true, Access{Approve: []string{"@root"}}, peer(daemon, 0), ""},
		{"user, reader", false, access, peer(1001), "read"},
		{"user, runner", false, access, peer(1002), "read run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rights, err := DefaultRights(RightsOptions{Service: c.service, UID: daemon, Access: c.access})
			ok(t, err)
			got := rights(c.peer)
			var has []string
			for _, right := range []Right{RightRead, RightRun, RightApprove} {
				if got.Has(right) {
					has = append(has, string(right))
				}
			}
			if strings.Join(has, " ") != c.want {
				t.Errorf("rights %v, want %q", has, c.want)
			}
		})
	}
}

// A service that is root itself has nobody above it: the token tells root from its
// connectors.
func TestRootService(t *testing.T) {
	rights, err := DefaultRights(RightsOptions{Service: true})
	ok(t, err)
	if r := rights(Peer{}); r.Read || r.Run || r.Approve {
		t.Errorf("I3 without the token: %+v", r)
	}
	if r := rights(Peer{Token: true}); !r.Read || !r.Run || !r.Approve {
		t.Errorf("with it: %+v", r)
	}
}

func TestDefaultRightsRefusesNames(t *testing.T) {
	for _, c := range []struct {
		service bool
		access  Access
		want    string
	}{
		{true, Access{Read: []string{"no-such-user"}}, "access.read"},
		{true, Access{Run: []string{"@no-such-group"}}, "access.run"},
		{true, Access{Approve: []string{"-1"}}, "access.approve"},
		{true, Access{Approve: []string{"4242"}}, "may never do anything"},
		{true, Access{Read: []string{"4242"}}, "may never do anything"},
	} {
		_, err := DefaultRights(RightsOptions{Service: c.service, UID: 4242, Access: c.access})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.access, err, c.want)
		}
	}
	if _, err := DefaultRights(RightsOptions{UID: 4242, Access: Access{Approve: []string{"4242"}}}); err != nil {
		t.Errorf("in user mode: %v", err)
	}
}

// Every route, asked by a peer without its right, is refused; with it, the
// request gets past the door.
func TestEveryRouteAsksForItsRight(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Rights = func(p Peer) Rights { return Rights{Read: p.UID&1 != 0, Run: p.UID&2 != 0, Approve: p.UID&4 != 0} }
		o.Metrics = http.NotFoundHandler()
	})
	bit := map[Right]int{RightRead: 1, RightRun: 2, RightApprove: 4}
	for _, rt := range r.server.table() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		path = strings.ReplaceAll(path, "{id}", "x")
		if rt.right == RightNone {
			if path != "/healthz" {
				t.Errorf("%s needs no right", rt.pattern)
			}
			continue
		}
		if method != http.MethodGet && rt.right == RightRead {
			t.Errorf("%s changes something and needs only read", rt.pattern)
		}
		if method == http.MethodPatch && rt.right != RightApprove {
			t.Errorf("%s edits policy and needs only %s", rt.pattern, rt.right)
		}
		for uid := range 8 {
			if path == "/api/events" && uid&1 != 0 {
				continue // would stream
			}
			c := r.as(Peer{UID: uid})
			_, err := ask[any](ctx, c, method, path, nil)
			var refused *Error
			if got, want := errors.As(err, &refused) && refused.Code == CodeForbidden, uid&bit[rt.right] == 0; got != want {
				t.Errorf("%s by rights %03b: refused %v, want %v (%v)", rt.pattern, uid, got, want, err)
			}
		}
	}
	if n := r.logs.FilterMessage("request forbidden").Len(); n < len(r.server.table()) {
		t.Errorf("%d refusals logged", n)
	}
}

// The token counts in user mode only, only the right one, and only in its header.
func TestTokenOpens(t *testing.T) {
	state := t.TempDir()
	token := must[string](t)(EnsureToken(state))
	me := os.Getuid()
	for _, c := range []struct {
		name    string
		service bool
		token   string
		want    bool
	}{
		{"user mode, token", false, token, true},
		{"user mode, none", false, "", false},
		{"user mode, wrong", false, strings.Repeat("0", 64), false},
		{"user mode, beginning", false, token[:63], false},
		{"service, token", true, token, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			uid := me
			if c.service && me == 0 {
				uid = 4242 // a service that is root itself is TestRootService's
			}
			rights, err := DefaultRights(RightsOptions{Service: c.service, UID: uid})
			ok(t, err)
			r := newRig(t, func(o *Options) { o.Rights, o.Token = rights, token })
			r.peer.Store(&Peer{UID: uid})
			client := NewClient(r.socket, func() string { return c.token })
			t.Cleanup(client.Close)
			_, err = client.PatchTaskPolicy(ctx, "brief", patch{})
			_, rerr := client.Tasks(ctx)
			if c.want {
				ok(t, errors.Join(err, rerr))
				return
			}
			refusedWith(t, err, http.StatusForbidden, CodeForbidden)
			refusedWith(t, rerr, http.StatusForbidden, CodeForbidden)
		})
	}
}

// A thread of this process takes another uid and connects: what the server sees is
// what the kernel recorded, not what the process says.
func TestRealPeerCredentials(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	r := newStores(t)
	rights, err := DefaultRights(RightsOptions{Service: true, UID: 4242, Access: Access{Read: []string{"4243"}, Run: []string{"@" + groupName(t, 1)}}})
	ok(t, err)
	r.server = New(func() Options { o := r.options(); o.Rights = rights; return o }())
	l := must[net.Listener](t)(Listen(r.socket))
	ok(t, os.Chmod(r.socket, 0o666))
	openTo(t, filepath.Dir(r.socket))
	serving(t, r.server, l)
	for _, c := range []struct {
		uid, gid    int
		groups      []int
		read, start bool
	}{
		{0, 0, nil, true, true},
		{4242, 4242, nil, false, false}, // I3: the daemon's own
		{4243, 4243, nil, true, false},
		{4244, 4244, nil, false, false},
		{4244, 4244, []int{77, 1}, true, true},
		{4244, 1, nil, true, true},
	} {
		conn := dialAs(t, r.socket, c.uid, c.gid, c.groups)
		for _, try := range []struct {
			method, path string
			want         bool
		}{{"GET", "/api/tasks", c.read}, {"POST", "/api/resume", c.start}, {"PATCH", "/api/projects/ops", c.uid == 0}} {
			status := roundTrip(t, conn, try.method, try.path)
			if got := status != http.StatusForbidden; got != try.want {
				t.Errorf("uid %d gid %d %v: %s %s: %d", c.uid, c.gid, c.groups, try.method, try.path, status)
			}
		}
		ok(t, conn.Close())
	}
}

// openTo lets everybody reach a directory of the test's own.
func openTo(t *testing.T, dir string) {
	for ; filepath.Clean(dir) != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		ok(t, os.Chmod(dir, must[os.FileInfo](t)(os.Stat(dir)).Mode().Perm()|0o001))
	}
}

func groupName(t *testing.T, gid int) string {
	g, err := user.LookupGroupId(itoa(gid))
	if err != nil {
		t.Skipf("no group %d here", gid)
	}
	return g.Name
}

// dialAs connects from a thread with other credentials. The thread ends with its
// goroutine, as it stays locked.
func dialAs(t *testing.T, socket string, uid, gid int, groups []int) net.Conn {
	t.Helper()
	type answer struct {
		fd  int
		err error
	}
	done := make(chan answer)
	go func() {
		runtime.LockOSThread()
		fd, err := connectAs(socket, uid, gid, groups)
		done <- answer{fd, err}
	}()
	got := <-done
	ok(t, got.err)
	f := os.NewFile(uintptr(got.fd), "peer")
	defer f.Close()
	return must[net.Conn](t)(net.FileConn(f))
}

func serving(t *testing.T, s *Server, l net.Listener) {
	life, end := contextWithCancel()
	done := make(chan error, 1)
	go func() { done <- s.Serve(life, l) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
