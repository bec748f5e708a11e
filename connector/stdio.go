package connector

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"runnerd/task"
)

// child is a stdio connector's server, under its guard. The pipes go straight to
// the server; with the guard we speak over a socket of its own.
type child struct {
	cmd     *exec.Cmd // the guard
	control *os.File
	stdin   *os.File
	stdout  *os.File
	mark    string
	limits  Limits
	log     *zap.Logger

	pid         int // the server
	containment string
	stderr      *stderrTail
	noise       atomic.Int64

	hurry    atomic.Bool // stop kills at once: nothing has begun that could end well
	stopOnce sync.Once
	started  chan guardReport      // capacity 1: its first report
	exited   chan struct{}         // closed when guard and tree are gone
	exit     guardReport           // set before exited is closed
	spoilt   atomic.Pointer[error] // why we gave up on its output
}

// startChild starts the server and returns the wire to it.
func (s *session) startChild(ctx context.Context) (wire, error) {
	c := s.conn
	cmd, err := c.command()
	if err != nil {
		return nil, err
	}
	ch := &child{
		mark: cmd.mark, limits: c.pool.limits, log: c.log, started: make(chan guardReport, 1), exited: make(chan struct{}),
		stderr: &stderrTail{redact: c.pool.redact, log: c.log},
	}
	if err := ch.launch(c, cmd); err != nil {
		return nil, err
	}
	s.child = ch
	if err := ch.await(ctx); err != nil {
		ch.stop()
		return nil, ch.explain(err, c.spec)
	}
	c.log.Debug("server started", zap.Int(keyPID, ch.pid), zap.String("containment", ch.containment))
	return newStdioWire(ch), nil
}

// pipes are both ends of what the guard inherits.
type pipes struct{ ours, theirs []*os.File }

func (p *pipes) closeTheirs() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
}

func (p *pipes) closeAll() {
	p.closeTheirs()
	for _, f := range p.ours {
		_ = f.Close()
	}
}

// newPipes makes stdin, stdout, stderr and the control socket, in this order.
func newPipes() (p pipes, err error) {
	defer func() {
		if err != nil {
			p.closeAll()
		}
	}()
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return p, err
		}
		if i == 0 {
			r, w = w, r
		}
		p.ours, p.theirs = append(p.ours, r), append(p.theirs, w)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return p, err
	}
	p.theirs = append(p.theirs, os.NewFile(uintptr(fds[1]), "control"))
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that deadlines work
		_ = unix.Close(fds[0])
		return p, err
	}
	p.ours = append(p.ours, os.NewFile(uintptr(fds[0]), "control"))
	return p, nil
}

// launch starts the guard and sends it its order.
func (ch *child) launch(c *conn, cmd command) error {
	p, err := newPipes()
	if err != nil {
		return fmt.Errorf("make pipes: %w", err)
	}
	opts := c.pool.opts
	order, err := json.Marshal(guardOrder{
		Path: cmd.path, Args: cmd.args, Env: cmd.env, Dir: cmd.dir,
		Protected: opts.Protected, Allowed: compact(cmd.home, opts.CacheDir),
	})
	if err != nil {
		p.closeAll()
		return fmt.Errorf("write the guard's order: %w", err)
	}
	ch.cmd = guardCommand(opts.Executable, c.id, p.theirs)
	err = ch.cmd.Start()
	p.closeTheirs()
	if err != nil {
		p.closeAll()
		return fmt.Errorf("start the guard: %w", err)
	}
	ch.stdin, ch.stdout, ch.control = p.ours[0], p.ours[1], p.ours[3]
	stderr := p.ours[2]
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		ch.stderr.drain(stderr)
	}()
	c.pool.wg.Go(func() {
		ch.oversee()
		_ = stderr.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		<-drained
		_ = stderr.Close()
		close(ch.exited)
	})
	_ = ch.control.SetWriteDeadline(time.Now().Add(c.pool.limits.Connect))
	_, _ = ch.control.Write(append(order, '\n')) // if it fails, so does the report
	return nil
}

// guardCommand is our own binary as a guard, in a process group of its own so
// that a key pressed in our terminal does not reach it.
func guardCommand(executable, id string, files []*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path: executable, Args: []string{"runnerd", GuardVerb, id}, Dir: "/",
		Env:   []string{"GOMAXPROCS=2"},
		Stdin: files[0], Stdout: files[1], Stderr: files[2], ExtraFiles: files[3:],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
}

