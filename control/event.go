package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"runnerd/db"
	"runnerd/task"
)

// Event says that something was stored, with the row where it is still there. A
// run's row is as it stands when the event is read; Ref is as it was.
type Event struct {
	Seq  int64        `json:"seq"`
	At   time.Time    `json:"at"`
	Kind db.EventKind `json:"kind"`
	Task string       `json:"task"`
	Run  string       `json:"run,omitempty"`
	Ref  string       `json:"ref,omitempty"`
	// One of these is set, by Kind.
	RunRow   *RunRow       `json:"run_row,omitempty"`
	Message  *task.Message `json:"message,omitempty"`
	Receipt  *ReceiptRow   `json:"receipt,omitempty"`
	Approval *ApprovalRow  `json:"approval,omitempty"`
}

// lastHeader tells a client that asked for nothing old where the stream begins, so
// that it can resume before it has seen any event.
const lastHeader = "X-Runnerd-Event"

const (
	eventBatch = 100
	// maxEvent bounds the data of one event; a longer one goes without its row.
	maxEvent = 8 << 20
)

// listener is one client of the event stream.
type listener struct {
	s      *Server
	w      http.ResponseWriter
	rc     *http.ResponseController
	filter db.EventFilter // After moves on
}

// events streams what is stored from now on, or after Last-Event-ID or ?after=,
// until the client goes or the daemon stops.
func (s *Server) events(r *request) error {
	l, err := s.newListener(r)
	if err != nil {
		return err
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return &Error{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: fmt.Sprintf("%d event streams are open, no more are served", maxStreams), Hint: "try again"}
	}
	s.pulse.join()
	defer s.pulse.leave()
	if err := l.begin(); err != nil {
		return nil // the client is gone
	}
	if err := l.follow(r.Context()); err != nil && r.Context().Err() == nil {
		s.log.Info("event stream ended", zap.Int(keyUID, r.peer.UID), zap.Error(err))
	}
	return nil
}

func (s *Server) newListener(r *request) (*listener, error) {
	q, err := r.query("run", "task", "after")
	if err != nil {
		return nil, err
	}
	l := &listener{s: s, w: r.w, rc: http.NewResponseController(r.w)}
	l.filter = db.EventFilter{Task: q.Get("task"), Limit: eventBatch}
	if q.Has("run") {
		run, err := s.o.Main.FindRun(r.Context(), q.Get("run"))
		if err != nil {
			return nil, err
		}
		l.filter.Run = run.ID
	}
	last, err := s.o.Main.LastEvent(r.Context())
	if err != nil {
		return nil, err
	}
	l.filter.After = last
	name, given := "query: after", q.Get("after")
	if id := r.Header.Get("Last-Event-ID"); id != "" { // a reconnecting client sends the first query again
		name, given = "Last-Event-ID", id
	}
	if given == "" {
		return l, nil
	}
	after, err := seqOf(name, given)
	if err != nil {
		return nil, err
	}
	l.filter.After = min(after, last) // one from a database that was since restored must not wait for long
	return l, nil
}

func (l *listener) begin() error {
	h := l.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set(lastHeader, strconv.FormatInt(l.filter.After, 10))
	l.w.WriteHeader(http.StatusOK)
	return l.send([]byte(": runnerd\n\n"))
}

// send writes at once. A client that does not read for writeTime is cut off.
func (l *listener) send(data []byte) error {
	if err := l.rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := l.w.Write(data); err != nil {
		return err
	}
	return l.rc.Flush()
}

// follow sends what there is and waits for more.
func (l *listener) follow(ctx context.Context) error {
	beat := time.NewTicker(l.s.heartbeat)
	defer beat.Stop()
	for {
		more, upto := l.s.pulse.next() // before reading: what is stored meanwhile wakes it again
		if err := l.drain(ctx, upto); err != nil {
			return err
		}
		select {
		case <-more:
		case <-beat.C:
			if err := l.send([]byte(":\n\n")); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-l.s.stop:
			return nil
		}
	}
}

// drain sends every event after the last one sent. upto is the seq of an event
// that was stored before: where nothing fits the filter, the search goes on from
// there.
func (l *listener) drain(ctx context.Context, upto int64) error {
	for {
		batch, err := l.s.o.Main.Events(ctx, l.filter)
		if err != nil {
			return err
		}
		for _, e := range batch {
			if err := l.sendEvent(ctx, e); err != nil {
				return err
			}
			l.filter.After = e.Seq
		}
		if len(batch) < eventBatch {
			l.filter.After = max(l.filter.After, upto)
			return nil
		}
		select {
		case <-l.s.stop:
			return nil
		default:
		}
	}
}

func (l *listener) sendEvent(ctx context.Context, e db.Event) error {
	out := Event{Seq: e.Seq, At: e.At, Kind: e.Kind, Task: e.Task, Run: e.Run, Ref: e.Ref}
	if err := l.s.fill(ctx, &out); err != nil && !errors.Is(err, db.ErrNotFound) {
		return err
	}
	data, err := json.Marshal(out)
	if err != nil || len(data) > maxEvent {
		out.RunRow, out.Message, out.Receipt, out.Approval = nil, nil, nil, nil
		if data, err = json.Marshal(out); err != nil {
			return err
		}
	}
	return l.send(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Kind, data))
}

// fill reads the row that an event is about; one that is gone is left out.
func (s *Server) fill(ctx context.Context, e *Event) error {
	switch e.Kind {
	case db.EventRun:
		run, err := s.o.Main.FindRun(ctx, e.Run)
		if err != nil {
			return err
		}
		row := NewRunRow(run)
		e.RunRow = &row
	case db.EventMessage:
		seq, err := strconv.ParseInt(e.Ref, 10, 64)
		if err != nil {
			return fmt.Errorf("event %d: ref %q is no seq: %w", e.Seq, e.Ref, err)
		}
		msgs, err := s.o.Main.SessionMessages(ctx, e.Task, seq-1, 1)
		if err == nil && len(msgs) == 1 && msgs[0].Seq == seq {
			e.Message = &msgs[0]
		}
		return err
	case db.EventReceipt:
		seq, err := strconv.ParseInt(e.Ref, 10, 64)
		if err != nil {
			return fmt.Errorf("event %d: ref %q is no seq: %w", e.Seq, e.Ref, err)
		}
		rc, err := s.o.Main.Receipt(ctx, seq)
		if err != nil {
			return err
		}
		row := NewReceiptRow(rc)
		e.Receipt = &row
	case db.EventApproval:
		a, err := s.o.Main.FindApproval(ctx, e.Ref)
		if err != nil {
			return err
		}
		row := NewApprovalRow(a)
		e.Approval = &row
	}
	return nil
}
