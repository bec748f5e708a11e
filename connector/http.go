package connector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Deadlines of the HTTP client that are not the spec's.
const (
	dialDeadline      = 10 * time.Second
	tlsDeadline       = 10 * time.Second
	idleConnection    = 90 * time.Second
	maxHeaderBytes    = 64 << 10
	maxErrorBodyBytes = 64 << 10
)

// Headers of the protocol.
const (
	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
)

// httpTransport is the way to a streamable HTTP server.
func (s *session) httpTransport() (mcp.Transport, error) {
	c := s.conn
	raw, err := c.resolve("url", c.spec.URL)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, advise("fix url in connectors.yaml", "its url is no http or https URL")
	}
	header := http.Header{}
	for k, v := range c.spec.Headers {
		if v, err = c.resolve("header "+k, v); err != nil {
			return nil, err
		}
		header.Set(k, v)
	}
	rt := newOriginRT(u, header, c.pool.limits.LineBytes, dialer{
		lookup: c.pool.opts.LookupIP, allowPrivate: c.spec.AllowPrivate,
	})
	rt.session = s
	rt.streamWait = min(orElse(c.spec.ConnectTimeout, c.pool.limits.Connect)/2, 5*time.Second)
	s.http = rt
	return &mcp.StreamableClientTransport{
		Endpoint:     u.String(),
		HTTPClient:   &http.Client{Transport: rt, CheckRedirect: rt.checkRedirect},
		MaxRetries:   2,
		MaxEventSize: c.pool.limits.LineBytes,
	}, nil
}

// originRT carries the requests of one HTTP session. It adds the credentials to
// requests to their own origin only, bounds bodies and heads, and fills notes.
type originRT struct {
	base    *http.Transport
	origin  *url.URL
	header  http.Header
	limit   int
	session *session
	// streamWait bounds the wait for the head of the server's own stream.
	streamWait time.Duration

	ctx    context.Context // ends when the session is severed
	cancel context.CancelFunc

	mu   sync.Mutex
	last error // what the SDK would reword: a refusal or a body too large
}

func newOriginRT(origin *url.URL, header http.Header, limit int, d dialer) *originRT {
	rt := &originRT{origin: origin, header: header, limit: limit}
	rt.ctx, rt.cancel = context.WithCancel(context.Background())
	rt.base = &http.Transport{
		// No Proxy: HTTP_PROXY in the daemon's environment is not a decision about
		// connectors.
		DialContext:            d.dial,
		TLSHandshakeTimeout:    tlsDeadline,
		IdleConnTimeout:        idleConnection,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConnsPerHost:    4,
		ForceAttemptHTTP2:      true,
	}
	return rt
}

func (rt *originRT) sever() { rt.cancel() }

func (rt *originRT) close() {
	rt.cancel()
	rt.base.CloseIdleConnections()
}

func (rt *originRT) remember(err error) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.last = err
	return err
}

// explain prefers what we know to what the SDK made of it.
func (rt *originRT) explain(err error) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case rt.last != nil:
		return rt.last
	case errors.Is(err, context.DeadlineExceeded):
		return advise("if it answers slowly, raise timeout.connect in connectors.yaml", "no answer in time: %w", err)
	}
	return err
}

// RoundTrip implements [http.RoundTripper].
func (rt *originRT) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return rt.stream(req)
	}
	return rt.exchange(req, req.Context())
}

// stream asks for the server's own stream of events. The SDK waits for its head
// without a deadline, so a server that does not begin it in time counts as one
// that has none.
func (rt *originRT) stream(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	late := time.AfterFunc(rt.streamWait, cancel)
	res, err := rt.exchange(req, ctx)
	switch {
	case late.Stop() && err == nil:
		res.Body = &closeHook{res.Body, cancel}
		return res, nil
	case err == nil:
		_ = res.Body.Close()
	}
	cancel()
	if err != nil && ctx.Err() == nil && rt.ctx.Err() == nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusMethodNotAllowed, Status: "405 Method Not Allowed", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
}

type closeHook struct {
	io.ReadCloser
	hook func()
}

// Close implements [io.Closer].
func (c *closeHook) Close() error {
	defer c.hook()
	return c.ReadCloser.Close()
}

