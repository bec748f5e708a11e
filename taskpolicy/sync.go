package taskpolicy

import (
	"context"
	"fmt"

	"runnerd/policy"
)

// Row is what the files say about one task, project or connector.
type Row struct {
	Scope policy.Scope
	ID    string
	policy.Fields
}

type rowKey struct {
	scope policy.Scope
	id    string
}

// SyncFiles replaces the file layer with rows and the daemon's limits per day with
// day, in one transaction. A task that is not among rows keeps its row, marked
// retired; a project or connector that is not loses its row, while its overrides
// and pins wait for it to come back. Each task gets a session row. History gets a
// row for each field that changed; where nothing did, nothing is written.
func (s *Store) SyncFiles(ctx context.Context, rows []Row, day policy.Limits, by string) error {
	want, err := wanted(rows, day)
	if err != nil {
		return fmt.Errorf("store policy of files: %w", err)
	}
	return s.transact(ctx, "store policy of files", by, func(ctx context.Context, c *change) error {
		var have []*ruleRow
		if err := c.tx.NewSelect().Model(&have).Where("r.layer = ?", policy.LayerFile).Scan(ctx); err != nil {
			return err
		}
		left := map[rowKey]*ruleRow{}
		for _, r := range have {
			left[rowKey{r.Scope, r.ID}] = r
		}
		for _, w := range want {
			if err := c.syncRow(ctx, w, left[w.rowKey]); err != nil {
				return fmt.Errorf("%s %s: %w", w.scope, w.id, err)
			}
			delete(left, w.rowKey)
		}
		for _, r := range have {
			if left[rowKey{r.Scope, r.ID}] == nil {
				continue
			}
			if err := c.syncGone(ctx, r); err != nil {
				return fmt.Errorf("%s %s: %w", r.Scope, r.ID, err)
			}
		}
		return nil
	})
}

type wantedRow struct {
	rowKey
	texts map[string]string
}

// wanted encodes the rows in the order given, each task followed by its session.
func wanted(rows []Row, day policy.Limits) ([]wantedRow, error) {
	var out []wantedRow
	seen := map[rowKey]bool{}
	add := func(scope policy.Scope, id string, f policy.Fields) error {
		key := rowKey{scope, id}
		if seen[key] {
			return fmt.Errorf("%s %q is there twice", scope, id)
		}
		seen[key] = true
		texts, err := encode(scope, f)
		if err != nil {
			return fmt.Errorf("%s %q: %w", scope, id, err)
		}
		out = append(out, wantedRow{key, texts})
		return nil
	}
	for _, r := range rows {
		switch r.Scope {
		case policy.ScopeTask, policy.ScopeProject, policy.ScopeConnector:
		default:
			return nil, fmt.Errorf("%q: files say nothing about a %q", r.ID, r.Scope)
		}
		if r.ID == "" {
			return nil, errEmpty
		}
		if err := add(r.Scope, r.ID, r.Fields); err != nil {
			return nil, err
		}
		if r.Scope == policy.ScopeTask {
			if err := add(policy.ScopeSession, r.ID, policy.Fields{}); err != nil {
				return nil, err
			}
		}
	}
	return out, add(scopeDaemon, daemonID, policy.Fields{Limits: &day})
}

// syncRow brings one row of the file layer to what the files say.
func (c *change) syncRow(ctx context.Context, w wantedRow, r *ruleRow) error {
	fresh := r == nil
	if fresh {
		r = &ruleRow{Scope: w.scope, ID: w.id, Layer: policy.LayerFile, Meta: "{}"}
		if err := c.recordRow(ctx, r, "added"); err != nil {
			return err
		}
	}
	changed := false
	if r.Retired != 0 {
		r.Retired, changed = 0, true
		if err := c.recordRow(ctx, r, "returned"); err != nil {
			return err
		}
	}
	for _, name := range fieldsOf[w.scope] {
		var text *string
		if t, declared := w.texts[name]; declared {
			text = &t
		}
		did, err := r.set(ctx, c, name, text)
		if err != nil {
			return err
		}
		changed = changed || did
	}
	switch {
	case fresh:
		return c.insert(ctx, r)
	case changed:
		return c.update(ctx, r)
	}
	return nil
}

// syncGone handles a row whose file entry is gone.
func (c *change) syncGone(ctx context.Context, r *ruleRow) error {
	switch r.Scope {
	case policy.ScopeTask:
		if r.Retired != 0 {
			return nil
		}
		r.Retired = 1
		if err := c.recordRow(ctx, r, "retired"); err != nil {
			return err
		}
		return c.update(ctx, r)
	case policy.ScopeProject, policy.ScopeConnector:
		if err := c.recordRow(ctx, r, "removed"); err != nil {
			return err
		}
		return c.remove(ctx, r)
	}
	return nil
}

func (c *change) recordRow(ctx context.Context, r *ruleRow, what string) error {
	text := `"` + what + `"`
	return c.record(ctx, entry{r.Scope, r.ID, string(r.Layer), "row", nil, &text})
}
