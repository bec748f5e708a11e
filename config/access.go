package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// signature tells one state of a file from another without reading it. The zero
// signature is a file that is not there.
type signature struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
	mode         uint32
	uid, gid     uint32
	errno        syscall.Errno
}

func (s signature) exists() bool { return s.ino != 0 }

func signatureOf(st *syscall.Stat_t) signature {
	return signature{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		mode: st.Mode, uid: st.Uid, gid: st.Gid,
	}
}

// sign stats a path, links followed.
func sign(path string) signature {
	var st syscall.Stat_t
	for {
		err := syscall.Stat(path, &st)
		switch {
		case err == nil:
			return signatureOf(&st)
		case err == syscall.EINTR:
			continue
		case err == syscall.ENOENT || err == syscall.ENOTDIR:
			return signature{}
		}
		errno, _ := err.(syscall.Errno)
		return signature{errno: errno}
	}
}

// lsign is sign, but tells a link that leads to nothing from no file at all.
func lsign(path string) signature {
	sig := sign(path)
	if sig == (signature{}) {
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) == nil {
			return unsettled
		}
	}
	return sig
}

// restTime is longer than the clock that stamps files ticks: what has not changed
// for so long cannot change and keep its signature.
const restTime = 30 * time.Millisecond

// reader reads the files of one config directory for one load.
type reader struct {
	clock clock
	dir   string
	root  *os.Root
	uid   uint32
	// ownGroup is the group that a user's own files belong to.
	ownGroup func(uid uint32) (gid uint32, known bool)
	// rest is how long a file must not have changed to be a revision, patience until
	// when to wait for that.
	rest     time.Duration
	patience time.Time
}

// read returns a file's content, or a complaint that its last good revision has
// to stand in for it. The signature is that of what was read.
func (r *reader) read(ctx context.Context, rel string) ([]byte, signature, *Problem) {
	for {
		content, sig, problem := r.readOnce(rel)
		now := r.clock.now()
		moved := problem != nil && problem.What == fileMoved
		if !moved && (problem != nil || !sig.fresh(now, r.rest)) {
			return content, sig, problem
		}
		if now.After(r.patience) || ctx.Err() != nil {
			return nil, sig, &Problem{File: rel, What: "still being written", Hint: "it counts once it has not changed for " + r.rest.String()}
		}
		r.clock.pause(ctx, restTime)
	}
}

const fileMoved = "file changed while it was read"

// fresh tells whether the last change is nearer than that.
func (s signature) fresh(now time.Time, rest time.Duration) bool {
	age := now.Sub(time.Unix(0, s.mtime))
	return s.exists() && age >= 0 && age < rest
}

// unsettled is a signature that equals no file's, so that it is looked at again.
var unsettled = signature{errno: ^syscall.Errno(0)}

func (r *reader) readOnce(rel string) ([]byte, signature, *Problem) {
	bad := func(sig signature, what, expected, hint string) ([]byte, signature, *Problem) {
		return nil, sig, &Problem{File: rel, What: what, Expected: expected, Hint: hint}
	}
	f, err := r.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return bad(sign(r.dir+"/"+rel), r.openError(rel, err), "", "")
	}
	defer f.Close()
	before, err := fstat(f)
	if err != nil {
		return bad(before, "stat: "+err.Error(), "", "")
	}
	if before.mode&syscall.S_IFMT != syscall.S_IFREG {
		return bad(before, "not a regular file", "a file", "")
	}
	if what, hint := r.refused(before); what != "" {
		return bad(before, what, "", hint)
	}
	if before.size > maxFile {
		return bad(before, fmt.Sprintf("file has %d bytes", before.size), fmt.Sprintf("at most %d (1 MiB)", maxFile), "")
	}
	content := make([]byte, before.size+1) // one more, to see that it has not grown
	n, err := io.ReadFull(f, content)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return bad(before, "read: "+err.Error(), "", "")
	}
	content = content[:n]
	after, err := fstat(f)
	if err != nil || after != before || int64(len(content)) != before.size {
		return bad(after, fileMoved, "", "")
	}
	return content, before, nil
}

func fstat(f *os.File) (signature, error) {
	info, err := f.Stat()
	if err != nil {
		return signature{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return signature{}, errors.New("no file attributes")
	}
	return signatureOf(st), nil
}

// openError words why a file cannot be opened.
func (r *reader) openError(rel string, err error) string {
	info, lerr := r.root.Lstat(rel)
	link := lerr == nil && info.Mode()&fs.ModeSymlink != 0
	switch {
	case link && errors.Is(err, fs.ErrNotExist):
		return "the link leads to nothing"
	case link && !errors.Is(err, fs.ErrPermission):
		return "the link leads out of the config directory, or is absolute"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, syscall.ENXIO):
		return "not a regular file"
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return "open: " + err.Error()
}

// refused says why a file's owner or mode make it unfit to be obeyed.
func (r *reader) refused(s signature) (what, hint string) {
	if s.uid != 0 && s.uid != r.uid {
		return fmt.Sprintf("owned by user %d, neither root nor the daemon's user (%d)", s.uid, r.uid), "chown it"
	}
	if s.mode&0o002 != 0 {
		return fmt.Sprintf("everyone can write it (mode %04o)", s.mode&0o7777), "chmod o-w"
	}
	if s.mode&0o020 == 0 {
		return "", ""
	}
	if gid, known := r.ownGroup(s.uid); known && gid == s.gid {
		return "", ""
	}
	return fmt.Sprintf("group %d, not the owner's own, can write it (mode %04o)", s.gid, s.mode&0o7777), "chmod g-w"
}

// primaryGroup looks a user's own group up; a user that the system does not know
// is taken to have the group of the same number.
func primaryGroup(uid uint32) (uint32, bool) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return uid, true
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(gid), err == nil
}