// exchange carries one request within ctx and the life of the session.
func (rt *originRT) exchange(req *http.Request, ctx context.Context) (*http.Response, error) {
	n := noteOf(ctx)
	n.change(func(n *note) { n.refused = false }) // a redirect is another exchange
	own := rt.asked(req)
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(rt.ctx, cancel)
	end := func() { unhook(); cancel() }
	if n != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { n.change(func(n *note) { n.sent = true }) }})
	}
	res, err := rt.base.RoundTrip(rt.withCredentials(req.Clone(ctx)))
	if err == nil {
		rt.bound(res, end)
		if err = rt.judge(req, res, own); err != nil {
			_ = res.Body.Close()
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			_ = rt.remember(err)
		}
		end()
		return nil, err
	}
	rt.sift(req, res, own)
	return res, nil
}

// asked takes note of the request in a POST; nil if it holds none.
func (rt *originRT) asked(req *http.Request) *request {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	return rt.session.inlet.asked(req.Context(), data)
}

// withCredentials adds the spec's headers to a request to their own origin.
func (rt *originRT) withCredentials(req *http.Request) *http.Request {
	if sameOrigin(req.URL, rt.origin) {
		for k, v := range rt.header {
			req.Header[k] = v
		}
	}
	return req
}

// judge takes note of what an answer that is no success means for the request,
// and remembers in words for people what went wrong with a message; the SDK only
// knows that something did. Its error ends the exchange.
func (rt *originRT) judge(req *http.Request, res *http.Response, own *request) error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case req.Method != http.MethodPost:
		if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
			return refusalText(res, "")
		}
		return nil
	case res.StatusCode == http.StatusOK && kind != "" && kind != "application/json" && kind != "text/event-stream":
		_ = rt.remember(advise("check the path in url", "the server answered with %s, which is no MCP", oneLine(kind, 100)))
		return nil
	case res.StatusCode < 300:
		_ = rt.remember(nil)
		return nil
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	end := endOf(res.StatusCode, body, own)
	if end == endAnswered {
		_, err := rt.session.inlet.take(body, own, nil)
		return err
	}
	noteOf(req.Context()).change(func(n *note) { n.refused, n.lost = end != endUnknown, end == endLost })
	if res.StatusCode < 400 {
		return nil
	}
	err := refusalText(res, rt.words(body))
	if own != nil && end == endRefused || res.StatusCode == http.StatusUnauthorized {
		return err // else the SDK would break the connection under other calls
	}
	if end != endLost || req.Header.Get(sessionHeader) == "" {
		_ = rt.remember(err)
	}
	return nil
}

// end is what is certain about a request whose HTTP exchange was no success.
type end int

const (
	endUnknown  end = iota // it may have been carried out
	endRefused             // it was not carried out
	endLost                // it was not carried out, and wants another session
	endAnswered            // the body is its answer
)

// endOf tells the end by status and body. A status of 4xx says that the request
// itself was refused; the two that gateways use when they do not know (408, 409),
// 5xx and redirects after a form say nothing about what was done.
func endOf(status int, body []byte, own *request) end {
	var m message
	if json.Unmarshal(body, &m) != nil {
		m = message{}
	}
	mine := own != nil && string(m.ID) == strconv.FormatInt(own.id, 10) && wireError(m.Error) != nil
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone:
		if status == http.StatusNotFound && !mine || sessionLost(complaint(body)) {
			return endLost
		}
	case http.StatusUnauthorized:
		return endLost // the credential is read again with a session
	}
	switch {
	case mine:
		return endAnswered
	case status == http.StatusTemporaryRedirect, status == http.StatusPermanentRedirect:
		return endRefused
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status < 400, status >= 500, status == 499:
		return endUnknown
	}
	return endRefused
}

// lostWords are what servers say of a session that they do not know, or miss.
var lostWords = regexp.MustCompile(`(?i)\b(no|not|missing|invalid|unknown|expired?|terminated|closed|required|gone)\b`)

// sessionLost tells whether a refusal is about the session.
func sessionLost(said string) bool {
	return strings.Contains(strings.ToLower(said), "session") && lostWords.MatchString(said)
}

// complaint is what a refusal says: its JSON-RPC error's message, or the body,
// where that is no page for browsers.
func complaint(body []byte) string {
	if e := wireError(fields(body)["error"]); e != nil && e.Message != "" {
		return e.Message
	}
	if text := bytes.TrimSpace(body); len(text) == 0 || text[0] == '<' {
		return ""
	}
	return string(body)
}

