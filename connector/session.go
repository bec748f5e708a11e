package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

// session is one live MCP session. Its conn decides when it ends; death by other
// causes is noted through die.
type session struct {
	conn  *conn
	mcp   *mcp.ClientSession
	child *child    // of a stdio connector
	http  *originRT // of an HTTP connector
	tap   *tap      // of every connector but HTTP
	inlet inlet
	since time.Time

	// Of the conn, under its lock.
	active    int
	idleSince time.Time

	answered atomic.Bool // it has answered at least one call
	closing  atomic.Bool // we are ending it
	noted    atomic.Bool // its death is accounted for

	deadOnce sync.Once
	dead     chan struct{}
	cause    error // set before dead is closed

	shutOnce sync.Once

	dirty    atomic.Bool   // the server announced another list
	fetch    chan struct{} // capacity 1: who fetches the list
	listMu   sync.Mutex
	list     []task.Tool
	warnings []string
}

// The protocol versions that matter to us: the SDK begins with its newest and
// falls back by itself; legacyProtocol is for servers that die of that.
const legacyProtocol = "2025-11-25"

// discoverDeadline bounds the SDK's first question, which servers older than it
// may leave unanswered.
const discoverDeadline = 3 * time.Second

var errSilent = errors.New("no answer to server/discover")

// dial opens a session and lists its tools, within the connect and list
// deadlines. On failure nothing of it is left, and the failure is counted.
func (c *conn) dial(ctx context.Context) (*session, error) {
	s, err := c.connect(ctx)
	if err == nil {
		if err = s.refresh(ctx); err != nil {
			err = fmt.Errorf("list tools: %w", s.explain(err))
			s.shut(true)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, errStopped
		}
		c.failed(err, s)
		return nil, err
	}
	return s, nil
}

// connect makes the handshake. If the server left the SDK's first question
// unanswered or ended the connection at it, a fresh one gets the older handshake:
// one that has the question still before it might be only slow, and would answer
// it then to somebody who no longer listens.
func (c *conn) connect(ctx context.Context) (*session, error) {
	ctx, cancel := c.startWithin(orElse(c.spec.ConnectTimeout, c.pool.limits.Connect)).wait(ctx)
	defer cancel()
	// Only the one open under way reads or writes c.legacy.
	s, question, err := c.handshake(ctx, c.legacy)
	if err == nil {
		return s, nil
	}
	if c.legacy || question == questionAnswered || ctx.Err() != nil {
		c.legacy = false
		return s, err
	}
	second, _, err2 := c.handshake(ctx, true)
	if err2 != nil && question == questionHungUp {
		return s, err // the first one's words are about the server, not the protocol
	}
	c.legacy = err2 == nil
	return second, err2
}

// question is what became of the SDK's first question, server/discover.
type question int

const (
	questionAnswered question = iota // or not asked
	questionSilence                  // no answer within discoverDeadline
	questionHungUp                   // the server ended the connection instead
)

// handshake connects once. A session that is returned with an error is dead and
// serves to word it.
func (c *conn) handshake(ctx context.Context, legacy bool) (s *session, q question, err error) {
	s = &session{conn: c, dead: make(chan struct{}), fetch: make(chan struct{}, 1)}
	s.inlet.session = s
	s.dirty.Store(true)
	transport, err := s.transport(ctx)
	if err != nil {
		return s, q, err
	}
	opts := &mcp.ClientSessionOptions{}
	if legacy {
		opts.ProtocolVersion = legacyProtocol
	}
	stop := context.AfterFunc(ctx, s.sever)
	s.mcp, err = s.client(&q).Connect(ctx, transport, opts)
	if err == nil && (!stop() || ctx.Err() != nil) {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = s.explain(err)
		s.shut(true)
		return s, q, err
	}
	s.since = time.Now()
	s.idleSince = s.since
	return s, q, nil
}

// client is an MCP client that offers the server nothing: no sampling, no
// elicitation, no roots.
func (s *session) client(q *question) *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "runnerd", Version: s.conn.pool.opts.Version}, &mcp.ClientOptions{
		Logger:                 slog.New(slog.DiscardHandler),
		Capabilities:           &mcp.ClientCapabilities{},
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { s.inlet.listChanged() },
	})
	client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch {
			case *q == questionSilence && method == "initialize":
				return nil, errSilent
			case method != "server/discover":
				return next(ctx, method, req)
			}
			short, cancel := s.conn.startWithin(discoverDeadline).wait(ctx)
			defer cancel()
			n := &note{}
			res, err := next(context.WithValue(short, noteKey{}, n), method, req)
			a, _, _ := n.read()
			switch {
			case err == nil || ctx.Err() != nil || a != nil:
			case short.Err() != nil:
				*q = questionSilence
				if s.child != nil {
					s.child.hurry.Store(true)
				}
			default:
				*q = questionHungUp
			}
			return res, err
		}
	})
	return client
}

