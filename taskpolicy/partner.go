package taskpolicy

import (
	"context"

	"github.com/uptrace/bun"

	"runnerd/sqldb"
)

// Kind is the policy database as its partner knows it.
var Kind = sqldb.Kind{Role: sqldb.Policy, Table: "policy_identity", Mark: "policy_schema", Count: countMarks}

func countMarks(ctx context.Context, q bun.IDB, m *sqldb.Marks) (used bool, err error) {
	err = q.NewRaw("SELECT COALESCE(MAX(head_seq), 0) FROM policy_chain").Scan(ctx, &m.Changes)
	return m.Changes > 0, err
}

// Identity is what the database says of itself and its partner.
func (s *Store) Identity(ctx context.Context) (sqldb.State, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	state, err := sqldb.Read(ctx, s.read, Kind)
	state.Place = sqldb.Name(s.opts.DSN)
	return state, err
}

// Note writes down how far the database has come, and the partner as it was seen.
func (s *Store) Note(ctx context.Context, partner sqldb.Seen) (sqldb.State, error) {
	return s.note(ctx, partner, "", "")
}

// AcceptDatabases is Note for databases that do not belong together and that a person took all
// the same: history says who, and what was wrong with them.
func (s *Store) AcceptDatabases(ctx context.Context, partner sqldb.Seen, problem, by string) (sqldb.State, error) {
	return s.note(ctx, partner, problem, by)
}

func (s *Store) note(ctx context.Context, partner sqldb.Seen, problem, by string) (state sqldb.State, err error) {
	err = s.transact(ctx, "note the state of the policy database", by, func(ctx context.Context, c *change) error {
		if problem != "" {
			text := quoted(problem)
			if err := c.record(ctx, entry{scopeDaemon, daemonID, layerDatabases, "accepted", nil, &text}); err != nil {
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

// layerDatabases is the layer in history of what people accepted about the databases
// themselves.
const layerDatabases = "databases"
