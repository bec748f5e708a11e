package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"go.uber.org/zap"

	"runnerd/text"
)

// route is one thing that can be asked.
type route struct {
	pattern string
	right   Right
	// answer makes the body of the answer; stream, where it is set instead, writes
	// the answer itself.
	answer func(ctx context.Context, r *request) (any, error)
	stream func(r *request) error
}

// table is the whole interface.
func (s *Server) table() []route {
	return []route{
		{pattern: "GET /healthz", answer: s.health},
		{pattern: "GET /metrics", right: RightRead, stream: s.metrics},
		{pattern: "GET /api/status", right: RightRead, answer: s.status},
		{pattern: "GET /api/tasks", right: RightRead, answer: s.tasks},
		{pattern: "GET /api/tasks/{id}", right: RightRead, answer: s.task},
		{pattern: "POST /api/tasks/{id}/run", right: RightRun, answer: s.startRun},
		{pattern: "POST /api/tasks/{id}/pause", right: RightRun, answer: s.pause},
		{pattern: "POST /api/tasks/{id}/resume", right: RightRun, answer: s.resume},
		{pattern: "GET /api/tasks/{id}/policy", right: RightRead, answer: s.taskPolicy},
		{pattern: "PATCH /api/tasks/{id}/policy", right: RightApprove, answer: s.patchTaskPolicy},
		{pattern: "POST /api/pause", right: RightRun, answer: s.pause},
		{pattern: "POST /api/resume", right: RightRun, answer: s.resume},
		{pattern: "POST /api/reload", right: RightRun, answer: s.reload},
		{pattern: "GET /api/runs", right: RightRead, answer: s.runs},
		{pattern: "GET /api/runs/{id}", right: RightRead, answer: s.run},
		{pattern: "POST /api/runs/{id}/cancel", right: RightRun, answer: s.cancelRun},
		{pattern: "GET /api/why", right: RightRead, answer: s.why},
		{pattern: "GET /api/events", right: RightRead, stream: s.events},
		{pattern: "GET /api/approvals", right: RightRead, answer: s.approvals},
		{pattern: "GET /api/approvals/{id}", right: RightRead, answer: s.approval},
		{pattern: "POST /api/approvals/{id}/approve", right: RightApprove, answer: s.approve},
		{pattern: "POST /api/approvals/{id}/deny", right: RightApprove, answer: s.deny},
		{pattern: "GET /api/connectors", right: RightRead, answer: s.connectors},
		{pattern: "GET /api/connectors/{id}/tools", right: RightRead, answer: s.connectorTools},
		{pattern: "GET /api/connectors/{id}/diff", right: RightRead, answer: s.connectorDiff},
		{pattern: "POST /api/connectors/{id}/accept", right: RightApprove, answer: s.acceptTools},
		{pattern: "GET /api/session/{id}/connectors", right: RightRead, answer: s.sessionConnectors},
		{pattern: "PATCH /api/session/{id}/connectors", right: RightApprove, answer: s.patchSession},
		{pattern: "GET /api/session/{id}/tool-support", right: RightRead, answer: s.toolSupport},
		{pattern: "GET /api/projects/{id}", right: RightRead, answer: s.project},
		{pattern: "PATCH /api/projects/{id}", right: RightApprove, answer: s.patchProject},
	}
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range s.table() {
		mux.Handle(rt.pattern, s.handler(rt))
	}
	mux.HandleFunc("/", s.noRoute)
	return mux
}

