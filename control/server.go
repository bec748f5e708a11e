package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// Keys of log lines.
const (
	keyMethod = "method"
	keyPath   = "path"
	keyUID    = "peer_uid"
	keyPID    = "peer_pid"
	keyRight  = "right"
	keyStatus = "status"
	keyDetail = "detail"
)

// Bounds. A request has readTime to arrive and slowest to be answered, the time
// that a connector takes to start included.
const (
	readTime    = 15 * time.Second
	slowest     = 2 * time.Minute
	idleTime    = 2 * time.Minute
	maxBody     = 1 << 20
	maxHeader   = 16 << 10
	maxConns    = 256
	maxStreams  = 64
	writeTime   = 10 * time.Second
	defaultStop = 5 * time.Second
)

// Options are the parts of the daemon that the server speaks for. Main, Policies,
// Files, Workers, Connectors, Start, Reload and Rights are required.
type Options struct {
	// Main is the main database, Policies the policy database.
	Main     Main
	Policies Policies
	// Files is the config directory as it is in force.
	Files Files
	// Workers is told to cancel runs, and that a run may have become ready.
	Workers Workers
	// Connectors lists tools and how connectors stand.
	Connectors Connectors
	// Start stores a manual run as queued and sees that a worker takes it. It
	// answers *db.ActiveError if the task has an active run and an *Error for a
	// task that is not there.
	Start func(ctx context.Context, taskID string, script task.Script) (task.Run, error)
	// Reload reads every file again and puts what is good into force. Empty says that
	// the directory is to have no tasks.
	Reload func(ctx context.Context, empty bool) (ReloadView, error)
	// ToolSupport says how the model of a session's task takes tools; nil answers
	// "unknown". It asks no model.
	ToolSupport func(ctx context.Context, session string) (ToolSupport, error)
	// Healthy answers /healthz; nil is always healthy.
	Healthy func(ctx context.Context) error
	// Daemon, ConfigDir, StateDir and the zone are shown by /api/status.
	Daemon              DaemonView
	ConfigDir, StateDir string
	Zone, ZoneFrom      string
	// Metrics answers /metrics; nil has none.
	Metrics http.Handler
	// Changed, if not nil, is sent to when something was stored, which makes the
	// event stream prompt; without it the store is looked at every 250 ms while
	// somebody listens.
	Changed <-chan struct{}
	// Rights says what a peer may do; see DefaultRights. Nil: nothing.
	Rights func(Peer) Rights
	// Token is what every request needs in user mode; see EnsureToken. Empty: no
	// request counts as bearing it.
	Token string
	// Ours tells whether a process was started by the daemon; it is turned away before
	// it can ask anything. Nil: none was.
	Ours func(pid int) bool
	// Grace is how long requests under way have at shutdown; default 5s.
	Grace  time.Duration
	Logger *zap.Logger
}

// Server answers the API. Make it with New and run it once with Serve.
type Server struct {
	o       Options
	log     *zap.Logger
	mux     *http.ServeMux
	pulse   *pulse
	streams chan struct{} // a place for each event stream
	gate    *gate
	stop    chan struct{} // closed when event streams must end
	served  atomic.Bool
	state   []string // names of the state directory, from Serve on

	// Tests put other peers and times here before Serve.
	peerOf    func(net.Conn) (Peer, error)
	heartbeat time.Duration
	poll      time.Duration
}

// New makes a server. It does no I/O.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Grace <= 0 {
		o.Grace = defaultStop
	}
	if o.Rights == nil {
		o.Rights = func(Peer) Rights { return Rights{} }
	}
	if o.Ours == nil {
		o.Ours = func(int) bool { return false }
	}
	if o.ToolSupport == nil {
		o.ToolSupport = func(context.Context, string) (ToolSupport, error) {
			return ToolSupport{Supported: "unknown", Reason: "this daemon does not say"}, nil
		}
	}
	s := &Server{
		o: o, log: o.Logger, pulse: newPulse(), streams: make(chan struct{}, maxStreams), gate: newGate(),
		stop: make(chan struct{}), peerOf: peerOf, heartbeat: 15 * time.Second, poll: pollTime(o.Changed != nil),
	}
	s.mux = s.routes()
	return s
}

