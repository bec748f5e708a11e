package control

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"runnerd/db"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/text"
)

// ApprovalView is one approval with all that a person needs to decide.
type ApprovalView struct {
	ApprovalRow
	Step       int    `json:"step"`
	CallID     string `json:"call_id"`
	Definition string `json:"definition"`
	// Arguments are the exact bytes that will be sent. Where they are no UTF-8,
	// which JSON cannot hold, they are in ArgumentsBase64 instead.
	Arguments       string `json:"arguments"`
	ArgumentsBase64 []byte `json:"arguments_base64,omitempty"`
	ArgumentsBytes  int    `json:"arguments_bytes"`
	// Always is the `allow:` line that would permit this call without asking.
	Always string `json:"always,omitempty"`
	// AlwaysOpen are the arguments that Always leaves free.
	AlwaysOpen []string `json:"always_open,omitempty"`
}

// NewApprovalView shows an approval whole.
func NewApprovalView(a task.Approval) ApprovalView {
	v := ApprovalView{
		ApprovalRow: NewApprovalRow(a), Step: a.Step, CallID: a.CallID, Definition: a.Definition,
		Arguments: a.Arguments, ArgumentsBytes: len(a.Arguments),
	}
	if !utf8.ValidString(a.Arguments) {
		v.Arguments, v.ArgumentsBase64 = "", []byte(a.Arguments)
	}
	v.Always, v.AlwaysOpen = AllowLine(a)
	return v
}

// DecisionView is what approving or denying answers.
type DecisionView struct {
	Approval ApprovalRow `json:"approval"`
	// Decided is false for a duplicate: Approval is then the first decision.
	Decided bool `json:"decided"`
	// Always is, on an approval, the `allow:` line that would permit this call
	// without asking; AlwaysOpen are the arguments that it leaves free.
	Always     string   `json:"always,omitempty"`
	AlwaysOpen []string `json:"always_open,omitempty"`
}

func (s *Server) approvals(ctx context.Context, r *request) (any, error) {
	q, err := r.query("state", "task", "run", "limit")
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q)
	if err != nil {
		return nil, err
	}
	states, err := approvalStates(q.Get("state"))
	if err != nil {
		return nil, err
	}
	list, err := s.o.Main.Approvals(ctx, db.ApprovalFilter{Task: q.Get("task"), Run: q.Get("run"), States: states, Limit: limit})
	return NewApprovalRows(list), err
}

var allStates = []task.ApprovalState{
	task.ApprovalPending, task.ApprovalApproved, task.ApprovalDenied, task.ApprovalExpired, task.ApprovalSuperseded,
	task.ApprovalCancelled, task.ApprovalConsumed, task.ApprovalDone, task.ApprovalUnknown,
}

// approvalStates reads state=: what waits for a person if it is not given, "all",
// or states with commas between.
func approvalStates(given string) ([]task.ApprovalState, error) {
	switch given {
	case "":
		return []task.ApprovalState{task.ApprovalPending}, nil
	case "all":
		return nil, nil
	}
	var states []task.ApprovalState
	for _, name := range strings.Split(given, ",") {
		if !slices.Contains(allStates, task.ApprovalState(name)) {
			return nil, badRequest("query: state: %q is none; want all or any of %v", name, allStates)
		}
		states = append(states, task.ApprovalState(name))
	}
	return states, nil
}

// find reads the approval of the path. One of another task than ?task= looks as if
// it were not there.
func (s *Server) find(ctx context.Context, r *request) (task.Approval, error) {
	q, err := r.query("task")
	if err != nil {
		return task.Approval{}, err
	}
	a, err := s.o.Main.FindApproval(ctx, r.id())
	if err == nil && q.Has("task") && q.Get("task") != a.Task {
		err = db.ErrNotFound
	}
	if errors.Is(err, db.ErrNotFound) {
		return task.Approval{}, NotFound("there is no approval "+text.Escape(r.id()), "`runnerd approvals` lists them")
	}
	return a, err
}

func (s *Server) approval(ctx context.Context, r *request) (any, error) {
	a, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return NewApprovalView(a), nil
}

func (s *Server) approve(ctx context.Context, r *request) (any, error) {
	return s.decide(ctx, r, task.ApprovalApproved)
}

func (s *Server) deny(ctx context.Context, r *request) (any, error) {
	return s.decide(ctx, r, task.ApprovalDenied)
}

func (s *Server) decide(ctx context.Context, r *request, state task.ApprovalState) (any, error) {
	fields, err := r.object(true, "reason", "args_hash")
	if err != nil {
		return nil, err
	}
	reason, err := textField(fields, "reason")
	if err != nil {
		return nil, err
	}
	hash, err := textField(fields, "args_hash")
	if err != nil {
		return nil, err
	}
	before, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if hash != "" && hash != before.ArgsHash {
		return nil, &Error{Status: http.StatusConflict, Code: CodeConflict, State: string(before.State),
			Message: "approval " + before.ID + " is for other arguments than the given args_hash", Hint: "look at it again"}
	}
	now := time.Now().UTC().Truncate(time.Microsecond) // as the database keeps it
	v := db.Verdict{ID: before.ID, Task: before.Task, State: state, By: r.by(), Reason: reason}
	a, err := s.o.Main.DecideApproval(ctx, v, now)
	if errors.Is(err, db.ErrConflict) {
		return nil, &Error{Status: http.StatusConflict, Code: CodeConflict, State: string(a.State), Message: err.Error(),
			Hint: "nothing was sent; `runnerd show " + before.Run + "` says what became of the run"}
	}
	if err != nil {
		return nil, err
	}
	out := DecisionView{Approval: NewApprovalRow(a), Decided: a.State == state && a.DecidedAt.Equal(now) && a.DecidedBy == v.By}
	if a.State == task.ApprovalApproved {
		out.Always, out.AlwaysOpen = AllowLine(a)
	}
	return out, nil
}

// AllowLine is the `allow:` line of a task file that would permit exactly this call
// without asking: closed, with the value of every argument. Arguments that are too
// long to print are left free and named in open; a person must judge them.
func AllowLine(a task.Approval) (line string, open []string) {
	if a.Class == task.ClassDelivery {
		return "", nil // it is of no call
	}
	g, open, err := policy.LineFor(a.Connector, a.Tool, a.Arguments)
	if err != nil {
		return "", nil // no grant can match it
	}
	return g.AllowLine(), open
}
