package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"golang.org/x/sys/unix"
)

// ErrInUse is wrapped by the error of Take where another process holds the database.
var ErrInUse = errors.New("another runnerd works with this database, perhaps from another state directory or machine; give each its own")

// Role is which of the two databases one is.
type Role string

// The two databases.
const (
	Main   Role = "main database"
	Policy Role = "policy database"
)

// advisory is the key of the lock on PostgreSQL, beside a hash of the schema.
func (r Role) advisory() int {
	if r == Main {
		return 0x72756e68
	}
	return 0x72756e70
}

// writers is the key of the lock with which PostgreSQL takes one writer at a time.
func (r Role) writers() int64 {
	if r == Main {
		return 0x72756e6e657264
	}
	return 0x72756e706f6c
}

// Hold keeps every other process that takes one from a database. The state lock
// alone does not: a database may lie elsewhere, and who recovers the runs of a
// process that is alive has them executed twice. Reading is free to all.
//
// Of a SQLite database a file beside it is locked, which says who has it, and the
// file itself, so that removing the other lets nobody in. That lock is flock's, which
// SQLite's own do not know; closing the file ends those, so a Hold is closed after
// its database. On PostgreSQL the hold is that of one connection: it ends when that
// breaks, and a pooler that shares connections out by transaction cannot keep it.
type Hold struct {
	role Role
	path string // of the SQLite file, links resolved
	lock *Lock
	pool *sql.DB // on PostgreSQL

	mu   sync.Mutex
	conn *sql.Conn
	file *os.File
	seen map[string]fs.FileInfo // the file and what SQLite keeps beside it
}

// Take holds a database, whether or not it is there yet.
func Take(ctx context.Context, dsn string, role Role) (*Hold, error) {
	h := &Hold{role: role, seen: map[string]fs.FileInfo{}}
	take := h.takeFile
	if IsPostgres(dsn) {
		take = h.takePostgres
	}
	if err := take(ctx, dsn); err != nil {
		return nil, fmt.Errorf("hold %s %s: %w", role, Name(dsn), errors.Join(err, h.Close()))
	}
	return h, nil
}

func (h *Hold) takeFile(_ context.Context, dsn string) error {
	path, err := Path(dsn)
	if err != nil {
		return err
	}
	if h.path, err = resolved(path); err != nil {
		return err
	}
	var held *HeldError
	if h.lock, err = lockFile(h.path, h.path+".lock"); errors.As(err, &held) {
		return fmt.Errorf("%w (process %d, %s)", ErrInUse, held.PID, held.Command)
	} else if err != nil {
		return err
	}
	return h.Bind()
}

// resolved is a path whatever links lead there, of a file that need not be there.
func resolved(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// Bind locks the file itself, if it is there by now. It is called once more when the
// database has been opened, and made.
func (h *Hold) Bind() error {
	if h.path == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now, err := os.Stat(h.path); h.file != nil && err == nil && !os.SameFile(now, h.seen[""]) {
		if err := h.file.Close(); err != nil {
			return err
		}
		h.file = nil
	}
	if h.file == nil {
		f, err := os.Open(h.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return errors.Join(fmt.Errorf("%w (%s is held)", ErrInUse, h.path), f.Close())
		} else if err != nil {
			return errors.Join(fmt.Errorf("lock %s: %w", h.path, err), f.Close())
		}
		h.file = f
	}
	info, err := h.file.Stat()
	h.seen[""] = info
	return err
}

// Check tells whether what was taken is still what others find in its place: a
// database whose files were removed or replaced records what nobody will read.
func (h *Hold) Check(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.path == "" {
		return h.checkPostgres(ctx)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		now, err := os.Stat(h.path + suffix)
		before := h.seen[suffix]
		switch {
		case err == nil && before == nil:
			h.seen[suffix] = now
		case err == nil && os.SameFile(now, before):
		case errors.Is(err, fs.ErrNotExist) && before == nil:
		case errors.Is(err, fs.ErrNotExist):
			return h.gone(suffix, "removed")
		case err == nil:
			return h.gone(suffix, "replaced")
		default:
			return fmt.Errorf("look at %s: %w", h.role, err)
		}
	}
	return nil
}

func (h *Hold) gone(suffix, what string) error {
	return fmt.Errorf("%s: %s%s was %s while runnerd works with it, so what is recorded from now on is lost: stop runnerd, put the file back or `runnerd restore DIR` a backup, and start it again",
		h.role, h.path, suffix, what)
}

func (h *Hold) takePostgres(ctx context.Context, dsn string) (err error) {
	if h.pool, err = sql.Open("pgx", dsn); err != nil {
		return err
	}
	h.pool.SetMaxOpenConns(1)
	return h.session(ctx)
}

// holdTries and holdPause are how often, and how far apart, PostgreSQL is asked
// once more: it may take a moment to see that a holder was killed.
const (
	holdTries = 10
	holdPause = 100 * time.Millisecond
	holdWait  = 10 * time.Second
)

// session takes the lock of PostgreSQL on a connection of its own.
func (h *Hold) session(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdWait)
	defer cancel()
	conn, err := h.pool.Conn(ctx)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		var got bool
		err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1, hashtext(current_schema()))", h.role.advisory()).Scan(&got)
		switch {
		case err == nil && got:
			h.conn = conn
			return nil
		case err == nil && try == holdTries:
			err = ErrInUse
		}
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		time.Sleep(holdPause)
	}
}

// checkPostgres takes the hold anew where its connection broke.
func (h *Hold) checkPostgres(ctx context.Context) error {
	if h.conn != nil {
		err := h.conn.PingContext(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		_ = h.conn.Close() // it is broken
		h.conn = nil
	}
	if err := h.session(ctx); err != nil {
		return fmt.Errorf("the hold of the %s broke and cannot be taken again: %w", h.role, err)
	}
	return nil
}

// Close gives the database up.
func (h *Hold) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	if h.file != nil {
		errs = append(errs, h.file.Close())
	}
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
	}
	if h.conn != nil {
		errs = append(errs, h.conn.Close())
	}
	if h.pool != nil {
		errs = append(errs, h.pool.Close()) // ends the session, and its lock with it
	}
	h.file, h.lock, h.conn, h.pool = nil, nil, nil, nil
	return errors.Join(errs...)
}