// Serve answers requests on the listener until ctx ends, and returns when every
// handler is gone: event streams end at once, other requests have Grace, and what
// still runs after that has its context cancelled. It closes the listener and may
// be called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.served.Swap(true) {
		return errors.Join(errors.New("serve control socket: this server was run before"), l.Close())
	}
	if err := s.o.complete(); err != nil {
		return errors.Join(fmt.Errorf("serve control socket: %w", err), l.Close())
	}
	s.state = stateNames(s.o.StateDir)
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		s.beat(work)
	}()
	srv := s.httpServer(work)
	ended := make(chan error, 1)
	go func() {
		ended <- srv.Serve(&peerListener{Listener: l, places: newPlaces(s.o.Rights), peerOf: s.peerOf, ours: s.o.Ours, log: s.log})
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		ended <- http.ErrServerClosed
	}
	close(s.stop)
	err = errors.Join(err, s.shutdown(srv, cancelWork))
	<-ended
	<-beats
	if err != nil {
		return fmt.Errorf("serve control socket: %w", err)
	}
	return nil
}

func (s *Server) httpServer(work context.Context) *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: readTime, // a ReadTimeout would end long answers too; bodies have their own
		WriteTimeout:      slowest + writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          zap.NewStdLog(s.log),
		BaseContext:       func(net.Listener) context.Context { return work },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if p, ok := c.(*peerConn); ok {
				return context.WithValue(ctx, peerKey{}, p.peer)
			}
			return ctx
		},
	}
}

// shutdown ends what is under way, politely first.
func (s *Server) shutdown(srv *http.Server, cancelWork func()) error {
	grace, cancel := context.WithTimeout(context.Background(), s.o.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	cancelWork()
	if err != nil {
		err = srv.Close()
	}
	select {
	case <-s.gate.shut():
		return err
	case <-time.After(s.o.Grace):
		return errors.Join(err, errors.New("a handler did not end in time"))
	}
}

// complete names the first required part that is missing.
func (o Options) complete() error {
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Main", o.Main == nil}, {"Policies", o.Policies == nil}, {"Files", o.Files == nil}, {"Workers", o.Workers == nil},
		{"Connectors", o.Connectors == nil}, {"Start", o.Start == nil}, {"Reload", o.Reload == nil},
	} {
		if part.missing {
			return fmt.Errorf("options: %s is missing", part.name)
		}
	}
	return nil
}

// name is how a peer is recorded: by user name where there is one.
func (p Peer) name() string {
	id := strconv.Itoa(p.UID)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// ToolSupport says whether the tools of a session reach its model.
type ToolSupport struct {
	// Supported is true, false or "unknown".
	Supported any `json:"supported"`
	// Mode is native, fenced or none; null if unknown.
	Mode   *string `json:"mode"`
	Reason string  `json:"reason"`
}

// Files is the config directory as it is in force.
type Files interface {
	// Tasks lists every task in the order of its id, those with a broken file too.
	// Paused and LastStatus are filled in by the server.
	Tasks(ctx context.Context) ([]TaskRow, error)
	// Task answers one task that is in force.
	Task(id string) (task.Task, bool)
	// Problems are the files that were refused, a line each.
	Problems() []string
}

// Workers is the dispatcher. *dispatch.Pool implements it.
type Workers interface {
	Cancel(runID, reason string) error
	Wake()
}

// Connectors asks MCP servers.
type Connectors interface {
	// Status tells how each connector stands; it opens nothing.
	Status() []ConnectorRow
	// Tools lists a connector's tools, opening it if need be.
	Tools(ctx context.Context, connector string) ([]task.Tool, error)
}