// transport prepares the way to the server; a stdio server is started by it.
func (s *session) transport(ctx context.Context) (mcp.Transport, error) {
	c := s.conn
	if dial := c.pool.opts.Dial; dial != nil {
		t, err := dial(ctx, c.spec)
		if err != nil {
			return nil, err
		}
		if t != nil {
			return &tapTransport{session: s, open: func(ctx context.Context) (wire, error) {
				inner, err := t.Connect(ctx)
				return foreign{inner}, err
			}}, nil
		}
	}
	if c.spec.URL != "" {
		return s.httpTransport()
	}
	w, err := s.startChild(ctx)
	if err != nil {
		return nil, err
	}
	return &tapTransport{session: s, open: func(context.Context) (wire, error) { return w, nil }}, nil
}

// die notes that the session is of no more use, and why. The first cause stays.
func (s *session) die(cause error) {
	s.deadOnce.Do(func() {
		s.cause = cause
		close(s.dead)
	})
}

// spoil ends a session whose server we give up on; err is what people are told,
// if it has advice for them.
func (s *session) spoil(err error) {
	var a *advised
	if errors.As(err, &a) {
		if s.child != nil {
			s.child.spoilt.CompareAndSwap(nil, &err)
		}
		if s.http != nil {
			_ = s.http.remember(err)
		}
	}
	s.die(err)
}

func (s *session) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

func (s *session) deathCause() error {
	<-s.dead
	return s.cause
}

// ended answers a channel that closes once the SDK is done with the connection,
// which makes the session dead if it was not yet.
func (s *session) ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.mcp.Wait(); err != nil {
			s.die(err)
		}
		s.die(io.EOF)
	}()
	return ended
}

// sever cuts the connection under the SDK, so that everything in flight ends.
func (s *session) sever() {
	if s.tap != nil {
		_ = s.tap.Close()
	}
	if s.child != nil {
		s.child.stop()
	}
	if s.http != nil {
		s.http.sever()
	}
}

// shut ends the session and returns when its child is gone. With now, what is in
// flight has a second to end; else as long as a child is given.
func (s *session) shut(now bool) {
	s.closing.Store(true)
	s.shutOnce.Do(func() {
		s.die(errGone)
		if s.mcp != nil {
			done := make(chan struct{})
			go func() {
				_ = s.mcp.Close()
				close(done)
			}()
			patience := s.conn.closeDeadline()
			if now {
				patience = time.Second
			}
			select {
			case <-done:
			case <-time.After(patience):
			}
			s.sever()
			<-done
		}
		s.sever()
		if s.http != nil {
			s.http.close()
		}
	})
}

// closeDeadline bounds an orderly close: what a child is given, and some.
func (c *conn) closeDeadline() time.Duration {
	return c.pool.limits.Close + c.pool.limits.Kill + 5*time.Second
}

// call sends one call and waits for its answer until the call deadline, which is
// absolute: progress does not extend it.
func (s *session) call(ctx context.Context, tool string, args json.RawMessage) (task.ToolResult, error) {
	limit := min(orElse(s.conn.spec.CallTimeout, s.conn.pool.limits.Call), s.conn.pool.limits.CallCap)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(s.conn.pool.ctx, cancel)
	defer stop()

	note := &note{}
	params := &mcp.CallToolParams{Name: tool}
	if len(args) > 0 {
		params.Arguments = args
	}
	_, err := s.mcp.CallTool(context.WithValue(ctx, noteKey{}, note), params)
	if a, _, _ := note.read(); a != nil {
		s.answered.Store(true)
		if a.err != nil {
			return s.refusal(a.err), nil
		}
		s.conn.callWorked()
		res := s.flatten(a.result)
		if s.conn.spec.Builtin != "" { // no other server is believed what it touched
			res.Touched = touched(a.result)
		}
		return res, nil
	}
	return task.ToolResult{}, s.failure(ctx, note, fmt.Errorf("no answer within %s", limit), err)
}

// failure words why no answer came and says whether the request can have
// arrived; late is what a passed deadline means. A connection that broke makes
// the session dead.
func (s *session) failure(ctx context.Context, n *note, late, err error) error {
	_, sent, lost := n.read()
	gone := lost || errors.Is(err, mcp.ErrSessionMissing)
	switch {
	case s.conn.pool.ctx.Err() != nil:
		err = errStopped
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", late, ctx.Err())
	case ctx.Err() != nil:
		err = ctx.Err()
	case gone:
		s.die(err)
		if s.http != nil {
			err = s.http.explain(err)
		}
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF), s.isDead():
		s.die(err)
		err = s.explain(err)
	case s.http != nil:
		err = s.http.explain(err)
	}
	if !sent || gone {
		return unsent{err}
	}
	return err
}

// callWorked notes that the connector is good for calls.
func (c *conn) callWorked() {
	c.mu.Lock()
	recovered := c.trouble.worked()
	c.mu.Unlock()
	c.noticeRecovery(recovered)
}

// explain turns the cause of a failed or lost session into one that says what
// became of the server.
func (s *session) explain(err error) error {
	var a *advised
	if errors.As(err, &a) {
		return a // without what the SDK put around it
	}
	if s.child != nil {
		return s.child.explain(err, s.conn.spec)
	}
	if s.http != nil {
		return s.http.explain(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in time: %w", err)
	}
	return err
}

// orElse is d, or def where d says nothing.
func orElse(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}
