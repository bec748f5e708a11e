package taskpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"runnerd/policy"
)

// ruleRow is one row of policy_rows: what one layer says about one scope and id. A
// row of layer file exists for everything that is configured; NULL is absent.
type ruleRow struct {
	bun.BaseModel    `bun:"table:policy_rows,alias:r"`
	Scope            policy.Scope `bun:"scope,pk"`
	ID               string       `bun:"id,pk"`
	Layer            policy.Layer `bun:"layer,pk"`
	Retired          int64        `bun:"retired"`
	Connectors       *string      `bun:"connectors"`
	Tools            *string      `bun:"tools"`
	Allow            *string      `bun:"allow"`
	Deny             *string      `bun:"deny"`
	OnAsk            *string      `bun:"on_ask"`
	ApprovalTTL      *string      `bun:"approval_ttl"`
	Limits           *string      `bun:"limits"`
	AcceptRisk       *string      `bun:"accept_risk"`
	Classes          *string      `bun:"classes"`
	DisabledTools    *string      `bun:"disabled_tools"`
	TrustAnnotations *string      `bun:"trust_annotations"`
	Flags            *string      `bun:"flags"`
	Pin              *string      `bun:"pin"`
	Origin           *string      `bun:"origin"`
	// Meta says, as JSON, when each field was last changed and by whom.
	Meta string `bun:"meta"`
}

// column points at a field by its name; nil for a name that is none.
func (r *ruleRow) column(name string) **string {
	for i, c := range r.fields() {
		if columns[i] == name {
			return c
		}
	}
	return nil
}

// fields are the columns in the order of columns.
func (r *ruleRow) fields() [14]**string {
	return [...]**string{
		&r.Connectors, &r.Tools, &r.Allow, &r.Deny, &r.OnAsk, &r.ApprovalTTL, &r.Limits, &r.AcceptRisk,
		&r.Classes, &r.DisabledTools, &r.TrustAnnotations, &r.Flags, &r.Pin, &r.Origin,
	}
}

// touched is when a field was changed, in microseconds since the epoch, and by whom.
type touched struct {
	At int64  `json:"at"`
	By string `json:"by"`
}

func (r *ruleRow) meta() map[string]touched {
	m := map[string]touched{}
	if json.Unmarshal([]byte(r.Meta), &m) != nil || m == nil {
		return map[string]touched{} // it is for showing only
	}
	return m
}

// set changes one field and records that, if it is a change.
func (r *ruleRow) set(ctx context.Context, c *change, name string, text *string) (changed bool, err error) {
	col := r.column(name)
	if equalText(*col, text) {
		return false, nil
	}
	m := r.meta()
	m[name] = touched{At: c.at.UnixMicro(), By: c.by}
	data, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	if err := c.record(ctx, entry{r.Scope, r.ID, string(r.Layer), name, *col, text}); err != nil {
		return false, err
	}
	r.Meta, *col = string(data), text
	return true, nil
}

func equalText(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// insert adds a row, when the next ones are written.
func (c *change) insert(ctx context.Context, r *ruleRow) error {
	if c.added = append(c.added, r); len(c.added) < batch {
		return nil
	}
	return c.flush(ctx)
}

func (c *change) update(ctx context.Context, r *ruleRow) error {
	_, err := c.tx.NewUpdate().Model(r).WherePK().Exec(ctx)
	return err
}

func (c *change) remove(ctx context.Context, r *ruleRow) error {
	_, err := c.tx.NewDelete().Model(r).WherePK().Exec(ctx)
	return err
}

// layers reads the rows of one scope and id. Without a row of layer file the thing
// does not exist.
func layers(ctx context.Context, db bun.IDB, scope policy.Scope, id string) (file, override *ruleRow, err error) {
	var rows []*ruleRow
	err = db.NewSelect().Model(&rows).Where("r.scope = ? AND r.id = ?", scope, id).Scan(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		switch r.Layer {
		case policy.LayerFile:
			file = r
		case policy.LayerOverride:
			override = r
		}
	}
	if file == nil {
		return nil, nil, fmt.Errorf("%s %q: %w", scope, id, ErrNoRow)
	}
	return file, override, nil
}

// Field is one field as `policy show` prints it.
type Field struct {
	Value     json.RawMessage `json:"value"` // null if nothing was said and nothing is assumed
	Layer     policy.Layer    `json:"layer"`
	ChangedAt time.Time       `json:"changed_at,omitzero"`
	By        string          `json:"by,omitempty"`
}

// Show answers every field of a task, session, project or connector: its value, the
// layer that it comes from, and who changed it last. A name that is not there gives
// ErrNoRow.
func (s *Store) Show(ctx context.Context, scope policy.Scope, id string) (map[string]Field, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	if _, known := fieldsOf[scope]; !known || scope == scopeDaemon {
		return nil, fmt.Errorf("show policy: unknown scope %q", scope)
	}
	file, override, err := layers(ctx, s.sql.Read, scope, id)
	if err != nil {
		return nil, fmt.Errorf("show policy: %w", err)
	}
	out := map[string]Field{}
	for _, name := range fieldsOf[scope] {
		f := Field{Value: defaultValue(scope, name), Layer: policy.LayerDefault}
		for _, r := range []*ruleRow{file, override} {
			if r == nil || *r.column(name) == nil {
				continue
			}
			m := r.meta()[name]
			f = Field{Value: rawOrQuoted(**r.column(name)), Layer: r.Layer, By: m.By}
			if m.At != 0 {
				f.ChangedAt = time.UnixMicro(m.At).UTC()
			}
		}
		out[name] = f
	}
	if scope != policy.ScopeTask {
		return out, nil
	}
	out[Ceiling], err = s.ceiling(ctx)
	return out, err
}

// Ceiling is the name under which Show lists, beside a task's own fields, what the
// daemon's file denies every task. Nobody can set it here.
const Ceiling = "ceiling"

func (s *Store) ceiling(ctx context.Context) (Field, error) {
	f := Field{Value: json.RawMessage("null"), Layer: policy.LayerDefault}
	file, _, err := layers(ctx, s.sql.Read, scopeDaemon, daemonID)
	switch {
	case err != nil:
		return f, fmt.Errorf("show policy: %w", err)
	case file.Deny == nil:
		return f, nil
	}
	m := file.meta()["deny"]
	f = Field{Value: rawOrQuoted(*file.Deny), Layer: policy.LayerFile, By: m.By}
	if m.At != 0 {
		f.ChangedAt = time.UnixMicro(m.At).UTC()
	}
	return f, nil
}

// rawOrQuoted shows a stored text that is no JSON as a string.
func rawOrQuoted(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	data, _ := json.Marshal(text)
	return data
}

func defaultValue(scope policy.Scope, name string) json.RawMessage {
	var v any
	switch {
	case name == "on_ask":
		v = policy.OnAskDeny
	case name == "approval_ttl":
		v = policy.DefaultApprovalTTL.String()
	case name == "limits" && scope == policy.ScopeTask:
		v = policy.DefaultLimits()
	case name == "pin":
		v = policy.PinFirstUse
	case name == "trust_annotations":
		v = false
	}
	data, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}

// errEmpty refuses names that cannot be right.
var errEmpty = errors.New("the id is empty")
