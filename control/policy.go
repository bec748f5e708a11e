package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
	"runnerd/text"
)

// ConnectorsView answers for a session: its own list, what is in force and which
// tier says so. A null effective list is every configured connector.
type ConnectorsView struct {
	taskpolicy.Reachability
	// Warnings are what a PATCH dropped.
	Warnings []string `json:"warnings,omitempty"`
}

// ProjectView answers for a project.
type ProjectView struct {
	ID string `json:"id"`
	ConnectorsView
	Limits FieldView `json:"limits"`
}

// FieldView is one field of a policy.
type FieldView struct {
	taskpolicy.Field
	// Effective and Source are set on `connectors`: what is in force over all
	// tiers, null being every configured connector, and which tier says so.
	Effective *task.List[string] `json:"effective,omitempty"`
	Source    policy.Source      `json:"source,omitempty"`
	// Warnings are what a PATCH of the field dropped.
	Warnings []string `json:"warnings,omitempty"`
}

// PolicyView is a task's policy, a field each.
type PolicyView map[string]FieldView

// taskFields are the fields that a task's policy has.
var taskFields = []string{"connectors", "tools", "allow", "deny", "on_ask", "approval_ttl", "limits", "accept_risk"}

// projectOf is the project of a task that is in force, else none: a retired task's
// rows stay, its project is not known any more.
func (s *Server) projectOf(taskID string) string {
	t, _ := s.o.Files.Task(taskID)
	return t.Project
}

// set applies a patch and tells a value that is wrong from a store that fails.
func (s *Server) set(ctx context.Context, r *request, scope policy.Scope, p patch) ([]string, error) {
	if len(p) == 0 {
		return nil, nil
	}
	warnings, err := s.o.Policies.Set(ctx, taskpolicy.Change{Scope: scope, ID: r.id(), Patch: p, By: r.by()})
	if err != nil && !errors.Is(err, taskpolicy.ErrNoRow) && !storeFailed(err) {
		err = invalid(err)
	}
	return warnings, err
}

// missing words that a name has no policy row.
func missing(err error, what, id string) error {
	if errors.Is(err, taskpolicy.ErrNoRow) {
		return NotFound("there is no "+what+" "+text.Escape(id), "")
	}
	return err
}

func (s *Server) sessionConnectors(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	return s.session(ctx, r, nil)
}

func (s *Server) session(ctx context.Context, r *request, warnings []string) (any, error) {
	reach, err := s.o.Policies.Reachability(ctx, policy.ScopeSession, r.id(), s.projectOf(r.id()))
	return ConnectorsView{Reachability: reach, Warnings: warnings}, missing(err, "session", r.id())
}

func (s *Server) patchSession(ctx context.Context, r *request) (any, error) {
	p, err := r.object(false, "connector_ids")
	if err != nil {
		return nil, err
	}
	warnings, err := s.set(ctx, r, policy.ScopeSession, renamed(p))
	if err != nil {
		return nil, missing(err, "session", r.id())
	}
	return s.session(ctx, r, warnings)
}

// renamed turns the API's connector_ids into the store's connectors.
func renamed(p patch) patch {
	out := patch{}
	for name, raw := range p {
		if name == "connector_ids" {
			name = "connectors"
		}
		out[name] = raw
	}
	return out
}

func (s *Server) project(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	return s.projectView(ctx, r, nil)
}

func (s *Server) projectView(ctx context.Context, r *request, warnings []string) (any, error) {
	reach, err := s.o.Policies.Reachability(ctx, policy.ScopeProject, r.id(), "")
	if err != nil {
		return nil, missing(err, "project", r.id())
	}
	fields, err := s.o.Policies.Show(ctx, policy.ScopeProject, r.id())
	return ProjectView{ID: r.id(), ConnectorsView: ConnectorsView{reach, warnings}, Limits: FieldView{Field: fields["limits"]}},
		missing(err, "project", r.id())
}

func (s *Server) patchProject(ctx context.Context, r *request) (any, error) {
	p, err := r.object(false, "connector_ids", "limits")
	if err != nil {
		return nil, err
	}
	warnings, err := s.set(ctx, r, policy.ScopeProject, renamed(p))
	if err != nil {
		return nil, missing(err, "project", r.id())
	}
	return s.projectView(ctx, r, warnings)
}

func (s *Server) taskPolicy(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	return s.policyView(ctx, r, nil)
}

func (s *Server) policyView(ctx context.Context, r *request, warnings []string) (any, error) {
	fields, err := s.o.Policies.Show(ctx, policy.ScopeTask, r.id())
	if err != nil {
		return nil, missing(err, "task", r.id())
	}
	reach, err := s.o.Policies.Reachability(ctx, policy.ScopeTask, r.id(), s.projectOf(r.id()))
	if err != nil {
		return nil, missing(err, "task", r.id())
	}
	view := PolicyView{}
	for name, f := range fields {
		v := FieldView{Field: f}
		if name == "connectors" {
			v.Effective, v.Source = &reach.Effective, reach.Source
		}
		for _, w := range warnings {
			if strings.HasPrefix(w, name+":") {
				v.Warnings = append(v.Warnings, w)
			}
		}
		view[name] = v
	}
	return view, nil
}

func (s *Server) patchTaskPolicy(ctx context.Context, r *request) (any, error) {
	p, err := r.object(false, taskFields...)
	if err != nil {
		return nil, err
	}
	warnings, err := s.set(ctx, r, policy.ScopeTask, p)
	if err != nil {
		return nil, missing(err, "task", r.id())
	}
	return s.policyView(ctx, r, warnings)
}

func (s *Server) toolSupport(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	if _, err := s.o.Policies.Own(ctx, policy.ScopeSession, r.id()); err != nil {
		return nil, missing(err, "session", r.id())
	}
	v, err := s.o.ToolSupport(ctx, r.id())
	if err != nil && r.Context().Err() == nil {
		// It is a signal for people; not knowing is an answer.
		return ToolSupport{Supported: "unknown", Reason: err.Error()}, nil
	}
	return v, err
}

// names reads an optional list of names of a body.
func names(fields patch, name string) (list []string, given bool, err error) {
	raw, given := fields[name]
	if !given {
		return nil, false, nil
	}
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, true, &Error{Status: http.StatusUnprocessableEntity, Code: CodeInvalidValue, Message: name + ": want a list of names"}
	}
	return list, true, nil
}
