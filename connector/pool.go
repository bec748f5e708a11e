package connector

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"runnerd/procgroup"
	"runnerd/task"
)

// Options are what a Pool works with. Every field may be left out, but stdio
// connectors need StateDir.
type Options struct {
	// Resolve replaces ${env:...} and ${credential:...} in a connector's args,
	// env, headers and URL each time it is opened. Nil leaves them as they are.
	Resolve func(string) (string, error)
	// ResolvePath does the same for its command, cwd and root, where the value of a
	// variable is no secret. Nil: Resolve.
	ResolvePath func(string) (string, error)
	// Redact removes known secrets from texts that leave the package other than
	// as results: errors, logs and standard error of children.
	Redact func(string) string
	// Schema says why a tool's input schema is of no use; nil: each is. A tool with
	// such a schema is left out of the list, since no call of it could be decided.
	Schema func(json.RawMessage) error
	// StateDir holds connectors/NAME, the HOME of connector NAME (mode 0700).
	StateDir string
	// CacheDir holds NAME, where connector NAME keeps what it downloads, and NAME/tmp, its
	// TMPDIR; empty: .cache in its HOME.
	CacheDir string
	// Protected are the paths that children must not reach: state, configuration
	// and credential directories. A child's own HOME and cache stay granted, those of
	// others never are.
	Protected []string
	// As is who stdio connectors run as; nil is who we are. Fettered is for one who runs as
	// root: no capabilities, unix sockets or devices, and nothing to change but its own
	// directories, temporary ones, and what its entry names (cwd, root, absolute paths in
	// args and env).
	As       *procgroup.User
	Fettered bool
	// Starter starts stdio connectors; nil: one with the mark of StateDir.
	Starter *procgroup.Starter
	// Executable is what serves builtin connectors; empty: our own binary.
	Executable string
	// Environ are the KEY=VALUE pairs that every child gets (PATH, LANG, TZ …),
	// chosen by the caller; nothing else of the daemon's environment is passed.
	Environ []string
	Logger  *zap.Logger
	// Notice tells a person that a connector was given up for a while, once, and
	// that it works again, once. It must not call back into the Pool.
	Notice func(connector, text string)
	// Dial replaces the real transports, in tests; nil, or a nil transport
	// answered without an error: the real one.
	Dial func(context.Context, task.Connector) (mcp.Transport, error)
	// LookupIP replaces the resolver of HTTP connectors, in tests.
	LookupIP LookupIP
	// Version is what servers are told about us.
	Version string
	// Idle is how long a session without calls is kept; 0: 5 minutes, below 0: for
	// ever.
	Idle   time.Duration
	Limits Limits
}

// Limits bound what a connector can take. A zero field is its default.
type Limits struct {
	Connect     time.Duration // where the spec has none: 10s
	List        time.Duration // all pages together: 30s
	Call        time.Duration // where the spec has none: 60s
	CallCap     time.Duration // above what any spec says: 1h
	Close       time.Duration // after stdin closed, before TERM: 1s
	Kill        time.Duration // after TERM, before KILL: 2s
	Install     time.Duration // most that a command which installs its server may take, while busy: 5m
	Reply       time.Duration // for an answer of ours to be taken: 10s
	LineBytes   int           // one message on stdout, one HTTP body or event: 16 MiB
	ResultBytes int           // one result as text: 1 MiB
	Tools       int           // 512
	Pages       int           // 64
	// Failures is how many in a row open the breaker (5) and Breaker for how long
	// (5m). Backoff is the wait after the second failure (1s); it doubles.
	Failures int
	Breaker  time.Duration
	Backoff  time.Duration
	// Stable is how long a session must live to count as a success: 30s.
	Stable time.Duration
}

func (l Limits) withDefaults() Limits {
	orDuration := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	orInt := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	orDuration(&l.Connect, 10*time.Second)
	orDuration(&l.List, 30*time.Second)
	orDuration(&l.Call, 60*time.Second)
	orDuration(&l.CallCap, time.Hour)
	orDuration(&l.Close, time.Second)
	orDuration(&l.Kill, 2*time.Second)
	orDuration(&l.Reply, 10*time.Second)
	orDuration(&l.Install, 5*time.Minute)
	orDuration(&l.Breaker, 5*time.Minute)
	orDuration(&l.Backoff, time.Second)
	orDuration(&l.Stable, 30*time.Second)
	orInt(&l.LineBytes, 16<<20)
	orInt(&l.ResultBytes, 1<<20)
	orInt(&l.Tools, 512)
	orInt(&l.Pages, 64)
	orInt(&l.Failures, 5)
	return l
}

// Pool holds the sessions of all connectors. Its methods may be called from any
// goroutine.
type Pool struct {
	opts    Options
	limits  Limits
	log     *zap.Logger
	starter *procgroup.Starter

	// ctx ends when the pool closes; the work of all sessions hangs on it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	wake chan struct{} // capacity 1: the idle clock has to look again

	mu     sync.Mutex
	conns  map[string]*conn
	closed bool
}

