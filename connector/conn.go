package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// Keys of log lines.
const (
	keyConnector = "connector"
	keyError     = "error"
	keyTools     = "tools"
	keyElapsed   = "elapsed"
	keyWarning   = "warning"
	keyPID       = "pid"
	keyLine      = "line"
	keyReason    = "reason"
)

// conn is one connector as configured, with the session it has or had. A changed
// configuration is another conn.
type conn struct {
	id   string
	spec task.Connector
	pool *Pool
	log  *zap.Logger

	mu      sync.Mutex
	session *session // nil while down
	opening *opening // the open under way, which all callers share
	retired bool     // no longer configured: open nothing more
	opens   int
	legacy  bool // the server wants the older handshake
	trouble trouble

	starting atomic.Pointer[child] // the newest child, for who waits for it

	lastErr    string
	lastErrAt  time.Time
	lastStderr string
}

// opening is one open, shared by whoever needs the session.
type opening struct {
	done    chan struct{}
	session *session
	err     error
}

func newConn(p *Pool, spec task.Connector) *conn {
	return &conn{id: spec.ID, spec: spec, pool: p, log: p.log.With(zap.String(keyConnector, spec.ID))}
}

// acquire returns the live session with the caller counted as active, opening
// one if there is none. Who acquires must release.
func (c *conn) acquire(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if s := c.session; s != nil && !s.isDead() {
		s.active++
		recovered := time.Since(s.since) >= c.pool.limits.Stable && c.trouble.worked()
		c.mu.Unlock()
		c.noticeRecovery(recovered)
		return s, nil
	}
	o, err := c.join()
	c.mu.Unlock()
	if err != nil {
		return nil, c.fail(opOpen, err, false)
	}
	select {
	case <-ctx.Done():
		return nil, c.fail(opOpen, ctx.Err(), false)
	case <-o.done:
	}
	if o.err != nil {
		return nil, c.fail(opOpen, o.err, false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o.session.active++
	return o.session, nil
}

// join returns the open under way or starts one. c.mu is held.
func (c *conn) join() (*opening, error) {
	if c.opening != nil {
		return c.opening, nil
	}
	if c.retired {
		return nil, errGone
	}
	if wait := c.trouble.wait(time.Now()); wait > 0 {
		return nil, fmt.Errorf("left alone for another %s after %d failures in a row, the last: %s",
			wait.Round(time.Second), c.trouble.failures, c.lastErr)
	}
	o := &opening{done: make(chan struct{})}
	c.opening = o
	// The pool's lock comes before ours: start the goroutine without either.
	c.mu.Unlock()
	ok := c.pool.start(func() { c.open(o) })
	c.mu.Lock()
	if !ok {
		c.opening = nil
		o.err = errStopped
		close(o.done)
		return nil, errStopped
	}
	return o, nil
}

// open makes a session and hands it to all who wait for it. It runs on the
// pool's time, not on a caller's, so that one caller's end does not fail others.
func (c *conn) open(o *opening) {
	begun := time.Now()
	s, err := c.dial(c.pool.ctx)
	if err == nil {
		c.log.Info("connector is up", zap.Int(keyTools, len(s.list)), zap.Duration(keyElapsed, time.Since(begun)))
		err = c.adopt(s)
	}
	c.mu.Lock()
	defer func() {
		c.mu.Unlock()
		close(o.done)
	}()
	c.opening = nil
	c.opens++
	if err != nil {
		o.err = err
		return
	}
	o.session = s
	if !s.isDead() {
		c.session = s
	}
}

// adopt registers a new session with the pool and watches it.
func (c *conn) adopt(s *session) error {
	c.mu.Lock()
	retired := c.retired
	c.mu.Unlock()
	if !retired && c.pool.start(func() { c.watch(s) }) {
		return nil
	}
	s.shut(true)
	return errGone
}

// watch waits for the end of a session, whoever ends it, and for the last of its
// children.
func (c *conn) watch(s *session) {
	stop := context.AfterFunc(c.pool.ctx, func() { s.shut(true) })
	defer stop()
	ended := s.ended()
	<-s.dead
	c.lost(s)
	s.shut(false)
	<-ended
}

// end makes the connector open nothing more; the sessions end with the pool.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
}

// lost takes note that s is dead: nobody gets it any more and, unless we ended
// it, it counts as a failure if it was young and had not answered a call.
func (c *conn) lost(s *session) {
	s.die(errGone)
	if !s.noted.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	if c.session == s {
		c.session = nil
	}
	if s.closing.Load() {
		c.mu.Unlock()
		return
	}
	old := time.Since(s.since) >= c.pool.limits.Stable || s.answered.Load()
	recovered := old && c.trouble.worked()
	c.mu.Unlock()

	c.noticeRecovery(recovered)
	cause := s.explain(s.deathCause())
	if old {
		c.note(cause, s)
		return
	}
	c.failed(cause, s)
}

// note remembers what went wrong, for people who ask.
func (c *conn) note(err error, s *session) {
	e := c.fail(opOpen, err, false)
	c.mu.Lock()
	c.lastErr, c.lastErrAt = oneLine(c.pool.redact(plainCause(err)), maxErrorText), time.Now()
	if s != nil && s.child != nil {
		c.lastStderr = s.child.stderr.text()
	}
	c.mu.Unlock()
	c.log.Warn("connector is down", zap.String(keyError, e.Error()))
}

// failed counts a failure and tells people when the breaker opens.
func (c *conn) failed(err error, s *session) {
	c.note(err, s)
	c.mu.Lock()
	opened := c.trouble.failed(time.Now(), c.pool.limits)
	n := c.trouble.failures
	c.mu.Unlock()
	if opened {
		c.pool.opts.Notice(c.id, fmt.Sprintf("failed %d times in a row and is left alone for %s at a time: %s",
			n, c.pool.limits.Breaker, c.fail(opOpen, err, false)))
	}
}

func (c *conn) noticeRecovery(recovered bool) {
	if recovered {
		c.log.Info("connector works again")
		c.pool.opts.Notice(c.id, "works again")
	}
}

// release ends the caller's use of s.
func (c *conn) release(s *session) {
	c.mu.Lock()
	s.active--
	s.idleSince = time.Now()
	last := c.retired && s.active == 0
	c.mu.Unlock()
	if last {
		c.pool.start(func() { s.shut(false) })
	}
	c.pool.poke()
}

// retire makes the connector open nothing more and closes its session once it
// has no calls. The pool's lock is held.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	if s := c.session; s != nil && s.active == 0 {
		c.pool.wg.Go(func() { s.shut(false) })
	}
}

