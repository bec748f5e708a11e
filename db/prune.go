package db

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// Retention says how much history is kept. A zero field removes nothing by that
// rule. Active runs, what is still to be delivered, and messages that a model may
// still see are never removed.
type Retention struct {
	// Age is how long finished runs and what belongs to them, skipped and missed
	// occurrences, events, spend and troubles that are over are kept.
	Age time.Duration
	// RunsPerTask is how many of a task's runs are kept, the newest.
	RunsPerTask int
	// SpoolBytes is the quota for whole tool outputs; the oldest go first.
	SpoolBytes int64
}

// keptFree is how many free pages a SQLite file keeps for what comes next.
const keptFree = 256

// Prune removes at most about step rows, in short transactions, and then gives
// free pages back to the disk. more tells that there is more to do: call again,
// with a pause in between if others wait to write.
func (d *DB) Prune(ctx context.Context, p Retention, now time.Time, step int) (removed int, more bool, err error) {
	step = max(step, 1)
	cutoff := now.Add(-p.Age)
	type pruner struct {
		on  bool
		run func(ctx context.Context, limit int) (int, error)
	}
	for _, part := range []pruner{
		{p.Age > 0, func(ctx context.Context, n int) (int, error) { return d.pruneOldRuns(ctx, cutoff, n) }},
		{p.RunsPerTask > 0, func(ctx context.Context, n int) (int, error) { return d.pruneManyRuns(ctx, p.RunsPerTask, n) }},
		{true, func(ctx context.Context, n int) (int, error) { return d.moveBase(ctx, n) }},
		{p.Age > 0, func(ctx context.Context, n int) (int, error) { return d.pruneMessages(ctx, cutoff, n) }},
		{p.Age > 0, func(ctx context.Context, n int) (int, error) { return d.pruneOccurrences(ctx, cutoff, n) }},
		{p.Age > 0, func(ctx context.Context, n int) (int, error) { return d.pruneEvents(ctx, cutoff, n) }},
		{p.Age > 0, func(ctx context.Context, n int) (int, error) { return d.pruneSpend(ctx, cutoff, n) }},
		{p.Age > 0, func(ctx context.Context, n int) (int, error) { return d.pruneTroubles(ctx, cutoff, n) }},
		{p.SpoolBytes > 0, func(ctx context.Context, n int) (int, error) { return d.pruneSpools(ctx, p.SpoolBytes, n) }},
	} {
		if !part.on || removed >= step {
			continue
		}
		n, err := part.run(ctx, step-removed)
		if removed += n; err != nil {
			return removed, false, wrap("prune", err)
		}
	}
	if removed > 0 {
		return removed, true, nil
	}
	more, err = d.shrink(ctx, step)
	return 0, more, wrap("prune", err)
}

// find runs one of the searches below on the read pool: it may be long, and the
// writer is not held up by it.
func find[T any](ctx context.Context, d *DB, query func(q bun.IDB) *bun.SelectQuery) (found []T, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error { return query(q).Scan(ctx, &found) })
	return found, err
}

// settled keeps what a run still has to deliver.
const settled = "delivery <> 'pending'"

func (d *DB) pruneOldRuns(ctx context.Context, cutoff time.Time, limit int) (int, error) {
	ids, err := find[string](ctx, d, func(q bun.IDB) *bun.SelectQuery {
		return q.NewSelect().Table("runs").Column("id").
			Where("created_at < ? AND finished_at < ?", micros(cutoff), micros(cutoff)).Where(settled).Order("created_at", "id").Limit(int64(limit))
	})
	if err != nil {
		return 0, err
	}
	return d.removeRuns(ctx, ids)
}

