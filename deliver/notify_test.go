package deliver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"runnerd/task"
)

// hook is a web hook on loopback that answers from a list, the last repeating.
type hook struct {
	mu      sync.Mutex
	answers []int
	got     []string
	url     string
}

func newHook(t *testing.T, answers ...int) *hook {
	t.Helper()
	h := &hook{answers: answers}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	h.url = strings.Replace(srv.URL, "http://", "generic://", 1) + "/hook/path-secret?disabletls=yes"
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, string(body))
	w.WriteHeader(h.answers[min(len(h.got), len(h.answers))-1])
}

func (h *hook) received() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got
}

func TestNotifyHook(t *testing.T) {
	resolve := func(url string) func(string) (string, error) {
		return func(s string) (string, error) { return strings.ReplaceAll(s, "${credential:hook}", url), nil }
	}
	for _, c := range []struct {
		name    string
		answers []int
		sent    int
		err     string
	}{
		{"at once", []int{200}, 1, ""},
		{"the third time", []int{500, 503, 200}, 3, ""},
		{"never", []int{500}, 3, "generic: "},
	} {
		h := newHook(t, c.answers...)
		r := one(t, quick(Options{Resolve: resolve(h.url)}), result(task.Delivery{To: ToNotify, URL: "${credential:hook}"}))
		if got := h.received(); len(got) != c.sent || r.Attempts != c.sent || got[0] != "All is well.\n" {
			t.Errorf("%s: %d attempts, received %q", c.name, r.Attempts, got)
		}
		if (r.Err == nil) != (c.err == "") || (r.Err != nil && !strings.Contains(r.Err.Error(), c.err)) {
			t.Errorf("%s: %v", c.name, r.Err)
		}
		if r.Err != nil && strings.Contains(r.Err.Error(), "path-secret") {
			t.Errorf("%s: the error shows the URL: %v", c.name, r.Err)
		}
	}
}

func TestNotifyJSONHasATitle(t *testing.T) {
	h := newHook(t, 200)
	redact := Options{Redact: func(s string) string { return strings.ReplaceAll(s, "secret", "***") }}
	report := New(redact).Tell(t.Context(), task.Delivery{To: ToNotify, URL: h.url + "&template=json"}, "a\nrun of secret failed", "brief: no model secret")
	if got := h.received(); report.Err != nil || len(got) != 1 || !strings.Contains(got[0], `"title":"a run of *** failed"`) || !strings.Contains(got[0], `"message":"brief: no model ***"`) {
		t.Errorf("%+v, received %q", report, got)
	}
	report = New(Options{}).Tell(t.Context(), task.Delivery{To: ToFile, Path: "/x"}, "t", "x")
	if report.Err == nil || report.Attempted {
		t.Errorf("a notice went to a file: %+v", report)
	}
}

func TestNotifyUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	r := one(t, quick(Options{}), result(task.Delivery{To: ToNotify, URL: "generic://user:pass-word@" + addr + "/path-secret?disabletls=yes"}))
	if r.Attempts != 3 || r.Err == nil || !strings.Contains(r.Err.Error(), "connection refused") || !strings.Contains(r.Err.Error(), addr) {
		t.Errorf("%+v", r)
	}
	if s := r.Err.Error(); strings.Contains(s, "secret") || strings.Contains(s, "pass-word") {
		t.Errorf("the error shows secrets: %s", s)
	}
}

