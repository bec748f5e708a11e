package sqldb

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// Sync is how a write transaction of SQLite meets the disk.
type Sync string

const (
	// SyncFull: it is on the disk when it has committed.
	SyncFull Sync = "FULL"
	// SyncNormal: the next durable one takes it to the disk along with itself. A log
	// is synced from its beginning, so nothing later survives a power cut without it.
	// Everyone sees it at once, and a crash of the process loses nothing.
	SyncNormal Sync = "NORMAL"
)

// Transact runs fn in one write transaction, which no other writer overlaps: SQLite
// has one write connection, PostgreSQL takes a lock that makes it do the same, since
// chains of hashes and the order of events need it. It answers ErrReadOnly on a
// database that was opened for reading.
func (d *DB) Transact(ctx context.Context, sync Sync, fn func(context.Context, bun.Tx) error) (err error) {
	if d.Write == nil {
		return ErrReadOnly
	}
	tx, err := d.begin(ctx, sync)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the first error is the one to tell
		}
	}()
	if d.Path == "" {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(?)", d.schema.Role.writers()); err != nil {
			return fmt.Errorf("wait for the writer: %w", err)
		}
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// begin waits for the writer's turn and begins a transaction with the setting. Turns
// are taken in the order of asking.
func (d *DB) begin(ctx context.Context, sync Sync) (tx bun.Tx, err error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return tx, ctx.Err()
	}
	defer func() { <-d.turn }()
	if err := d.setSync(ctx, sync); err != nil {
		return tx, err
	}
	return d.Write.BeginTx(ctx, nil)
}

// setSync gives the one write connection of SQLite the setting that is wanted. A
// connection that the pool opened anew has the full one, whatever is noted.
func (d *DB) setSync(ctx context.Context, sync Sync) error {
	lax := sync == SyncNormal
	if d.Path == "" || d.lax == lax {
		return nil
	}
	d.lax = true // until the full setting is known to be back
	if _, err := d.Write.ExecContext(ctx, "PRAGMA synchronous = "+string(sync)); err != nil {
		return err
	}
	d.lax = lax
	return nil
}
