// Package confine writes files where others can write too: results that are
// delivered, backups, exports, a starter config. What a program that the daemon
// started may have put there is never followed and never written through: of a path
// no element may be a link, but for what root laid where nobody else can change it,
// files appear whole or not at all, and the daemon's own places are refused, as they
// are found on the open directory and not as they are spelt. No other package opens
// such a file for writing.
//
// The walk opens one element after the other with O_NOFOLLOW and makes what is
// missing on the way. It promises what openat2 with RESOLVE_BENEATH and
// RESOLVE_NO_SYMLINKS does, on every kernel.
package confine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Door is what files are written through.
type Door struct{ protected []string }

// New makes a door that refuses the protected paths and what lies below them. They
// need not exist yet.
func New(protected ...string) *Door { return &Door{protected: protected} }

// Refused is a path that is not written to, however often it is tried.
type Refused struct{ Path, Why string }

func (r *Refused) Error() string { return r.Path + ": " + r.Why }

func refuse(path, why string, args ...any) error { return &Refused{path, fmt.Sprintf(why, args...)} }

// Replace puts a file in place at once: whoever reads it sees all of the old or all
// of the new content. Its directories are made if need be. An existing file's mode
// is kept, a new one gets perm less the umask.
func (d *Door) Replace(path string, content []byte, perm fs.FileMode) error {
	p, err := d.locate(path, 0o755)
	if err != nil {
		return err
	}
	defer p.close()
	old, err := p.stat()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := ".runnerd-" + rand.Text()[:16] + ".tmp"
	file, err := p.create(temp, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && old != nil {
		err = file.Chmod(fs.FileMode(old.Mode) & fs.ModePerm)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = p.failed("rename", unix.Renameat(p.fd, temp, p.fd, p.base))
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(p.fd, temp, 0))
	}
	return p.sync()
}

// Create makes a new file for writing; fs.ErrExist if anything stands there. Its
// directories are made if need be.
func (d *Door) Create(path string, perm fs.FileMode) (*os.File, error) {
	p, err := d.locate(path, 0o755)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return p.create(p.base, perm)
}

// MkdirAll makes a directory with all above it; one that is there is taken as it is.
func (d *Door) MkdirAll(path string, perm fs.FileMode) error {
	p, err := d.locate(filepath.Join(path, "x"), perm)
	if err == nil {
		p.close()
	}
	return err
}

// Judge says why a path is refused, as far as that can be known without writing:
// what is missing is not made.
func (d *Door) Judge(path string) error {
	p, err := d.locate(path, 0)
	if err == nil {
		_, err = p.stat()
		p.close()
	}
	var refused *Refused
	if errors.As(err, &refused) || errors.Is(err, unix.ENOTDIR) {
		return err
	}
	return nil
}

// place is an open directory and the name of something in it.
type place struct {
	fd   int // of the directory
	path string
	base string
}

func (p *place) close() { _ = unix.Close(p.fd) }

func (p *place) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(p.path, p.base), Err: err}
}

func (p *place) create(name string, perm fs.FileMode) (*os.File, error) {
	fd, err := unix.Openat(p.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return nil, p.failed("create", err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(p.path, name)), nil
}

// stat looks at the file itself and refuses what is no file.
func (p *place) stat() (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.fd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, p.failed("stat", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return &st, nil
	case unix.S_IFLNK:
		return nil, refuse(filepath.Join(p.path, p.base), "is a link, which is not followed; remove it, or name what it leads to")
	}
	return nil, refuse(filepath.Join(p.path, p.base), "is there and is no file")
}

// sync has the directory on disk. One that may be searched but not read cannot be
// opened for that.
func (p *place) sync() error {
	fd, err := unix.Openat(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return p.failed("sync", err)
	}
	return errors.Join(p.failed("sync", unix.Fsync(fd)), unix.Close(fd))
}

// maxLinks is how many links a path may lead through.
const maxLinks = 40

// locate opens the directory of a path. What is missing is made with perm, unless
// that is 0.
func (d *Door) locate(path string, perm fs.FileMode) (*place, error) {
	if !filepath.IsAbs(path) || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return nil, refuse(path, "is not the absolute path of a file")
	}
	for range maxLinks {
		w, err := d.enter(filepath.Clean(path), perm)
		if err != nil {
			return nil, err
		}
		if w.leads == "" {
			return &w.place, nil
		}
		w.close()
		path = w.leads
	}
	return nil, refuse(path, "leads through too many links")
}

// walk is a place on the way to a path.
type walk struct {
	place
	door  *Door
	perm  fs.FileMode
	own   []unix.Stat_t // the protected places, as they are now
	names []string      // the same, spelt
	// leads is where the whole path leads by way of a trusted link, if it met one.
	leads string
}

