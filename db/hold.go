package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"
)

// ErrInUse is wrapped by the error of Hold where another process holds the database.
var ErrInUse = errors.New("another runnerd works with this database, perhaps from another state directory or machine; give each its own")

// holdKey is the advisory lock of Hold on PostgreSQL, beside a hash of the schema.
const holdKey = 0x72756e68

// Hold keeps every other process that calls it from this database until the answer
// is closed or this process dies. The state lock alone does not: a database may lie
// elsewhere, and who recovers the runs of a process that is alive has them executed
// twice. Reading is free to all.
//
// On PostgreSQL the hold is that of one connection: it ends when that breaks, and a
// pooler that shares connections out by transaction cannot keep it.
func (d *DB) Hold(ctx context.Context) (io.Closer, error) {
	if d.write == nil {
		return nil, wrap("hold database", ErrReadOnly)
	}
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	hold := d.holdFile
	if d.path == "" {
		hold = d.holdPostgres
	}
	l, err := hold(ctx)
	if err != nil {
		return nil, wrap("hold database "+d.name(), err)
	}
	return l, nil
}

// holdFile locks a file beside the database, whatever links lead there.
func (d *DB) holdFile(context.Context) (io.Closer, error) {
	path, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return nil, err
	}
	l, err := lockFile(path, path+".lock")
	var held *HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w (process %d, %s)", ErrInUse, held.PID, held.Command)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// session is a connection that holds an advisory lock.
type session struct{ bun.Conn }

func (d *DB) holdPostgres(ctx context.Context) (io.Closer, error) {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return nil, err
	}
	// The server may take a moment to see that a holder was killed.
	for try := 0; ; try++ {
		var got bool
		err = conn.NewRaw("SELECT pg_try_advisory_lock(?, hashtext(current_schema()))", holdKey).Scan(ctx, &got)
		switch {
		case err == nil && got:
			return session{conn}, nil
		case err == nil && try == holdTries:
			err = ErrInUse
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		time.Sleep(holdPause)
	}
}

// holdTries and holdPause are how often, and how far apart, PostgreSQL is asked
// once more.
const (
	holdTries = 10
	holdPause = 100 * time.Millisecond
)

// Close gives the lock back before the connection returns to its pool.
func (s session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := s.NewRaw("SELECT pg_advisory_unlock(?, hashtext(current_schema()))", holdKey).Exec(ctx)
	return errors.Join(err, s.Conn.Close())
}
