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
	base   *http.Transport
	origin *url.URL
	header http.Header
	limit  int
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
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(rt.ctx, cancel)
	end := func() { unhook(); cancel() }
	if n != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { n.sent.Store(true) }})
	}
	out := req.Clone(ctx)
	if sameOrigin(req.URL, rt.origin) {
		for k, v := range rt.header {
			out.Header[k] = v
		}
	}
	res, err := rt.base.RoundTrip(out)
	if err == nil {
		if err = rt.judge(req, res); err != nil {
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
	rt.bound(res, n, end)
	return res, nil
}

// judge refuses the answers that are about credentials and remembers, in words
// for people, what went wrong with a message; the SDK only knows that something
// did.
func (rt *originRT) judge(req *http.Request, res *http.Response) error {
	if err := refused(res); err != nil || req.Method != http.MethodPost {
		return err
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusOK && kind != "" && kind != "application/json" && kind != "text/event-stream":
		_ = rt.remember(advise("check the path in url", "the server answered with %s, which is no MCP", oneLine(kind, 100)))
	case res.StatusCode < 300:
		_ = rt.remember(nil)
	case res.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") == "":
		_ = rt.remember(advise("check the path in url", "the server answered HTTP %s", res.Status))
	case res.StatusCode >= 400 && res.StatusCode != http.StatusNotFound:
		_ = rt.remember(fmt.Errorf("the server answered HTTP %s", res.Status))
	}
	return nil
}

// refused words the answers that are about credentials.
func refused(res *http.Response) error {
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return advise("set or renew the credential in its headers in connectors.yaml",
			"the server wants other credentials (HTTP %d)", res.StatusCode)
	case http.StatusForbidden:
		body, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		return advise("see what its credential is allowed to do",
			"the server refuses access (HTTP 403): %s", oneLine(string(body), 300))
	}
	return nil
}

// bound caps the body, a stream of events excepted, whose events the SDK caps
// one by one and whose length the call deadline bounds.
func (rt *originRT) bound(res *http.Response, n *note, end func()) {
	body := &boundBody{ReadCloser: res.Body, rt: rt, left: rt.limit, end: end}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	body.events = kind == "text/event-stream"
	if res.StatusCode >= 300 {
		body.left = min(body.left, maxErrorBodyBytes)
	}
	if n != nil && n.want {
		body.note = n
	}
	res.Body = body
}

// boundBody is a body with a cap and, if a note wants it, a look at what passes.
type boundBody struct {
	io.ReadCloser
	rt     *originRT
	left   int
	events bool
	end    func()
	note   *note
	kept   []byte
}

// Read implements [io.Reader].
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.events {
		if b.left -= n; b.left < 0 {
			return 0, b.rt.remember(advise("make the tool answer with less",
				"an HTTP answer is longer than %s", byteSize(b.rt.limit)))
		}
	}
	if b.note != nil {
		b.look(p[:n], err != nil)
	}
	return n, err
}

// look keeps what was read until the result in it can be told.
func (b *boundBody) look(part []byte, whole bool) {
	var raw json.RawMessage
	switch {
	case len(b.kept)+len(part) > b.rt.limit:
		b.note, b.kept = nil, nil
		return
	case b.events:
		b.kept = append(b.kept, bytes.ReplaceAll(part, []byte("\r"), nil)...)
		raw, b.kept = eventResult(b.kept)
	default:
		b.kept = append(b.kept, part...)
		if whole {
			raw = messageResult(b.kept)
		}
	}
	if raw != nil {
		b.note.keep(raw)
		b.note, b.kept = nil, nil
	}
}

// Close implements [io.Closer].
func (b *boundBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// messageResult is the result in a JSON-RPC response; nil in anything else.
func messageResult(data []byte) json.RawMessage {
	var message struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(data, &message) != nil || len(message.ID) == 0 {
		return nil
	}
	return message.Result
}

// eventResult looks for a result in the events that are complete, and answers it
// or what is left to look at.
func eventResult(stream []byte) (json.RawMessage, []byte) {
	for {
		event, rest, complete := bytes.Cut(stream, []byte("\n\n"))
		if !complete {
			return nil, stream
		}
		var data []byte
		for line := range bytes.SplitSeq(event, []byte("\n")) {
			if d, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(append(data, bytes.TrimPrefix(d, []byte(" "))...), '\n')
			}
		}
		if raw := messageResult(data); raw != nil {
			return raw, nil
		}
		stream = rest
	}
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
