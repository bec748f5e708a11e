package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

// sdkServer is a streamable HTTP server of the official SDK, behind middle.
func sdkServer(t testing.TB, middle func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	stop := make(chan struct{})
	s := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "2"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in textArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, _ *mcp.CallToolRequest, in textArgs) (*mcp.CallToolResult, any, error) {
		select {
		case <-ctx.Done():
		case <-stop:
		}
		return nil, nil, ctx.Err()
	})
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	if middle != nil {
		h = middle(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		close(stop)
		srv.Close()
	})
	return srv
}

// handServer answers each JSON-RPC request with what answer gives, older
// protocol; nil is "unknown method".
func handServer(t testing.TB, events bool, answer func(method string) any) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		if len(m.ID) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		res := map[string]any{"jsonrpc": "2.0", "id": m.ID}
		if m.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", "s1")
			res["result"] = raw(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hand","version":"0"}}`)
		} else if a := answer(m.Method); a != nil {
			res["result"] = a
		} else {
			res["error"] = map[string]any{"code": -32601, "message": "unknown method"}
		}
		data, _ := json.Marshal(res)
		if events {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, ": hello\r\n\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\r\n\r\ndata: %s\r\n\r\n", data)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	}))
	t.Cleanup(srv.Close)
	return srv
}

func webPool(t testing.TB, spec task.Connector, change func(*Options)) *Pool {
	t.Helper()
	spec.ID = "x"
	return testPool(t, change, spec)
}

func TestHTTP(t *testing.T) {
	var auth sync.Map
	srv := sdkServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			auth.Store(r.Header.Get("Authorization"), true)
			h.ServeHTTP(w, r)
		})
	})
	p := webPool(t, task.Connector{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer ${credential:x}"}}, func(o *Options) {
		o.Resolve = func(s string) (string, error) { return strings.ReplaceAll(s, "${credential:x}", "tok"), nil }
	})
	if got := mustCall(t, p, "echo", "web"); got.Text != "web" {
		t.Errorf("echo: %+v", got)
	}
	if got := mustCall(t, p, "none", ""); !got.IsError {
		t.Errorf("unknown tool: %+v", got)
	}
	if st := p.Status()[0]; !st.Up || st.Kind != "http" || st.Server != "web" || st.Tools != 2 || st.PID != 0 {
		t.Errorf("status: %+v", st)
	}
	if _, ok := auth.Load(""); ok {
		t.Error("a request went without the credential")
	}
	if _, ok := auth.Load("Bearer tok"); !ok {
		t.Error("no request carried the credential")
	}
}

func TestHTTPRawList(t *testing.T) {
	for _, events := range []bool{false, true} {
		srv := handServer(t, events, func(method string) any {
			if method == "tools/list" {
				return raw(`{"tools":[{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}},{"name":"b","inputSchema":null},{"name":7}]}`)
			}
			return nil
		})
		tools, err := webPool(t, task.Connector{URL: srv.URL}, nil).Tools(t.Context(), "x")
		if err != nil || len(tools) != 1 || tools[0].Annotations.ReadOnly == nil {
			t.Errorf("events %v: %+v, %v", events, tools, err)
		}
	}
}

// Case 26 of the faults, and what else a web server can do.
func TestHTTPFaults(t *testing.T) {
	var leaked atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
	}))
	defer elsewhere.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	status := func(code int, header ...string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(header) == 2 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "no such luck")
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	tests := []struct {
		name, url string
		want      []string
	}{
		{"no URL", "ftp://example.com", []string{"no http or https URL", "fix url"}},
		{"refused", gone.URL, []string{"open: dial tcp", "connection refused"}},
		{"401", status(401), []string{"wants other credentials (HTTP 401)", "set or renew the credential"}},
		{"403", status(403), []string{"HTTP 403", "no such luck"}},
		{"404", status(404), []string{"open: the server answered HTTP 404 Not Found: no such luck; check the path in url"}},
		{"503", status(503), []string{"open: the server answered HTTP 503 Service Unavailable"}},
		{"redirect elsewhere", status(307, "Location", elsewhere.URL), []string{"redirects to another origin, " + elsewhere.URL, "refused"}},
		{"redirect that makes a GET", status(302, "Location", "/x"), []string{"would change the request"}},
		{"redirect without end", status(307, "Location", "/x"), []string{"without end"}},
		{"no protocol", status(200, "Content-Type", "text/html"), []string{"answered with text/html, which is no MCP; check the path"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := webPool(t, task.Connector{URL: tt.url, Headers: map[string]string{"Authorization": "Bearer secret"}}, nil)
			_, err := p.Call(t.Context(), "x", "echo", textArg(""))
			var e *Error
			if !errors.As(err, &e) || e.Sent() {
				t.Fatalf("error is %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(e.Error(), w) {
					t.Errorf("%q lacks %q", e, w)
				}
			}
		})
	}
	if leaked.Load() {
		t.Error("the credential went to another origin")
	}
}

