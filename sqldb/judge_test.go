package sqldb

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"
)

// pair is two databases that belong together: the main one with 12 runs, the policy
// one with 5 changes.
func pair() (main, policy State, mem Memory) {
	m, p := Marks{Generation: 4, Runs: 12, Receipts: 30, Links: 60, Events: 90}, Marks{Generation: 4, Changes: 5}
	main = State{Role: Main, Place: "M", There: true, Used: true, ID: "m", Now: m, Noted: m, Partner: Seen{"p", p}}
	policy = State{Role: Policy, Place: "P", There: true, Used: true, ID: "p", Now: p, Noted: p, Partner: Seen{"m", m}}
	return main, policy, Memory{Main: main.Seen(), Policy: policy.Seen()}
}

func TestJudge(t *testing.T) {
	type world struct {
		main, policy State
		mem          Memory
	}
	gone := func(s *State) { *s = State{Role: s.Role, Place: s.Place} }
	for _, c := range []struct {
		name string
		do   func(w *world)
		says string // in the problem; empty: they belong together
		way  string
	}{
		{"as they were left", func(*world) {}, "", ""},
		{"new together", func(w *world) { gone(&w.main); gone(&w.policy); w.mem = Memory{} }, "", ""},
		{"new together, after a start that recorded nothing", func(w *world) {
			gone(&w.main)
			gone(&w.policy)
			w.mem = Memory{Main: Seen{"m", Marks{Generation: 1}}, Policy: Seen{"p", Marks{Generation: 1}}}
		}, "", ""},
		{"of a time without ids", func(w *world) {
			w.main.ID, w.main.Partner, w.policy.ID, w.policy.Partner, w.mem = "", Seen{}, "", Seen{}, Memory{}
		}, "", ""},
		{"the main one was told first", func(w *world) { w.policy.Partner = Seen{} }, "", ""},
		{"the policy one was told first", func(w *world) { w.main.Partner = Seen{} }, "", ""},
		{"both went on after the last note", func(w *world) { w.main.Now.Runs += 3; w.policy.Now.Changes++ }, "", ""},
		{"the state directory is new", func(w *world) { w.mem = Memory{} }, "", ""},
		{"U1 policy missing", func(w *world) { gone(&w.policy) }, "policy database P is missing: 5 policy changes missing", FlagNewPolicy},
		{"U1 policy missing, of a time without ids", func(w *world) { gone(&w.policy); w.main.ID, w.main.Partner, w.mem = "", Seen{}, Memory{} },
			"policy database P is missing", FlagNewPolicy},
		{"U1 policy without a change", func(w *world) {
			w.policy.Used, w.policy.ID, w.policy.Now, w.policy.Noted = false, "n", Marks{}, Marks{}
		}, "policy database P is empty", FlagNewPolicy},
		{"U1 main missing", func(w *world) { gone(&w.main) }, "main database M is missing: 12 runs and 30 receipts missing", FlagNewMain},
		{"U1 both missing", func(w *world) { gone(&w.main); gone(&w.policy) }, "both databases are missing: 12 runs and 30 receipts missing", FlagNewMain + " " + FlagNewPolicy},
		{"U6 policy of another", func(w *world) { w.policy.ID, w.policy.Partner.ID = "x", "y" }, "not of each other", FlagAccept},
		{"U6 main of another", func(w *world) { w.main.ID, w.main.Partner.ID = "x", "y" }, "not of each other", FlagAccept},
		{"a copy without ids beside one that knows another", func(w *world) { w.main.ID, w.main.Partner = "", Seen{} }, "not of each other", FlagAccept},
		{"U6 both of another", func(w *world) { w.mem.Main.ID, w.mem.Policy.ID = "x", "y" }, "not those that the state directory was last used with", FlagAccept},
		{"U18 main lost its end", func(w *world) { w.main.Now.Runs, w.main.Now.Generation = 0, 3 }, "main database M is older than the policy database remembers: 12 runs missing", FlagAccept},
		{"U18 main lost a note alone", func(w *world) { w.main.Now.Generation = 3 }, "main database M is older than the policy database remembers: its newest records", FlagAccept},
		{"U18 policy lost its end", func(w *world) { w.policy.Now.Changes = 4 }, "policy database P is older than the main database remembers: 1 policy change missing", FlagAccept},
		{"U18 both lost their end", func(w *world) {
			w.mem.Main.Marks.Runs, w.mem.Main.Marks.Generation = 20, 9
		}, "main database M is older than the state directory remembers: 8 runs missing", FlagAccept},
		{"U17 a log that is not its own", func(w *world) { w.main.Now.Links = 2; w.policy.Partner.Marks.Links = 0; w.mem = Memory{} }, "its own last note", FlagAccept},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w world
			w.main, w.policy, w.mem = pair()
			c.do(&w)
			_, err := Judge(w.main, w.policy, w.mem, Consent{})
			if c.says == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				if _, err := Judge(w.main, w.policy, w.mem, Consent{Accept: true}); !errors.Is(err, ErrNothingToAccept) {
					t.Errorf("a consent to nothing: %v", err)
				}
				return
			}
			var found *PartnerError
			if !errors.As(err, &found) || !strings.Contains(found.Problem, c.says) || found.Flags != c.way {
				t.Fatalf("%v, want %q and %q", err, c.says, c.way)
			}
			for _, consent := range []Consent{{NewMain: true}, {NewPolicy: true}, {Accept: true}, {NewMain: true, NewPolicy: true}} {
				accepted, err := Judge(w.main, w.policy, w.mem, consent)
				if right := consent.flags() == c.way; right != (err == nil) || right && accepted != found.Problem {
					t.Errorf("%s: %q, %v", consent.flags(), accepted, err)
				}
			}
		})
	}
}

