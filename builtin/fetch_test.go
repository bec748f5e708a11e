package builtin

import (
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// site is a web server on loopback.
func site(t *testing.T, pages map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, h := range pages {
		mux.HandleFunc(path, h)
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func serve(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		fmt.Fprint(w, body)
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

func TestFetch(t *testing.T) {
	stolen := 0
	srv := site(t, map[string]http.HandlerFunc{
		"/text":  serve("text/plain; charset=utf-8", "héllo wörld"),
		"/latin": serve("text/plain; charset=iso-8859-1", "caf\xe9"),
		"/json":  serve("application/feed+json", `{"a":1}`),
		"/html":  serve("text/html", "<title>The <b>T</title><h1>Head</h1><p>One <a href=/two>two</a>."),
		"/image": serve("image/png", "png"),
		"/empty": serve("text/html", ""),
		"/long":  serve("text/plain", strings.Repeat("x", 200_000)),
		"/gone":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such page", http.StatusNotFound) },
		"/here":  redirect("/text"),
		"/loop":  redirect("/loop"),
		"/away":  func(w http.ResponseWriter, r *http.Request) { redirect(otherName(r)+"/stolen?q=data")(w, r) },
		"/file":  redirect("file:///etc/passwd"),
		"/stolen": func(http.ResponseWriter, *http.Request) {
			stolen++
		},
	})
	s := connect(t, Fetch, "--allow-private", "--max-bytes", "100000")
	for _, c := range []struct {
		in   args
		want string
	}{
		{args{"url": "/text"}, "status: 200\ntype: text/plain\n\nhéllo wörld"},
		{args{"url": "/text", "max_chars": 2}, "\n\nhé\n[cut; go on with offset 2]"},
		{args{"url": "/text", "offset": 2, "max_chars": 3}, "\n\nllo\n[cut; go on with offset 5]"},
		{args{"url": "/text", "offset": 99}, "type: text/plain\n\n"},
		{args{"url": "/latin"}, "\n\ncafé"},
		{args{"url": "/json"}, `{"a":1}`},
		{args{"url": "/empty"}, "status: 200"},
		{args{"url": "/html"}, "title: The <b>T\n\n# Head\n\nOne [two](" + srv.URL + "/two)."},
		{args{"url": "/html", "raw": true}, "\n\n<title>The <b>T</title>"},
		{args{"url": "/here"}, "url: " + srv.URL + "/text\n"},
		{args{"url": "/long", "offset": 99_990}, "\n\n" + strings.Repeat("x", 10) + "\n[the body was longer"},
	} {
		c.in["url"] = srv.URL + c.in["url"].(string)
		if got := s.ok("fetch", c.in); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q in it", c.in, clip(got), c.want)
		}
	}
	for path, want := range map[string]string{
		"/image": "content type image/png is not text",
		"/gone":  "HTTP status 404\n\nno such page",
		"/loop":  "more than 5 redirects",
		"/away":  "redirects to another origin, http://localhost:",
		"/file":  "another origin",
	} {
		s.fails(want, "fetch", args{"url": srv.URL + path})
	}
	if stolen > 0 {
		t.Error("a redirect to another host was followed")
	}
}

// otherName is the server's address under a name that is another host to HTTP.
func otherName(r *http.Request) string {
	return "http://" + strings.Replace(r.Host, "127.0.0.1", "localhost", 1)
}

func TestFetchRefuses(t *testing.T) {
	touched := false
	srv := site(t, map[string]http.HandlerFunc{"/": func(http.ResponseWriter, *http.Request) { touched = true }})
	s := connect(t, Fetch)
	port := srv.URL[strings.LastIndex(srv.URL, ":"):]
	for address, want := range map[string]string{
		srv.URL:                      "address 127.0.0.1 is private",
		"http://localhost" + port:    "is private",
		"http://[::ffff:7f00:1]":     "is private",
		"http://169.254.169.254/":    "address 169.254.169.254 is private",
		"file:///etc/passwd":         `scheme "file"`,
		"gopher://example.com":       `scheme "gopher"`,
		"http:///x":                  "no host",
		"http://me:secret@127.0.0.1": "user name or password",
		"http://bad host/":           "not an address",
		"":                           `scheme ""`,
	} {
		if got := s.fails(want, "fetch", args{"url": address}); strings.Contains(got, "me:secret") {
			t.Errorf("%s: the answer shows the password: %s", address, got)
		}
	}
	if touched {
		t.Error("a private server was asked")
	}
	if newTransport(false).Proxy != nil {
		t.Error("a proxy would make the check of the address its own business")
	}
}

func TestFetchIsBounded(t *testing.T) {
	wait := make(chan struct{})
	defer close(wait)
	srv := site(t, map[string]http.HandlerFunc{
		"/hang": func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-wait:
			case <-r.Context().Done():
			}
		},
		"/drip": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprintln(w, "more")
				w.(http.Flusher).Flush()
			}
		},
		"/bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			for range 1000 {
				if _, err := z.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
			z.Close()
		},
		"/headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
		},
	})
	s := connect(t, Fetch, "--allow-private", "--timeout", "500ms")
	s.fails("no answer within 500ms", "fetch", args{"url": srv.URL + "/hang"})
	s = connect(t, Fetch, "--allow-private", "--max-bytes", "1000")
	s.fails("headers exceeded", "fetch", args{"url": srv.URL + "/headers"})
	for _, path := range []string{"/drip", "/bomb"} {
		if got := s.ok("fetch", args{"url": srv.URL + path}); len(got) > 5000 || !strings.Contains(got, "its end is missing") {
			t.Errorf("%s: %d bytes, %q", path, len(got), clip(got))
		}
	}
}

func TestPublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "2606:4700::1111": true, "64:ff9b::808:808": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.31.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false,
		"::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fd00::1": false, "fec0::1": false, "ff02::1": false,
		"::ffff:10.0.0.1": false, "::10.0.0.1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "2001::1": false,
	} {
		if got := public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: public %v", addr, got)
		}
	}
	if public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

var base, _ = url.Parse("https://example.com/dir/page")

func TestReadable(t *testing.T) {
	for _, c := range []struct{ html, want string }{
		{"", ""},
		{"plain  text\n here", "plain text here"},
		{"a<b>b</b> c <i> d </i>e", "ab c d e"},
		{"<p>one<p>two<br>three", "one\n\ntwo\nthree"},
		{"<h2>T</h2>text", "## T\n\ntext"},
		{"<ul><li>a<li><b>b</b></ul>end", "- a\n- b\n\nend"},
		{"<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"},
		{"<pre>x\n  y</pre>z", "x\n  y\n\nz"},
		{"<script>bad()</script>ok<style>p{}</style><noscript>no</noscript>", "ok"},
		{"<svg><g><svg></svg>in</g></svg>out<svg/>side", "outside"},
		{"<a href='x'>rel</a> <a href='#f'>frag</a> <a href='javascript:x()'>js</a> <a>none</a>", "[rel](https://example.com/dir/x) frag js none"},
		{"<a href=//other.org/>open", "[open](https://other.org/)"},
		{"<img alt=' cat '><img>", "[image: cat]"},
		{"&lt;p&gt; &amp; &eacute;", "<p> & é"},
		{"</a></pre></svg>stray", "stray"},
		{"<div><div><p>x</p></div></div><div>y</div>", "x\n\ny"},
	} {
		if _, got := readable(c.html, base); got != c.want {
			t.Errorf("%s: %q, want %q", c.html, got, c.want)
		}
	}
	if title, _ := readable("<title> A\n B </title><svg><title>no</title></svg>", base); title != "A B" {
		t.Errorf("title %q", title)
	}
}

func FuzzReadable(f *testing.F) {
	for _, s := range []string{"<p>a", "<a href=x><a href=y>", "<svg><svg>", "</title><title>x", "<pre>", "<h1><h6>", "\xff<", "<li><td>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, page string) {
		title, text := readable(strings.ToValidUTF8(page, ""), base)
		if !utf8.ValidString(title + text) {
			t.Errorf("%q became invalid text", page)
		}
	})
}

// TestFetchStops shows that a call ends with its context.
func TestFetchStops(t *testing.T) {
	started := make(chan struct{})
	srv := site(t, map[string]http.HandlerFunc{"/": func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}})
	f := &fetcher{client: &http.Client{Transport: newTransport(true)}, timeout: 1 << 40, maxBytes: 1}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.fetch(ctx, fetchArgs{URL: srv.URL})
		done <- err
	}()
	<-started
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled fetch succeeded")
	}
}
