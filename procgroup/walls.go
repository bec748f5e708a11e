package procgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"runnerd/confine"
)

// Containment says what keeps children from the protected paths on this kernel,
// for check and for status.
func Containment() string {
	v := abiVersion()
	if v < 1 {
		return "none: this kernel has no Landlock, so a connector's process can read whatever the daemon's user can"
	}
	text := fmt.Sprintf("landlock v%d: protected paths cannot be reached", v)
	if v < 6 {
		return text + "; the daemon can be signalled (kernels before 6.12)"
	}
	text += ", the daemon cannot be signalled"
	if v < 9 {
		return text + "; sockets in protected paths can be connected to"
	}
	return text + ", nor can sockets in protected paths be connected to"
}

// signalErratum is the bit that says that the kernel keeps signals in for good;
// without it go-landlock does as if it were version 5.
const signalErratum = 0x2

// abiVersion is the Landlock version that can be relied on; 0 is none.
func abiVersion() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	if v >= 6 {
		if errata, err := ll.LandlockGetErrata(); err != nil || errata&signalErratum == 0 {
			return 5
		}
	}
	return v
}

// Walls keep a program from what it must not reach, where the kernel can.
type Walls struct {
	// Protected cannot be reached at all, but for what Allowed names in it. Our own
	// binary is always kept from being changed.
	Protected []string `json:"protected"`
	Allowed   []string `json:"allowed"`
	// Fettered is for what runs as root: without capabilities, unix sockets and devices,
	// and able to change only what Allowed and Writable name.
	Fettered bool     `json:"fettered,omitempty"`
	Writable []string `json:"writable,omitempty"`
	// As is who the program runs as; nil is who we are.
	As *User `json:"as,omitempty"`
}

// User is who a program runs as.
type User struct{ UID, GID uint32 }

// ErrNoFetters says that this kernel cannot hold what runs as root.
var ErrNoFetters = errors.New("this kernel cannot hold a program that runs as root; name a user to run it as")

// raised are walls that stand ready for a program to be started behind them.
type raised struct {
	fd    int // of the ruleset; -1: none
	flags uint32
	abi   int
	// fettered and as are what the walls say.
	fettered bool
	as       *User
}

// raise makes what the kernel needs to know of w; nil are no walls.
func (w *Walls) raise() (raised, error) {
	if w == nil {
		return raised{fd: -1}, nil
	}
	granted, err := w.grants()
	if err != nil {
		return raised{}, err
	}
	fd, flags, abi, err := ruleset(granted)
	if err != nil {
		return raised{}, fmt.Errorf("landlock: %w", err)
	}
	if w.Fettered && (fd < 0 || filterArch == 0) {
		return raised{}, ErrNoFetters
	}
	return raised{fd, flags, abi, w.Fettered, w.As}, nil
}

func (r raised) close() {
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
	}
}

func (r raised) text() string {
	if r.fd < 0 {
		return "none"
	}
	text := fmt.Sprintf("landlock v%d", r.abi)
	if r.fettered {
		text += ", as root without capabilities, unix sockets and devices"
	}
	if r.as != nil {
		text += fmt.Sprintf(", as uid %d", r.as.UID)
	}
	return text
}

// grants are the paths that add up to everything but the protected ones.
type grants struct {
	dirs, files         []string
	readDirs, readFiles []string // not to be changed
}

// grants walks from the root to each protected path and grants what lies
// beside: Landlock cannot take back a part of what it grants. The allowed paths
// are granted although they lie in protected ones. What is created later beside
// a protected path is not granted.
func (w *Walls) grants() (grants, error) {
	s := survey{protected: confine.Real(w.Protected), fettered: w.Fettered}
	if self, err := os.Readlink("/proc/self/exe"); err == nil {
		s.fixed = confine.Real([]string{self})
	}
	g, allowed := &s.granted, confine.Real(w.Allowed)
	for _, path := range allowed {
		if info, err := os.Stat(path); err == nil {
			g.add(path, info.Mode())
		}
	}
	if w.Fettered {
		s.protected = append(s.protected, "/dev")
		s.writable = confine.Real(w.Writable)
		for _, path := range harmless {
			if info, err := os.Stat(path); err == nil {
				g.add(path, info.Mode())
			}
		}
	}
	err := s.beside("/")
	for _, path := range s.writable {
		// What leads to something protected was walked, entry by entry.
		if info, err := os.Stat(path); err == nil && !within(path, s.protected) && !leadsTo(path, s.protected) && !leadsTo(path, s.fixed) && !slices.Contains(s.fixed, path) {
			g.add(path, info.Mode())
		}
	}
	return s.granted, err
}

// harmless are the devices of one who is fettered.
var harmless = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"}

func within(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, strings.TrimSuffix(d, "/")+"/") })
}

// survey is a walk over what may be granted: fixed are files that may be read and
// run but neither changed nor replaced.
type survey struct {
	protected, fixed []string
	granted          grants
	// fettered grants changing only within writable.
	fettered bool
	writable []string
}

