package sqldb

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/uptrace/bun"
)

// Marks are how far a database has come. They only grow, whatever retention removes.
type Marks struct {
	// Generation counts the notes that partners took of each other.
	Generation int64 `json:"generation,omitzero"`
	// Of the main database: runs ever queued, receipts ever written, links of their
	// chain, events.
	Runs     int64 `json:"runs,omitzero"`
	Receipts int64 `json:"receipts,omitzero"`
	Links    int64 `json:"links,omitzero"`
	Events   int64 `json:"events,omitzero"`
	// Changes are the rows of the policy history.
	Changes int64 `json:"changes,omitzero"`
}

// behind tells whether a database with these marks lacks something that one with
// the others had.
func (m Marks) behind(other Marks) bool {
	return m.Generation < other.Generation || m.Runs < other.Runs || m.Receipts < other.Receipts || m.Links < other.Links || m.Changes < other.Changes
}

// same tells whether nothing was recorded between the two.
func (m Marks) same(other Marks) bool {
	m.Generation = other.Generation
	return m == other
}

// Seen is a database as another remembers it.
type Seen struct {
	ID    string `json:"id"`
	Marks Marks  `json:"marks"`
}

// State is what a database says of itself and of its partner.
type State struct {
	Role  Role
	Place string
	// Served says that it is on PostgreSQL and no file.
	Served bool
	// There: it exists and is not empty. Used: runs, receipts, files or rules were
	// recorded in it.
	There, Used bool
	// ID is empty if it is not there, or was made by a runnerd that gave none.
	ID string
	// Now are the marks as they stand, Noted those that its own row has.
	Now, Noted Marks
	// Partner is the other database as it was last seen, empty before the first time.
	Partner Seen
}

// Seen is the state as a partner remembers it.
func (s State) Seen() Seen { return Seen{ID: s.ID, Marks: s.Now} }

// Kind is what is special about one of the two databases.
type Kind struct {
	Role  Role
	Table string // of the identity
	// Mark is the table that every database of the kind has: of its migrations.
	Mark string
	// Own are other tables that no database but one of the kind has.
	Own []string
	// Count brings marks up to what is recorded now, and tells whether anything is.
	Count func(ctx context.Context, q bun.IDB, m *Marks) (used bool, err error)
}

// identityRow is the one row of a database's identity.
type identityRow struct {
	bun.BaseModel `bun:"alias:i"`

	One               int64  `bun:"one,pk,type:bigint"`
	ID                string `bun:"id,type:text,notnull"`
	Generation        int64  `bun:"generation,type:bigint,notnull"`
	Runs              int64  `bun:"runs,type:bigint,notnull"`
	Receipts          int64  `bun:"receipts,type:bigint,notnull"`
	Links             int64  `bun:"links,type:bigint,notnull"`
	Events            int64  `bun:"events,type:bigint,notnull"`
	Changes           int64  `bun:"changes,type:bigint,notnull"`
	Partner           string `bun:"partner,type:text,notnull"`
	PartnerGeneration int64  `bun:"partner_generation,type:bigint,notnull"`
	PartnerRuns       int64  `bun:"partner_runs,type:bigint,notnull"`
	PartnerReceipts   int64  `bun:"partner_receipts,type:bigint,notnull"`
	PartnerLinks      int64  `bun:"partner_links,type:bigint,notnull"`
	PartnerEvents     int64  `bun:"partner_events,type:bigint,notnull"`
	PartnerChanges    int64  `bun:"partner_changes,type:bigint,notnull"`
}

// IdentityColumns are the columns of an identity's table.
const IdentityColumns = "one, id, generation, runs, receipts, links, events, changes, partner, partner_generation, partner_runs, partner_receipts, partner_links, partner_events, partner_changes"

func (r *identityRow) noted() Marks {
	return Marks{Generation: r.Generation, Runs: r.Runs, Receipts: r.Receipts, Links: r.Links, Events: r.Events, Changes: r.Changes}
}

func (r *identityRow) partner() Seen {
	return Seen{ID: r.Partner, Marks: Marks{
		Generation: r.PartnerGeneration, Runs: r.PartnerRuns, Receipts: r.PartnerReceipts, Links: r.PartnerLinks, Events: r.PartnerEvents, Changes: r.PartnerChanges,
	}}
}

// CreateIdentity is a migration of both databases: it makes the table and the id. It
// may run again over its own result.
func CreateIdentity(ctx context.Context, tx bun.Tx, table string) error {
	_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+` (
one BIGINT NOT NULL PRIMARY KEY, id TEXT NOT NULL,
generation BIGINT NOT NULL DEFAULT 0, runs BIGINT NOT NULL DEFAULT 0, receipts BIGINT NOT NULL DEFAULT 0, links BIGINT NOT NULL DEFAULT 0, events BIGINT NOT NULL DEFAULT 0, changes BIGINT NOT NULL DEFAULT 0,
partner TEXT NOT NULL DEFAULT '', partner_generation BIGINT NOT NULL DEFAULT 0, partner_runs BIGINT NOT NULL DEFAULT 0, partner_receipts BIGINT NOT NULL DEFAULT 0,
partner_links BIGINT NOT NULL DEFAULT 0, partner_events BIGINT NOT NULL DEFAULT 0, partner_changes BIGINT NOT NULL DEFAULT 0)`)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO "+table+" (one, id) VALUES (1, ?) ON CONFLICT DO NOTHING", rand.Text())
	return err
}

// Read is a database's state as q sees it.
func Read(ctx context.Context, q bun.IDB, k Kind) (State, error) {
	s := State{Role: k.Role, There: true}
	var row identityRow
	if err := q.NewSelect().Model(&row).ModelTableExpr(k.Table + " AS i").Where("i.one = 1").Scan(ctx); err != nil {
		return s, fmt.Errorf("read identity of the %s: %w", k.Role, err)
	}
	s.ID, s.Noted, s.Partner = row.ID, row.noted(), row.partner()
	return s, count(ctx, q, k, &s)
}

func count(ctx context.Context, q bun.IDB, k Kind, s *State) (err error) {
	s.Now = s.Noted
	if s.Used, err = k.Count(ctx, q, &s.Now); err != nil {
		return fmt.Errorf("count what the %s holds: %w", k.Role, err)
	}
	return nil
}

// Note writes, in a transaction that is on the disk when it has committed, that the
// database has come as far as it has, and what it sees of its partner.
func Note(ctx context.Context, tx bun.Tx, k Kind, partner Seen) (State, error) {
	s, err := Read(ctx, tx, k)
	if err != nil {
		return s, err
	}
	s.Now.Generation++
	s.Noted, s.Partner = s.Now, partner
	n, p := s.Now, partner.Marks
	_, err = tx.NewUpdate().Table(k.Table).Where("one = 1").
		Set("generation = ?", n.Generation).Set("runs = ?", n.Runs).Set("receipts = ?", n.Receipts).Set("links = ?", n.Links).Set("events = ?", n.Events).Set("changes = ?", n.Changes).
		Set("partner = ?", partner.ID).Set("partner_generation = ?", p.Generation).Set("partner_runs = ?", p.Runs).
		Set("partner_receipts = ?", p.Receipts).Set("partner_links = ?", p.Links).Set("partner_events = ?", p.Events).Set("partner_changes = ?", p.Changes).Exec(ctx)
	return s, err
}
