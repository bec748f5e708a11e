package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tmaxmax/go-sse"
)

// FromNow, as the after of Client.Events, asks for nothing old.
const FromNow int64 = -1

// EventFilter narrows the event stream to a run or a task.
type EventFilter struct{ Run, Task string }

// Events calls each for every event after a seq (0: from the first, FromNow: what
// comes), in order, none twice. A stream that is cut is taken up again where it
// ended; ErrNoDaemon is the end when nobody listened for a minute, or at all. It
// returns the error of each, or ctx's.
func (c *Client) Events(ctx context.Context, after int64, f EventFilter, each func(Event) error) error {
	lost := time.Time{}
	wait := minPoll
	for connected := false; ; {
		began := after
		up, err := c.stream(ctx, &after, f, each)
		connected = connected || up
		var told *callerError
		switch {
		case errors.As(err, &told):
			return told.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !connected || !worthRetrying(err):
			return err
		case up || after != began:
			lost, wait = time.Now(), minPoll
		case time.Since(lost) > c.giveUp:
			return err
		}
		if !pauseFor(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// callerError is what the caller's own function answered.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

// worthRetrying tells a daemon that is away or busy from one that says no.
func worthRetrying(err error) bool {
	var no *Error
	return !errors.As(err, &no) || no.Status >= http.StatusInternalServerError
}

// stream reads one connection until it ends and moves after on. up tells whether
// the daemon took the request.
func (c *Client) stream(ctx context.Context, after *int64, f EventFilter, each func(Event) error) (up bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := params("run", f.Run, "task", f.Task)
	header := http.Header{"Accept": {"text/event-stream"}}
	if *after >= 0 {
		query.Set("after", strconv.FormatInt(*after, 10))
	}
	resp, err := c.send(ctx, http.MethodGet, "/api/events?"+query.Encode(), nil, header)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if *after < 0 {
		if *after, err = strconv.ParseInt(resp.Header.Get(lastHeader), 10, 64); err != nil {
			return false, fmt.Errorf("read events: header %s: %w", lastHeader, err)
		}
	}
	silence := time.AfterFunc(c.idle, cancel)
	defer silence.Stop()
	body := &lively{r: resp.Body, alive: func() { silence.Reset(c.idle) }}
	for frame, err := range sse.Read(body, &sse.ReadConfig{MaxEventSize: 2 * maxEvent}) {
		if err != nil {
			return true, fmt.Errorf("read events: %w", err)
		}
		if err := take(frame, after, each); err != nil {
			return true, err
		}
	}
	return true, fmt.Errorf("read events: the stream ended: %w", io.ErrUnexpectedEOF)
}

func take(frame sse.Event, after *int64, each func(Event) error) error {
	if frame.Data == "" {
		return nil
	}
	var e Event
	if err := json.Unmarshal([]byte(frame.Data), &e); err != nil {
		return &Error{Status: http.StatusOK, Code: CodeInternal, Message: "the daemon sent an event that is no JSON: " + err.Error()}
	}
	if e.Seq <= *after {
		return nil
	}
	if err := each(e); err != nil {
		return &callerError{err}
	}
	*after = e.Seq
	return nil
}

// lively tells of every byte that comes, heartbeats too.
type lively struct {
	r     io.Reader
	alive func()
}

func (l *lively) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > 0 {
		l.alive()
	}
	return n, err
}
