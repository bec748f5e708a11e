package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/taskpolicy"
)

// partners are the two databases and the state directory, as they know one another.
type partners struct {
	lock  *sqldb.Lock
	holds []*sqldb.Hold
	asked chan struct{} // capacity 1: something was recorded that the others should know

	mu    sync.Mutex
	known sqldb.Memory // what was noted last
}

func newPartners() partners { return partners{asked: make(chan struct{}, 1)} }

// wake has a note taken soon.
func (p *partners) wake() {
	select {
	case p.asked <- struct{}{}:
	default: // one is asked for already
	}
}

// openStores takes the state directory and both databases, and opens them if they
// belong to one another or a person consents to what is wrong.
func (h *house) openStores(ctx context.Context, consent sqldb.Consent) (err error) {
	p, s := &h.partners, h.settings
	if p.lock, err = sqldb.LockState(s.StateDir); err != nil {
		return err
	}
	h.stops.push("state lock", p.lock.Close)
	if s.Database == s.PolicyDatabase && !sqldb.IsPostgres(s.Database) {
		return usage("RUNNERD_DATABASE and RUNNERD_POLICY_DATABASE are both %s; give each a file of its own", s.Database)
	}
	for _, d := range []struct {
		role sqldb.Role
		dsn  string
	}{{sqldb.Main, s.Database}, {sqldb.Policy, s.PolicyDatabase}} {
		hold, err := sqldb.Take(ctx, d.dsn, d.role)
		if err != nil {
			return err
		}
		h.stops.push("hold of the "+string(d.role), hold.Close)
		p.holds = append(p.holds, hold)
	}
	accepted, err := judge(ctx, s, whole, p.lock.Memory(), consent)
	if err != nil {
		return err
	}
	if accepted != "" {
		if err := h.clear(consent); err != nil {
			return err
		}
	}
	if err := h.openBoth(ctx); err != nil {
		return err
	}
	if err := h.pair(ctx, accepted); err != nil {
		return err
	}
	h.stops.push("notes of the databases", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return h.note(ctx)
	})
	return nil
}

// judge looks at both databases and says whether they belong together.
func judge(ctx context.Context, s Settings, look looking, mem sqldb.Memory, consent sqldb.Consent) (accepted string, err error) {
	if from, cut := cutRestore(s.StateDir); cut {
		return "", fmt.Errorf("a restore was cut off half way: run `runnerd restore %s` once more", from)
	}
	main, err := look(ctx, s.Database, db.Kind)
	if err != nil {
		return "", err
	}
	policy, err := look(ctx, s.PolicyDatabase, taskpolicy.Kind)
	if err != nil {
		return "", err
	}
	accepted, err = sqldb.Judge(main, policy, mem, consent)
	if errors.Is(err, sqldb.ErrNothingToAccept) {
		return "", usage("%w", err)
	}
	return accepted, err
}

// looking is how a database is looked at.
type looking func(ctx context.Context, dsn string, k sqldb.Kind) (sqldb.State, error)

