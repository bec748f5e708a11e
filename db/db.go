package db

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/zap"

	"runnerd/sqldb"
	"runnerd/task"
)

// Options say which database to open and how. Only DSN is required.
type Options struct {
	// DSN is the path of a SQLite file, or a postgres:// URL.
	DSN string
	// ReadOnly opens an existing database for reading: no migration, no write.
	ReadOnly bool
	// OnEnqueue is called inside each transaction that inserts queued runs, so
	// that another queue can take them along (DESIGN, section 13). An error rolls
	// the transaction back.
	OnEnqueue func(ctx context.Context, tx *sql.Tx, runs []task.Run) error
	// OnQueued, if set, is called after each commit that decided about a held result
	// or put a run into the queue by
	// whatever path but Fire, whose caller knows when all that are due have been: a
	// pool that sleeps is to look. It must not block.
	OnQueued func()
	// Readers is the size of the read pool; default 4.
	Readers int
	// BusyTimeout bounds the wait for another process; default 5s.
	BusyTimeout time.Duration
	// Timeout bounds each operation but Backup and Check, whatever its context
	// says; default 30s.
	Timeout time.Duration
	// SpoolItem is how many bytes of one tool's whole output are kept; default
	// 4 MiB.
	SpoolItem int
	// Logger defaults to none.
	Logger *zap.Logger
}

// DB is the open database. It is safe for concurrent use; writes are made one
// after another.
type DB struct {
	opts Options
	sql  *sqldb.DB
	log  *zap.Logger
}

// Open opens the database, creates it if there is none, and applies the
// migrations that it lacks. It refuses a database of a newer runnerd with
// *NewerError and a damaged one with ErrCorrupt, and changes neither.
func Open(ctx context.Context, o Options) (*DB, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	opened, err := sqldb.Open(ctx, sqldb.Options{
		DSN: o.DSN, ReadOnly: o.ReadOnly, Readers: o.Readers, ReadBusy: o.BusyTimeout, WriteBusy: o.BusyTimeout,
	}, schema(o.Logger))
	if err != nil {
		return nil, wrap("open database "+sqldb.Name(o.DSN), err)
	}
	return &DB{opts: o, sql: opened, log: o.Logger}, nil
}

func (o Options) withDefaults() Options {
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 5 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.SpoolItem <= 0 {
		o.SpoolItem = 4 << 20
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Close waits for nothing: what is under way gets an error.
func (d *DB) Close() error { return d.sql.Close() }

// Ping tells whether the database answers: it reads, and a writer gets its turn.
func (d *DB) Ping(ctx context.Context) error {
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		_, err := d.sql.Version(ctx, q)
		return err
	})
	if err == nil && !d.opts.ReadOnly {
		err = d.writing(ctx, func(context.Context, bun.Tx) error { return nil })
	}
	return wrap("ping database", err)
}

// name says where the database is, without a password.
func (d *DB) name() string { return sqldb.Name(d.opts.DSN) }

// reading runs fn on the read pool within the time allowed.
func (d *DB) reading(ctx context.Context, fn func(context.Context, bun.IDB) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	return fn(ctx, d.sql.Read)
}

// writing runs fn in one write transaction, which no other writer overlaps. It is
// on the disk when writing returns.
func (d *DB) writing(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return d.transact(ctx, sqldb.SyncFull, fn)
}

// writingAhead is writing for what the next durable transaction takes to the disk
// along with itself. It is for what has no effect outside the database before such a
// transaction, and would be decided alike once more if it was lost; it saves the wait
// for the disk.
func (d *DB) writingAhead(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return d.transact(ctx, sqldb.SyncNormal, fn)
}

func (d *DB) transact(ctx context.Context, sync sqldb.Sync, fn func(context.Context, bun.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	queued := false
	err := d.sql.Transact(context.WithValue(ctx, queuedKey{}, &queued), sync, fn)
	if err == nil && queued && d.opts.OnQueued != nil {
		d.opts.OnQueued()
	}
	return err
}

// queuedKey is where a transaction notes that it put a run into the queue.
type queuedKey struct{}

func noteQueued(ctx context.Context) {
	if queued, ok := ctx.Value(queuedKey{}).(*bool); ok {
		*queued = true
	}
}

// chunk is how many rows go into one statement.
const chunk = 500

func inChunks[T any](rows []T, fn func([]T) error) error {
	for len(rows) > 0 {
		n := min(len(rows), chunk)
		if err := fn(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}
