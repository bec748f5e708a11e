package taskpolicy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"runnerd/sqldb"
)

// migration is one numbered step of the schema. Its models are frozen copies below
// it and never change, whatever the store's own models become.
type migration struct {
	version int
	name    string
	up      func(context.Context, bun.Tx) error
}

var migrations = []migration{
	{1, "rows, pins, history", createTables},
	{2, "identity", func(ctx context.Context, tx bun.Tx) error { return sqldb.CreateIdentity(ctx, tx, Kind.Table) }},
}

func latestVersion() int { return migrations[len(migrations)-1].version }

type schemaRowV1 struct {
	bun.BaseModel `bun:"table:policy_schema"`
	Version       int64  `bun:"version,pk,type:bigint"`
	Name          string `bun:"name,type:text,notnull"`
	AppliedAt     int64  `bun:"applied_at,type:bigint,notnull"`
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

// checkVersion answers the schema's version: 0 for a database without tables.
func checkVersion(ctx context.Context, db *bun.DB) (int, error) {
	tables, err := tableNames(ctx, db)
	if err != nil {
		return 0, err
	}
	if len(tables) == 0 {
		return 0, nil
	}
	var version sql.NullInt64
	if err := db.DB.QueryRowContext(ctx, "SELECT MAX(version) FROM policy_schema").Scan(&version); err != nil {
		return 0, fmt.Errorf("it has tables but no policy_schema, so it is no policy database of runnerd (%w)", err)
	}
	if int(version.Int64) > latestVersion() {
		return 0, fmt.Errorf("it is of schema version %d, made by a newer runnerd; this one knows up to %d: use the newer one, or restore a backup", version.Int64, latestVersion())
	}
	if version.Int64 < 1 {
		return 0, errors.New("its schema version is missing; restore a backup")
	}
	return int(version.Int64), nil
}

// tableNames lists what could be ours: every table of an SQLite file, the policy
// tables of a PostgreSQL schema, which may hold others.
func tableNames(ctx context.Context, db *bun.DB) ([]string, error) {
	query := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if db.Dialect().Name() == dialect.PG {
		query = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name LIKE 'policy\\_%'"
	}
	var names []string
	if err := db.NewRaw(query).Scan(ctx, &names); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return names, nil
}

// migrate runs what is missing, each step in a transaction of its own with its
// version row.
func migrate(ctx context.Context, db *bun.DB) error {
	for _, m := range migrations {
		err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return m.run(ctx, tx) })
		if err != nil {
			return fmt.Errorf("migration %d (%s): %w", m.version, m.name, err)
		}
	}
	return nil
}

// migrationLock keeps two nodes from migrating one PostgreSQL database at once.
const migrationLock = 0x72756e706f6c

func (m migration) run(ctx context.Context, tx bun.Tx) error {
	if tx.Dialect().Name() == dialect.PG {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", migrationLock)); err != nil {
			return err
		}
	}
	if _, err := tx.NewCreateTable().Model((*schemaRowV1)(nil)).IfNotExists().Exec(ctx); err != nil {
		return err
	}
	done, err := tx.NewSelect().Model((*schemaRowV1)(nil)).Where("version = ?", m.version).Exists(ctx)
	if err != nil || done {
		return err
	}
	if err := m.up(ctx, tx); err != nil {
		return err
	}
	_, err = tx.NewInsert().Model(&schemaRowV1{Version: int64(m.version), Name: m.name, AppliedAt: time.Now().UnixMicro()}).Exec(ctx)
	return err
}
