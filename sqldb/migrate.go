package sqldb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// Schema is what one of the two databases is to look like.
type Schema struct {
	Kind
	// Number is the column of the table Mark that holds the number of a step.
	Number string
	// Steps are all of them, in order. A released one is never edited.
	Steps []Step
	// Applied is told of each step that was applied; nil is told nothing.
	Applied func(Step)
}

// Step is one numbered migration. It may run again over its own result, and it uses
// models frozen beside it, never the living ones.
type Step struct {
	Number int
	Name   string
	Up     func(ctx context.Context, tx bun.Tx) error
}

// Latest is the number of the newest step.
func (s Schema) Latest() int { return s.Steps[len(s.Steps)-1].Number }

// NewerError says that a newer runnerd wrote the database. It was not touched.
type NewerError struct{ Found, Known int } // schema numbers

func (e *NewerError) Error() string {
	return fmt.Sprintf("it has schema %d, made by a newer runnerd; this one knows up to %d: use the newer one, or restore a backup", e.Found, e.Known)
}

// OlderError says that a database opened for reading lacks migrations, which
// only a writer applies.
type OlderError struct{ Found, Known int }

func (e *OlderError) Error() string {
	return fmt.Sprintf("it has schema %d, this runnerd needs %d: start the daemon once to migrate it", e.Found, e.Known)
}

// migrate brings the schema to the newest number that this binary knows, each
// step in a transaction of its own.
func (d *DB) migrate(ctx context.Context) error {
	found, err := d.Version(ctx, d.Read)
	switch {
	case err != nil || found == d.schema.Latest():
		return err
	case d.opts.ReadOnly:
		return &OlderError{found, d.schema.Latest()}
	}
	for _, step := range d.schema.Steps {
		if err := d.apply(ctx, step); err != nil {
			return fmt.Errorf("migration %d (%s): %w", step.Number, step.Name, err)
		}
	}
	return nil
}

// apply looks again inside the transaction: another process may have been
// faster.
func (d *DB) apply(ctx context.Context, step Step) error {
	applied := false
	err := d.Transact(ctx, SyncFull, func(ctx context.Context, tx bun.Tx) error {
		found, err := d.Version(ctx, tx)
		if err != nil || found >= step.Number {
			return err
		}
		if err := step.Up(ctx, tx); err != nil {
			return err
		}
		table, number := bun.Ident(d.schema.Mark), bun.Ident(d.schema.Number)
		_, err = tx.NewRaw("CREATE TABLE IF NOT EXISTS ? (? BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)", table, number).Exec(ctx)
		if err != nil {
			return err
		}
		_, err = tx.NewRaw("INSERT INTO ? (?, name, applied_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
			table, number, step.Number, step.Name, time.Now().UnixMicro()).Exec(ctx)
		applied = err == nil
		return err
	})
	if err == nil && applied && d.schema.Applied != nil {
		d.schema.Applied(step)
	}
	return err
}

// Version is the highest applied number, 0 for a database without tables. It answers
// *NewerError for one that this binary does not know, and refuses a database that has
// tables but no record of migrations: it is not ours.
func (d *DB) Version(ctx context.Context, q bun.IDB) (found int, err error) {
	names, err := tables(ctx, q)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(names, d.schema.Mark) {
		return 0, d.schema.foreign(names, q.Dialect().Name() == dialect.PG)
	}
	err = q.NewRaw("SELECT COALESCE(MAX(?), 0) FROM ?", bun.Ident(d.schema.Number), bun.Ident(d.schema.Mark)).Scan(ctx, &found)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read schema number: %w", err)
	case found > d.schema.Latest():
		return 0, &NewerError{found, d.schema.Latest()}
	case found < 1:
		return 0, fmt.Errorf("%w: its schema version is missing; restore a backup", ErrCorrupt)
	}
	return found, nil
}

// foreign refuses tables of somebody else. A schema on PostgreSQL may hold others
// beside ours, but none with a name of ours.
func (k Kind) foreign(names []string, shared bool) error {
	for _, name := range names {
		if !shared || slices.Contains(k.Own, name) {
			return fmt.Errorf("it holds tables that are not those of a %s: give it a database of its own; RUNNERD_DATABASE and RUNNERD_POLICY_DATABASE say where each is", k.Role)
		}
	}
	return nil
}

// tables lists the tables that q sees, without SQLite's own.
func tables(ctx context.Context, q bun.IDB) (names []string, err error) {
	query := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
	if q.Dialect().Name() == dialect.PG {
		query = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	if err := q.NewRaw(query).Scan(ctx, &names); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return names, nil
}
