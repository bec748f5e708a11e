package connector

import "time"

// State is one connector as people see it.
type State struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // builtin | stdio | http
	Up   bool   `json:"up"`
	// Since is when it came up or, if Err is set, when that happened.
	Since time.Time `json:"since,omitzero"`
	Err   string    `json:"error,omitempty"`
	// PID is the server's own process, of a stdio connector that is up.
	PID           int    `json:"pid,omitempty"`
	Server        string `json:"server,omitempty"`
	ServerVersion string `json:"server_version,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
	Tools         int    `json:"tools"`
	// Warnings are about the list: tools that were dropped, and why.
	Warnings []string `json:"warnings,omitempty"`
	// Containment is what keeps the child from the protected paths.
	Containment string `json:"containment,omitempty"`
	// Stderr is the redacted end of what the child wrote there.
	Stderr string `json:"stderr,omitempty"`
	// Noise counts lines on stdout that were no messages and were dropped.
	Noise int64 `json:"noise,omitempty"`
	// Restarts counts the tries to open it after the first.
	Restarts int `json:"restarts"`
	Active   int `json:"active_calls"`
	// BreakerUntil is set while the connector is left alone.
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
}

// The kinds of connector.
const (
	kindBuiltin = "builtin"
	kindStdio   = "stdio"
	kindHTTP    = "http"
)

// Status tells how each connector stands, in the order of their ids. It opens
// nothing and never waits for a server.
func (p *Pool) Status() []State {
	conns := p.list()
	states := make([]State, len(conns))
	for i, c := range conns {
		states[i] = c.state()
	}
	return states
}

func (c *conn) state() State {
	c.mu.Lock()
	s := State{
		ID: c.id, Kind: c.kind(), Restarts: max(0, c.opens-1), Stderr: c.lastStderr,
		Err: c.lastErr, Since: c.lastErrAt, BreakerUntil: c.trouble.brokenUntil(time.Now()),
	}
	live := c.session
	if live != nil && live.isDead() {
		live = nil
	}
	if live != nil {
		s.Up, s.Since, s.Active, s.Err = true, live.since, live.active, ""
	}
	c.mu.Unlock()
	if live != nil {
		live.describe(&s)
	}
	return s
}

func (c *conn) kind() string {
	switch {
	case c.spec.Builtin != "":
		return kindBuiltin
	case c.spec.URL != "":
		return kindHTTP
	}
	return kindStdio
}

// describe adds what the live session knows.
func (s *session) describe(st *State) {
	if init := s.mcp.InitializeResult(); init != nil {
		st.Protocol = init.ProtocolVersion
		if info := init.ServerInfo; info != nil {
			redact := s.conn.pool.redact
			st.Server, st.ServerVersion = oneLine(redact(info.Name), 200), oneLine(redact(info.Version), 200)
		}
	}
	s.listMu.Lock()
	st.Tools, st.Warnings = len(s.list), s.warnings
	s.listMu.Unlock()
	if s.child != nil {
		st.PID, st.Containment = s.child.proc.PID(), s.child.proc.Containment()
		st.Stderr, st.Noise = s.child.stderr.text(), s.child.noise.Load()
	}
}
