package taskpolicy

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"runnerd/policy"
)

// change is one write transaction with its place in the history chain. New rows
// are collected and written many at a time: the files of a large directory make a
// million of them.
type change struct {
	tx    bun.Tx
	at    time.Time
	by    string
	chain chainRow
	moved bool

	added   []*ruleRow
	history []*historyRow
}

// batch is how many collected rows one statement inserts.
const batch = 500

// chainRow is the one row that ties the history together: the last row that
// retention removed and the newest row.
type chainRow struct {
	bun.BaseModel `bun:"table:policy_chain,alias:c"`
	ID            int64  `bun:"id,pk"`
	RemovedSeq    int64  `bun:"removed_seq"`
	RemovedHash   string `bun:"removed_hash"`
	HeadSeq       int64  `bun:"head_seq"`
	HeadHash      string `bun:"head_hash"`
}

type historyRow struct {
	bun.BaseModel `bun:"table:policy_history,alias:h"`
	Seq           int64   `bun:"seq,pk"`
	At            int64   `bun:"at"`
	By            string  `bun:"by_whom"`
	Scope         string  `bun:"scope"`
	ID            string  `bun:"id"`
	Layer         string  `bun:"layer"`
	Field         string  `bun:"field"`
	Old           *string `bun:"old_value"`
	New           *string `bun:"new_value"`
	Previous      string  `bun:"previous_hash"`
	Hash          string  `bun:"hash"`
}

