package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/sqliteshim"
	"go.uber.org/zap"

	_ "github.com/jackc/pgx/v5/stdlib" // the "pgx" driver, for postgres:// DSNs

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
	opts  Options
	path  string // of the SQLite file; empty on PostgreSQL
	write *bun.DB
	read  *bun.DB
	log   *zap.Logger
	// turn is held while a write transaction begins. It guards lax, which says that
	// SQLite's one write connection may not sync each transaction.
	turn chan struct{}
	lax  bool
}

// writerKey is the advisory lock that makes PostgreSQL take one writer at a
// time, as SQLite does: the chain of receipts and the order of events need it.
const writerKey = 0x72756e6e657264

// Open opens the database, creates it if there is none, and applies the
// migrations that it lacks. It refuses a database of a newer runnerd with
// *NewerError and a damaged one with ErrCorrupt, and changes neither.
func Open(ctx context.Context, o Options) (*DB, error) {
	o = o.withDefaults()
	d := &DB{opts: o, log: o.Logger, turn: make(chan struct{}, 1)}
	if err := d.connect(); err != nil {
		return nil, wrap("open database "+d.name(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := d.migrate(ctx); err != nil {
		return nil, errors.Join(wrap("open database "+d.name(), err), d.Close())
	}
	return d, nil
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

func (d *DB) connect() error {
	if sqldb.IsPostgres(d.opts.DSN) {
		return d.connectPostgres()
	}
	path, err := sqldb.Path(d.opts.DSN)
	if err != nil {
		return err
	}
	d.path = path
	if err := prepareFile(path, d.opts.ReadOnly); err != nil {
		return err
	}
	if !d.opts.ReadOnly {
		writer, err := sql.Open(sqliteshim.ShimName, writeDSN(path, d.opts.BusyTimeout))
		if err != nil {
			return err
		}
		writer.SetMaxOpenConns(1)
		writer.SetMaxIdleConns(1)
		d.write = bun.NewDB(writer, sqlitedialect.New())
	}
	reader, err := sql.Open(sqliteshim.ShimName, readDSN(path, d.opts.BusyTimeout))
	if err != nil {
		return errors.Join(err, d.Close())
	}
	reader.SetMaxOpenConns(d.opts.Readers)
	reader.SetMaxIdleConns(d.opts.Readers)
	d.read = bun.NewDB(reader, sqlitedialect.New())
	return nil
}

func (d *DB) connectPostgres() error {
	pool, err := sql.Open("pgx", d.opts.DSN)
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(d.opts.Readers + 3) // a writer and who waits for it, and Hold
	pool.SetMaxIdleConns(d.opts.Readers)
	d.read = bun.NewDB(pool, pgdialect.New())
	if !d.opts.ReadOnly {
		d.write = d.read
	}
	return nil
}

// Close waits for nothing: what is under way gets an error.
func (d *DB) Close() error {
	var errs []error
	if d.read != nil {
		errs = append(errs, d.read.Close())
	}
	if d.write != nil && d.write != d.read {
		errs = append(errs, d.write.Close())
	}
	return errors.Join(errs...)
}

// Ping tells whether the database answers: it reads, and a writer gets its turn.
func (d *DB) Ping(ctx context.Context) error {
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		_, err := schemaVersion(ctx, q)
		return err
	})
	if err == nil && d.write != nil {
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
	return fn(ctx, d.read)
}

// writing runs fn in one write transaction, which no other writer overlaps. It is
// on the disk when writing returns.
func (d *DB) writing(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return d.transact(ctx, syncFull, fn)
}

// writingAhead is writing for what the next durable transaction takes to the disk
// along with itself: a log is synced from its beginning, so that nothing later
// survives a power cut without it. It is for what has no effect outside the
// database before such a transaction, and would be decided alike once more if it
// was lost; it saves the wait for the disk. Everyone sees it at once, and a crash
// of the process loses nothing.
func (d *DB) writingAhead(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return d.transact(ctx, syncNormal, fn)
}

// The synchronous settings of SQLite that are used.
const (
	syncFull   = "FULL"
	syncNormal = "NORMAL"
)

func (d *DB) transact(ctx context.Context, sync string, fn func(context.Context, bun.Tx) error) (err error) {
	if d.write == nil {
		return ErrReadOnly
	}
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	tx, err := d.begin(ctx, sync)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the first error is the one to tell
		}
	}()
	if d.path == "" {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(?)", int64(writerKey)); err != nil {
			return fmt.Errorf("wait for the writer: %w", err)
		}
	}
	queued := false
	if err := fn(context.WithValue(ctx, queuedKey{}, &queued), tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if queued && d.opts.OnQueued != nil {
		d.opts.OnQueued()
	}
	return nil
}

// queuedKey is where a transaction notes that it put a run into the queue.
type queuedKey struct{}

func noteQueued(ctx context.Context) {
	if queued, ok := ctx.Value(queuedKey{}).(*bool); ok {
		*queued = true
	}
}

// begin waits for the writer's turn and begins a transaction with the setting. Turns
// are taken in the order of asking.
func (d *DB) begin(ctx context.Context, sync string) (tx bun.Tx, err error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return tx, ctx.Err()
	}
	defer func() { <-d.turn }()
	if err := d.setSync(ctx, sync); err != nil {
		return tx, err
	}
	return d.write.BeginTx(ctx, nil)
}

// setSync gives the one write connection of SQLite the setting that is wanted. A
// connection that the pool opened anew has the full one, whatever is noted.
func (d *DB) setSync(ctx context.Context, sync string) error {
	lax := sync == syncNormal
	if d.path == "" || d.lax == lax {
		return nil
	}
	d.lax = true // until the full setting is known to be back
	if _, err := d.write.ExecContext(ctx, "PRAGMA synchronous = "+sync); err != nil {
		return err
	}
	d.lax = lax
	return nil
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