// A server that no longer knows the session gets a new one, and the call once.
func TestHTTPSessionExpired(t *testing.T) {
	var forget atomic.Bool
	var inits, calls atomic.Int64
	srv := handServer(t, false, func(method string) any {
		switch method {
		case "tools/list":
			return raw(`{"tools":[]}`)
		case "tools/call":
			calls.Add(1)
			return raw(`{"content":[{"type":"text","text":"done"}]}`)
		}
		return nil
	})
	target, _ := url.Parse(srv.URL)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"initialize"`) {
			inits.Add(1)
			forget.Store(false)
		}
		if forget.Load() && r.Method == http.MethodPost {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		req, _ := http.NewRequestWithContext(r.Context(), r.Method, target.String(), strings.NewReader(string(body)))
		req.Header = r.Header
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer func() { _ = res.Body.Close() }()
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	}))
	defer http.DefaultClient.CloseIdleConnections()
	defer front.Close()
	p := webPool(t, task.Connector{URL: front.URL}, nil)
	mustCall(t, p, "echo", "")
	forget.Store(true)
	if got := mustCall(t, p, "echo", ""); got.Text != "done" {
		t.Errorf("after the session expired: %+v", got)
	}
	if inits.Load() != 2 || calls.Load() != 2 {
		t.Errorf("%d handshakes and %d calls, want 2 and 2", inits.Load(), calls.Load())
	}
}

func TestHTTPHugeBody(t *testing.T) {
	srv := handServer(t, false, func(method string) any {
		if method == "tools/list" {
			return raw(`{"tools":[]}`)
		}
		return nil
	})
	var huge atomic.Bool
	h := srv.Config.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !huge.Load() || r.Method != http.MethodPost {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		block := []byte(strings.Repeat(" ", 1<<20))
		for range 300 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer front.Close()
	p := webPool(t, task.Connector{URL: front.URL}, func(o *Options) { o.Limits.LineBytes = 2 << 20 })
	if err := p.Dial(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	huge.Store(true)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := p.Call(t.Context(), "x", "echo", textArg(""))
	runtime.ReadMemStats(&after)
	var e *Error
	if !errors.As(err, &e) || !e.Sent() || !strings.Contains(err.Error(), "an HTTP answer is longer than 2 MiB") {
		t.Errorf("error is %v", err)
	}
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 60 {
		t.Errorf("%d MiB allocated", mib)
	}
}

// What the server may have done is said so; a failed connection certainly not.
func TestHTTPSent(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	srv := sdkServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() && r.Method == http.MethodPost {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	p := webPool(t, task.Connector{URL: srv.URL, CallTimeout: 3 * time.Second}, nil)
	mustCall(t, p, "echo", "")
	var e *Error
	if _, err := p.Call(t.Context(), "x", "hang", textArg("")); !errors.As(err, &e) || !e.Sent() || !e.Timeout() {
		t.Errorf("timeout: %v", err)
	}
	broken.Store(true)
	if _, err := p.Call(t.Context(), "x", "echo", textArg("")); !errors.As(err, &e) || !e.Sent() || e.Timeout() || e.Error() != "connector x: call echo: the server answered HTTP 500 Internal Server Error" {
		t.Errorf("HTTP 500: %v", err)
	}
	broken.Store(false)
	mustCall(t, p, "echo", "")
}

// A stream that never begins does not hold the open.
func TestHTTPStreamNeverBegins(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	srv := handServer(t, false, func(method string) any {
		if method == "tools/list" {
			return raw(`{"tools":[]}`)
		}
		return nil
	})
	h := srv.Config.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer front.Close()
	defer close(stop)
	p := webPool(t, task.Connector{URL: front.URL, ConnectTimeout: time.Second}, nil)
	if err := p.Dial(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

func TestHTTPPrivateAddress(t *testing.T) {
	srv := sdkServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = "127.0.0.1" // the SDK's server refuses names on loopback
			h.ServeHTTP(w, r)
		})
	})
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := u.Port()
	lookup := func(addrs ...string) LookupIP {
		return func(context.Context, string) ([]netip.Addr, error) {
			var out []netip.Addr
			for _, a := range addrs {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		}
	}
	// A proxy in the environment would be asked for each of these names.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	tests := []struct {
		host   string
		allow  bool
		lookup LookupIP
		want   string // in the error; empty: it works
	}{
		{"127.0.0.1", false, nil, ""},
		{"localhost", false, lookup("127.0.0.1"), ""},
		{"mcp.example.com", true, lookup("127.0.0.1"), ""},
		{"mcp.example.com", false, lookup("127.0.0.1"), "mcp.example.com resolves to the private address 127.0.0.1, which is refused; if that is intended, set allow_private: true"},
		{"mcp.example.com", false, lookup("192.0.2.1", "10.0.0.1"), "private address 10.0.0.1"},
		{"mcp.example.com", false, lookup("::ffff:127.0.0.1"), "private address"},
		{"localhost", false, lookup("10.0.0.1"), "private address 10.0.0.1"},
		{"mcp.example.com", false, lookup(), "has no address"},
	}
	for _, tt := range tests {
		p := webPool(t, task.Connector{URL: "http://" + net.JoinHostPort(tt.host, port), AllowPrivate: tt.allow}, func(o *Options) { o.LookupIP = tt.lookup })
		err := p.Dial(t.Context(), "x")
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s allow %v: %v, want %q", tt.host, tt.allow, err, tt.want)
		}
	}
}

func TestPublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "64:ff9b::808:808": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false, "198.18.0.1": false,
		"::1": false, "::": false, "fe80::1": false, "fd00::1": false, "ff02::1": false, "::ffff:10.0.0.1": false,
		"64:ff9b::a00:1": false, "2002:a00:1::": false, "::7f00:1": false,
	} {
		if got := public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("public(%s) is %v", addr, got)
		}
	}
}
