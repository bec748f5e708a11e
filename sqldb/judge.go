package sqldb

import (
	"errors"
	"fmt"
	"strings"
)

// Consent is what a person has said about databases that do not belong together.
// Each is good for one start, and refused where there is nothing to consent to, so
// that none can stay in a unit file.
type Consent struct {
	NewMain   bool // a main database was lost: make a new one
	NewPolicy bool // the same for the policy database
	Accept    bool // take both as they are: older, or not of each other
}

// The flags of `serve` that stand for each consent.
const (
	FlagNewMain   = "--new-main"
	FlagNewPolicy = "--new-policy"
	FlagAccept    = "--accept-databases"
)

// PartnerError says that the databases do not belong together, what is missing, and
// what a person can do.
type PartnerError struct {
	Problem string
	Flags   string // of `serve`, that let it start all the same
	Served  bool   // one of them is on PostgreSQL, which `restore` leaves alone
}

func (e *PartnerError) Error() string {
	back := "put the right file back, `runnerd restore DIR` from a backup"
	if e.Served {
		back = "put the right one back, on PostgreSQL by pg_restore of what pg_dump wrote"
	}
	return fmt.Sprintf("%s; %s, or start without what is missing by `runnerd serve %s`, once", e.Problem, back, e.Flags)
}

// ErrNothingToAccept is wrapped where a consent was given for nothing.
var ErrNothingToAccept = errors.New("it is for one start only; leave it out")

// Judge says whether the two databases belong to each other and to the state
// directory. It returns what was wrong with them and accepted, for the record, or
// *PartnerError.
func Judge(main, policy State, mem Memory, c Consent) (accepted string, err error) {
	problem, flags := quarrel(main, policy, mem)
	apart := &PartnerError{problem, flags, main.Served || policy.Served}
	given := c.flags()
	switch {
	case problem == "" && given != "":
		return "", fmt.Errorf("there is nothing to accept by %s, the databases belong together: %w", given, ErrNothingToAccept)
	case problem == "", given == flags:
		return problem, nil
	case given != "":
		return "", fmt.Errorf("%s is not what is asked for: %w", given, apart)
	}
	return "", apart
}

func (c Consent) flags() string {
	var list []string
	for _, f := range []struct {
		given bool
		name  string
	}{{c.NewMain, FlagNewMain}, {c.NewPolicy, FlagNewPolicy}, {c.Accept, FlagAccept}} {
		if f.given {
			list = append(list, f.name)
		}
	}
	return strings.Join(list, " ")
}

// quarrel finds what is wrong, and by which flags it is accepted. Both new together
// are fine, and so are two of a time without ids.
func quarrel(main, policy State, mem Memory) (problem, flags string) {
	switch {
	case !main.Used && !policy.Used:
		if mem.Main.ID == "" && mem.Policy.ID == "" {
			return "", ""
		}
		if mem.Main.Marks.same(Marks{}) && mem.Policy.Marks.same(Marks{}) {
			return "", "" // nothing was recorded in those
		}
		return fmt.Sprintf("both databases are %s: %s in %s, and %s in %s", absence(main), lost(mem.Main.Marks), main.Place, lost(mem.Policy.Marks), policy.Place),
			FlagNewMain + " " + FlagNewPolicy
	case !policy.Used:
		return missing(policy, greatest(main.Partner.Marks, mem.Policy.Marks)), FlagNewPolicy
	case !main.Used:
		return missing(main, greatest(policy.Partner.Marks, mem.Main.Marks)), FlagNewMain
	}
	if problem := strangers(main, policy, mem); problem != "" {
		return problem, FlagAccept
	}
	for _, s := range []struct {
		state  State
		marks  Marks
		knower string
	}{
		{main, policy.Partner.Marks, "the policy database remembers"}, {policy, main.Partner.Marks, "the main database remembers"},
		{main, mem.Main.Marks, "the state directory remembers"}, {policy, mem.Policy.Marks, "the state directory remembers"},
		{main, main.Noted, "its own last note says, so its log is not its own"}, {policy, policy.Noted, "its own last note says, so its log is not its own"},
	} {
		if s.state.Now.behind(s.marks) {
			return fmt.Sprintf("%s %s is older than %s: %s", s.state.Role, s.state.Place, s.knower, lost(less(s.marks, s.state.Now))), FlagAccept
		}
	}
	return "", ""
}

func absence(s State) string {
	if s.There {
		return "empty"
	}
	return "missing"
}

func missing(s State, marks Marks) string {
	return fmt.Sprintf("%s %s is %s: %s", s.Role, s.Place, absence(s), lost(marks))
}

// strangers finds databases that are not of each other. One that names no partner
// yet fits the one that names it.
func strangers(main, policy State, mem Memory) string {
	knows := func(a, b State) bool { return a.Partner.ID == b.ID && b.ID != "" }
	silent := func(s State) bool { return s.Partner.ID == "" }
	switch {
	case knows(main, policy) && knows(policy, main), knows(main, policy) && silent(policy), knows(policy, main) && silent(main):
	case silent(main) && silent(policy):
		return ""
	default:
		return fmt.Sprintf("main database %s and policy database %s are not of each other: %s", main.Place, policy.Place, foreign(main, policy))
	}
	if mem.Main.ID != "" && mem.Main.ID != main.ID || mem.Policy.ID != "" && mem.Policy.ID != policy.ID {
		return fmt.Sprintf("main database %s and policy database %s are not those that the state directory was last used with: %s and %s of those are missing",
			main.Place, policy.Place, lost(mem.Main.Marks), lost(mem.Policy.Marks))
	}
	return ""
}

func foreign(main, policy State) string {
	var parts []string
	if main.Partner.ID != "" && main.Partner.ID != policy.ID {
		parts = append(parts, "the main one worked with another policy database, whose "+lost(main.Partner.Marks))
	}
	if policy.Partner.ID != "" && policy.Partner.ID != main.ID {
		parts = append(parts, "the policy one with another main database, whose "+lost(policy.Partner.Marks))
	}
	return strings.Join(parts, "; ")
}

// lost puts in words what is missing.
func lost(m Marks) string {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{{m.Runs, "run"}, {m.Receipts, "receipt"}, {m.Changes, "policy change"}} {
		if p.n == 1 {
			parts = append(parts, "1 "+p.what)
		} else if p.n > 1 {
			parts = append(parts, fmt.Sprintf("%d %ss", p.n, p.what))
		}
	}
	switch len(parts) {
	case 0:
		return "its newest records are missing"
	case 1:
		return parts[0] + " missing"
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1] + " missing"
}

func greatest(a, b Marks) Marks {
	return Marks{
		Generation: max(a.Generation, b.Generation), Runs: max(a.Runs, b.Runs), Receipts: max(a.Receipts, b.Receipts), Links: max(a.Links, b.Links),
		Events: max(a.Events, b.Events), Changes: max(a.Changes, b.Changes),
	}
}

// less is what a has beyond b.
func less(a, b Marks) Marks {
	over := func(x, y int64) int64 { return max(0, x-y) }
	return Marks{Runs: over(a.Runs, b.Runs), Receipts: over(a.Receipts, b.Receipts), Changes: over(a.Changes, b.Changes)}
}

// Same tells whether nothing was recorded in the databases since they were noted so.
func (m Memory) Same(main, policy State) bool {
	return m.Main.ID == main.ID && m.Policy.ID == policy.ID && m.Main.Marks.same(main.Now) && m.Policy.Marks.same(policy.Now)
}
