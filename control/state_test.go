package control

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runnerd/db"
)

// A request that means another state directory's daemon is refused by this one, and
// nothing is done.
func TestAnotherStateDirectory(t *testing.T) {
	dir := t.TempDir()
	ours, other, link := filepath.Join(dir, "ours"), filepath.Join(dir, "o ther"), filepath.Join(dir, "link")
	for _, err := range []error{os.Mkdir(ours, 0o700), os.Mkdir(other, 0o700), os.Symlink(ours, link)} {
		ok(t, err)
	}
	r := newRig(t, func(o *Options) { o.StateDir = ours })
	for _, dir := range []string{ours, ours + "/", link, filepath.Join(link, "..", "ours")} {
		if pid, err := r.as(operator).Of(dir).PID(ctx); pid != 7 || err != nil {
			t.Errorf("as %s: pid %d, %v", dir, pid, err)
		}
	}
	for _, dir := range []string{other, filepath.Join(dir, "nothing")} {
		c := r.as(operator).Of(dir)
		_, err := c.Pause(ctx, "", "")
		e := refusedWith(t, err, http.StatusMisdirectedRequest, CodeElsewhere)
		if !strings.Contains(e.Message, "works with "+ours+", not with "+dir) {
			t.Errorf("says %q", e.Message)
		}
		if pid, err := c.PID(ctx); pid != 7 || err == nil {
			t.Errorf("health: pid %d, %v", pid, err)
		}
		err = c.Events(ctx, 0, EventFilter{}, func(Event) error { return errors.New("an event came") })
		refusedWith(t, err, http.StatusMisdirectedRequest, CodeElsewhere)
	}
	if list := must[[]db.Pause](t)(r.main.Pauses(ctx)); len(list) > 0 {
		t.Errorf("paused: %+v", list)
	}
	ok(t, os.RemoveAll(ours)) // the path is still its name
	if _, err := r.as(operator).Of(ours).Status(ctx); err != nil {
		t.Error(err)
	}
}

// The inode is a name too: a container may know the directory by another path.
func TestStateDirectoryByInode(t *testing.T) {
	dir := t.TempDir()
	ours, moved := filepath.Join(dir, "ours"), filepath.Join(dir, "mounted")
	ok(t, os.Mkdir(ours, 0o700))
	r := newRig(t, func(o *Options) { o.StateDir = ours })
	ok(t, r.as(operator).Of(ours).Health(ctx)) // it serves
	ok(t, os.Rename(ours, moved))
	ok(t, r.as(operator).Of(moved).Health(ctx))
}
