package connector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"runnerd/procgroup"
	"runnerd/task"
)

// child is a stdio connector's server, under its guard. The pipes go straight to
// the server.
type child struct {
	proc   *procgroup.Process
	stdin  *os.File
	stdout *os.File
	limits Limits
	log    *zap.Logger
	stderr *stderrTail
	noise  atomic.Int64

	hurry    atomic.Bool // stop kills at once: nothing has begun that could end well
	stopOnce sync.Once
	exited   chan struct{}         // closed when guard and tree are gone and stderr is read
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
		limits: c.pool.limits, log: c.log, exited: make(chan struct{}),
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
	c.starting.Store(ch)
	c.log.Debug("server started", zap.Int(keyPID, ch.proc.PID()), zap.String("containment", ch.proc.Containment()))
	return newStdioWire(ch), nil
}

// pipes are both ends of what the server inherits.
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

// newPipes makes stdin, stdout and stderr, in this order.
func newPipes() (p pipes, err error) {
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeAll()
			return p, err
		}
		if i == 0 {
			r, w = w, r
		}
		p.ours, p.theirs = append(p.ours, r), append(p.theirs, w)
	}
	return p, nil
}

// launch starts the server under its guard.
func (ch *child) launch(c *conn, cmd command) error {
	p, err := newPipes()
	if err != nil {
		return fmt.Errorf("make pipes: %w", err)
	}
	ch.proc, err = c.pool.starter.Start(procgroup.Program{
		Name: c.id, Path: cmd.path, Args: cmd.args, Env: cmd.env, Dir: cmd.dir,
		Stdin: p.theirs[0], Stdout: p.theirs[1], Stderr: p.theirs[2], Walls: cmd.walls,
	})
	p.closeTheirs()
	if err != nil {
		p.closeAll()
		return err
	}
	ch.stdin, ch.stdout = p.ours[0], p.ours[1]
	stderr := p.ours[2]
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		ch.stderr.drain(stderr)
	}()
	c.pool.wg.Go(func() {
		<-ch.proc.Exited()
		_ = stderr.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		<-drained
		_ = stderr.Close()
		close(ch.exited)
	})
	return nil
}

// await waits until the server has started.
func (ch *child) await(ctx context.Context) error {
	err := ch.proc.Await(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, procgroup.ErrNoGuard):
		ch.gone(time.Second) // so that its last words are read
		return fmt.Errorf("%w: %s", err, ch.stderr.lastWords())
	}
	return advise("see whether command in connectors.yaml can be run by the daemon's user", "%w", err)
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
			ch.proc.Terminate()
			if ch.gone(ch.limits.Kill) {
				return
			}
		}
		if ch.proc.Kill() {
			ch.log.Error("guard did not end and was killed")
		}
		<-ch.exited
	})
	_ = ch.stdout.Close()
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

// lastWordsWait is how long after its pipes ended a server's exit is waited for, so
// that its code and last words are told on a busy machine too.
const lastWordsWait = 5 * time.Second

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
	var known *advised
	if errors.As(err, &known) {
		return err // it never began
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return advise("if it starts slowly, raise timeout.connect in connectors.yaml", "no answer in time: %w%s", err, words())
	}
	if errors.Is(err, errGone) || errors.Is(err, context.Canceled) || !ch.gone(lastWordsWait) {
		return err
	}
	exit := ch.proc.Exit()
	how := exit.String()
	if exit.Signal == "" && !exit.Lost {
		how = fmt.Sprintf("exit code %d", exit.Code)
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
