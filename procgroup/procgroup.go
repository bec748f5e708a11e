// Package procgroup starts programs and leaves nothing of them behind: connectors,
// the builtin shell, deliveries, notices and models that are commands. Each runs
// under a guard, a process of our own binary that is the reaper of everything that
// the program starts and ends all of it when the program ends, when told to, and when
// the daemon is gone, however it went. The guard is started from the open executable,
// so that a file put in the binary's place is never run. No other package starts a
// process.
package procgroup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Self is our own binary as it was when we were started, wherever it lies by now.
const Self = "/proc/self/exe"

// pipeGrace is how long output is awaited after a guard and all below it are gone.
const pipeGrace = time.Second

// orderTime bounds the writing of an order to a guard.
const orderTime = 10 * time.Second

// Starter starts the programs of one daemon. Its zero value works; without a Mark
// nothing can be swept.
type Starter struct {
	// Mark is the daemon's; see MarkOf.
	Mark string

	mu     sync.Mutex
	guards map[int]bool // living ones
}

// Ours tells whether a living process was started here, by whatever way it came from
// one that Start started.
func (s *Starter) Ours(pid int) bool {
	for hops := 0; hops < 1000 && pid > 1; hops++ {
		s.mu.Lock()
		guard := s.guards[pid]
		s.mu.Unlock()
		if guard {
			return true
		}
		p, ok := readProcess(pid)
		if !ok {
			return false
		}
		pid = p.parent
	}
	return false
}

func (s *Starter) note(guard int, lives bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !lives {
		delete(s.guards, guard)
		return
	}
	if s.guards == nil {
		s.guards = map[int]bool{}
	}
	s.guards[guard] = true
}

// Program is what is to be started.
type Program struct {
	// Name is for people who read ps, and part of the mark.
	Name string
	// Path is the file; see Find. Args has the zeroth.
	Path string
	Args []string
	// Env is the whole environment; nil is our own.
	Env []string
	Dir string // empty: /
	// The streams are as in exec.Cmd: what is an *os.File is handed on as it is.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Walls keep it from what it must not reach; nil are none.
	Walls *Walls
}

// Process is a program under its guard.
type Process struct {
	name    string
	cmd     *exec.Cmd // the guard
	control *os.File
	mark    string

	started chan guardReport // capacity 1: the guard's first report
	exited  chan struct{}    // closed when guard and tree are gone
	first   guardReport      // set by Await
	last    guardReport      // set before exited is closed
	hang    sync.Once
}

// Start starts a guard and gives it its order; Await says whether the program began.
// Whoever starts a process waits for Exited, which Kill brings about.
func (s *Starter) Start(p Program) (*Process, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make a guard's socket: %w", err)
	}
	defer theirs.Close()
	mark := s.newMark(p.Name)
	order, err := json.Marshal(p.order(mark))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write a guard's order: %w", err), ours.Close())
	}
	proc := &Process{
		name: p.Name, control: ours, mark: mark, started: make(chan guardReport, 1), exited: make(chan struct{}),
		cmd: &exec.Cmd{
			Path: Self, Args: []string{"runnerd", GuardVerb, p.Name}, Dir: "/", Env: []string{"GOMAXPROCS=2"},
			Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, ExtraFiles: []*os.File{theirs},
			// A key pressed in our terminal does not reach it.
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, WaitDelay: pipeGrace,
		},
	}
	if err := proc.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a guard: %w", err), ours.Close())
	}
	s.note(proc.cmd.Process.Pid, true)
	go func() {
		defer close(proc.exited)
		proc.oversee()
		s.note(proc.cmd.Process.Pid, false)
	}()
	_ = ours.SetWriteDeadline(time.Now().Add(orderTime))
	_, _ = ours.Write(append(order, '\n')) // if it fails, so does the report
	return proc, nil
}

// order is what the guard is told.
func (p Program) order(mark string) guardOrder {
	o := guardOrder{Path: p.Path, Args: p.Args, Env: p.Env, Dir: p.Dir, Walls: p.Walls}
	if o.Env == nil {
		o.Env = ownEnviron()
	}
	if mark != "" {
		o.Env = append(o.Env[:len(o.Env):len(o.Env)], MarkVar+"="+mark)
	}
	if o.Dir == "" {
		o.Dir = "/"
	}
	return o
}

