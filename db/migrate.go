package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"go.uber.org/zap"
)

// migration is one numbered step. It may run again over its own result, and it
// uses models frozen beside it, never the living ones.
type migration struct {
	number int
	name   string
	up     func(ctx context.Context, tx bun.Tx) error
}

// migrations are every step, in order. A released one is never edited.
func migrations() []migration {
	return []migration{
		{1, "first tables", migrate001},
		{2, "deliveries and troubles", migrate002},
		{3, "identity", migrate003},
		{4, "estimated spend", migrate004},
		{5, "tainted entries", migrate005},
		{6, "rehearsals", migrate006},
	}
}

type migrationRow struct {
	bun.BaseModel `bun:"table:migrations"`

	Number    int    `bun:"number,pk"`
	Name      string `bun:"name,notnull"`
	AppliedAt stamp  `bun:"applied_at,type:bigint,notnull"`
}

// migrate brings the schema to the newest number that this binary knows, each
// step in a transaction of its own.
func (d *DB) migrate(ctx context.Context) error {
	steps := migrations()
	known := steps[len(steps)-1].number
	found, err := schemaVersion(ctx, d.read)
	if err != nil {
		return err
	}
	switch {
	case found > known:
		return &NewerError{Path: d.name(), Found: found, Known: known}
	case found == known:
		return nil
	case d.opts.ReadOnly:
		return &OlderError{Path: d.name(), Found: found, Known: known}
	}
	for _, m := range steps {
		if err := d.apply(ctx, m, known); err != nil {
			return fmt.Errorf("migration %d (%s): %w", m.number, m.name, err)
		}
	}
	return nil
}

// apply looks again inside the transaction: another process may have been
// faster.
func (d *DB) apply(ctx context.Context, m migration, known int) error {
	return d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		found, err := schemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		if found > known {
			return &NewerError{Path: d.name(), Found: found, Known: known}
		}
		if found >= m.number {
			return nil
		}
		if err := m.up(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.NewCreateTable().Model((*migrationRow)(nil)).IfNotExists().Exec(ctx); err != nil {
			return err
		}
		row := &migrationRow{Number: m.number, Name: m.name, AppliedAt: at(time.Now())}
		if _, err := tx.NewInsert().Model(row).On("CONFLICT DO NOTHING").Exec(ctx); err != nil {
			return err
		}
		d.log.Info("database migrated", zap.Int("schema", m.number), zap.String("name", m.name))
		return nil
	})
}

// schemaVersion is the highest applied number, 0 for an empty database. A
// database that has tables but no record of migrations is not ours.
func schemaVersion(ctx context.Context, q bun.IDB) (int, error) {
	tables := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if q.Dialect().Name() == dialect.PG {
		tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	var names []string
	if err := q.NewRaw(tables).Scan(ctx, &names); err != nil {
		return 0, err
	}
	for _, name := range names {
		if name == "migrations" {
			var n int
			err := q.NewRaw("SELECT COALESCE(MAX(number), 0) FROM migrations").Scan(ctx, &n)
			return n, err
		}
	}
	for _, name := range names {
		if name == "runs" || name == "sessions" || name == "policy_schema" && q.Dialect().Name() != dialect.PG {
			return 0, errors.New("the database holds tables that runnerd did not make: give it a database of its own")
		}
	}
	return 0, nil
}