// enter walks down from the root as far as the last element, or to a trusted link.
func (d *Door) enter(path string, perm fs.FileMode) (*walk, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	w := &walk{place: place{fd: root, path: "/"}, door: d, perm: perm, names: Real(d.protected)}
	for _, p := range w.names {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil {
			w.own = append(w.own, st)
		}
	}
	elements := strings.Split(strings.TrimPrefix(path, "/"), "/")
	w.base = elements[len(elements)-1]
	for i, name := range elements[:len(elements)-1] {
		if err := w.step(name, elements[i+1:]); err != nil || w.leads != "" {
			if err != nil {
				w.close()
			}
			return w, err
		}
	}
	if err := w.check(); err != nil {
		w.close()
		return w, err
	}
	return w, nil
}

// step goes into one directory; rest is what follows it.
func (w *walk) step(name string, rest []string) error {
	full := filepath.Join(w.path, name)
	fd, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT) && w.perm != 0:
		if err := w.hit(full); err != nil {
			return err
		}
		if err := unix.Mkdirat(w.fd, name, uint32(w.perm.Perm())); err != nil && !errors.Is(err, unix.EEXIST) {
			return &fs.PathError{Op: "mkdir", Path: full, Err: err}
		}
		fd, err = unix.Openat(w.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	case errors.Is(err, unix.ENOENT):
		if err := w.hit(filepath.Join(append([]string{full}, rest...)...)); err != nil {
			return err
		}
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		var st unix.Stat_t
		if unix.Fstatat(w.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return w.link(name, &st, rest)
		}
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: full, Err: err}
	}
	_ = unix.Close(w.fd)
	w.fd, w.path = fd, full
	return w.check()
}

// link follows a link that root laid in a directory that only root can change: no
// program of the daemon's can have put it there. As root itself the daemon trusts
// only those in /.
func (w *walk) link(name string, link *unix.Stat_t, rest []string) error {
	full := filepath.Join(w.path, name)
	var dir unix.Stat_t
	if err := unix.Fstat(w.fd, &dir); err != nil {
		return &fs.PathError{Op: "stat", Path: w.path, Err: err}
	}
	trusted := link.Uid == 0 && dir.Uid == 0 && dir.Mode&0o022 == 0 && (os.Geteuid() != 0 || w.path == "/")
	if !trusted {
		return refuse(full, "is a link, which is not followed; name what it leads to")
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(w.fd, name, buf)
	if err != nil {
		return &fs.PathError{Op: "readlink", Path: full, Err: err}
	}
	target := string(buf[:n])
	if !filepath.IsAbs(target) {
		target = filepath.Join(w.path, target)
	}
	w.leads = filepath.Join(append([]string{target}, rest...)...)
	return nil
}

// check refuses a directory that is protected, or lies in what is: by what it is, and
// by where the kernel says that it lies now. The file that is asked for is meant too.
func (w *walk) check() error {
	var st unix.Stat_t
	if err := unix.Fstat(w.fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: w.path, Err: err}
	}
	file := st
	if unix.Fstatat(w.fd, w.base, &file, unix.AT_SYMLINK_NOFOLLOW) != nil {
		file = st
	}
	for _, own := range w.own {
		if own.Dev == st.Dev && own.Ino == st.Ino || own.Dev == file.Dev && own.Ino == file.Ino {
			return refuse(filepath.Join(w.path, w.base), "%s", protectedWords)
		}
	}
	where, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.fd))
	if err != nil {
		return &fs.PathError{Op: "locate", Path: w.path, Err: err}
	}
	return w.hit(filepath.Join(where, w.base))
}

const protectedWords = "belongs to runnerd itself (configuration, state, credentials, socket or the program); nothing else is written there"

func (w *walk) hit(path string) error {
	for _, p := range w.names {
		if path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/") {
			return refuse(path, "%s", protectedWords)
		}
	}
	return nil
}

// Real cleans absolute paths and follows their links as far as they exist; others
// are left out.
func Real(paths []string) []string {
	var out []string
	for _, p := range paths {
		if p == "" || !filepath.IsAbs(p) {
			continue
		}
		rest := ""
		for dir := filepath.Clean(p); ; dir = filepath.Dir(dir) {
			if r, err := filepath.EvalSymlinks(dir); err == nil {
				out = append(out, filepath.Join(r, rest))
				break
			}
			if dir == "/" {
				break
			}
			rest = filepath.Join(filepath.Base(dir), rest)
		}
	}
	return out
}