// serveHTTP is the door: it counts handlers and keeps one that panics from ending
// the daemon.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.gate.enter() {
		s.refuse(w, r, &Error{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: "the daemon is stopping"})
		return
	}
	defer s.gate.leave()
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("handler panicked", zap.String(keyPath, r.URL.Path), zap.Any(keyDetail, v), zap.ByteString("stack", debug.Stack()))
			s.refuse(w, r, &Error{Status: http.StatusInternalServerError, Code: CodeInternal, Message: "the handler panicked", Hint: "the daemon's log has more"})
		}
	}()
	if err := s.misdirected(r); err != nil {
		s.refuse(w, r, err)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// handler wraps what every route shares: the right, the deadline, the answer.
func (s *Server) handler(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := s.permit(r, rt.right)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if r.Method == http.MethodGet && r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // nobody reads it
			s.refuse(w, r, badRequest("body: a GET has none"))
			return
		}
		if err := possible(rt, r); err != nil {
			s.refuse(w, r, err)
			return
		}
		req := &request{Request: r, peer: peer, w: w}
		if rt.stream != nil {
			if err := rt.stream(req); err != nil {
				s.refuse(w, r, err)
			}
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), slowest)
		defer cancel()
		answer, err := rt.answer(ctx, req)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if r.Method != http.MethodGet {
			s.log.Info("request done", zap.String(keyMethod, r.Method), zap.String(keyPath, r.URL.Path), zap.Int(keyUID, peer.UID), zap.Int(keyPID, peer.PID))
		}
		s.write(w, r, statusOf(rt), answer)
	})
}

// maxID bounds an id, in bytes.
const maxID = 256

// possible says of a name that nothing can have that there is no such thing, so
// that no store is asked for it.
func possible(rt route, r *http.Request) error {
	id := r.PathValue("id")
	if !strings.Contains(rt.pattern, "{id}") || id != "" && len(id) <= maxID && printable(id) {
		return nil
	}
	_, path, _ := strings.Cut(rt.pattern, "/api/")
	kind, _, _ := strings.Cut(path, "/")
	return NotFound("there is no "+strings.TrimSuffix(kind, "s")+" "+text.Cut(text.Escape(id), 80), "")
}

// printable tells whether a text needs no escape.
func printable(s string) bool { return text.Escape(s) == s }

// statusOf is 201 where something was made that has an address.
func statusOf(rt route) int {
	if strings.HasSuffix(rt.pattern, "/run") {
		return http.StatusCreated
	}
	return http.StatusOK
}

// permit judges the peer. Every refusal is logged.
func (s *Server) permit(r *http.Request, right Right) (Peer, error) {
	peer, known := peerFrom(r.Context())
	peer.Token = known && bears(s.o.Token, r.Header.Get(TokenHeader))
	rights := Rights{Hint: "the connection has no peer credentials"}
	if known {
		rights = s.o.Rights(peer)
	}
	if rights.Has(right) {
		return peer, nil
	}
	s.log.Warn("request forbidden", zap.String(keyMethod, r.Method), zap.String(keyPath, r.URL.Path),
		zap.String(keyRight, string(right)), zap.Int(keyUID, peer.UID), zap.Int(keyPID, peer.PID))
	return peer, &Error{
		Status: http.StatusForbidden, Code: CodeForbidden, Hint: rights.Hint,
		Message: fmt.Sprintf("uid %d lacks the right %q, which %s %s needs", peer.UID, right, r.Method, r.URL.Path),
	}
}

// refuse writes an error. Nothing follows it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := answerFor(err)
	if e.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.log.Error("request failed", zap.String(keyMethod, r.Method), zap.String(keyPath, r.URL.Path), zap.Int(keyStatus, e.Status), zap.Error(err))
	}
	s.write(w, r, e.Status, map[string]*Error{"error": e})
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		s.log.Error("answer not encoded", zap.String(keyPath, r.URL.Path), zap.Error(err))
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		s.log.Debug("answer not written", zap.String(keyPath, r.URL.Path), zap.Error(err))
	}
}

// noRoute tells a wrong address from a wrong method.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	if _, err := s.permit(r, RightRead); err != nil {
		s.refuse(w, r, err)
		return
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		s.refuse(w, r, NotFound(fmt.Sprintf("there is no %s", r.URL.Path), ""))
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.refuse(w, r, &Error{
		Status: http.StatusMethodNotAllowed, Code: CodeMethod,
		Message: fmt.Sprintf("%s does not take %s; it takes %s", r.URL.Path, r.Method, strings.Join(allowed, ", ")),
	})
}

func (s *Server) metrics(r *request) error {
	if s.o.Metrics == nil {
		return NotFound("this daemon has no metrics", "")
	}
	s.o.Metrics.ServeHTTP(r.w, r.Request)
	return nil
}
