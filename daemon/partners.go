package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
func (d *Daemon) openStores(ctx context.Context, consent sqldb.Consent) (err error) {
	p, s := &d.partners, d.options.Settings
	if p.lock, err = sqldb.LockState(s.StateDir); err != nil {
		return err
	}
	d.stops.Push("state lock", p.lock.Close)
	if s.Database == s.PolicyDatabase && !sqldb.IsPostgres(s.Database) {
		return usagef("RUNNERD_DATABASE and RUNNERD_POLICY_DATABASE are both %s; give each a file of its own", s.Database)
	}
	for _, at := range []struct {
		role sqldb.Role
		dsn  string
	}{{sqldb.Main, s.Database}, {sqldb.Policy, s.PolicyDatabase}} {
		hold, err := sqldb.Take(ctx, at.dsn, at.role)
		if err != nil {
			return err
		}
		d.stops.Push("hold of the "+string(at.role), hold.Close)
		p.holds = append(p.holds, hold)
	}
	accepted, err := Judge(ctx, s, Whole, p.lock.Memory(), consent)
	if err != nil {
		return err
	}
	if accepted != "" {
		if err := d.clear(consent); err != nil {
			return err
		}
	}
	if err := d.openBoth(ctx); err != nil {
		return err
	}
	if err := d.pair(ctx, accepted); err != nil {
		return err
	}
	d.stops.Push("notes of the databases", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return d.note(ctx)
	})
	return nil
}

// Judge looks at both databases and says whether they belong together.
func Judge(ctx context.Context, s Settings, look Looking, mem sqldb.Memory, consent sqldb.Consent) (accepted string, err error) {
	if from, cut := CutRestore(s.StateDir); cut {
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
		return "", usagef("%w", err)
	}
	return accepted, err
}

// Looking is how a database is looked at.
type Looking func(ctx context.Context, dsn string, k sqldb.Kind) (sqldb.State, error)