// TestNotifyHangs shows that a service that never answers costs one attempt and
// does not hold up another destination.
func TestNotifyHangs(t *testing.T) {
	free := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-free
	}))
	dir := t.TempDir()
	d := quick(Options{})
	t.Cleanup(func() {
		close(free)
		for range maxSends { // each place is free again once the send has returned
			d.sends <- struct{}{}
		}
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	to := task.Delivery{To: ToNotify, Timeout: 200 * time.Millisecond, URL: strings.Replace(srv.URL, "http://", "generic://", 1) + "?disabletls=yes"}
	reports := all(d, t.Context(), result(to, toFile(dir+"/f")))
	if r := reports[0]; r.Attempts != 1 || r.Err == nil || !strings.Contains(r.Err.Error(), "not known whether the message arrived") {
		t.Errorf("%+v", r)
	}
	if content(t, dir+"/f") == "" || reports[1].Err != nil {
		t.Errorf("%+v", reports[1])
	}
	if len(d.sends) != 1 {
		t.Errorf("%d sends are counted as under way, want 1", len(d.sends))
	}
	for range maxSends - 1 {
		d.sends <- struct{}{}
	}
	if r := one(t, d, result(to)); r.Err == nil || !strings.Contains(r.Err.Error(), "are under way") {
		t.Errorf("with every place taken: %+v", r)
	}
	for range maxSends - 1 {
		<-d.sends
	}
}

// mailbox is an SMTP server on loopback, just enough to take mail.
type mailbox struct {
	mu      sync.Mutex
	replies []string // to RCPT, the last repeating
	asked   int
	mail    []string
	addr    string
}

func newMailbox(t *testing.T, replies ...string) *mailbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	m := &mailbox{replies: replies, addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				m.talk(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return m
}

func (m *mailbox) talk(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	say := func(s string) { fmt.Fprintf(conn, "%s\r\n", s) }
	say("220 mailbox")
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch verb, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " "); verb {
		case "EHLO", "HELO", "MAIL":
			say("250 ok")
		case "RCPT":
			say(m.reply())
		case "DATA":
			say("354 go on")
			var mail strings.Builder
			for lines.Scan() && lines.Text() != "." {
				mail.WriteString(lines.Text() + "\n")
			}
			m.mu.Lock()
			m.mail = append(m.mail, mail.String())
			m.mu.Unlock()
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("502 what")
		}
	}
}

func (m *mailbox) reply() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return m.replies[min(m.asked, len(m.replies))-1]
}

func TestNotifyMail(t *testing.T) {
	for _, c := range []struct {
		name     string
		replies  []string
		subject  string
		attempts int
		err      string
	}{
		{"taken", []string{"250 ok"}, "", 1, ""},
		{"own subject", []string{"250 ok"}, "&subject=Morning", 1, ""},
		{"greylisted", []string{"451 later", "250 ok"}, "", 2, ""},
		{"refused", []string{"550 no such user"}, "", 1, "no such user"},
	} {
		m := newMailbox(t, c.replies...)
		url := "smtp://" + m.addr + "/?from=runnerd@example.com&to=me@example.com" + c.subject
		res := result(task.Delivery{To: ToNotify, URL: url})
		res.Text = "Grüße\n.\nend"
		r := one(t, quick(Options{}), res)
		if r.Attempts != c.attempts || (r.Err == nil) != (c.err == "") || (r.Err != nil && !strings.Contains(r.Err.Error(), c.err)) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if c.err != "" {
			continue
		}
		subject := "Subject: runnerd: brief: ok\n"
		if c.subject != "" {
			subject = "Subject: Morning\n"
		}
		if len(m.mail) != 1 || !strings.Contains(m.mail[0], subject) || !strings.Contains(m.mail[0], "\nGrüße\n..\nend\n") {
			t.Errorf("%s: mail %q", c.name, m.mail)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 5, "short"}, {"longer", 5, "lo..."}, {"aüü", 4, "a..."}, {"", 0, ""},
	} {
		if got := cut(c.text, c.limit, "..."); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func FuzzOpenService(f *testing.F) {
	for _, s := range []string{
		"smtp://u:p@h:25/?from=a@b&to=c@d", "ntfy://h/t", "telegram://1:a@telegram?chats=1", "discord://t@1", "slack://hook:A-B-C@webhook",
		"generic+https://h/x", "gotify://h/t", "pushover://shoutrrr:t@u", "matrix://u:p@h", "zulip://b:k@h", "teams://a@b/c/d?host=h", "logger://", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if s, err := openService(url); (s == nil) == (err == nil) {
			t.Errorf("%q: %v, %v", url, s, err)
		} else if err != nil && !utf8.ValidString(err.Error()) && utf8.ValidString(url) {
			t.Errorf("%q: odd error", url)
		}
	})
}