// together is judge for verbs that take nothing. While somebody holds the state
// directory it is for that one to say: what is read here one after the other need
// not be of one moment.
func (s Settings) together(ctx context.Context, look looking) error {
	if held, err := sqldb.Holder(s.StateDir); held != nil || err != nil {
		return nil
	}
	_, err := judge(ctx, s, look, sqldb.Remembered(s.StateDir), sqldb.Consent{})
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// absent is fs.ErrNotExist for a database that is not there yet, and for one that was
// lost the sentence that a start would be refused with.
func (s Settings) absent(ctx context.Context, what string) error {
	if err := s.together(ctx, sqldb.Look); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", what, fs.ErrNotExist)
}

// apart is an error that says that the databases do not belong together, else nil.
func apart(err error) *sqldb.PartnerError {
	var e *sqldb.PartnerError
	errors.As(err, &e)
	return e
}

// clear sets aside what is left of a database that is to be made anew: an empty file,
// or a log without one.
func (h *house) clear(consent sqldb.Consent) error {
	for dsn, anew := range map[string]bool{h.settings.Database: consent.NewMain, h.settings.PolicyDatabase: consent.NewPolicy} {
		if !anew || sqldb.IsPostgres(dsn) {
			continue
		}
		names, err := sqldb.SetAside(dsn, aside(time.Now()))
		if err != nil {
			return fmt.Errorf("make way for a new database: %w", err)
		}
		if len(names) > 0 {
			h.log.Warn("set aside", zap.Strings("files", names))
		}
	}
	return nil
}

// aside is what is added to the name of a file that makes way at a time.
func aside(at time.Time) string { return at.UTC().Format(".aside-20060102-150405.000000") }

// wholeFile bounds the reading of each database at start.
const wholeFile = 5 * time.Second

// whole reads the whole files, as far as it comes in the time.
func whole(ctx context.Context, dsn string, k sqldb.Kind) (sqldb.State, error) {
	return sqldb.LookWhole(ctx, dsn, k, wholeFile)
}

func (h *house) openBoth(ctx context.Context) (err error) {
	if h.main, err = db.Open(ctx, db.Options{DSN: h.settings.Database, Logger: h.log, OnQueued: h.queued}); err != nil {
		return h.ofMain(err)
	}
	h.stops.push("main database", h.main.Close)
	h.rules, err = taskpolicy.Open(ctx, taskpolicy.Options{DSN: h.settings.PolicyDatabase, Logger: h.log, OnChange: h.partners.wake})
	if err != nil {
		return h.ofRules(err)
	}
	h.stops.push("policy database", h.rules.Close)
	for _, hold := range h.partners.holds {
		if err := hold.Bind(); err != nil {
			return err
		}
	}
	return nil
}

// pair makes the databases know each other. What was wrong with them and accepted is
// on record before the main one forgets the partner that it had.
func (h *house) pair(ctx context.Context, accepted string) error {
	if accepted == "" {
		return h.note(ctx)
	}
	h.log.Warn("databases accepted", zap.String("detail", accepted))
	main, err := h.main.Identity(ctx)
	if err == nil {
		main, err = h.main.Note(ctx, main.Partner)
	}
	if err != nil {
		return h.ofMain(err)
	}
	if _, err = h.rules.NoteFor(ctx, main.Seen(), "accepted", accepted, caller()); err != nil {
		return h.ofRules(err)
	}
	return h.note(ctx)
}

// note writes down in each database, and in the state directory, how far the others
// have come: first in the main one, so that nobody ever remembers of it what a power
// cut could take back. Where nothing was recorded since, nothing is written.
func (h *house) note(ctx context.Context) error {
	p := &h.partners
	p.mu.Lock()
	defer p.mu.Unlock()
	policy, err := h.rules.Identity(ctx)
	if err != nil {
		return h.ofRules(err)
	}
	main, err := h.main.Identity(ctx)
	if err != nil {
		return h.ofMain(err)
	}
	if p.known.Same(main, policy) {
		return nil
	}
	if main, err = h.main.Note(ctx, policy.Seen()); err != nil {
		return h.ofMain(err)
	}
	if policy, err = h.rules.Note(ctx, main.Seen()); err != nil {
		return h.ofRules(err)
	}
	p.known = sqldb.Memory{Main: main.Seen(), Policy: policy.Seen()}
	if err := p.lock.Remember(p.known); err != nil {
		return fmt.Errorf("note the databases in the state directory: %w", err)
	}
	return nil
}

// ofMain and ofRules name the database that an error is about.
func (h *house) ofMain(err error) error { return sqldb.Named(sqldb.Main, h.settings.Database, err) }

func (h *house) ofRules(err error) error {
	return sqldb.Named(sqldb.Policy, h.settings.PolicyDatabase, err)
}

// notePause is the least time between two notes.
const notePause = 250 * time.Millisecond

// noteOn takes notes of what is recorded until ctx ends.
func (h *house) noteOn(ctx context.Context) error {
	t := time.NewTicker(h.every)
	defer t.Stop()
	for {
		select {
		case <-h.partners.asked:
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if err := h.note(ctx); err != nil && ctx.Err() == nil {
			h.log.Error("databases not noted", zap.Error(err))
		}
		if !waitFor(ctx, notePause) {
			return nil
		}
	}
}

// held tells whether both databases are still what others find in their places.
func (h *house) held(ctx context.Context) error {
	var errs []error
	for _, hold := range h.partners.holds {
		errs = append(errs, hold.Check(ctx))
	}
	return errors.Join(errs...)
}
