package builtin

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Another port or scheme of a host is somebody else's: a redirect there is an
// answer that names it, not followed.
func TestFetchRedirectToAnotherOrigin(t *testing.T) {
	var reached atomic.Int64
	victim := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		_, _ = w.Write([]byte("secret"))
	})
	plain, secure := httptest.NewServer(victim), httptest.NewTLSServer(victim)
	defer plain.Close()
	defer secure.Close()
	var to atomic.Value
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/same" {
			_, _ = w.Write([]byte("same origin"))
			return
		}
		http.Redirect(w, r, to.Load().(string), http.StatusFound)
	})
	web, webTLS := httptest.NewServer(front), httptest.NewTLSServer(front)
	defer web.Close()
	defer webTLS.Close()
	transport := newTransport(true)
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	defer transport.CloseIdleConnections()
	f := &fetcher{client: &http.Client{Transport: transport, CheckRedirect: sameOrigin}, timeout: 10 * time.Second, maxBytes: 1 << 20}
	swap := func(raw, scheme string) string {
		return scheme + strings.TrimPrefix(strings.TrimPrefix(raw, "https"), "http")
	}
	for name, tt := range map[string]struct{ from, to string }{
		"I14 another port":            {web.URL, plain.URL + "/x"},
		"I14 another port, no scheme": {web.URL, strings.TrimPrefix(plain.URL, "http:") + "/x"},
		"I14 https, same port":        {web.URL, swap(web.URL, "https") + "/same"},
		"I14 http, same port":         {webTLS.URL, swap(webTLS.URL, "http") + "/same"},
		"I14 https, another port":     {web.URL, secure.URL + "/x"},
		"I14 the port of the scheme":  {web.URL, "http://127.0.0.1/x"},
		"I14 the host with a dot":     {web.URL, strings.Replace(web.URL, "127.0.0.1", "127.0.0.1.", 1) + "/same"},
		"I14 a name of the password":  {web.URL, strings.Replace(plain.URL, "http://", "http://u:p@", 1) + "/x"},
	} {
		to.Store(tt.to)
		_, err := f.fetch(t.Context(), fetchArgs{URL: tt.from + "/go"})
		u, _ := url.Parse(tt.to)
		if err == nil || !strings.Contains(err.Error(), "redirects to another origin, ") || !strings.Contains(err.Error(), u.Host) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("I14: another origin was asked %d times", n)
	}
	for _, same := range []string{"/same", web.URL + "/same"} {
		to.Store(same)
		if got, err := f.fetch(t.Context(), fetchArgs{URL: web.URL + "/go"}); err != nil || !strings.Contains(got, "same origin") {
			t.Errorf("same origin: %q, %v", got, err)
		}
	}
}
