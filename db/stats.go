package db

import (
	"context"
	"os"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// Stats are counts for the status page and the metrics.
type Stats struct {
	Schema int `json:"schema"`
	// Active counts the runs that have not finished, by execution.
	Active           map[task.Execution]int `json:"active"`
	PendingApprovals int                    `json:"pending_approvals"`
	// Bytes is the size of the SQLite file and its log, 0 on PostgreSQL.
	Bytes      int64 `json:"bytes"`
	SpoolBytes int64 `json:"spool_bytes"`
	// Receipts is how many receipts were ever written.
	Receipts  int64 `json:"receipts"`
	LastEvent int64 `json:"last_event"`
}

// Stats counts what is active; none of it grows with the history but the size of
// the spools, which an index answers.
func (d *DB) Stats(ctx context.Context) (s Stats, err error) {
	s.Active = map[task.Execution]int{}
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		if s.Schema, err = d.sql.Version(ctx, q); err != nil {
			return err
		}
		var counts []struct {
			Execution string
			N         int
		}
		err := q.NewRaw("SELECT execution, COUNT(*) AS n FROM runs WHERE finished_at IS NULL GROUP BY execution").Scan(ctx, &counts)
		if err != nil {
			return err
		}
		for _, c := range counts {
			s.Active[task.Execution(c.Execution)] = c.N
		}
		return q.NewRaw(`SELECT (SELECT COUNT(*) FROM approvals WHERE state = 'pending'),
(SELECT COALESCE(SUM(size), 0) FROM spools), (SELECT COALESCE(MAX(seq), 0) FROM receipts), (SELECT COALESCE(MAX(seq), 0) FROM events)`).
			Scan(ctx, &s.PendingApprovals, &s.SpoolBytes, &s.Receipts, &s.LastEvent)
	})
	if d.sql.Path != "" {
		s.Bytes = fileSize(d.sql.Path) + fileSize(d.sql.Path+"-wal")
	}
	return s, wrap("read statistics", err)
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
