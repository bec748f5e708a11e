package taskpolicy

import (
	"context"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

// Kind is the policy database as its partner knows it.
var Kind = sqldb.Kind{Role: sqldb.Policy, Table: "policy_identity", Mark: "policy_schema", Own: []string{"policy_rows", "policy_pins", "policy_history"}, Count: countMarks}

func countMarks(ctx context.Context, q bun.IDB, m *sqldb.Marks) (used bool, err error) {
	err = q.NewRaw("SELECT COALESCE(MAX(head_seq), 0) FROM policy_chain").Scan(ctx, &m.Changes)
	return m.Changes > 0, err
}

// Identity is what the database says of itself and its partner.
func (s *Store) Identity(ctx context.Context) (sqldb.State, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	state, err := sqldb.Read(ctx, s.sql.Read, Kind)
	state.Place = sqldb.Name(s.opts.DSN)
	return state, err
}

// Note writes down how far the database has come, and the partner as it was seen.
func (s *Store) Note(ctx context.Context, partner sqldb.Seen) (sqldb.State, error) {
	return s.NoteFor(ctx, partner, "", "", "")
}

// NoteFor is Note with a row of history about what a person did with the databases
// themselves: what they accepted, or restored.
func (s *Store) NoteFor(ctx context.Context, partner sqldb.Seen, what, text, by string) (state sqldb.State, err error) {
	err = s.transact(ctx, "note the state of the policy database", by, func(ctx context.Context, c *change) error {
		if what != "" {
			value := quoted(text)
			if err := c.record(ctx, entry{scopeDaemon, daemonID, layerDatabases, what, nil, &value}); err != nil {
				return err
			}
			if err := c.finish(ctx); err != nil { // the note counts it
				return err
			}
		}
		state, err = sqldb.Note(ctx, c.tx, Kind, partner)
		return err
	})
	state.Place = sqldb.Name(s.opts.DSN)
	return state, err
}

// layerDatabases is the layer of such a row.
const layerDatabases = "databases"
