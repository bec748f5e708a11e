package taskpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.uber.org/zap"

	"runnerd/policy"
)

// Change is an edit of the override layer, as `runnerd policy set` and the API make
// it. A key that is missing from Patch leaves its field, null clears the override,
// anything else replaces the whole field. For a session the override layer is the
// session's own value.
type Change struct {
	Scope policy.Scope
	ID    string
	Patch map[string]json.RawMessage
	By    string
}

// Set applies a change, all of it or nothing, and answers what it dropped on the
// way: connectors that do not exist, entries that are no strings, and a `tools` of
// the wrong type, which counts as absent. Everything else that is wrong is an
// error. A name that is not there gives ErrNoRow.
func (s *Store) Set(ctx context.Context, ch Change) ([]string, error) {
	names, err := ch.fields()
	if err != nil {
		return nil, fmt.Errorf("set policy: %w", err)
	}
	var warnings []string
	err = s.transact(ctx, "set policy", ch.By, func(ctx context.Context, c *change) error {
		_, override, err := layers(ctx, c.tx, ch.Scope, ch.ID)
		if err != nil {
			return err
		}
		known, err := c.connectors(ctx)
		if err != nil {
			return err
		}
		fresh := override == nil
		if fresh {
			override = &ruleRow{Scope: ch.Scope, ID: ch.ID, Layer: policy.LayerOverride, Meta: "{}"}
		}
		changed, warned, err := override.patch(ctx, c, names, ch.Patch, known)
		warnings = warned
		switch {
		case err != nil || !changed:
			return err
		case fresh:
			return c.insert(ctx, override)
		}
		return c.update(ctx, override)
	})
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		s.log.Warn("policy value corrected", zap.String("scope", string(ch.Scope)), zap.String("id", ch.ID), zap.String("warning", w))
	}
	return warnings, nil
}

// fields checks the names in the patch and answers them sorted.
func (ch Change) fields() ([]string, error) {
	known := fieldsOf[ch.Scope]
	if known == nil || ch.Scope == scopeDaemon {
		return nil, fmt.Errorf("unknown scope %q: want task, session, project or connector", ch.Scope)
	}
	if ch.By == "" {
		return nil, errors.New("by whom is empty")
	}
	names := make([]string, 0, len(ch.Patch))
	for name := range ch.Patch {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("a %s has no field %q; it has %s", ch.Scope, name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}

func (r *ruleRow) patch(ctx context.Context, c *change, names []string, patch map[string]json.RawMessage, known map[string]bool) (changed bool, warnings []string, err error) {
	for _, name := range names {
		var text *string
		if raw := patch[name]; strings.TrimSpace(string(raw)) != "null" {
			t, warned, err := field(name, raw, known)
			if err != nil {
				return false, nil, fmt.Errorf("%s: %w", name, err)
			}
			text, warnings = t, append(warnings, warned...)
		}
		did, err := r.set(ctx, c, name, text)
		if err != nil {
			return false, nil, err
		}
		changed = changed || did
	}
	return changed, warnings, nil
}

// connectors are the ids that the operator configured.
func (c *change) connectors(ctx context.Context) (map[string]bool, error) {
	var ids []string
	err := c.tx.NewSelect().Model((*ruleRow)(nil)).Column("id").
		Where("r.scope = ? AND r.layer = ?", policy.ScopeConnector, policy.LayerFile).Scan(ctx, &ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	return known, nil
}
