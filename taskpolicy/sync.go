package taskpolicy

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// syncWait is what each row adds to WriteWait: all rows of a directory are one
// transaction, however many they are.
const syncWait = time.Millisecond

// SyncFiles replaces the file layer with rows and what the daemon's own file says,
// limits per day and a ceiling of deny, with daemon, in one transaction. A task that is not among rows keeps its row, marked
// retired; a project or connector that is not loses its row, while its overrides
// and pins wait for it to come back. Each task gets a session row. History gets a
// row for each field that changed; where nothing did, nothing is written. It is
// bounded by WriteWait and a millisecond for each row.
func (s *Store) SyncFiles(ctx context.Context, rows []Row, daemon policy.Fields, by string) error {
	want, err := wanted(rows, daemon)
	if err != nil {
		return fmt.Errorf("store policy of files: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.WriteWait+time.Duration(len(want))*syncWait)
	defer cancel()
	return s.transactWithin(ctx, "store policy of files", by, func(ctx context.Context, c *change) error {
		gone, err := c.compare(ctx, want)
		if err != nil {
			return err
		}
		for i := range want {
			if want[i].same {
				continue
			}
			if err := c.syncRow(ctx, &want[i]); err != nil {
				return fmt.Errorf("%s %s: %w", want[i].scope, want[i].id, err)
			}
		}
		for _, key := range gone {
			if err := c.syncGone(ctx, key); err != nil {
				return fmt.Errorf("%s %s: %w", key.scope, key.id, err)
			}
		}
		return nil
	})
}

// wantedRow is a row as the file layer is to hold it. Its texts are made when they
// are asked for: there may be very many rows, and most are stored already.
type wantedRow struct {
	rowKey
	fields *policy.Fields
	stored bool // there is a row of this key
	same   bool // and it says the same
}

// wanted lists the rows in the order given, each task followed by its session, the
// daemon's last.
func wanted(rows []Row, daemon policy.Fields) ([]wantedRow, error) {
	out := make([]wantedRow, 0, 2*len(rows)+1)
	seen := make(map[rowKey]bool, len(rows))
	for i, r := range rows {
		switch r.Scope {
		case policy.ScopeTask, policy.ScopeProject, policy.ScopeConnector:
		default:
			return nil, fmt.Errorf("%q: files say nothing about a %q", r.ID, r.Scope)
		}
		key := rowKey{r.Scope, r.ID}
		switch {
		case r.ID == "":
			return nil, errEmpty
		case seen[key]:
			return nil, fmt.Errorf("%s %q is there twice", r.Scope, r.ID)
		}
		seen[key] = true
		out = append(out, wantedRow{rowKey: key, fields: &rows[i].Fields})
		if r.Scope == policy.ScopeTask {
			out = append(out, wantedRow{rowKey: rowKey{policy.ScopeSession, r.ID}, fields: &policy.Fields{}})
		}
	}
	return append(out, wantedRow{rowKey: rowKey{scopeDaemon, daemonID}, fields: &daemon}), nil
}

// fileQuery answers a text for each row of the file layer: scope, id, whether it is
// retired, and all columns.
var fileQuery = func() string {
	parts := []string{"r.scope", "r.id", "CAST(r.retired AS TEXT)"}
	for _, name := range columns {
		parts = append(parts, "COALESCE(r."+name+", '"+null+"')")
	}
	return "SELECT " + strings.Join(parts, " || '"+separator+"' || ") + " FROM policy_rows r WHERE r.layer = '" + string(policy.LayerFile) + "'"
}()

// inForce is how a row that is not retired is marked in the texts of fileQuery.
const inForce = "0"

// compare marks the rows that are stored, and stored as they are wanted, and
// answers those that nobody wants any more and that are not settled yet.
func (c *change) compare(ctx context.Context, want []wantedRow) (gone []rowKey, err error) {
	at := make(map[rowKey]int, len(want))
	for i := range want {
		at[want[i].rowKey] = i
	}
	rows, err := c.tx.QueryContext(ctx, fileQuery)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			return nil, err
		}
		scope, rest, _ := strings.Cut(row, separator)
		id, rest, _ := strings.Cut(rest, separator)
		retired, fields, _ := strings.Cut(rest, separator)
		key := rowKey{policy.Scope(scope), id}
		i, wanted := at[key]
		if !wanted {
			if key.scope != policy.ScopeTask || retired == inForce {
				gone = append(gone, key)
			}
			continue
		}
		text, err := joined(key.scope, want[i].fields)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", key.scope, key.id, err)
		}
		want[i].stored, want[i].same = true, retired == inForce && text == fields
	}
	return gone, rows.Err()
}

// joined is a row's columns as one text, as fileQuery answers them.
func joined(scope policy.Scope, f *policy.Fields) (string, error) {
	texts, err := encode(scope, f)
	if err != nil {
		return "", err
	}
	parts := make([]string, len(columns))
	for i, name := range columns {
		text, declared := texts[name]
		if !declared {
			text = null
		}
		parts[i] = text
	}
	return strings.Join(parts, separator), nil
}

// syncRow brings one row of the file layer to what the files say.
func (c *change) syncRow(ctx context.Context, w *wantedRow) error {
	texts, err := encode(w.scope, w.fields)
	if err != nil {
		return err
	}
	r := &ruleRow{Scope: w.scope, ID: w.id, Layer: policy.LayerFile, Meta: "{}"}
	if w.stored {
		err = c.tx.NewSelect().Model(r).WherePK().Scan(ctx)
	} else {
		err = c.recordRow(ctx, r, "added")
	}
	if err != nil {
		return err
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
		if t, declared := texts[name]; declared {
			text = &t
		}
		did, err := r.set(ctx, c, name, text)
		if err != nil {
			return err
		}
		changed = changed || did
	}
	switch {
	case !w.stored:
		return c.insert(ctx, r)
	case changed:
		return c.update(ctx, r)
	}
	return nil
}

// syncGone handles a row whose file entry is gone; that of a session stays.
func (c *change) syncGone(ctx context.Context, key rowKey) error {
	r := &ruleRow{Scope: key.scope, ID: key.id, Layer: policy.LayerFile}
	switch key.scope {
	case policy.ScopeTask:
		if err := c.tx.NewSelect().Model(r).WherePK().Scan(ctx); err != nil {
			return err
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
