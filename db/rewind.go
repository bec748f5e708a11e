package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// Rewind follows a clock that went back: what waits for a time of the clock as it
// was, a queued run or a delivery to be tried again, waits for as long as it would
// have without the step.
func (d *DB) Rewind(ctx context.Context, now time.Time, back time.Duration) error {
	return wrap("follow the clock back", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewUpdate().Table("runs").Set("not_before = not_before - ?", back.Microseconds()).
			Where("finished_at IS NULL AND execution = ? AND not_before > ?", task.Queued, micros(now)).Exec(ctx)
		if err != nil {
			return err
		}
		_, err = tx.NewUpdate().Table("deliveries").Set("next_at = next_at - ?", back.Microseconds()).
			Where("state = ? AND next_at > ?", task.DestinationPending, micros(now)).Exec(ctx)
		return err
	}))
}