func compact(paths ...string) []string {
	var out []string
	for _, p := range paths {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// oversee reads the guard's reports until it is gone. A guard that ended without
// its last report was killed; then the marks tell what it left behind.
func (ch *child) oversee() {
	in := bufio.NewReader(io.LimitReader(ch.control, 1<<20))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r guardReport
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		if !r.Exited {
			select {
			case ch.started <- r:
			default:
				ch.log.Error("guard", zap.String(keyError, r.Error))
			}
			continue
		}
		ch.exit = r
	}
	_ = ch.cmd.Wait()
	if !ch.exit.Exited {
		if left := marked(ch.mark); len(left) > 0 {
			ch.log.Warn("guard was killed, ending what it guarded", zap.Int("processes", len(left)))
		}
		killAll(func() []process { return marked(ch.mark) }, time.Now().Add(killDeadline))
	}
}

// await waits until the server has started.
func (ch *child) await(ctx context.Context) error {
	select {
	case r := <-ch.started:
		if r.Error != "" {
			return advise("see whether command in connectors.yaml can be run by the daemon's user", "%s", r.Error)
		}
		ch.pid, ch.containment = r.PID, r.Containment
		return nil
	case <-ch.exited:
		return fmt.Errorf("the guard did not start: %s", ch.stderr.lastWords())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the server and all that came of it and returns when they are gone:
// its standard input is closed, then it is asked to end, then it is killed.
func (ch *child) stop() {
	ch.stopOnce.Do(func() {
		_ = ch.stdin.Close()
		if !ch.hurry.Load() {
			if ch.gone(ch.limits.Close) {
				return
			}
			ch.tell(guardTerm)
			if ch.gone(ch.limits.Kill) {
				return
			}
		}
		ch.tell(guardKill)
		if ch.gone(2 * killDeadline) {
			return
		}
		ch.log.Error("guard does not end, killing it")
		_ = ch.cmd.Process.Kill()
		<-ch.exited
	})
	_ = ch.control.Close()
	_ = ch.stdout.Close()
}

func (ch *child) tell(word string) {
	_ = ch.control.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = ch.control.Write([]byte(word + "\n"))
}

func (ch *child) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-ch.exited:
		return true
	case <-timer.C:
		return false
	}
}

// explain says what became of the server.
func (ch *child) explain(err error, spec task.Connector) error {
	words := func() string {
		if w := ch.stderr.lastWords(); w != "" {
			return "; it last wrote to standard error: " + w
		}
		return ""
	}
	if e := ch.spoilt.Load(); e != nil {
		return *e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return advise("if it starts slowly, raise timeout.connect in connectors.yaml", "no answer in time: %w%s", err, words())
	}
	if errors.Is(err, errGone) || errors.Is(err, context.Canceled) || !ch.gone(500*time.Millisecond) {
		return err
	}
	how := fmt.Sprintf("exit code %d", ch.exit.Code)
	switch {
	case ch.exit.Signal != "":
		how = "signal: " + ch.exit.Signal
	case !ch.exit.Exited:
		how = "its guard was killed"
	}
	return advise(adviceFor(ch.stderr.text(), spec), "the server ended by itself (%s)%s", how, words())
}

// adviceFor knows the common reasons why a server ends at once.
func adviceFor(stderr string, spec task.Connector) string {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(stderr, w) {
				return true
			}
		}
		return false
	}
	npm := strings.Contains(spec.Command, "npx") || strings.Contains(spec.Command, "npm")
	switch {
	case npm && has("E404", "404 Not Found"):
		return "correct the package name in args"
	case npm && has("ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "ENETUNREACH", "ENOTCACHED", "network"):
		return "npm cannot reach its registry: install the package on this host and name its command instead of npx, or connect the host"
	case has("EACCES", "permission denied", "Permission denied"):
		return "it may want a path that is protected or that the daemon's user cannot reach"
	}
	return "run its command by hand to see why"
}

// stdioWire is the way to a server over its pipes. It gives writes the deadline
// that pipes do not have by themselves, and its close is the end of the child.
type stdioWire struct {
	lines *lineFilter
	child *child
	turn  chan struct{} // capacity 1: whose write it is
}

func newStdioWire(ch *child) *stdioWire {
	dropped := func(line []byte) {
		ch.log.Debug("dropped a line on standard output that is no message",
			zap.String(keyLine, oneLine(ch.stderr.redact(string(line[:min(len(line), stderrRead)])), 200)))
	}
	return &stdioWire{
		lines: newLineFilter(ch.stdout, ch.limits.LineBytes, &ch.noise, dropped), child: ch, turn: make(chan struct{}, 1),
	}
}

func (s *stdioWire) read(context.Context) ([]byte, error) {
	line, err := s.lines.next()
	return line, closed(err)
}

// write sends one message. A server that does not read its standard input cannot
// hold it beyond ctx. A message that was cut spoils the stream, so the stream
// ends with it.
func (s *stdioWire) write(ctx context.Context, data []byte) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_ = s.child.stdin.SetWriteDeadline(time.Time{})
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.child.stdin.SetWriteDeadline(time.Now())
		close(fired)
	})
	_, err := s.child.stdin.Write(append(data, '\n'))
	if !stop() {
		<-fired
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = s.child.stdin.Close()
		return fmt.Errorf("the server does not read its standard input: %w", err)
	}
	return err
}

// Close implements [io.Closer].
func (s *stdioWire) Close() error {
	s.child.stop()
	return nil
}
