package taskpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

// migrations are the steps of the schema. Their models are frozen copies below and
// never change, whatever the store's own models become.
var migrations = []sqldb.Step{
	{Number: 1, Name: "rows, pins, history", Up: createTables},
	{Number: 2, Name: "identity", Up: func(ctx context.Context, tx bun.Tx) error { return sqldb.CreateIdentity(ctx, tx, Kind.Table) }},
}

type ruleRowV1 struct {
	bun.BaseModel    `bun:"table:policy_rows"`
	Scope            string  `bun:"scope,pk,type:text"`
	ID               string  `bun:"id,pk,type:text"`
	Layer            string  `bun:"layer,pk,type:text"`
	Retired          int64   `bun:"retired,type:bigint,notnull"`
	Connectors       *string `bun:"connectors,type:text"`
	Tools            *string `bun:"tools,type:text"`
	Allow            *string `bun:"allow,type:text"`
	Deny             *string `bun:"deny,type:text"`
	OnAsk            *string `bun:"on_ask,type:text"`
	ApprovalTTL      *string `bun:"approval_ttl,type:text"`
	Limits           *string `bun:"limits,type:text"`
	AcceptRisk       *string `bun:"accept_risk,type:text"`
	Classes          *string `bun:"classes,type:text"`
	DisabledTools    *string `bun:"disabled_tools,type:text"`
	TrustAnnotations *string `bun:"trust_annotations,type:text"`
	Flags            *string `bun:"flags,type:text"`
	Pin              *string `bun:"pin,type:text"`
	Origin           *string `bun:"origin,type:text"`
	Meta             string  `bun:"meta,type:text,notnull"`
}

type pinRowV1 struct {
	bun.BaseModel `bun:"table:policy_pins"`
	Connector     string `bun:"connector,pk,type:text"`
	Pins          string `bun:"pins,type:text,notnull"`
}

type definitionRowV1 struct {
	bun.BaseModel `bun:"table:policy_definitions"`
	Connector     string `bun:"connector,pk,type:text"`
	Tool          string `bun:"tool,pk,type:text"`
	Hash          string `bun:"hash,type:text,notnull"`
	Definition    string `bun:"definition,type:text,notnull"`
	AcceptedAt    int64  `bun:"accepted_at,type:bigint,notnull"`
	AcceptedBy    string `bun:"accepted_by,type:text,notnull"`
}

type historyRowV1 struct {
	bun.BaseModel `bun:"table:policy_history"`
	Seq           int64   `bun:"seq,pk,type:bigint"`
	At            int64   `bun:"at,type:bigint,notnull"`
	By            string  `bun:"by_whom,type:text,notnull"`
	Scope         string  `bun:"scope,type:text,notnull"`
	ID            string  `bun:"id,type:text,notnull"`
	Layer         string  `bun:"layer,type:text,notnull"`
	Field         string  `bun:"field,type:text,notnull"`
	Old           *string `bun:"old_value,type:text"`
	New           *string `bun:"new_value,type:text"`
	Previous      string  `bun:"previous_hash,type:text,notnull"`
	Hash          string  `bun:"hash,type:text,notnull"`
}

type chainRowV1 struct {
	bun.BaseModel `bun:"table:policy_chain"`
	ID            int64  `bun:"id,pk,type:bigint"`
	RemovedSeq    int64  `bun:"removed_seq,type:bigint,notnull"`
	RemovedHash   string `bun:"removed_hash,type:text,notnull"`
	HeadSeq       int64  `bun:"head_seq,type:bigint,notnull"`
	HeadHash      string `bun:"head_hash,type:text,notnull"`
}

func createTables(ctx context.Context, tx bun.Tx) error {
	for _, model := range []any{
		(*ruleRowV1)(nil), (*pinRowV1)(nil), (*definitionRowV1)(nil), (*historyRowV1)(nil), (*chainRowV1)(nil),
	} {
		if _, err := tx.NewCreateTable().Model(model).Exec(ctx); err != nil {
			return err
		}
	}
	_, err := tx.NewCreateIndex().Model((*historyRowV1)(nil)).Index("policy_history_of").Column("scope", "id").Exec(ctx)
	if err != nil {
		return err
	}
	_, err = tx.NewInsert().Model(&chainRowV1{ID: 1}).Exec(ctx)
	return err
}

// expected are the columns of the latest version, table by table.
var expected = map[string]string{
	"policy_schema":      "version, name, applied_at",
	"policy_rows":        "scope, id, layer, retired, " + strings.Join(columns, ", ") + ", meta",
	"policy_pins":        "connector, pins",
	"policy_definitions": "connector, tool, hash, definition, accepted_at, accepted_by",
	"policy_history":     "seq, at, by_whom, scope, id, layer, field, old_value, new_value, previous_hash, hash",
	"policy_chain":       "id, removed_seq, removed_hash, head_seq, head_hash",
	"policy_identity":    sqldb.IdentityColumns,
}

// checkColumns refuses a schema that lacks something, whoever took it away.
func checkColumns(ctx context.Context, db *bun.DB) error {
	for table, names := range expected {
		rows, err := db.DB.QueryContext(ctx, "SELECT "+names+" FROM "+table+" LIMIT 0")
		if err != nil {
			return fmt.Errorf("table %s is not as this version left it (%w); restore a backup", table, err)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	return nil
}
