package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"runnerd/task"
	"runnerd/text"
)

// ErrNoDaemon says that nobody listens on the socket.
var ErrNoDaemon = errors.New("no daemon listens there")

// maxAnswer bounds what a client reads of one answer.
const maxAnswer = 256 << 20

// Client asks a daemon over its control socket. It is safe for concurrent use.
// Answers that say no are *Error; ErrNoDaemon is wrapped where nobody listens.
type Client struct {
	socket string
	token  func() string
	state  []string
	http   *http.Client
	// idle is how long an event stream may be silent; the server breaks the
	// silence every 15 s.
	idle time.Duration
	// giveUp is how long a cut event stream is tried again.
	giveUp time.Duration
}

// NewClient makes a client. token, if not nil, is called for each request
// and answers the state directory's token, or ""; see ReadToken.
func NewClient(socket string, token func() string) *Client {
	if token == nil {
		token = func() string { return "" }
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &Client{
		socket: socket, token: token, idle: 45 * time.Second, giveUp: time.Minute,
		http: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
			DisableCompression: true, MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second,
			ResponseHeaderTimeout: slowest + writeTime,
		}},
	}
}

// Of makes the client ask the daemon of one state directory and no other: an answer
// of another's is an *Error with CodeElsewhere, and nothing was done. It returns c.
func (c *Client) Of(stateDir string) *Client {
	c.state = stateNames(stateDir)
	return c
}

// Close gives idle connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// send makes one request and answers the response of a success.
func (c *Client) send(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("ask the daemon: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://runnerd"+path, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	for _, name := range c.state {
		req.Header.Add(StateHeader, name)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := c.token(); token != "" {
		req.Header.Set(TokenHeader, token)
	}
	var began atomic.Bool // the answer
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { began.Store(true) }}))
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(ctx, err, began.Load())
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, errorOf(resp)
}

// unanswered words that no answer came, or half of one.
func (c *Client) unanswered(ctx context.Context, err error, began bool) error {
	var op *net.OpError
	dialling := errors.As(err, &op) && op.Op == "dial"
	var slow net.Error
	late := ctx.Err() != nil || errors.As(err, &slow) && slow.Timeout()
	cut := !began || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	switch {
	case !dialling && !late && cut:
		return fmt.Errorf("ask the daemon at %s: %w", c.socket, c.whyNot(ctx))
	case dialling && errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("ask the daemon at %s: it takes no more connections, since it hangs or too many come at once; try again", c.socket)
	case dialling && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)):
		return fmt.Errorf("ask the daemon at %s: %w", c.socket, ErrNoDaemon)
	case dialling && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask the daemon at %s: %w; use the user or the group that the socket belongs to", c.socket, fs.ErrPermission)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the made-up URL
	}
	return fmt.Errorf("ask the daemon at %s: %w", c.socket, err)
}

// errUnanswered says that a connection ended before a word of an answer.
var errUnanswered = errors.New("it took the connection and ended it without an answer: it stopped, or had no free place for it; `runnerd status` says whether it lives, then try again")

// whyTime is how long a daemon has to turn a connection away by itself.
const whyTime = 500 * time.Millisecond

// whyNot is what a daemon says to a connection that asks for nothing: one without a
// free place says so and ends it. Beside a request that can be lost.
func (c *Client) whyNot(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: whyTime}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return errUnanswered
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(whyTime)); err != nil {
		return errUnanswered
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return errUnanswered
	}
	defer resp.Body.Close()
	return errorOf(resp)
}

