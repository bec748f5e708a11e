package control

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A socket that is listened on is found by its path after its file was removed, and
// not once it is closed.
func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a socket")
	if _, bound := Bound(path); bound {
		t.Error("before there is one")
	}
	l := must[net.Listener](t)(Listen(path))
	for range 2 {
		if pid, bound := Bound(path); !bound || pid != os.Getpid() {
			t.Errorf("pid %d, %t", pid, bound)
		}
		_ = os.Remove(path) // the second time it is gone
	}
	if _, bound := Bound(filepath.Dir(path)); bound {
		t.Error("a part of the path is enough")
	}
	ok(t, l.Close())
	if _, bound := Bound(path); bound {
		t.Error("after the end")
	}
}