// words is a complaint as people read it: without secrets, and short.
func (rt *originRT) words(body []byte) string {
	return oneLine(rt.session.conn.pool.redact(complaint(body)), 300)
}

// refusalText words a refusal.
func refusalText(res *http.Response, said string) error {
	if said != "" {
		said = ": " + said
	}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return advise("set or renew the credential in its headers in connectors.yaml",
			"the server wants other credentials (HTTP %d)%s", res.StatusCode, said)
	case http.StatusForbidden:
		return advise("see what its credential is allowed to do", "the server refuses access (HTTP 403)%s", said)
	case http.StatusNotFound:
		return advise("check the path in url", "the server answered HTTP %s%s", res.Status, said)
	case http.StatusTooManyRequests:
		if after := res.Header.Get("Retry-After"); after != "" {
			said += "; it may be asked again after " + oneLine(after, 40)
		}
	}
	return fmt.Errorf("the server answered HTTP %s%s", res.Status, said)
}

// bound caps the body; sift caps the events of a stream one by one, and the call
// deadline bounds its length.
func (rt *originRT) bound(res *http.Response, end func()) {
	left := rt.limit
	if res.StatusCode >= 300 {
		left = min(left, maxErrorBodyBytes)
	}
	if isStream(res) {
		left = -1
	}
	res.Body = &boundBody{ReadCloser: res.Body, rt: rt, left: left, end: end}
}

func isStream(res *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return kind == "text/event-stream" && res.StatusCode < 300
}

// boundBody is a body with a cap; below 0 is none.
type boundBody struct {
	io.ReadCloser
	rt   *originRT
	left int
	end  func()
}

// Read implements [io.Reader].
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left >= 0 {
		if b.left -= n; b.left < 0 {
			b.left = 0
			return 0, b.rt.tooLong("an HTTP answer")
		}
	}
	return n, err
}

// Close implements [io.Closer].
func (b *boundBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (rt *originRT) tooLong(what string) error {
	return rt.remember(advise("make the tool answer with less", "%s is longer than %s", what, byteSize(rt.limit)))
}

// checkRedirect follows a server only within its own origin and only where the
// request stays what it is.
func (rt *originRT) checkRedirect(req *http.Request, via []*http.Request) error {
	switch {
	case !sameOrigin(req.URL, rt.origin):
		return rt.remember(advise("if that is the right place, write it as url in connectors.yaml",
			"the server redirects to another origin, %s://%s, which is refused", req.URL.Scheme, oneLine(req.URL.Host, 256)))
	case req.Method != via[0].Method:
		return rt.remember(advise("write the final address as url in connectors.yaml",
			"the server redirects in a way that would change the request"))
	case len(via) >= 3:
		return rt.remember(advise("write the final address as url in connectors.yaml", "the server redirects without end"))
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// LookupIP resolves a host name, as [net.Resolver.LookupNetIP] with "ip".
type LookupIP func(ctx context.Context, host string) ([]netip.Addr, error)

// dialer connects to addresses that it has looked at itself, so that a name
// cannot resolve to one address when checked and to another when used.
type dialer struct {
	lookup       LookupIP
	allowPrivate bool
}

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialDeadline)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		c, err := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// resolve answers the addresses that may be dialled for host. An address that
// the URL itself names is its own permission, and so is localhost for loopback.
func (d dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	lookup := d.lookup
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	all, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	local := strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost")
	for _, a := range all {
		if d.allowPrivate || public(a) || local && a.Unmap().IsLoopback() {
			continue
		}
		return nil, advise("if that is intended, set allow_private: true for it in connectors.yaml",
			"%s resolves to the private address %s, which is refused", host, a)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return all, nil
}

// notPublic are the ranges beyond those that netip names: this network, carrier
// NAT, protocol assignments, benchmarks, reserved, and IPv6 forms that embed an
// IPv4 address or are only for a site.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// nat64 embeds an IPv4 address, which is what counts: on a network without IPv4
// every name resolves to one of these.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// public tells whether an address is one that anybody could reach.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !a.IsValid() || !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	a = a.WithZone("")
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