// errorOf reads the error of an answer, also of one that is not ours.
func errorOf(resp *http.Response) *Error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Error *Error `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil || body.Error == nil || body.Error.Message == "" {
		body.Error = &Error{Code: CodeInternal, Message: fmt.Sprintf("the daemon answered %s: %s", resp.Status, text.Escape(clip(string(data), 200)))}
	}
	body.Error.Status = resp.StatusCode
	return body.Error
}

// ask makes one request and reads its JSON answer.
func ask[T any](ctx context.Context, c *Client, method, path string, body any) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, slowest+2*writeTime)
	defer cancel()
	resp, err := c.send(ctx, method, path, body, nil)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return out, fmt.Errorf("read the daemon's answer to %s %s: %w", method, path, err)
	}
	return out, nil
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return ask[T](ctx, c, http.MethodGet, path, nil)
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	return ask[T](ctx, c, http.MethodPost, path, body)
}

func at(kind, id, rest string) string { return "/api/" + kind + "/" + url.PathEscape(id) + rest }

// params makes a query of pairs; empty values are left out.
func params(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func number(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// body makes a body of optional strings.
func bodyOf(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m[pairs[i]] = pairs[i+1]
		}
	}
	return m
}

// Health is nil if the daemon is healthy.
func (c *Client) Health(ctx context.Context) error {
	_, err := get[HealthView](ctx, c, "/healthz", nil)
	return err
}

// PID is the daemon's process, 0 where it does not say, beside what Health says.
func (c *Client) PID(ctx context.Context) (int, error) {
	v, err := get[HealthView](ctx, c, "/healthz", nil)
	var told *Error
	if errors.As(err, &told) {
		v.PID = told.PID
	}
	return v.PID, err
}

// Metrics reads the daemon's metrics as Prometheus text.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return string(data), err
}

// Status reads `status --json`.
func (c *Client) Status(ctx context.Context) (StatusView, error) {
	return get[StatusView](ctx, c, "/api/status", nil)
}

// Tasks lists tasks.
func (c *Client) Tasks(ctx context.Context) ([]TaskRow, error) {
	return get[[]TaskRow](ctx, c, "/api/tasks", nil)
}

// Task reads one task.
func (c *Client) Task(ctx context.Context, id string) (TaskView, error) {
	return get[TaskView](ctx, c, at("tasks", id, ""), nil)
}

// Start starts a manual run of a task. An *Error with CodeActiveRun names the run
// that is in the way.
func (c *Client) Start(ctx context.Context, taskID string) (RunRow, error) {
	return post[RunRow](ctx, c, at("tasks", taskID, "/run"), nil)
}

// Rehearse starts a run that plays a script in place of the task's model.
func (c *Client) Rehearse(ctx context.Context, taskID string, script task.Script) (RunRow, error) {
	return post[RunRow](ctx, c, at("tasks", taskID, "/run"), map[string]task.Script{"script": script})
}

// Pause holds a task back, or everything if taskID is empty.
func (c *Client) Pause(ctx context.Context, taskID, note string) (PauseView, error) {
	path := "/api/pause"
	if taskID != "" {
		path = at("tasks", taskID, "/pause")
	}
	return post[PauseView](ctx, c, path, bodyOf("note", note))
}

// Resume ends the pause of a task, or of everything if taskID is empty.
func (c *Client) Resume(ctx context.Context, taskID string) (PauseView, error) {
	path := "/api/resume"
	if taskID != "" {
		path = at("tasks", taskID, "/resume")
	}
	return post[PauseView](ctx, c, path, nil)
}

// Reload makes the daemon read all files again; empty says that there are to be no
// tasks.
func (c *Client) Reload(ctx context.Context, empty bool) (ReloadView, error) {
	return post[ReloadView](ctx, c, "/api/reload", map[string]bool{"empty": empty})
}

// Runs lists runs, newest first; of one task if taskID is not empty, older than the
// run before if that is not, 100 if limit is 0.
func (c *Client) Runs(ctx context.Context, taskID string, limit int, before string) ([]RunRow, error) {
	return get[[]RunRow](ctx, c, "/api/runs", params("task", taskID, "limit", number(limit), "before", before))
}

// Run reads a run with its transcript and receipts. The beginning of its id is
// enough.
func (c *Client) Run(ctx context.Context, id string) (RunView, error) {
	return get[RunView](ctx, c, at("runs", id, ""), nil)
}

// Cancel asks for the end of a run and answers the run as it stands: a worker that
// holds it ends it a little later.
func (c *Client) Cancel(ctx context.Context, id, reason string) (RunRow, error) {
	return post[RunRow](ctx, c, at("runs", id, "/cancel"), bodyOf("reason", reason))
}

// Why tells what became of a task's instants: of one if moment is set, else of
// those since, newest first.
func (c *Client) Why(ctx context.Context, taskID string, moment, since time.Time) ([]WhyRow, error) {
	return get[[]WhyRow](ctx, c, "/api/why", params("task", taskID, "at", instant(moment), "since", instant(since)))
}

// Approvals lists approvals: the pending ones if state is empty, "all", or states
// with commas between.
func (c *Client) Approvals(ctx context.Context, state, taskID string) ([]ApprovalRow, error) {
	return get[[]ApprovalRow](ctx, c, "/api/approvals", params("state", state, "task", taskID))
}

// Approval reads one approval. The beginning of its id is enough.
func (c *Client) Approval(ctx context.Context, id string) (ApprovalView, error) {
	return get[ApprovalView](ctx, c, at("approvals", id, ""), nil)
}

// Verdict is a decision as a client sends it.
type Verdict struct {
	ID string
	// Task, if set, must be the approval's.
	Task   string
	Reason string
	// ArgsHash, if set, must be that of the arguments that the person looked at.
	ArgsHash string
}

// Approve lets one exact call be sent.
func (c *Client) Approve(ctx context.Context, v Verdict) (DecisionView, error) {
	return c.decide(ctx, v, "/approve")
}

// Deny refuses a call.
func (c *Client) Deny(ctx context.Context, v Verdict) (DecisionView, error) {
	return c.decide(ctx, v, "/deny")
}

func (c *Client) decide(ctx context.Context, v Verdict, verb string) (DecisionView, error) {
	path := at("approvals", v.ID, verb)
	if v.Task != "" {
		path += "?" + params("task", v.Task).Encode()
	}
	return post[DecisionView](ctx, c, path, bodyOf("reason", v.Reason, "args_hash", v.ArgsHash))
}

// Connectors tells how each connector stands.
func (c *Client) Connectors(ctx context.Context) ([]ConnectorRow, error) {
	return get[[]ConnectorRow](ctx, c, "/api/connectors", nil)
}

// ConnectorTools lists a connector's tools with their classes.
func (c *Client) ConnectorTools(ctx context.Context, id string) ([]ToolRow, error) {
	return get[[]ToolRow](ctx, c, at("connectors", id, "/tools"), nil)
}

// ConnectorDiff compares what was accepted of a connector with what it lists now.
func (c *Client) ConnectorDiff(ctx context.Context, id string) ([]DiffRow, error) {
	return get[[]DiffRow](ctx, c, at("connectors", id, "/diff"), nil)
}

// Accept accepts definitions of a connector.
func (c *Client) Accept(ctx context.Context, id string, req AcceptRequest) (AcceptView, error) {
	return post[AcceptView](ctx, c, at("connectors", id, "/accept"), req)
}

// SessionConnectors reads the connectors of a session.
func (c *Client) SessionConnectors(ctx context.Context, id string) (ConnectorsView, error) {
	return get[ConnectorsView](ctx, c, at("session", id, "/connectors"), nil)
}

// SetSessionConnectors sets the session's own list; an absent one clears it.
func (c *Client) SetSessionConnectors(ctx context.Context, id string, list task.List[string]) (ConnectorsView, error) {
	return ask[ConnectorsView](ctx, c, http.MethodPatch, at("session", id, "/connectors"), map[string]any{"connector_ids": list})
}

// ToolSupport says whether tools reach the model of a session's task.
func (c *Client) ToolSupport(ctx context.Context, session string) (ToolSupport, error) {
	return get[ToolSupport](ctx, c, at("session", session, "/tool-support"), nil)
}

// Project reads a project's policy.
func (c *Client) Project(ctx context.Context, id string) (ProjectView, error) {
	return get[ProjectView](ctx, c, at("projects", id, ""), nil)
}

// PatchProject edits connector_ids and limits: a missing key leaves its field, null
// clears it.
func (c *Client) PatchProject(ctx context.Context, id string, p map[string]json.RawMessage) (ProjectView, error) {
	return ask[ProjectView](ctx, c, http.MethodPatch, at("projects", id, ""), p)
}

// TaskPolicy reads a task's policy, a field each.
func (c *Client) TaskPolicy(ctx context.Context, id string) (PolicyView, error) {
	return get[PolicyView](ctx, c, at("tasks", id, "/policy"), nil)
}

// PatchTaskPolicy edits the override layer of a task's policy: a missing key leaves
// its field, null clears the override.
func (c *Client) PatchTaskPolicy(ctx context.Context, id string, p map[string]json.RawMessage) (PolicyView, error) {
	return ask[PolicyView](ctx, c, http.MethodPatch, at("tasks", id, "/policy"), p)
}
