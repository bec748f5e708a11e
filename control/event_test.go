package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// collect follows the stream until n events have come.
func collect(t *testing.T, c *Client, after int64, f EventFilter, n int) []Event {
	t.Helper()
	var got []Event
	err := c.Events(bounded(t), after, f, func(e Event) error {
		if got = append(got, e); len(got) == n {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) {
		t.Fatalf("after %d of %d events: %v", len(got), n, err)
	}
	return got
}

// bounded keeps a test that waits for nothing from hanging.
func bounded(t *testing.T) context.Context {
	b, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	return b
}

func TestEventsCarryTheirRows(t *testing.T) {
	r := newRig(t)
	run := r.running("brief")
	r.says(run, "hello\nworld\u2028")
	r.parks(run, askFor("a1", `{}`))
	must[task.Run](t)(r.startRun(ctx, "backup", task.Script{}))
	c := r.as(operator)
	got := collect(t, c, 0, EventFilter{Run: run.ID}, 6)
	var kinds []string
	for i, e := range got {
		if i > 0 && e.Seq <= got[i-1].Seq || e.Run != run.ID || e.Task != "brief" || e.At.IsZero() {
			t.Errorf("event %+v", e)
		}
		kinds = append(kinds, string(e.Kind))
		switch e.Kind {
		case db.EventRun:
			if e.RunRow == nil || e.RunRow.ID != run.ID || e.RunRow.Status != task.StatusWaiting {
				t.Errorf("run row %+v", e.RunRow)
			}
		case db.EventMessage:
			if e.Message == nil || e.Message.Text != "hello\nworld\u2028" {
				t.Errorf("message %+v", e.Message)
			}
		case db.EventReceipt:
			if e.Receipt == nil || e.Receipt.ApprovalID != "a1" || e.Receipt.CallID != "call-a1" {
				t.Errorf("receipt %+v", e.Receipt)
			}
		case db.EventApproval:
			if e.Approval == nil || e.Approval.ID != "a1" {
				t.Errorf("approval %+v", e.Approval)
			}
		}
	}
	if strings.Join(kinds, " ") != "run run message receipt approval run" {
		t.Errorf("kinds %v", kinds)
	}
	if got := collect(t, c, 0, EventFilter{Task: "backup"}, 1); got[0].RunRow == nil || got[0].RunRow.Task != "backup" {
		t.Errorf("of another task: %+v", got)
	}
}

// From now on: nothing old, and nothing is lost between the request and the first
// event.
func TestEventsFromNow(t *testing.T) {
	r := newRig(t)
	run := r.running("brief")
	r.says(run, "old")
	status, header, begin := openStream(t, r, "/api/events", "")
	defer begin.Close()
	last := must[int64](t)(r.main.LastEvent(ctx))
	if status != 200 || header.Get("Content-Type") != "text/event-stream" || header.Get(lastHeader) != fmt.Sprint(last) {
		t.Fatalf("%d %v", status, header)
	}
	r.says(run, "new")
	frame := nextFrame(t, begin)
	if !strings.HasPrefix(frame, fmt.Sprintf("id: %d\nevent: message\ndata: {", last+1)) || !strings.Contains(frame, "new") {
		t.Errorf("frame %q", frame)
	}
}

func TestEventsLastEventIDWins(t *testing.T) {
	r := newRig(t)
	run := r.running("brief")
	for i := range 3 {
		r.says(run, fmt.Sprint("text", i))
	}
	last := must[int64](t)(r.main.LastEvent(ctx))
	_, _, body := openStream(t, r, "/api/events?after=0", fmt.Sprint(last-1))
	defer body.Close()
	if frame := nextFrame(t, body); !strings.HasPrefix(frame, fmt.Sprintf("id: %d\n", last)) {
		t.Errorf("frame %q", frame)
	}
	_, header, ahead := openStream(t, r, "/api/events?after=999999", "")
	defer ahead.Close()
	if header.Get(lastHeader) != fmt.Sprint(last) {
		t.Errorf("a reader that is ahead of the database waits for %s, want %d", header.Get(lastHeader), last)
	}
}

// More than one batch comes whole and once, straight from the server.
func TestEventsBacklog(t *testing.T) {
	r := newRig(t)
	run := r.running("brief")
	for i := range eventBatch + 20 {
		r.says(run, fmt.Sprint(i))
	}
	last := must[int64](t)(r.main.LastEvent(ctx))
	_, _, body := openStream(t, r, "/api/events?after=0", "")
	defer body.Close()
	for seq := int64(1); seq <= last; seq++ {
		if frame := nextFrame(t, body); !strings.HasPrefix(frame, fmt.Sprintf("id: %d\n", seq)) {
			t.Fatalf("frame %.40q, want number %d", frame, seq)
		}
	}
}

// What a filter leaves out moves the search on, but never past what fits.
func TestEventsFilteredUnderWrites(t *testing.T) {
	r := newRig(t)
	mine, other := r.running("brief"), r.running("backup")
	const texts = 150
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range texts {
			r.says(other, "noise")
			r.says(mine, fmt.Sprint(i))
		}
	}()
	next := 0
	for _, e := range collect(t, r.as(operator), 0, EventFilter{Run: mine.ID}, texts+2) {
		if e.Message != nil && e.Message.Text != fmt.Sprint(next) {
			t.Fatalf("text %s, want %d", e.Message.Text, next)
		} else if e.Message != nil {
			next++
		}
	}
	<-written
}

// openStream opens the stream without the client's own resuming.
func openStream(t *testing.T, r *rig, path, lastID string) (int, http.Header, *stream) {
	t.Helper()
	c := r.as(operator)
	req := must[*http.Request](t)(http.NewRequestWithContext(bounded(t), "GET", "http://x"+path, nil))
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := c.http.Do(req)
	ok(t, err)
	return resp.StatusCode, resp.Header, &stream{resp.Body, bufio.NewReader(resp.Body)}
}

type stream struct {
	io.Closer
	r *bufio.Reader
}

// nextFrame reads to the end of the next event, past comments.
func nextFrame(t *testing.T, s *stream) string {
	t.Helper()
	var frame strings.Builder
	for {
		line := must[string](t)(s.r.ReadString('\n'))
		if line == "\n" && frame.Len() > 0 {
			return frame.String()
		}
		if line != "\n" && !strings.HasPrefix(line, ":") {
			frame.WriteString(line)
		}
	}
}

// A stream that is cut again and again, in the middle of events too, loses nothing
// and repeats nothing.
func TestEventsResumeAfterCuts(t *testing.T) {
	r := newRig(t)
	proxy := newCutter(t, r.socket, 4000)
	run := r.running("brief")
	const texts = 120
	c := NewClient(proxy.socket, nil)
	t.Cleanup(c.Close)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range texts {
			r.says(run, fmt.Sprintf("%d %s", i, strings.Repeat("x", i)))
		}
	}()
	var seqs []int64
	next := 0
	err := c.Events(bounded(t), 0, EventFilter{Run: run.ID}, func(e Event) error {
		seqs = append(seqs, e.Seq)
		if e.Message != nil {
			var i int
			if _, err := fmt.Sscan(e.Message.Text, &i); err != nil || i != next {
				return fmt.Errorf("text %q, want number %d", e.Message.Text, next)
			}
			next++
		}
		if next == texts {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	<-written
	for i := 1; i < len(seqs); i++ {
		if seqs[i] <= seqs[i-1] {
			t.Fatalf("seq %d after %d", seqs[i], seqs[i-1])
		}
	}
	if cuts := proxy.count(); cuts < 3 {
		t.Errorf("the stream was cut %d times: this shows nothing", cuts)
	}
}

// cutter is a socket before the daemon's that ends each connection after so many
// bytes of the answer.
type cutter struct {
	socket string
	mu     sync.Mutex
	cuts   int
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

func newCutter(t *testing.T, to string, limit int64) *cutter {
	c := &cutter{socket: filepath.Join(t.TempDir(), "cut")}
	l := must[net.Listener](t)(net.Listen("unix", c.socket))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(conn, to, limit) })
		}
	})
	t.Cleanup(func() { ok(t, l.Close()); all.Wait() })
	return c
}