func (d *DB) pruneManyRuns(ctx context.Context, keep, limit int) (int, error) {
	ids, err := find[string](ctx, d, func(q bun.IDB) *bun.SelectQuery {
		return q.NewSelect().TableExpr("tasks").ColumnExpr("r.id").WithRecursive("tasks", q.NewRaw(everyTask)).
			Join("JOIN runs AS r ON r.task = tasks.task").
			Where("(r.created_at, r.id) < (SELECT n.created_at, n.id FROM runs AS n WHERE n.task = tasks.task AND n."+counted+
				" ORDER BY n.created_at DESC, n.id DESC LIMIT 1 OFFSET ?)", keep-1).
			Where("r.finished_at IS NOT NULL").Where(settled).Limit(int64(limit))
	})
	if err != nil {
		return 0, err
	}
	return d.removeRuns(ctx, ids)
}

// removeRuns removes finished runs with their receipts, approvals, outputs and
// those of their messages that no model sees any more.
func (d *DB) removeRuns(ctx context.Context, ids []string) (removed int, err error) {
	err = inChunks(ids, func(ids []string) error {
		return d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
			var finished []string
			err := tx.NewSelect().Table("runs").Column("id").
				Where("id IN (?) AND finished_at IS NOT NULL", bun.List(ids)).Where(settled).Scan(ctx, &finished)
			if err != nil || len(finished) == 0 {
				return err
			}
			if err := removeOf(ctx, tx, finished); err != nil {
				return err
			}
			removed += len(finished)
			return nil
		})
	})
	return removed, err
}

func removeOf(ctx context.Context, tx bun.Tx, runs []string) error {
	for _, query := range []string{
		"UPDATE receipt_chain SET pruned = TRUE WHERE receipt IN (SELECT rc.seq FROM receipts AS rc WHERE rc.run IN (?))",
		"DELETE FROM receipts WHERE run IN (?)",
		"DELETE FROM spools WHERE run IN (?)",
		"DELETE FROM approvals WHERE run IN (?)",
		"DELETE FROM deliveries WHERE run IN (?)",
		"DELETE FROM messages WHERE run IN (?) AND seq < (SELECT s.window_start FROM sessions AS s WHERE s.id = messages.session)",
		"DELETE FROM messages WHERE session IN (SELECT r.session FROM runs AS r WHERE r.id IN (?) AND r.script <> '')",
		"DELETE FROM sessions WHERE id IN (SELECT r.session FROM runs AS r WHERE r.id IN (?) AND r.script <> '')",
		"DELETE FROM runs WHERE id IN (?)",
	} {
		if _, err := tx.NewRaw(query, bun.List(runs)).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// moveBase removes the links at the beginning of the chain whose receipts are
// all gone and keeps the hash of the last one as the checkpoint from which the
// rest is verified.
func (d *DB) moveBase(ctx context.Context, limit int) (removed int, err error) {
	links, err := d.prunedPrefix(ctx, limit)
	if err != nil || len(links) == 0 {
		return 0, err
	}
	last := links[len(links)-1]
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		ends, err := chainEnds(ctx, tx)
		if err != nil || ends.BaseSeq+int64(len(links)) != last.Seq {
			return err // somebody else moved it
		}
		ends.BaseSeq, ends.BaseHash = last.Seq, last.Hash
		if err := saveEnds(ctx, tx, ends); err != nil {
			return err
		}
		_, err = tx.NewDelete().Table("receipt_chain").Where("seq <= ?", last.Seq).Exec(ctx)
		removed = len(links)
		return err
	})
	return removed, err
}

func (d *DB) prunedPrefix(ctx context.Context, limit int) ([]linkRow, error) {
	var links []linkRow
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return q.NewSelect().Model(&links).Order("l.seq").Limit(int64(limit)).Scan(ctx)
	})
	for i := range links {
		if !links[i].Pruned {
			return links[:i], err
		}
	}
	return links, err
}

type messageKey struct {
	Session string `bun:"session"`
	Seq     int64  `bun:"seq"`
}

