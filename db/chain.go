package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/uptrace/bun"
)

// The receipts' hash chain (DESIGN, section 7). Each receipt adds one link when
// it is written and, if it was an intent, one more when its outcome is known, so
// that the order of both is fixed. A link's hash is over the link before it and
// the content of its receipt at that moment. The ends of the chain stand apart,
// so that cutting the tail off shows; retention moves the base forward.
const (
	linkIntent  = "intent"
	linkOutcome = "outcome"
	linkRefusal = "refusal"

	receiptChain = "receipts"
)

type linkRow struct {
	bun.BaseModel `bun:"table:receipt_chain,alias:l"`

	Seq     int64  `bun:"seq,pk"`
	Receipt int64  `bun:"receipt"`
	Kind    string `bun:"kind"`
	Content []byte `bun:"content"`
	Hash    []byte `bun:"hash"`
	// Pruned: retention removed the receipt; its content hash stays until the
	// base has passed it.
	Pruned bool `bun:"pruned"`
}

type chainRow struct {
	bun.BaseModel `bun:"table:chain_ends,alias:ce"`

	Name     string `bun:"name,pk"`
	BaseSeq  int64  `bun:"base_seq"`
	BaseHash []byte `bun:"base_hash"`
	HeadSeq  int64  `bun:"head_seq"`
	HeadHash []byte `bun:"head_hash"`
}

func chainEnds(ctx context.Context, q bun.IDB) (chainRow, error) {
	var rows []chainRow
	err := q.NewSelect().Model(&rows).Where("ce.name = ?", receiptChain).Scan(ctx)
	if err != nil || len(rows) > 0 {
		return append(rows, chainRow{})[0], err
	}
	start := sha256.Sum256([]byte(receiptChain))
	return chainRow{Name: receiptChain, BaseHash: start[:], HeadHash: start[:]}, nil
}

func saveEnds(ctx context.Context, tx bun.Tx, ends chainRow) error {
	_, err := tx.NewInsert().Model(&ends).On("CONFLICT (name) DO UPDATE").
		Set("base_seq = EXCLUDED.base_seq").Set("base_hash = EXCLUDED.base_hash").
		Set("head_seq = EXCLUDED.head_seq").Set("head_hash = EXCLUDED.head_hash").Exec(ctx)
	return err
}

func extendChain(ctx context.Context, tx bun.Tx, row *receiptRow, kind string) error {
	ends, err := chainEnds(ctx, tx)
	if err != nil {
		return err
	}
	link := linkRow{Seq: ends.HeadSeq + 1, Receipt: row.Seq, Kind: kind, Content: row.content(kind)}
	link.Hash = link.hash(ends.HeadHash)
	ends.HeadSeq, ends.HeadHash = link.Seq, link.Hash
	if _, err := tx.NewInsert().Model(&link).Exec(ctx); err != nil {
		return err
	}
	return saveEnds(ctx, tx, ends)
}

// content hashes what a link vouches for: of an intent all but the outcome, else
// the whole receipt. Each field goes in with its length.
func (r *receiptRow) content(kind string) []byte {
	fields := []string{
		kind, r.Run, r.Task, fmt.Sprint(r.Step), r.CallID, r.Connector, r.Tool, r.Class, r.Definition,
		r.Decision, r.Code, r.Rule, r.ArgsHash, r.ApprovalID, stampText(r.StartedAt),
	}
	if kind != linkIntent {
		fields = append(fields, r.Outcome, stampText(r.FinishedAt))
	}
	h := sha256.New()
	var n [8]byte
	put := func(v uint64) { binary.BigEndian.PutUint64(n[:], v); h.Write(n[:]) }
	put(uint64(r.Seq))
	for _, f := range fields {
		put(uint64(len(f)))
		h.Write([]byte(f))
	}
	return h.Sum(nil)
}

func stampText(s stamp) string {
	if s.t.IsZero() {
		return ""
	}
	return fmt.Sprint(s.t.UnixMicro())
}

func (l *linkRow) hash(previous []byte) []byte {
	h := sha256.New()
	h.Write(previous)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(l.Seq))
	h.Write(n[:])
	h.Write(l.Content)
	return h.Sum(nil)
}

// ChainError names the first row at which the receipts and their chain disagree.
type ChainError struct {
	Receipt int64 // seq of the receipt, 0 if none can be named
	Link    int64 // seq in the chain
	Problem string
}

func (e *ChainError) Error() string {
	if e.Receipt == 0 {
		return fmt.Sprintf("audit chain, link %d: %s", e.Link, e.Problem)
	}
	return fmt.Sprintf("audit chain, link %d, receipt %d: %s", e.Link, e.Receipt, e.Problem)
}