func ownEnviron() []string { return (&exec.Cmd{}).Environ() }

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "control")
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that deadlines work
		return nil, nil, errors.Join(err, unix.Close(fds[0]), theirs.Close())
	}
	return os.NewFile(uintptr(fds[0]), "control"), theirs, nil
}

// oversee reads the guard's reports until it is gone. A guard that ended without
// its last report was killed; then the marks tell what it left behind.
func (p *Process) oversee() {
	in := bufio.NewReader(io.LimitReader(p.control, 1<<20))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r guardReport
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		if r.Exited {
			p.last = r
			continue
		}
		select {
		case p.started <- r:
		default:
			p.last.Error = r.Error
		}
	}
	_ = p.cmd.Wait() // what it left unread, or a child that left its output open, is its own business
	if !p.last.Exited {
		sweep(p.mark)
	}
	p.hangUp()
}

// ErrNoGuard says that a guard was gone before it could say how it went.
var ErrNoGuard = errors.New("its guard was gone before it said whether it started")

// startError is a program that could not be started.
type startError struct {
	text  string
	errno syscall.Errno
}

func (e *startError) Error() string { return e.text }

// Unwrap returns the kernel's reason, if it gave one.
func (e *startError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// Await waits until the program has begun. It is called once.
func (p *Process) Await(ctx context.Context) error {
	select {
	case p.first = <-p.started:
	case <-ctx.Done():
		return ctx.Err()
	case <-p.exited:
		select {
		case p.first = <-p.started:
		default:
			return ErrNoGuard
		}
	}
	if p.first.Error != "" {
		return &startError{p.first.Error, syscall.Errno(p.first.Errno)}
	}
	return nil
}

// PID is the program's, known after Await.
func (p *Process) PID() int { return p.first.PID }

// Containment says what walls it is behind, known after Await.
func (p *Process) Containment() string { return p.first.Containment }

// Exited is closed when the program, all that came of it and the guard are gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Exit says how it ended, known once Exited is closed.
func (p *Process) Exit() Exit {
	return Exit{Code: p.last.Code, Signal: p.last.Signal, Lost: !p.last.Exited}
}

// Work is a measure of what the program and all that came of it have done so far:
// processor time and bytes read and written. Where it stays the same, nothing
// moves.
func (p *Process) Work() (sum uint64) {
	pid := p.PID()
	if pid == 0 {
		return 0
	}
	own, _ := readProcess(pid)
	for _, q := range append(descendants(pid), own) {
		sum += work(q.pid)
	}
	return sum
}

// Terminate asks the program and all that came of it to end.
func (p *Process) Terminate() { p.tell(guardTerm) }

// Kill ends the program and all that came of it, and returns when they are gone. It
// tells whether the guard had to be killed too.
func (p *Process) Kill() (guardToo bool) {
	p.tell(guardKill)
	timer := time.NewTimer(2 * killDeadline)
	defer timer.Stop()
	select {
	case <-p.exited:
		return false
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return true
}

func (p *Process) tell(word string) {
	_ = p.control.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = p.control.Write([]byte(word + "\n"))
}

func (p *Process) hangUp() { p.hang.Do(func() { _ = p.control.Close() }) }

// Exit is how a program ended.
type Exit struct {
	Code   int
	Signal string // that ended it
	Lost   bool   // its guard was killed: nobody knows
}

// Success tells whether the program said that all is well.
func (e Exit) Success() bool { return e == Exit{} }

// String is worded as the exec package does it.
func (e Exit) String() string {
	switch {
	case e.Lost:
		return "its guard was killed"
	case e.Signal != "":
		return "signal: " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Run starts a program, waits for its end, or ends it with ctx, and returns when
// nothing of it is left. An error means that it did not begin.
func (s *Starter) Run(ctx context.Context, p Program) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	proc, err := s.Start(p)
	if err != nil {
		return Exit{}, err
	}
	if err := proc.Await(ctx); err != nil {
		proc.Kill()
		return Exit{}, err
	}
	select {
	case <-proc.Exited():
	case <-ctx.Done():
		proc.Kill()
	}
	return proc.Exit(), nil
}