// New returns a pool without connectors; see Set. It does no I/O.
func New(opts Options) *Pool {
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.Resolve == nil {
		opts.Resolve = func(s string) (string, error) { return s, nil }
	}
	if opts.ResolvePath == nil {
		opts.ResolvePath = opts.Resolve
	}
	if opts.Notice == nil {
		opts.Notice = func(string, string) {}
	}
	if opts.Schema == nil {
		opts.Schema = func(json.RawMessage) error { return nil }
	}
	if opts.Redact == nil {
		opts.Redact = func(s string) string { return s }
	}
	if opts.Executable == "" {
		opts.Executable = procgroup.Self
	}
	if opts.Version == "" {
		opts.Version = "dev"
	}
	if opts.Idle == 0 {
		opts.Idle = 5 * time.Minute
	}
	p := &Pool{
		opts:   opts,
		limits: opts.Limits.withDefaults(),
		log:    opts.Logger,
		wake:   make(chan struct{}, 1),
		conns:  map[string]*conn{},
	}
	if p.starter = opts.Starter; p.starter == nil {
		p.starter = &procgroup.Starter{}
		if opts.StateDir != "" {
			p.starter.Mark = procgroup.MarkOf(opts.StateDir)
		}
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *Pool) redact(s string) string { return p.opts.Redact(s) }

// Set makes specs the connectors there are. A session whose connector is gone or
// changed is closed once its calls have ended; a changed one opens anew at the
// next call; the others are not touched.
func (p *Pool) Set(specs []task.Connector) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	next := make(map[string]*conn, len(specs))
	for _, spec := range specs {
		old := p.conns[spec.ID]
		if old != nil && sameSpec(old.spec, spec) {
			next[spec.ID] = old
			continue
		}
		next[spec.ID] = newConn(p, spec)
	}
	for id, old := range p.conns {
		if next[id] != old {
			old.retire()
		}
	}
	p.conns = next
}

// sameSpec tells whether a session of a would do for b.
func sameSpec(a, b task.Connector) bool {
	a.File, b.File = "", ""
	return reflect.DeepEqual(a, b)
}

// conn finds a connector by its id.
func (p *Pool) conn(id string) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[id]
	switch {
	case p.closed:
		return nil, (&conn{id: id, pool: p}).fail(opOpen, errStopped, false)
	case c == nil:
		return nil, (&conn{id: id, pool: p}).fail(opOpen,
			advise("add it to connectors.yaml or take it out of the task", "no connector has this name"), false)
	}
	return c, nil
}

// Dial opens the connector's session if it is not open, and lists its tools. It
// waits for at most the connect and the list deadline.
func (p *Pool) Dial(ctx context.Context, id string) error {
	_, err := p.Tools(ctx, id)
	return err
}

// Tools lists the connector's tools as the live session announced them last,
// opening it if need be. Each has its Hash. The error is an *Error.
func (p *Pool) Tools(ctx context.Context, id string) (tools []task.Tool, err error) {
	err = p.with(id, func(c *conn) (err error) {
		tools, err = c.tools(ctx)
		return err
	})
	return tools, err
}

// Call sends one call with args, a JSON object or nothing. An error, which is an
// *Error, means that no answer came; a tool that failed is a result.
func (p *Pool) Call(ctx context.Context, id, tool string, args json.RawMessage) (res task.ToolResult, err error) {
	err = p.with(id, func(c *conn) (err error) {
		res, err = c.call(ctx, tool, args)
		return err
	})
	return res, err
}

// with runs f on a connector, a second time if an edit took it away before f got
// anything done.
func (p *Pool) with(id string, f func(*conn) error) error {
	for second := false; ; second = true {
		c, err := p.conn(id)
		if err != nil {
			return err
		}
		err = f(c)
		var e *Error
		if second || !errors.As(err, &e) || e.Sent() || !errors.Is(err, errGone) {
			return err
		}
	}
}

// Run closes sessions that are idle until ctx ends; then it closes all and
// returns when every child is gone.
func (p *Pool) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(p.closeIdle(time.Now()))
		select {
		case <-ctx.Done():
			return p.Close(context.WithoutCancel(ctx))
		case <-p.ctx.Done():
			return p.Close(context.WithoutCancel(ctx))
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// closeIdle closes what has been idle for long enough and returns how long to
// wait until the next may be.
func (p *Pool) closeIdle(now time.Time) time.Duration {
	wait := time.Hour
	if p.opts.Idle < 0 {
		return wait
	}
	for _, c := range p.list() {
		if left, counting := c.idleFor(now); counting {
			wait = min(wait, max(left, time.Millisecond))
		}
	}
	return wait
}

func (p *Pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// list returns the connectors in the order of their ids.
func (p *Pool) list() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*conn, 0, len(p.conns))
	for _, id := range slices.Sorted(maps.Keys(p.conns)) {
		conns = append(conns, p.conns[id])
	}
	return conns
}

// Close ends all sessions, calls in flight included, and returns when every
// child is gone or ctx ends. Every later use fails. It may be called again.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = map[string]*conn{}
	p.mu.Unlock()

	p.cancel()
	for _, c := range conns {
		c.end()
	}
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start runs f in a goroutine that Close waits for. It answers false, and runs
// nothing, once the pool is closed.
func (p *Pool) start(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// Sweep ends what an earlier daemon on the same state directory left behind. It must
// be called only by who holds the lock on the state directory, before the first use
// of the pool. It returns how many processes it found.
func (p *Pool) Sweep() int {
	found, gone := p.starter.Sweep()
	if found > 0 {
		p.log.Warn("ending processes that an earlier daemon left behind", zap.Int("processes", found))
	}
	if !gone {
		p.log.Error("some processes of an earlier daemon cannot be killed")
	}
	return found
}
