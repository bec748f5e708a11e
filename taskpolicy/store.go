// Package taskpolicy keeps the policy database: everything that a decision about a
// tool call depends on, in layers, in a file (or PostgreSQL schema) of its own.
//
// The agent loop calls Effective before every decision and pins definitions with
// Accept; config's loader calls SyncFiles; the command line and the API call the
// rest. Every read is fresh: one query against the database, bounded in time. An
// unreadable policy is an error, never a wider policy. A database that is corrupt,
// incomplete or from a newer runnerd is refused at Open and never written to.
package taskpolicy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/zap"

	"runnerd/policy"
	"runnerd/sqldb"
)

// Keys of log lines.
const (
	keyFile    = "file"
	keyVersion = "schema_version"
)

// Bounds on waiting for the database.
const (
	DefaultReadWait  = 2 * time.Second
	DefaultWriteWait = 5 * time.Second
)

// ErrNoRow is wrapped by errors about a task, session, project or connector that
// the policy database has no row for.
var ErrNoRow = errors.New("no policy row")

// Options say where the database is. Zero durations take the defaults.
type Options struct {
	// DSN is the path of an SQLite file, or a postgres:// URL.
	DSN    string
	Logger *zap.Logger
	// ReadWait bounds one read, WriteWait one write, waiting for locks included.
	ReadWait, WriteWait time.Duration
	// OnChange is called after each transaction that changed a rule; nil does nothing.
	OnChange func()
}

// Store is the open policy database. It may be used by several goroutines at once.
type Store struct {
	opts Options
	log  *zap.Logger
	sql  *sqldb.DB
	// effective is the one query that every decision costs.
	effective *sql.Stmt
	cache     caches
}

// Open opens the database, creates it where there is none and brings an older one
// up to date. It refuses, and does not touch, a file that is empty, corrupt, short
// of a column or from a newer runnerd.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.ReadWait <= 0 {
		opts.ReadWait = DefaultReadWait
	}
	if opts.WriteWait <= 0 {
		opts.WriteWait = DefaultWriteWait
	}
	s := &Store{opts: opts, log: opts.Logger}
	err := s.open(ctx)
	if err == nil {
		s.effective, err = s.sql.Read.DB.PrepareContext(ctx, effectiveQuery(sqldb.IsPostgres(opts.DSN)))
	}
	if err != nil {
		return nil, fmt.Errorf("open policy database %s: %w", sqldb.Name(opts.DSN), errors.Join(err, s.Close()))
	}
	s.log.Info("policy database open", zap.String(keyFile, sqldb.Name(opts.DSN)), zap.Int(keyVersion, migrations[len(migrations)-1].Number))
	return s, nil
}

// Close releases the database. It may be called more than once.
func (s *Store) Close() error {
	var errs []error
	if s.effective != nil {
		errs = append(errs, s.effective.Close())
	}
	if s.sql != nil {
		errs = append(errs, s.sql.Close())
	}
	return errors.Join(errs...)
}

// scopeDaemon is the one row that holds the daemon's own limits per day and its
// ceiling of deny.
const scopeDaemon policy.Scope = "daemon"

const daemonID = "daemon"

// transact runs f in one write transaction that holds the history chain, so that
// every change and its history row stand or fall together. WriteWait bounds it.
func (s *Store) transact(ctx context.Context, what, by string, f func(context.Context, *change) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.WriteWait)
	defer cancel()
	return s.transactWithin(ctx, what, by, f)
}

// transactWithin is transact for a caller that bounds the context itself.
func (s *Store) transactWithin(ctx context.Context, what, by string, f func(context.Context, *change) error) error {
	moved := false
	err := s.sql.Transact(ctx, sqldb.SyncFull, func(ctx context.Context, tx bun.Tx) error {
		c := &change{tx: tx, at: time.Now().UTC().Truncate(time.Microsecond), by: by}
		if err := c.lock(ctx); err != nil {
			return err
		}
		if err := f(ctx, c); err != nil {
			return err
		}
		moved = c.moved
		return c.finish(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if moved && s.opts.OnChange != nil {
		s.opts.OnChange()
	}
	return nil
}

// reading bounds one read.
func (s *Store) reading(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opts.ReadWait)
}
