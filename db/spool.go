package db

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

type spoolRow struct {
	bun.BaseModel `bun:"table:spools,alias:sl"`

	Receipt int64  `bun:"receipt,pk"`
	Run     string `bun:"run"`
	Size    int64  `bun:"size"`  // bytes kept
	Whole   int64  `bun:"whole"` // bytes that there were
	Body    []byte `bun:"body"`
}

// spool keeps the whole of a result that the model saw cut, up to
// Options.SpoolItem. Prune keeps all of them under a quota.
func (d *DB) spool(ctx context.Context, tx bun.Tx, r *receiptRow, raw string) error {
	kept := raw[:min(len(raw), d.opts.SpoolItem)]
	row := &spoolRow{Receipt: r.Seq, Run: r.Run, Size: int64(len(kept)), Whole: int64(len(raw)), Body: []byte(kept)}
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

// Spool is the whole output of a call, as far as it was kept.
type Spool struct {
	Text string
	// Whole is how many bytes the output had; Text may be shorter.
	Whole int64
}

// Spool reads the kept output of a receipt. ErrNotFound answers if it was never
// cut, or was removed to stay under the quota.
func (d *DB) Spool(ctx context.Context, receipt int64) (s Spool, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var row spoolRow
		err := q.NewSelect().Model(&row).Where("sl.receipt = ?", receipt).Scan(ctx)
		s = Spool{Text: string(row.Body), Whole: row.Whole}
		return err
	})
	return s, wrap(fmt.Sprintf("read output of receipt %d", receipt), err)
}
