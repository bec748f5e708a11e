package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"runnerd/db"
	"runnerd/task"
)

// startRun starts a manual run, or with a script a rehearsal, whose calls are the
// caller's own: that needs the right to approve calls.
func (s *Server) startRun(ctx context.Context, r *request) (any, error) {
	fields, err := r.object(true, "script")
	if err != nil {
		return nil, err
	}
	script, err := scriptOf(fields)
	if err != nil {
		return nil, err
	}
	if script != (task.Script{}) {
		if _, err := s.permit(r.Request, RightApprove); err != nil {
			return nil, err
		}
	}
	run, err := s.o.Start(ctx, r.id(), script)
	if err != nil {
		return nil, err
	}
	r.w.Header().Set("Location", "/api/runs/"+run.ID)
	return NewRunRow(run), nil
}

// scriptOf reads the script of a body; the zero Script if there is none.
func scriptOf(fields patch) (script task.Script, err error) {
	raw, ok := fields["script"]
	if !ok {
		return script, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&script); err != nil || strings.TrimSpace(script.Text) == "" {
		return script, badRequest("body: script: want an object with text, the script itself, and name, what errors call it by")
	}
	return script, nil
}

func (s *Server) runs(ctx context.Context, r *request) (any, error) {
	q, err := r.query("task", "limit", "before")
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q)
	if err != nil {
		return nil, err
	}
	f := db.RunFilter{Task: q.Get("task"), Limit: limit}
	if q.Has("before") {
		run, err := s.o.Main.FindRun(ctx, q.Get("before"))
		if err != nil {
			return nil, err
		}
		f.Before = run.ID
	}
	list, err := s.o.Main.Runs(ctx, f)
	return NewRunRows(list), err
}

func (s *Server) run(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	run, err := s.o.Main.FindRun(ctx, r.id())
	if err != nil {
		return nil, err
	}
	var uerr error
	msgs, err := s.o.Main.RunMessages(ctx, run.ID)
	receipts, rerr := s.o.Main.RunReceipts(ctx, run.ID)
	view := NewRunView(run, msgs, receipts)
	view.Untried, uerr = s.o.Main.Untried(ctx, run)
	return view, errors.Join(err, rerr, uerr)
}

// cancelRun asks for the end of a run. A worker that holds it ends it a little
// later: the answer is the run as it stands.
func (s *Server) cancelRun(ctx context.Context, r *request) (any, error) {
	fields, err := r.object(true, "reason")
	if err != nil {
		return nil, err
	}
	reason, err := textField(fields, "reason")
	if err != nil {
		return nil, err
	}
	run, err := s.o.Main.FindRun(ctx, r.id())
	if err != nil {
		return nil, err
	}
	if run.Execution.Finished() {
		return nil, finished(run)
	}
	if reason == "" {
		reason = "by " + r.by()
	}
	cerr := s.o.Workers.Cancel(run.ID, reason)
	run, err = s.o.Main.FindRun(ctx, run.ID)
	if cerr != nil && err == nil && run.Execution.Finished() {
		return nil, finished(run) // it ended by itself meanwhile
	}
	return NewRunRow(run), errors.Join(cerr, err)
}

func finished(run task.Run) *Error {
	return &Error{
		Status: http.StatusConflict, Code: CodeConflict, State: string(run.Status()),
		Message: fmt.Sprintf("run %s has ended already: %s", run.ID, run.Status()),
	}
}

func (s *Server) why(ctx context.Context, r *request) (any, error) {
	q, err := r.query("task", "at", "since", "limit")
	if err != nil {
		return nil, err
	}
	limit, lerr := limitOf(q)
	at, aerr := timeOf(q, "at")
	since, serr := timeOf(q, "since")
	if err := errors.Join(lerr, aerr, serr); err != nil {
		return nil, err
	}
	switch {
	case q.Get("task") == "":
		return nil, badRequest("query: task is required")
	case !at.IsZero() && !since.IsZero():
		return nil, badRequest("query: want one of at and since, not both")
	case at.IsZero():
		list, err := s.o.Main.Occurrences(ctx, db.OccurrenceFilter{Task: q.Get("task"), Since: since, Limit: limit})
		return NewWhyRows(list), err
	}
	o, err := s.o.Main.OccurrenceAt(ctx, q.Get("task"), at)
	if errors.Is(err, db.ErrNotFound) {
		return []WhyRow{}, nil
	}
	return NewWhyRows([]task.Occurrence{o}), err
}