// Together is Judge for verbs that take nothing. While a daemon lives, or somebody
// holds the state directory, it is for that one to say: what is read here one after the
// other need not be of one moment.
func (s Settings) Together(ctx context.Context, look Looking) error {
	if p := s.Present(ctx); p.Running {
		return s.Gone(p)
	}
	_, err := Judge(ctx, s, look, sqldb.Remembered(s.StateDir), sqldb.Consent{})
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// absent is fs.ErrNotExist for a database that is not there yet, and for one that was
// lost the sentence that a start would be refused with.
func (s Settings) absent(ctx context.Context, what string) error {
	if err := s.Together(ctx, sqldb.Look); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", what, fs.ErrNotExist)
}

// Apart is an error that says that the databases do not belong together, else nil.
func Apart(err error) *sqldb.PartnerError {
	var e *sqldb.PartnerError
	errors.As(err, &e)
	return e
}

// clear sets aside what is left of a database that is to be made anew: an empty file,
// or a log without one.
func (d *Daemon) clear(consent sqldb.Consent) error {
	for dsn, anew := range map[string]bool{d.options.Database: consent.NewMain, d.options.PolicyDatabase: consent.NewPolicy} {
		if !anew || sqldb.IsPostgres(dsn) {
			continue
		}
		names, err := sqldb.SetAside(dsn, Aside(time.Now()))
		if err != nil {
			return fmt.Errorf("make way for a new database: %w", err)
		}
		if len(names) > 0 {
			d.log.Warn("set aside", zap.Strings("files", names))
		}
	}
	return nil
}

// Aside is what is added to the name of a file that makes way at a time.
func Aside(at time.Time) string { return at.UTC().Format(".aside-20060102-150405.000000") }

// wholeFile bounds the reading of each database at start.
const wholeFile = 5 * time.Second

// Whole reads the whole files, as far as it comes in the time.
func Whole(ctx context.Context, dsn string, k sqldb.Kind) (sqldb.State, error) {
	return sqldb.LookWhole(ctx, dsn, k, wholeFile)
}

func (d *Daemon) openBoth(ctx context.Context) (err error) {
	if d.main, err = db.Open(ctx, db.Options{DSN: d.options.Database, Logger: d.log, OnQueued: d.queued}); err != nil {
		return d.ofMain(err)
	}
	d.stops.Push("main database", d.main.Close)
	d.rules, err = taskpolicy.Open(ctx, taskpolicy.Options{DSN: d.options.PolicyDatabase, Logger: d.log, OnChange: d.partners.wake})
	if err != nil {
		return d.ofRules(err)
	}
	d.stops.Push("policy database", d.rules.Close)
	for _, hold := range d.partners.holds {
		if err := hold.Bind(); err != nil {
			return err
		}
	}
	return nil
}

// pair makes the databases know each other. What was wrong with them and accepted is
// on record before the main one forgets the partner that it had.
func (d *Daemon) pair(ctx context.Context, accepted string) error {
	if accepted == "" {
		return d.note(ctx)
	}
	d.log.Warn("databases accepted", zap.String("detail", accepted))
	main, err := d.main.Identity(ctx)
	if err == nil {
		main, err = d.main.Note(ctx, main.Partner)
	}
	if err != nil {
		return d.ofMain(err)
	}
	if _, err = d.rules.NoteFor(ctx, main.Seen(), "accepted", accepted, d.options.Caller); err != nil {
		return d.ofRules(err)
	}
	return d.note(ctx)
}

// note writes down in each database, and in the state directory, how far the others
// have come: first in the main one, so that nobody ever remembers of it what a power
// cut could take back. Where nothing was recorded since, nothing is written.
func (d *Daemon) note(ctx context.Context) error {
	p := &d.partners
	p.mu.Lock()
	defer p.mu.Unlock()
	policy, err := d.rules.Identity(ctx)
	if err != nil {
		return d.ofRules(err)
	}
	main, err := d.main.Identity(ctx)
	if err != nil {
		return d.ofMain(err)
	}
	if p.known.Same(main, policy) {
		return nil
	}
	if main, err = d.main.Note(ctx, policy.Seen()); err != nil {
		return d.ofMain(err)
	}
	if policy, err = d.rules.Note(ctx, main.Seen()); err != nil {
		return d.ofRules(err)
	}
	p.known = sqldb.Memory{Main: main.Seen(), Policy: policy.Seen()}
	if err := p.lock.Remember(p.known); err != nil {
		return fmt.Errorf("note the databases in the state directory: %w", err)
	}
	return nil
}

// ofMain and ofRules name the database that an error is about.
func (d *Daemon) ofMain(err error) error { return sqldb.Named(sqldb.Main, d.options.Database, err) }

func (d *Daemon) ofRules(err error) error {
	return sqldb.Named(sqldb.Policy, d.options.PolicyDatabase, err)
}

// NotePause is the least time between two notes.
const NotePause = 250 * time.Millisecond

// noteOn takes notes of what is recorded until ctx ends.
func (d *Daemon) noteOn(ctx context.Context) error {
	t := time.NewTicker(d.every)
	defer t.Stop()
	for {
		select {
		case <-d.partners.asked:
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if err := d.note(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("databases not noted", zap.Error(err))
		}
		if !waitFor(ctx, NotePause) {
			return nil
		}
	}
}

// held tells whether both databases are still what others find in their places.
func (d *Daemon) held(ctx context.Context) error {
	var errs []error
	for _, hold := range d.partners.holds {
		errs = append(errs, hold.Check(ctx))
	}
	return errors.Join(errs...)
}

// kept is held for whoever is about to record something that has effects: what is lost
// is told at once.
func (d *Daemon) kept(ctx context.Context) error {
	err := d.held(ctx)
	if err != nil && ctx.Err() == nil {
		d.care.board.Daemon("database", err.Error())
	}
	return err
}

// RestoreMark is the file that says that a restore is under way, and from where.
func RestoreMark(stateDir string) string { return filepath.Join(stateDir, "restore.unfinished") }

// CutRestore tells whether a restore was cut off, and from where it was.
func CutRestore(stateDir string) (from string, cut bool) {
	if stateDir == "" {
		return "", false
	}
	data, err := os.ReadFile(RestoreMark(stateDir))
	return string(data), err == nil
}
