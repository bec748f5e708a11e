package db

import (
	"context"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

// Kind is the main database as its partner knows it.
var Kind = sqldb.Kind{Role: sqldb.Main, Table: "identity", Mark: "migrations", Own: []string{"runs", "sessions"}, Count: countMarks}

// countMarks counts the runs that were queued since the last note: their first event
// is newer. Retention removes rows, so what was noted is never lowered but for the
// end of the chain, which retention leaves as it is.
func countMarks(ctx context.Context, q bun.IDB, m *sqldb.Marks) (used bool, err error) {
	var now struct {
		Events, Receipts, Links, Files, Runs int64
	}
	err = q.NewRaw(`SELECT (SELECT COALESCE(MAX(seq), 0) FROM events) AS events, (SELECT COALESCE(MAX(seq), 0) FROM receipts) AS receipts,
(SELECT COALESCE(MAX(head_seq), 0) FROM chain_ends) AS links, (SELECT COUNT(*) FROM (SELECT 1 FROM files LIMIT 1) AS f) AS files,
(SELECT COUNT(DISTINCT e.run) FROM events AS e WHERE e.seq > ? AND e.kind = ?
AND NOT EXISTS (SELECT 1 FROM events AS b WHERE b.run = e.run AND b.seq <= ?)) AS runs`, m.Events, EventRun, m.Events).Scan(ctx, &now)
	if err != nil {
		return false, err
	}
	m.Runs += now.Runs
	m.Events, m.Receipts, m.Links = max(m.Events, now.Events), max(m.Receipts, now.Receipts), now.Links
	return m.Events > 0 || m.Receipts > 0 || m.Links > 0 || now.Files > 0, nil
}

// Identity is what the database says of itself and its partner.
func (d *DB) Identity(ctx context.Context) (s sqldb.State, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		s, err = sqldb.Read(ctx, q, Kind)
		return err
	})
	s.Place = d.name()
	return s, err
}

// Note writes down how far the database has come, and the partner as it was seen. All
// that it counts is on the disk when it returns.
func (d *DB) Note(ctx context.Context, partner sqldb.Seen) (s sqldb.State, err error) {
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		s, err = sqldb.Note(ctx, tx, Kind, partner)
		return err
	})
	s.Place = d.name()
	return s, wrap("note the state of the main database", err)
}