// pruneMessages removes what was left of removed runs when the window of their
// session has moved on.
func (d *DB) pruneMessages(ctx context.Context, cutoff time.Time, limit int) (int, error) {
	keys, err := find[messageKey](ctx, d, func(q bun.IDB) *bun.SelectQuery {
		return q.NewSelect().TableExpr("sessions AS s").ColumnExpr("m.session, m.seq").
			Join("JOIN messages AS m ON m.session = s.id AND m.seq < s.window_start").
			Where("m.at < ?", micros(cutoff)).
			Where("NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.id = m.run)").Limit(int64(limit))
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return len(keys), d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		for _, k := range keys {
			if _, err := tx.NewDelete().Table("messages").Where("session = ? AND seq = ?", k.Session, k.Seq).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// pruneOccurrences goes from task to task by the cursors, so that the search
// follows the key.
func (d *DB) pruneOccurrences(ctx context.Context, cutoff time.Time, limit int) (int, error) {
	var rows []occurrenceRow
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return q.NewSelect().Model(&rows).Column("o.task", "o.due", "o.schedule_revision").
			Join("JOIN cursors AS c ON c.task = o.task").
			Where("o.due < ? AND o.recorded_at < ?", micros(cutoff), micros(cutoff)).
			Where("o.run_id IS NULL OR NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.id = o.run_id)").Limit(int64(limit)).Scan(ctx)
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return len(rows), d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		for i := range rows {
			if _, err := tx.NewDelete().Model(&rows[i]).WherePK().Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// pruneEvents removes from the beginning: events are in the order of their time.
func (d *DB) pruneEvents(ctx context.Context, cutoff time.Time, limit int) (int, error) {
	var rows []eventRow
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return q.NewSelect().Model(&rows).Column("seq", "at").Order("e.seq").Limit(int64(limit)).Scan(ctx)
	})
	n := 0
	for n < len(rows) && rows[n].At.t.Before(cutoff) {
		n++
	}
	if err != nil || n == 0 {
		return 0, err
	}
	return n, d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewDelete().Table("events").Where("seq <= ?", rows[n-1].Seq).Exec(ctx)
		return err
	})
}

func (d *DB) pruneSpend(ctx context.Context, cutoff time.Time, limit int) (int, error) {
	rows, err := find[spendRow](ctx, d, func(q bun.IDB) *bun.SelectQuery {
		return q.NewSelect().TableExpr("spend AS sp").Column("sp.task", "sp.day").
			Where("sp.day < ?", cutoff.UTC().Format(time.DateOnly)).Order("sp.day", "sp.task").Limit(int64(limit))
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return len(rows), d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		for i := range rows {
			if _, err := tx.NewDelete().Model(&rows[i]).WherePK().Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *DB) pruneSpools(ctx context.Context, quota int64, limit int) (int, error) {
	var total int64
	var oldest []spoolRow
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		if err := q.NewRaw("SELECT COALESCE(SUM(size), 0) FROM spools").Scan(ctx, &total); err != nil || total <= quota {
			return err
		}
		return q.NewSelect().Model(&oldest).Column("receipt", "size").Order("sl.receipt").Limit(int64(limit)).Scan(ctx)
	})
	var gone []int64
	for _, s := range oldest {
		if total <= quota {
			break
		}
		total -= s.Size
		gone = append(gone, s.Receipt)
	}
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	return len(gone), d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewDelete().Table("spools").Where("receipt IN (?)", bun.List(gone)).Exec(ctx)
		return err
	})
}

// shrink gives at most so many free pages of a SQLite file back to the disk.
func (d *DB) shrink(ctx context.Context, pages int) (more bool, err error) {
	if d.sql.Path == "" {
		return false, nil // PostgreSQL vacuums by itself
	}
	if d.sql.Write == nil {
		return false, ErrReadOnly
	}
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	var free int
	if err := d.sql.Write.NewRaw("PRAGMA freelist_count").Scan(ctx, &free); err != nil || free <= keptFree {
		return false, err
	}
	pages = min(pages, free-keptFree)
	rows, err := d.sql.Write.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", pages))
	if err != nil {
		return false, err
	}
	for rows.Next() { // each step frees a page
	}
	if err := rows.Err(); err != nil {
		_ = rows.Close() // the first error is the one to tell
		return false, err
	}
	return free-pages > keptFree, rows.Close()
}
