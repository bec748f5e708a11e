// Package wire is what the vendors that speak HTTP share: one POST with bounds on
// time and size, the classes of errors, and a history made fit to send. Only
// the vendor packages beside it call it.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/task"
)

// Client posts requests to one endpoint. It never retries, follows a redirect
// only within its host, and uses a proxy only if it is told to.
type Client struct {
	// Dialect is what the endpoint does not take; see Adapt.
	Dialect
	opts llm.Endpoint
	base *url.URL
	http *http.Client
	log  *zap.Logger
}

// NewClient checks the endpoint and fills in its defaults; base is the vendor's.
func NewClient(opts llm.Endpoint, base string) (*Client, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = base
	}
	u, err := parseURL(opts.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base_url %q: %w", opts.BaseURL, err)
	}
	if opts.Model == "" {
		return nil, errors.New("model: is missing: want the vendor's name of a model")
	}
	if opts.Timeout <= 0 {
		opts.Timeout = llm.DefaultTimeout
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = llm.DefaultMaxBytes
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	transport, err := newTransport(opts.Proxy)
	if err != nil {
		return nil, err
	}
	return &Client{
		opts: opts, base: u, log: opts.Logger,
		http: &http.Client{Transport: transport, CheckRedirect: withinHost},
	}, nil
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(s, "/"))
	if err != nil {
		return nil, errors.New("is no URL: want one like https://host/v1")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("want an absolute http or https URL")
	}
	return u, nil
}

func newTransport(proxy string) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    15 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: 1 << 20,
		ForceAttemptHTTP2:      true,
	}
	if proxy == "" {
		return t, nil
	}
	u, err := parseURL(proxy)
	if err != nil {
		return nil, fmt.Errorf("proxy %q: %w", proxy, err)
	}
	t.Proxy = http.ProxyURL(u)
	return t, nil
}

// withinHost follows a redirect that keeps method, scheme and host: anything else
// would carry the prompt, and perhaps the key, to another place.
func withinHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// Model is the vendor's name of the model.
func (c *Client) Model() string { return c.opts.Model }

// Host is the host and port of the endpoint.
func (c *Client) Host() string { return c.base.Host }

// BasePath is the path of the base URL, without a slash at its end.
func (c *Client) BasePath() string { return c.base.Path }

// MaxTokens is the cap on an answer: the request's, else the endpoint's, else 0.
func (c *Client) MaxTokens(req *llm.Request) int {
	if req.MaxOutputTokens > 0 {
		return req.MaxOutputTokens
	}
	return c.opts.MaxOutputTokens
}

// Key resolves the API key.
func (c *Client) Key() (string, error) {
	if c.opts.Key == nil {
		return "", nil
	}
	key, err := c.opts.Key()
	if err != nil {
		return "", &llm.Error{Kind: llm.Auth, Message: "resolve api_key: " + err.Error(), Err: err}
	}
	return strings.TrimSpace(key), nil
}

// Close drops idle connections. The client may still be used.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Adapt takes the rejection of a request that had these parameters. It tells
// whether it is worth to ask again, without one of them or under its other name,
// and notes that in the log.
func (c *Client) Adapt(err error, sent ...Param) bool {
	if !c.Learn(err, sent...) {
		return false
	}
	c.log.Warn("endpoint refuses a parameter", zap.String("model", c.opts.Model), zap.Strings("adapted", c.Adapted()), zap.Error(err))
	return true
}

// Post is one request and what reads its answer.
type Post struct {
	Path   string // below the base URL, with a leading slash
	Header http.Header
	Body   []byte
	// Tools tells that the request offers tools, so that their rejection can be
	// told from any other.
	Tools bool
	// Read reads the answer of status 2xx. An error that is no *llm.Error counts
	// as a stream that broke off.
	Read func(*Body) error
	// Received tells what had come when a call failed: what the vendor had counted,
	// and how many bytes of text and calls.
	Received func() (task.Usage, int)
}

var (
	errTimeout = errors.New("the call took longer than its timeout")
	errIdle    = errors.New("the answer stood still for longer than the idle timeout")
	errSettled = errors.New("the answer is whole and nothing follows it")
)

// Do posts and reads. The caller's own cancel or deadline comes back as its
// context's error; everything else as *llm.Error. Either is wrapped in *llm.Spent
// if the call costs although it failed.
func (c *Client) Do(ctx context.Context, p Post) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ask model: %w", err)
	}
	begin := time.Now()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(c.opts.Timeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	var wrote atomic.Bool
	traced := httptrace.WithClientTrace(inner, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { wrote.Store(i.Err == nil) }})
	status, err := c.exchange(traced, cancel, p)
	err = spent(p, status, wrote.Load(), c.blame(ctx, inner, err))
	c.log.Debug("model called", zap.String("model", c.opts.Model), zap.Int("http_status", status),
		zap.Duration("took", time.Since(begin)), zap.Error(err))
	return err
}

