package taskpolicy

import (
	"encoding/json"
	"flag"
	"slices"
	"testing"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

var postgresDSN = flag.String("postgres", "", "postgres:// URL of an empty database to test against")

// The same store on PostgreSQL, where one is given: go test ./taskpolicy -postgres URL.
func TestPostgres(t *testing.T) {
	if *postgresDSN == "" {
		t.Skip("no -postgres URL")
	}
	s := open(t, *postgresDSN)
	if err := s.SyncFiles(t.Context(), files(), policy.Fields{}, "files"); err != nil {
		t.Fatal(err)
	}
	if _, err := set(t, s, policy.ScopeSession, "brief", `connectors=["web"]`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.AcceptTools(t.Context(), "mail", []task.Tool{defined("search", time.Now().String())}, nil, "u"); err != nil {
			t.Fatal(err)
		}
	}
	e := effective(t, s)
	if !slices.Equal(e.SessionConnectors.Items(), []string{"web"}) || len(e.Connectors["mail"].Pins) != 1 || len(e.Allow) != 1 {
		t.Errorf("%+v", e)
	}
	if r, err := s.Reachability(t.Context(), policy.ScopeSession, "brief", "ops"); err != nil || r.Source != policy.SourceSession {
		t.Errorf("%+v %v", r, err)
	}
	copied := open(t, dbPath(t))
	if err := s.CopyTo(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if c := effective(t, copied); !slices.Equal(c.SessionConnectors.Items(), e.SessionConnectors.Items()) || len(c.Connectors["mail"].Pins) != 1 {
		t.Errorf("the copy says %+v", c)
	}
	if h, err := s.History(t.Context(), HistoryFilter{Scope: policy.ScopeSession}); err != nil || len(h) == 0 || !json.Valid(h[0].New) {
		t.Errorf("%+v %v", h, err)
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("%v %v", bad, err)
	}
	if n, err := s.Prune(t.Context(), time.Now().Add(time.Hour)); err != nil || n == 0 {
		t.Errorf("%d %v", n, err)
	}
	if bad, err := s.Verify(t.Context()); bad != nil || err != nil {
		t.Errorf("%v %v", bad, err)
	}
	again := open(t, *postgresDSN) // migrated already
	effective(t, again)
	raw(t, s, "INSERT INTO policy_schema VALUES (99, 'future', 0)")
	_, err := Open(t.Context(), Options{DSN: *postgresDSN})
	wantError(t, "newer", err, "newer runnerd")
}