// TestNoteAndLook: what is noted is what a look reads, and a look makes nothing.
func TestNoteAndLook(t *testing.T) {
	k := Kind{Role: Main, Table: "identity", Mark: "marked", Count: func(ctx context.Context, q bun.IDB, m *Marks) (bool, error) {
		err := q.NewRaw("SELECT COUNT(*) FROM marked").Scan(ctx, &m.Runs)
		return m.Runs > 0, err
	}}
	dsn := anyDSN(t)
	if s := must[State](t)(Look(ctx, dsn, k)); s.There || s.Used || s.ID != "" {
		t.Errorf("nothing there: %+v", s)
	}
	q := openAny(t, dsn)
	_, err := q.ExecContext(ctx, "CREATE TABLE marked (n BIGINT)")
	ok(t, err)
	_, err = q.ExecContext(ctx, "INSERT INTO marked VALUES (1)")
	ok(t, err)
	if s := must[State](t)(Look(ctx, dsn, k)); !s.There || !s.Used || s.ID != "" || s.Now.Runs != 1 {
		t.Errorf("of a time without ids: %+v", s)
	}
	partner := Seen{"p", Marks{1, 2, 3, 4, 5, 6}}
	var noted State
	for range 2 {
		ok(t, q.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
			if err := CreateIdentity(ctx, tx, k.Table); err != nil {
				return err
			}
			noted, err = Note(ctx, tx, k, partner)
			return err
		}))
	}
	s := must[State](t)(Look(ctx, dsn, k))
	if noted.Place, noted.Served = s.Place, s.Served; s != noted || s.Partner != partner || s.Now != (Marks{Generation: 2, Runs: 1}) {
		t.Errorf("looked %+v\nnoted  %+v", s, noted)
	}
	other := k
	other.Mark = "something_else"
	if s, err := Look(ctx, dsn, other); !IsPostgres(dsn) && err == nil {
		t.Errorf("tables of another kind: %+v", s)
	}
}

// What is said to do is what can be done: a database on PostgreSQL is put back by its
// own tools.
func TestCureFitsTheDatabase(t *testing.T) {
	main, policy := State{Role: Main, Place: "M", There: true, Used: true, ID: "m"}, State{Role: Policy, Place: "P", There: true, Used: true, ID: "q"}
	for served, want := range map[bool]string{false: "`runnerd restore DIR`", true: "pg_restore"} {
		main.Partner, policy.Served = Seen{ID: "p"}, served
		_, err := Judge(main, policy, Memory{}, Consent{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "runnerd restore") == served {
			t.Errorf("on PostgreSQL %t: %v", served, err)
		}
	}
	if s := must[State](t)(Look(ctx, anyDSN(t), Kind{Role: Main, Table: "main_identity", Mark: "marked"})); s.Served != (*postgres != "") {
		t.Errorf("served: %t", s.Served)
	}
}