// idleFor tells how long the session may still idle, and closes it if that is
// nothing. It answers false where there is nothing to wait for.
func (c *conn) idleFor(now time.Time) (time.Duration, bool) {
	c.mu.Lock()
	s := c.session
	if s == nil || s.active > 0 {
		c.mu.Unlock()
		return 0, false
	}
	left := c.pool.opts.Idle - now.Sub(s.idleSince)
	if left > 0 {
		c.mu.Unlock()
		return left, true
	}
	c.session = nil
	recovered := now.Sub(s.since) >= c.pool.limits.Stable && c.trouble.worked()
	c.mu.Unlock()
	c.noticeRecovery(recovered)
	c.log.Info("connector is closed", zap.String(keyReason, "idle"))
	c.pool.start(func() { s.shut(false) })
	return 0, false
}

// tools is Pool.Tools for this connector.
func (c *conn) tools(ctx context.Context) ([]task.Tool, error) {
	var tools []task.Tool
	err := c.use(ctx, opList, func(s *session) (err error) {
		tools, err = s.tools(ctx)
		return err
	})
	return tools, err
}

// call is Pool.Call for this connector.
func (c *conn) call(ctx context.Context, tool string, args json.RawMessage) (task.ToolResult, error) {
	op := opCall + " " + oneLine(tool, 128)
	if len(args) > 0 && !json.Valid(args) {
		return task.ToolResult{}, c.fail(op, errors.New("the arguments are no JSON"), false)
	}
	var res task.ToolResult
	err := c.use(ctx, op, func(s *session) (err error) {
		res, err = s.call(ctx, tool, args)
		return err
	})
	return res, err
}

// unsent marks a failure before the request could reach the server.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// use runs f with a session. A session that turns out to be dead before anything
// was sent is replaced once: the request cannot have happened.
func (c *conn) use(ctx context.Context, op string, f func(*session) error) error {
	for attempt := 0; ; attempt++ {
		s, err := c.acquire(ctx)
		if err != nil {
			return err
		}
		err = f(s)
		if s.isDead() {
			c.lost(s)
		}
		c.release(s)
		if err == nil {
			return nil
		}
		var u unsent
		notSent := errors.As(err, &u)
		if attempt > 0 || !notSent || !s.isDead() || ctx.Err() != nil {
			return c.fail(op, err, !notSent)
		}
	}
}
