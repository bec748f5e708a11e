package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("RUNNERD_TEST_LISTENERS") != "" {
		listenersChild()
		return
	}
	goleak.VerifyTestMain(m)
}

// environ makes a getenv of pairs.
func environ(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// manager is the service manager's end of a datagram socket.
type manager struct {
	*net.UnixConn
	path string
}

func newManager(t testing.TB) manager {
	t.Helper()
	// Not t.TempDir(), whose path may be too long for a socket.
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return manager{conn, path}
}

// next returns the next datagram.
func (m manager) next(t testing.TB) string {
	t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	n, err := m.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}