func (c *cutter) pass(conn net.Conn, to string, limit int64) {
	defer conn.Close()
	up, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(up, conn); _ = up.Close() })
	if n, _ := io.CopyN(conn, up, limit); n == limit {
		c.mu.Lock()
		c.cuts++
		c.mu.Unlock()
	}
	_ = conn.Close()
	_ = up.Close()
	both.Wait()
}

// A daemon that restarts is taken up again; what was stored meanwhile comes too.
func TestEventsAcrossARestart(t *testing.T) {
	r := newRig(t)
	run := r.running("brief")
	c := r.as(operator)
	first := must[int64](t)(r.main.LastEvent(ctx))
	r.says(run, "one")
	var got []string
	err := c.Events(bounded(t), first, EventFilter{Run: run.ID}, func(e Event) error {
		got = append(got, e.Message.Text)
		if len(got) == 1 {
			ok(t, r.stop())
			r.says(run, "two")
			r.serve()
		}
		if len(got) == 2 {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || strings.Join(got, " ") != "one two" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEventsEndAtShutdownAndGiveUp(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Grace = time.Minute })
	c := r.as(operator)
	c.giveUp = 150 * time.Millisecond
	run := r.running("brief")
	err := c.Events(bounded(t), 0, EventFilter{}, func(e Event) error {
		if e.RunRow != nil && e.Ref == string(task.Running) {
			began := time.Now()
			ok(t, r.stop())
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("shutdown took %s with a stream open", took)
			}
		}
		return nil
	})
	if !errors.Is(err, ErrNoDaemon) {
		t.Errorf("run %s: %v, want ErrNoDaemon", run.ID, err)
	}
}

func TestEventsErrors(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	err := c.Events(ctx, 0, EventFilter{Run: "nix"}, func(Event) error { return nil })
	refusedWith(t, err, http.StatusNotFound, CodeNotFound)
	err = r.as(nobody).Events(ctx, 0, EventFilter{}, func(Event) error { return nil })
	refusedWith(t, err, http.StatusForbidden, CodeForbidden)
	gone, cancel := context.WithCancel(ctx)
	run := r.running("brief")
	err = r.as(operator).Events(gone, 0, EventFilter{Run: run.ID}, func(Event) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Heartbeats keep a silent stream alive; without them the client takes the
// connection for dead and resumes.
func TestEventsHeartbeat(t *testing.T) {
	r := newStores(t)
	r.build()
	r.server.heartbeat = 10 * time.Millisecond
	serving(t, r.server, must[net.Listener](t)(Listen(r.socket)))
	_, _, body := openStream(t, r, "/api/events", "")
	defer body.Close()
	for beats := 0; beats < 3; {
		if line := must[string](t)(body.r.ReadString('\n')); line == ":\n" {
			beats++
		}
	}

	mute := newRig(t)
	run := mute.running("brief")
	c := mute.as(operator)
	c.idle = 20 * time.Millisecond
	connections := 0
	transport := c.http.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connections++; connections == 3 {
			mute.says(run, "at last")
		}
		return dial(ctx, network, address)
	}
	if got := collect(t, c, FromNow, EventFilter{}, 1); got[0].Message == nil || got[0].Message.Text != "at last" {
		t.Errorf("got %+v", got)
	}
}

func TestEventStreamsAreBounded(t *testing.T) {
	r := newRig(t)
	for range maxStreams {
		r.server.streams <- struct{}{}
	}
	status, _, body := openStream(t, r, "/api/events", "")
	_ = body.Close()
	if status != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", status)
	}
	<-r.server.streams
	status, _, body = openStream(t, r, "/api/events", "")
	_ = body.Close()
	if status != http.StatusOK {
		t.Errorf("with a place free: %d", status)
	}
}

// With Changed the stream is prompt although polling would be slow, and a channel
// that is closed does no harm.
func TestEventsWokenByChanged(t *testing.T) {
	changed := make(chan struct{}, 1)
	r := newStores(t)
	r.build(func(o *Options) { o.Changed = changed })
	r.server.poll = time.Hour
	serving(t, r.server, must[net.Listener](t)(Listen(r.socket)))
	run := r.running("brief")
	_, _, body := openStream(t, r, "/api/events", "")
	defer body.Close()
	for _, words := range []string{"one", "two"} {
		r.says(run, words)
		changed <- struct{}{}
		if frame := nextFrame(t, body); !strings.Contains(frame, words) {
			t.Errorf("frame %q, want %s", frame, words)
		}
	}
	close(changed)
	ok(t, r.as(operator).Health(ctx))
}