func leadsTo(dir string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return dir == "/" || strings.HasPrefix(p, dir+"/") })
}

func (g *grants) add(path string, mode fs.FileMode) {
	if mode.IsDir() {
		g.dirs = append(g.dirs, path)
		return
	}
	g.files = append(g.files, path)
}

// beside grants the entries of dir that are neither protected nor lead there.
// Links are left out: they would be followed and grant their target, which has
// its own place in the walk.
func (s *survey) beside(dir string) error {
	if !leadsTo(dir, s.protected) {
		s.granted.readDirs = append(s.granted.readDirs, dir)
	}
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) || os.IsPermission(err) {
		return nil // nothing more is granted below
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0, slices.Contains(s.protected, path):
		case slices.Contains(s.fixed, path):
			s.granted.readFiles = append(s.granted.readFiles, path)
		case leadsTo(path, s.protected), leadsTo(path, s.fixed):
			if err := s.beside(path); err != nil {
				return err
			}
		case s.fettered && !within(path, s.writable):
			if e.IsDir() {
				s.granted.readDirs = append(s.granted.readDirs, path)
			} else {
				s.granted.readFiles = append(s.granted.readFiles, path)
			}
		default:
			s.granted.add(path, e.Type())
		}
	}
	return nil
}

// allFS are all the rights that Landlock knows about files.
const allFS = 1<<17 - 1

// ruleset makes a Landlock ruleset from grants. Where the kernel has none the
// descriptor is -1.
func ruleset(g grants) (fd int, flags uint32, abi int, err error) {
	if abi = abiVersion(); abi < 1 {
		return -1, 0, 0, nil
	}
	dirs := landlock.RWDirs(g.dirs...).WithIoctlDev().WithResolveUnix().IgnoreIfMissing()
	files := landlock.RWFiles(g.files...).WithIoctlDev().WithResolveUnix().IgnoreIfMissing()
	if abi >= 2 {
		dirs = dirs.WithRefer()
	}
	readDirs := landlock.RODirs(g.readDirs...).IgnoreIfMissing()
	readFiles := landlock.ROFiles(g.readFiles...).IgnoreIfMissing()
	config := landlock.Config{HandledAccessFS: allFS, Scoped: ll.ScopeSignal}
	fd, flags, err = config.BestEffort().NewRulesetFD(dirs, files, readDirs, readFiles)
	return fd, flags, abi, err
}

// started is what became of a process that was to be started.
type started struct {
	pid int
	err error
}

// fork starts a process that is behind the walls while we are not: a
// ruleset binds a thread and what that thread starts, so a thread is bound,
// starts the process and ends. It must end: the process may signal and trace
// what is under the same ruleset.
func (r raised) fork(argv0 string, argv []string, attr *syscall.ProcAttr) (int, error) {
	done := make(chan started, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			done <- r.forkHere(argv0, argv, attr)
			return
		}
		// The first thread cannot end. Hold it, so that another one does it.
		other := make(chan started, 1)
		go func() {
			runtime.LockOSThread()
			other <- r.forkHere(argv0, argv, attr)
		}()
		done <- <-other
		runtime.UnlockOSThread()
	}()
	s := <-done
	return s.pid, s.err
}

// beyondLandlock are the capabilities with which root gets around Landlock:
// reading other processes' memory and environment, the kernel's memory, disks as
// devices. Of a daemon that runs as root its children do not get them.
var beyondLandlock = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_SYS_MODULE,
	unix.CAP_SYS_RAWIO, unix.CAP_MKNOD, unix.CAP_BPF, unix.CAP_CHECKPOINT_RESTORE,
}

// dropped are the capabilities that a program does not get.
func (r raised) dropped() []uintptr {
	if !r.fettered {
		return beyondLandlock
	}
	var all []uintptr
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		all = append(all, c)
	}
	return all
}

// forkHere binds the current thread to the ruleset and starts the process.
func (r raised) forkHere(argv0 string, argv []string, attr *syscall.ProcAttr) started {
	if r.as != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: r.as.UID, Gid: r.as.GID}
	}
	if r.fd >= 0 {
		for _, c := range r.dropped() {
			// Without CAP_SETPCAP there is nothing that could be dropped.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
				return started{0, fmt.Errorf("drop capability %d: %w", c, err)}
			}
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return started{0, fmt.Errorf("no_new_privs: %w", err)}
		}
		if err := ll.LandlockRestrictSelf(r.fd, r.flags); err != nil {
			return started{0, fmt.Errorf("landlock: %w", err)}
		}
	}
	if r.fettered {
		if err := withoutUnixSockets(); err != nil {
			return started{0, fmt.Errorf("seccomp: %w", err)}
		}
	}
	pid, err := syscall.ForkExec(argv0, argv, attr)
	return started{pid, err}
}
