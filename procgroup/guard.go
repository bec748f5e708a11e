package procgroup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GuardVerb is the first argument with which our own binary becomes a guard.
const GuardVerb = "connector-guard"

// A process that Start made is a guard before anything else of its binary begins:
// each binary that links this package can start programs, tests included, and none
// takes a guard's arguments for its own.
func init() {
	if len(os.Args) > 1 && os.Args[1] == GuardVerb && isSocket(guardFD) {
		syscall.Exit(serveGuard()) // os.Exit would sleep for a second in a race build
	}
}

func isSocket(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// guardFD is the guard's end of the control socket.
const guardFD = 3

// guardOrder is the first line that the daemon sends to a guard.
type guardOrder struct {
	Path  string   `json:"path"`
	Args  []string `json:"args"` // the zeroth included
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
	Walls *Walls   `json:"walls,omitempty"`
}

// guardReport is a line that a guard sends: first that the program started, or
// the error; last how it ended, once the whole tree is gone.
type guardReport struct {
	PID         int    `json:"pid,omitempty"`
	Containment string `json:"containment,omitempty"`
	Error       string `json:"error,omitempty"`
	Errno       int    `json:"errno,omitempty"` // of Error, if it has one
	Exited      bool   `json:"exited,omitempty"`
	Code        int    `json:"code,omitempty"`
	Signal      string `json:"signal,omitempty"`
}

// Further lines that the daemon sends. The end of the socket, which also comes
// when the daemon is killed, means guardKill.
const (
	guardTerm = "term"
	guardKill = "kill"
)

// killDeadline bounds how long a guard keeps killing before it gives up, which
// only a process that the kernel cannot end can make it do.
const killDeadline = 10 * time.Second

// serveGuard is the life of a guard: a process between the daemon and one program. It
// starts the program, hands it its own standard streams, is the reaper of
// everything that the program starts, and ends all of it when the program ends,
// when told to and when the daemon is gone. Behind walls the program cannot signal
// or trace it where the kernel can prevent that. It returns an exit code.
func serveGuard() int {
	// Caught and dropped, not ignored: what is ignored stays so in the program.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	unix.CloseOnExec(guardFD)
	control := os.NewFile(guardFD, "control")
	g := &guard{control: control, lines: bufio.NewReader(control)}
	if err := g.start(); err != nil {
		var errno syscall.Errno
		_ = errors.As(err, &errno)
		g.report(guardReport{Error: err.Error(), Errno: int(errno)})
		return 2
	}
	return g.watch()
}

type guard struct {
	control *os.File
	lines   *bufio.Reader
	pid     int
}

// start reads the order and starts the program.
func (g *guard) start() error {
	line, err := g.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no order on descriptor %d: %w", guardFD, err)
	}
	var o guardOrder
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("unreadable order: %w", err)
	}
	// What loses its parent below us becomes our child instead of init's.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	w, err := o.Walls.raise()
	if err != nil {
		return err
	}
	defer w.close()
	g.pid, err = w.fork(o.Path, o.Args, &syscall.ProcAttr{
		Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", o.Path, err)
	}
	g.report(guardReport{PID: g.pid, Containment: w.text()})
	return g.letGo()
}

// letGo gives up the program's pipes, so that their ends are seen.
func (g *guard) letGo() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer func() { _ = unix.Close(null) }()
	return errors.Join(unix.Dup3(null, 0, 0), unix.Dup3(null, 1, 0))
}

// watch waits for the program's end or the daemon's word, ends the tree and
// reports once nothing is left of it.
func (g *guard) watch() int {
	ended, empty := make(chan unix.WaitStatus, 1), make(chan struct{})
	go g.reap(ended, empty)
	kill := make(chan struct{})
	go g.listen(kill)

	var status unix.WaitStatus
	have := false
	select {
	case status = <-ended:
		have = true
	case <-kill:
	}
	below := func() []process { return descendants(os.Getpid()) }
	killAll(below, time.Now().Add(killDeadline))
	select {
	case <-empty:
	case <-time.After(killDeadline):
		g.report(guardReport{Error: "some of its processes cannot be killed"})
		return 1
	}
	if !have {
		status = <-ended
	}
	r := guardReport{Exited: true, Code: status.ExitStatus()}
	if status.Signaled() {
		r.Signal = status.Signal().String()
	}
	g.report(r)
	return max(r.Code, 0)
}

// reap waits for every child, those that were adopted too, and closes empty when
// none is left.
func (g *guard) reap(ended chan<- unix.WaitStatus, empty chan<- struct{}) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: no child, hence no descendant
			close(empty)
			return
		case pid == g.pid:
			ended <- status
		}
	}
}

// listen carries out the daemon's words and closes kill at the last of them.
func (g *guard) listen(kill chan<- struct{}) {
	defer close(kill)
	for {
		line, err := g.lines.ReadString('\n')
		if err != nil || line == guardKill+"\n" {
			return
		}
		if line == guardTerm+"\n" {
			for _, p := range descendants(os.Getpid()) {
				p.signal(unix.SIGTERM)
			}
		}
	}
}

func (g *guard) report(r guardReport) {
	data, err := json.Marshal(r)
	if err != nil {
		return
	}
	_, _ = g.control.Write(append(data, '\n')) // the daemon may be gone
}