// sum is the hash over everything in the row and the hash before it.
func (h *historyRow) sum() string {
	data, err := json.Marshal([]any{h.Seq, h.At, h.By, h.Scope, h.ID, h.Layer, h.Field, h.Old, h.New, h.Previous})
	if err != nil {
		return "" // matches no stored hash
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// lock takes the chain's row for the transaction: an update that changes nothing
// holds it on PostgreSQL, where several nodes may write.
func (c *change) lock(ctx context.Context) error {
	_, err := c.tx.NewUpdate().Model((*chainRow)(nil)).Set("id = id").Where("id = 1").Exec(ctx)
	if err != nil {
		return err
	}
	return c.tx.NewSelect().Model(&c.chain).Where("c.id = 1").Scan(ctx)
}

// entry is one change of one field. Layer is a policy.Layer, or "pin" for accepted
// definitions.
type entry struct {
	scope    policy.Scope
	id       string
	layer    string
	field    string
	old, new *string
}

func (c *change) record(ctx context.Context, e entry) error {
	h := &historyRow{
		Seq: c.chain.HeadSeq + 1, At: c.at.UnixMicro(), By: c.by, Scope: string(e.scope), ID: e.id, Layer: e.layer,
		Field: e.field, Old: e.old, New: e.new, Previous: c.chain.HeadHash,
	}
	h.Hash = h.sum()
	c.chain.HeadSeq, c.chain.HeadHash, c.moved = h.Seq, h.Hash, true
	if c.history = append(c.history, h); len(c.history) < batch {
		return nil
	}
	return c.flush(ctx)
}

// flush writes what was collected.
func (c *change) flush(ctx context.Context) error {
	if len(c.added) > 0 {
		if _, err := c.tx.NewInsert().Model(&c.added).Exec(ctx); err != nil {
			return err
		}
	}
	if len(c.history) > 0 {
		if _, err := c.tx.NewInsert().Model(&c.history).Exec(ctx); err != nil {
			return err
		}
	}
	c.added, c.history = c.added[:0], c.history[:0]
	return nil
}

func (c *change) finish(ctx context.Context) error {
	if err := c.flush(ctx); err != nil || !c.moved {
		return err
	}
	_, err := c.tx.NewUpdate().Model(&c.chain).WherePK().Exec(ctx)
	return err
}

// HistoryFilter narrows History; zero fields do not.
type HistoryFilter struct {
	Scope policy.Scope
	ID    string
	Since time.Time
	Limit int // 100 unless told, at most 10,000
}

// HistoryEntry is one change of one field. The field "row" is the thing itself
// appearing, being retired or going; "pin NAME" is an accepted definition's hash.
type HistoryEntry struct {
	Seq   int64           `json:"seq"`
	At    time.Time       `json:"at"`
	By    string          `json:"by"`
	Scope policy.Scope    `json:"scope"`
	ID    string          `json:"id"`
	Layer string          `json:"layer"`
	Field string          `json:"field"`
	Old   json.RawMessage `json:"old"`
	New   json.RawMessage `json:"new"`
}

// History answers changes, newest first.
func (s *Store) History(ctx context.Context, f HistoryFilter) ([]HistoryEntry, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	if f.Limit <= 0 {
		f.Limit = 100
	}
	var rows []historyRow
	q := s.sql.Read.NewSelect().Model(&rows).Order("h.seq DESC").Limit(int64(min(f.Limit, 10_000)))
	if f.Scope != "" {
		q = q.Where("h.scope = ?", f.Scope)
	}
	if f.ID != "" {
		q = q.Where("h.id = ?", f.ID)
	}
	if !f.Since.IsZero() {
		q = q.Where("h.at >= ?", f.Since.UnixMicro())
	}
	if err := q.Scan(ctx); err != nil {
		return nil, fmt.Errorf("policy history: %w", err)
	}
	out := make([]HistoryEntry, 0, len(rows))
	for _, r := range rows {
		out = append(out, HistoryEntry{
			Seq: r.Seq, At: time.UnixMicro(r.At).UTC(), By: r.By, Scope: policy.Scope(r.Scope), ID: r.ID, Layer: r.Layer,
			Field: r.Field, Old: rawOrNull(r.Old), New: rawOrNull(r.New),
		})
	}
	return out, nil
}

func rawOrNull(text *string) json.RawMessage {
	if text == nil {
		return json.RawMessage("null")
	}
	return rawOrQuoted(*text)
}

// BadRow is where the history chain breaks.
type BadRow struct {
	Seq    int64  `json:"seq"`
	Reason string `json:"reason"`
}

// Verify walks the whole history chain from the checkpoint that retention left. It
// answers the first row that does not fit, or nil. Whoever can write the database
// can compute a new chain: this finds mistakes and clumsy edits, not a forger.
func (s *Store) Verify(ctx context.Context) (bad *BadRow, err error) {
	err = s.sql.Read.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
		bad, err = verifyChain(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verify policy history: %w", err)
	}
	return bad, nil
}

func verifyChain(ctx context.Context, tx bun.Tx) (*BadRow, error) {
	var chain chainRow
	if err := tx.NewSelect().Model(&chain).Where("c.id = 1").Scan(ctx); err != nil {
		return nil, err
	}
	const step = 1000
	seq, hash := chain.RemovedSeq, chain.RemovedHash
	for {
		var rows []historyRow
		err := tx.NewSelect().Model(&rows).Where("h.seq > ?", seq).Order("h.seq").Limit(step).Scan(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			switch {
			case r.Seq != seq+1:
				return &BadRow{seq + 1, "the row is missing"}, nil
			case r.Previous != hash:
				return &BadRow{r.Seq, "it does not follow the row before it"}, nil
			case r.Hash != r.sum():
				return &BadRow{r.Seq, "it was changed after it was written"}, nil
			}
			seq, hash = r.Seq, r.Hash
		}
		if len(rows) < step {
			break
		}
	}
	if seq != chain.HeadSeq || hash != chain.HeadHash {
		return &BadRow{seq + 1, fmt.Sprintf("the newest rows, up to %d, are missing", chain.HeadSeq)}, nil
	}
	return nil, nil
}

// Prune removes history rows older than before, from the oldest on, up to the first
// that is younger, and leaves a checkpoint with the last removed hash. It answers
// how many went.
func (s *Store) Prune(ctx context.Context, before time.Time) (int64, error) {
	var removed int64
	err := s.transact(ctx, "prune policy history", "retention", func(ctx context.Context, c *change) error {
		var keep sql.NullInt64
		err := c.tx.NewSelect().Model((*historyRow)(nil)).ColumnExpr("MIN(h.seq)").Where("h.at >= ?", before.UnixMicro()).Scan(ctx, &keep)
		if err != nil {
			return err
		}
		last := c.chain.HeadSeq
		if keep.Valid {
			last = keep.Int64 - 1
		}
		var row historyRow
		err = c.tx.NewSelect().Model(&row).Where("h.seq = ?", last).Scan(ctx)
		if err == sql.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		res, err := c.tx.NewDelete().Model((*historyRow)(nil)).Where("seq <= ?", last).Exec(ctx)
		if err != nil {
			return err
		}
		removed, _ = res.RowsAffected()
		c.chain.RemovedSeq, c.chain.RemovedHash, c.moved = row.Seq, row.Hash, true
		return nil
	})
	return removed, err
}