// Verified says how much of the chain was found good.
type Verified struct {
	Links int64 `json:"links"`
	// Checkpoint is the seq of the last link that retention removed, 0 if none.
	Checkpoint int64 `json:"checkpoint"`
}

// Verify checks every receipt against the chain and answers *ChainError for the
// first that was changed, added or removed. It reads in steps, so that writers
// are not held up; each step is a snapshot of its own.
func (d *DB) Verify(ctx context.Context) (v Verified, err error) {
	var ends chainRow
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		ends, err = chainEnds(ctx, q)
		return err
	})
	if err != nil {
		return v, wrap("verify receipts", err)
	}
	check := chainCheck{seq: ends.BaseSeq, hash: ends.BaseHash}
	v.Checkpoint = ends.BaseSeq
	for check.seq < ends.HeadSeq {
		err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error { return check.step(ctx, q, ends.HeadSeq) })
		if err != nil {
			return v, wrap("verify receipts", err)
		}
		v.Links = check.seq - ends.BaseSeq
	}
	if !bytes.Equal(check.hash, ends.HeadHash) {
		return v, &ChainError{Link: ends.HeadSeq, Problem: "the newest link is not the one that was recorded as such"}
	}
	return v, wrap("verify receipts", d.reading(ctx, func(ctx context.Context, q bun.IDB) error { return strangers(ctx, q) }))
}

// chainCheck is how far a verification has come.
type chainCheck struct {
	seq  int64
	hash []byte
}

func (c *chainCheck) step(ctx context.Context, q bun.IDB, head int64) error {
	var links []linkRow
	err := q.NewSelect().Model(&links).Where("l.seq > ? AND l.seq <= ?", c.seq, head).Order("l.seq").Limit(chunk).Scan(ctx)
	if err != nil {
		return err
	}
	if len(links) == 0 {
		return &ChainError{Link: c.seq + 1, Problem: "the link is missing"}
	}
	receipts, err := receiptsOf(ctx, q, links)
	if err != nil {
		return err
	}
	for i := range links {
		if problem := c.check(&links[i], receipts); problem != "" {
			return &ChainError{Receipt: links[i].Receipt, Link: links[i].Seq, Problem: problem}
		}
		c.seq, c.hash = links[i].Seq, links[i].Hash
	}
	return nil
}

func receiptsOf(ctx context.Context, q bun.IDB, links []linkRow) (map[int64]*receiptRow, error) {
	seqs := make([]int64, len(links))
	for i := range links {
		seqs[i] = links[i].Receipt
	}
	var rows []receiptRow
	if err := q.NewSelect().Model(&rows).Where("rc.seq IN (?)", bun.List(seqs)).Scan(ctx); err != nil {
		return nil, err
	}
	byNumber := make(map[int64]*receiptRow, len(rows))
	for i := range rows {
		byNumber[rows[i].Seq] = &rows[i]
	}
	return byNumber, nil
}

func (c *chainCheck) check(l *linkRow, receipts map[int64]*receiptRow) string {
	row := receipts[l.Receipt]
	switch {
	case l.Seq != c.seq+1:
		return fmt.Sprintf("link %d is missing", c.seq+1)
	case !bytes.Equal(l.Hash, l.hash(c.hash)):
		return "the link's hash does not follow from the one before"
	case row == nil && !l.Pruned:
		return "the receipt is gone and retention did not remove it"
	case row != nil && !bytes.Equal(l.Content, row.content(l.Kind)):
		return "the receipt was changed after it was written"
	}
	return ""
}

// strangers finds receipts that the chain does not know, or outcomes that were
// written past it.
func strangers(ctx context.Context, q bun.IDB) error {
	var seqs []int64
	err := q.NewRaw(`SELECT rc.seq FROM receipts AS rc
WHERE NOT EXISTS (SELECT 1 FROM receipt_chain AS l WHERE l.receipt = rc.seq AND l.kind IN (?, ?))
OR (rc.outcome <> '' AND NOT EXISTS (SELECT 1 FROM receipt_chain AS l WHERE l.receipt = rc.seq AND l.kind IN (?, ?)))
ORDER BY rc.seq LIMIT 1`, linkIntent, linkRefusal, linkOutcome, linkRefusal).Scan(ctx, &seqs)
	if err != nil || len(seqs) == 0 {
		return err
	}
	return &ChainError{Receipt: seqs[0], Problem: "the receipt, or its outcome, was written past the chain"}
}
