package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/sqliteshim"
)

// Options say which database to open and how.
type Options struct {
	// DSN is the path of a SQLite file, or a postgres:// URL.
	DSN string
	// ReadOnly opens an existing database for reading: no migration, no write.
	ReadOnly bool
	// Readers is the size of the read pool.
	Readers int
	// ReadBusy and WriteBusy bound how long SQLite waits for another process.
	ReadBusy, WriteBusy time.Duration
	// Whole reads a SQLite file from end to end before anything could write to it,
	// which is for a small one.
	Whole bool
}

// DB is an open database: a pool that reads, and one connection that writes. On
// PostgreSQL both are one pool.
type DB struct {
	// Path is the SQLite file, empty on PostgreSQL.
	Path string
	// Read serves reads, each as of its own moment. Write is nil where the database
	// was opened for reading.
	Read, Write *bun.DB

	opts   Options
	schema Schema
	// turn is held while a write transaction begins. It guards lax, which says that
	// SQLite's one write connection may not sync each transaction.
	turn chan struct{}
	lax  bool
}

// Open opens a database, creates it if there is none, and applies the migrations that
// it lacks. It refuses a database of a newer runnerd with *NewerError, a damaged one
// with ErrCorrupt, and one that holds other tables, and writes to none of them.
func Open(ctx context.Context, o Options, s Schema) (*DB, error) {
	d := &DB{opts: o, schema: s, turn: make(chan struct{}, 1)}
	err := d.connect(ctx)
	if err == nil {
		err = d.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *DB) connect(ctx context.Context) (err error) {
	if IsPostgres(d.opts.DSN) {
		most := d.opts.Readers + 3 // a writer and who waits for it, and one to spare
		if d.Read, err = pool("pgx", d.opts.DSN, most, d.opts.Readers); err == nil && !d.opts.ReadOnly {
			d.Write = d.Read
		}
		return err
	}
	if d.Path, err = Path(d.opts.DSN); err != nil {
		return err
	}
	if err := prepareFile(d.Path, d.opts.ReadOnly); err != nil {
		return err
	}
	if d.Read, err = pool(sqliteshim.ShimName, readDSN(d.Path, d.opts.ReadBusy), d.opts.Readers, d.opts.Readers); err != nil {
		return err
	}
	if d.opts.Whole {
		if err := d.Check(ctx); err != nil {
			return err
		}
	}
	if !d.opts.ReadOnly {
		d.Write, err = pool(sqliteshim.ShimName, writeDSN(d.Path, d.opts.WriteBusy), 1, 1)
	}
	return err
}

func pool(driver, dsn string, most, idle int) (*bun.DB, error) {
	p, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	p.SetMaxOpenConns(most)
	p.SetMaxIdleConns(idle)
	if driver == "pgx" {
		return bun.NewDB(p, pgdialect.New()), nil
	}
	return bun.NewDB(p, sqlitedialect.New()), nil
}

// prepareFile creates the file readable by its owner only (the write-ahead log
// takes its mode from it), or looks whether the one that stands there can be a
// database, so that no open ever writes over something else.
func prepareFile(path string, readOnly bool) error {
	flags := os.O_RDWR | os.O_CREATE
	if readOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && readOnly {
		return fmt.Errorf("%w: start the daemon once to create it", ErrNotFound)
	}
	if err != nil {
		return err
	}
	return errors.Join(CheckHeader(f), f.Close())
}

// writeDSN makes each transaction take the write lock at once: one that reads
// first and writes later would get "busy" without waiting. Synchronous is FULL
// because a receipt must be on disk before its effect (DESIGN, promise 3).
func writeDSN(path string, busy time.Duration) string {
	return sqliteDSN(path, "rwc", "immediate", busy, "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)",
		"foreign_keys(ON)", "temp_store(MEMORY)", "cache_size(-16384)", "journal_size_limit(67108864)")
}

func readDSN(path string, busy time.Duration) string {
	return sqliteDSN(path, "ro", "deferred", busy, "query_only(ON)", "temp_store(MEMORY)", "cache_size(-2048)")
}

func sqliteDSN(path, mode, lock string, busy time.Duration, pragmas ...string) string {
	pragmas = append([]string{fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds())}, pragmas...)
	q := url.Values{"mode": {mode}, "_pragma": pragmas, "_txlock": {lock}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// Close waits for nothing: what is under way gets an error.
func (d *DB) Close() error {
	var errs []error
	if d.Read != nil {
		errs = append(errs, d.Read.Close())
	}
	if d.Write != nil && d.Write != d.Read {
		errs = append(errs, d.Write.Close())
	}
	return errors.Join(errs...)
}
