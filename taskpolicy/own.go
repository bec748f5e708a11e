package taskpolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"runnerd/policy"
	"runnerd/task"
)

// Own answers what a task, session, project or connector says itself, overrides
// applied and defaults not. A name that is not there gives ErrNoRow.
func (s *Store) Own(ctx context.Context, scope policy.Scope, id string) (policy.Fields, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	file, override, err := layers(ctx, s.sql.Read, scope, id)
	if err != nil {
		return policy.Fields{}, fmt.Errorf("read policy: %w", err)
	}
	var f policy.Fields
	for _, name := range fieldsOf[scope] {
		text := *file.column(name)
		if override != nil && *override.column(name) != nil {
			text = *override.column(name)
		}
		if text == nil {
			continue
		}
		if err := readField(&f, name, *text); err != nil {
			return policy.Fields{}, fmt.Errorf("read policy of %s %s: %s is unreadable: %w", scope, id, name, err)
		}
	}
	return f, nil
}

// readField reads one stored text into its field.
func readField(f *policy.Fields, name, text string) error {
	raw := []byte(text)
	switch name {
	case "connectors", "tools":
		list, err := parseIDs(text)
		if name == "connectors" {
			f.Connectors = list.ids
			return err
		}
		f.Tools = list.ids // of the wrong type: absent
		return nil
	case "approval_ttl":
		d, err := parseStoredTTL(text)
		f.ApprovalTTL = &d
		return err
	}
	return json.Unmarshal(raw, map[string]any{
		"allow": &f.Allow, "deny": &f.Deny, "on_ask": &f.OnAsk, "limits": &f.Limits, "accept_risk": &f.AcceptRisk,
		"classes": &f.Classes, "disabled_tools": &f.DisabledTools, "trust_annotations": &f.TrustAnnotations,
		"flags": &f.Flags, "pin": &f.Pin, "origin": &f.Origin,
	}[name])
}

// Reachability is a tier's own list of connectors, what is in force, and which tier
// says so. An absent effective list is every configured connector.
type Reachability struct {
	Own       task.List[string] `json:"connector_ids"`
	Effective task.List[string] `json:"effective"`
	Source    policy.Source     `json:"source"`
}

// Reachability answers the three tiers for the API, as seen from scope: task and
// session share their id, and project is the task's, or "". Connectors that are no
// longer configured are left out of the effective list.
func (s *Store) Reachability(ctx context.Context, scope policy.Scope, id, project string) (Reachability, error) {
	own, err := s.Own(ctx, scope, id)
	if err != nil {
		return Reachability{}, err
	}
	if scope == policy.ScopeProject {
		out := Reachability{Own: own.Connectors, Effective: own.Connectors, Source: policy.SourceAll}
		if own.Connectors.Declared() {
			out.Source = policy.SourceProject
		}
		return out, nil
	}
	e, err := s.Effective(ctx, id, id, project)
	if err != nil {
		return Reachability{}, err
	}
	list, source := policy.Reach(e)
	if list.Declared() {
		list = task.ListOf(slices.DeleteFunc(slices.Clone(list.Items()), func(c string) bool {
			_, configured := e.Connectors[c]
			return !configured
		})...)
	}
	return Reachability{Own: own.Connectors, Effective: list, Source: source}, nil
}