// spent wraps the error of a call that costs: the vendor had begun to answer, or
// was at work when we let go of it. What it rejects in words alone costs nothing.
func spent(p Post, status int, wrote bool, err error) error {
	if err == nil || p.Received == nil || !wrote {
		return err
	}
	usage, n := p.Received()
	kind := llm.ErrorKind(err)
	letGo := kind == "" || kind == llm.Timeout
	began := status/100 == 2 && (n > 0 || usage.Tokens() > 0 || kind == llm.CutStream)
	if began || letGo && (status == 0 || status/100 == 2) {
		return &llm.Spent{Err: err, Usage: usage, Bytes: n}
	}
	return err
}

// Cost wraps the error of an answer that came whole and is none.
func Cost(err error, received func() (task.Usage, int)) error {
	if err == nil {
		return nil
	}
	usage, n := received()
	return &llm.Spent{Err: err, Usage: usage, Bytes: n}
}

// versioned is the end of a base_url under which vendors serve what we ask for.
var versioned = regexp.MustCompile(`/v\d+[a-z0-9]*$`)

// lost says of a 404 which URL was asked for, and what to try: the vendor's own words
// are often only that there is no such page.
func (c *Client) lost(err error, path string) error {
	var e *llm.Error
	if !errors.As(err, &e) || e.Status != http.StatusNotFound {
		return err
	}
	asked := *c.base
	asked.User, asked.RawQuery, asked.Fragment = nil, "", ""
	base := strings.TrimSuffix(asked.String(), "/")
	e.Message += "; asked for " + base + path
	if !versioned.MatchString(asked.Path) && !strings.HasPrefix(path, "/v") && !strings.HasPrefix(path, "/api/") {
		e.Message += "; base_url may lack its version: try " + base + "/v1"
	}
	return err
}

func (c *Client) exchange(ctx context.Context, cancel context.CancelCauseFunc, p Post) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.String()+p.Path, bytes.NewReader(p.Body))
	if err != nil {
		return 0, &llm.Error{Kind: llm.BadRequest, Message: "make request: " + err.Error(), Err: err}
	}
	for k, v := range p.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "runnerd")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, &llm.Error{Kind: llm.Unreachable, Message: reach(err), Err: err}
	}
	defer resp.Body.Close()
	body := io.Reader(&capped{r: resp.Body, left: c.opts.MaxBytes})
	if c.opts.IdleTimeout > 0 {
		idle := newIdle(body, c.opts.IdleTimeout, cancel)
		defer idle.stop()
		body = idle
	}
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, c.lost(rejected(resp, body, p.Tools), p.Path)
	}
	var settling *time.Timer
	defer func() {
		if settling != nil {
			settling.Stop()
		}
	}()
	return resp.StatusCode, p.Read(&Body{r: body, settle: func() {
		if settling == nil {
			settling = time.AfterFunc(settleTime, func() { cancel(errSettled) })
		}
	}})
}

// reach words a transport error without the method and URL that net/http puts in
// front; the URL may hold a key.
func reach(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return "no answer: " + err.Error()
}

// blame decides who ended a call: the caller, one of our timeouts, or the wire.
func (c *Client) blame(outer, inner context.Context, err error) error {
	if err == nil {
		return nil
	}
	if outer.Err() != nil {
		return fmt.Errorf("ask model: %w", outer.Err())
	}
	switch cause := context.Cause(inner); {
	case errors.Is(cause, errTimeout):
		return &llm.Error{Kind: llm.Timeout, Message: fmt.Sprintf("%s (%s)", errTimeout, c.opts.Timeout), Err: errTimeout}
	case errors.Is(cause, errIdle):
		return &llm.Error{Kind: llm.Timeout, Message: fmt.Sprintf("%s (%s)", errIdle, c.opts.IdleTimeout), Err: errIdle}
	}
	var known *llm.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, errTooLong):
		return &llm.Error{Kind: llm.Malformed, Message: fmt.Sprintf("the answer is longer than %d bytes", c.opts.MaxBytes), Err: err}
	}
	return &llm.Error{Kind: llm.CutStream, Message: "the answer broke off: " + err.Error(), Err: err}
}

var errTooLong = errors.New("answer too long")

// capped reads at most left bytes and then fails: a cut answer must not look like
// a whole one.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}

// idle cancels the call when a read waits for too long.
type idle struct {
	r     io.Reader
	after time.Duration
	timer *time.Timer
}

func newIdle(r io.Reader, after time.Duration, cancel context.CancelCauseFunc) *idle {
	return &idle{r: r, after: after, timer: time.AfterFunc(after, func() { cancel(errIdle) })}
}

func (i *idle) Read(p []byte) (int, error) {
	i.timer.Reset(i.after)
	n, err := i.r.Read(p)
	i.timer.Stop()
	return n, err
}

func (i *idle) stop() { i.timer.Stop() }
