package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"runnerd/config"
	"runnerd/connector"
	"runnerd/db"
	"runnerd/policy"
	"runnerd/redact"
	"runnerd/scheduler"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/taskpolicy"
	"runnerd/text"
)

// Inspection is what the verbs that only look work with: the files as they are on
// disk, and the databases opened for reading. It changes neither, and works
// beside a running daemon.
type Inspection struct {
	// Set is the files; broken ones are in Set.Problems.
	Set *config.Set

	options Options
	secrets *config.Resolver
	redact  *redact.Set
	stops   Stack
}

// Inspect reads the files.
func (o Options) Inspect(ctx context.Context) (*Inspection, error) {
	zone, err := o.Zone()
	if err != nil {
		return nil, &UsageError{err}
	}
	i := &Inspection{options: o, redact: redact.New()}
	i.secrets = o.resolver(i.redact)
	loader := config.NewLoader(config.Options{Dir: o.ConfigDir, Zone: zone.String(), CheckSchedule: checkSchedule, CheckPath: o.checkPath(i.secrets), LastGood: o.lastGood(ctx), Stored: o.stored(ctx)})
	if i.Set, err = loader.Load(ctx); err != nil {
		return nil, o.Unread(err)
	}
	if i.Set.Away != nil {
		text.Fprintf(o.Log, "warning: these are the files that were in force last: %v\n", i.Set.Away)
	}
	return i, nil
}

// ofThisDirectory tells whether the state directory is not that of a daemon with
// another config directory: what was in force there has no part in this one.
func (o Options) ofThisDirectory() bool {
	was := sqldb.Remembered(o.StateDir).Config
	return was == "" || was == o.ConfigDir
}

// lastGood reads the revision that serve would use of a file that is broken now.
func (o Options) lastGood(ctx context.Context) func(file string) ([]byte, bool) {
	return func(file string) (content []byte, ok bool) {
		if !o.ofThisDirectory() {
			return nil, false
		}
		err := o.Reading(ctx, func(main *db.DB) (err error) {
			content, err = main.LastGood(ctx, file)
			return err
		})
		return content, err == nil && content != nil // what is wrong with the database is told by whoever needs it
	}
}

// stored reads what was in force last, which serve would fall back to.
func (o Options) stored(ctx context.Context) func() map[string][]byte {
	return func() (files map[string][]byte) {
		if !o.ofThisDirectory() {
			return nil // as Daemon.stored has it
		}
		err := o.Reading(ctx, func(main *db.DB) (err error) {
			files, err = main.Files(ctx)
			return err
		})
		if err != nil {
			return nil // the directory's own error is the one to tell
		}
		return files
	}
}

// Unread says what to do about a config directory that cannot be read.
func (o Options) Unread(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("there is no config directory %s; `runnerd init %s` writes one, --config names another", o.ConfigDir, o.ConfigDir)
	}
	return &UsageError{fmt.Errorf("read %s: %w", o.ConfigDir, err)}
}

// Problems are those of the files as the daemon would report them.
func (i *Inspection) Problems() []string {
	return problemLines(slices.Concat(i.Set.Problems, faults(i.Set, i.secrets)))
}

func (i *Inspection) Close() error { return i.stops.Close() }

// Task returns a task of the set, or says what is wrong with the name.
func (i *Inspection) Task(id string) (config.TaskFile, error) {
	t, ok := i.Set.Tasks[id]
	if ok {
		i.TellKept(id)
		return t, nil
	}
	return t, usagef("%s", NoTask(i.Set, id))
}

// Kept says of each file that is broken what stands for it here; with a task, of those
// that matter to it.
func (i *Inspection) Kept(task string) (lines []string) {
	for _, file := range i.Set.Kept {
		if of := taskOf(file); i.Set.Away == nil && (task == "" || of == "" || of == task) {
			lines = append(lines, file+": it is broken, and a daemon keeps using its last good revision; what is shown goes by that")
		}
	}
	return lines
}

// TellKept warns of what Kept says.
func (i *Inspection) TellKept(task string) {
	for _, line := range i.Kept(task) {
		text.Fprintf(i.options.Log, "warning: %s\n", line)
	}
}

// Broken tells whether the file of a task has problems.
func (i *Inspection) Broken(id string) bool {
	return slices.ContainsFunc(i.Set.Problems, func(p config.Problem) bool { return taskOf(p.File) == id })
}

// NoTask says why there is no such task: its file is broken, or the nearest name.
func NoTask(set *config.Set, id string) string {
	for _, p := range set.Problems {
		if p.File == "tasks/"+id+".md" || p.File == "tasks/"+id+".yaml" {
			return fmt.Sprintf("task %s is not usable: %v", id, p)
		}
	}
	if near := task.Nearest(id, set.TaskIDs()); near != "" {
		return fmt.Sprintf("there is no task %s; did you mean %s?", id, near)
	}
	return fmt.Sprintf("there is no task %s; `runnerd tasks` lists them", id)
}

// OpenMain opens the main database for reading; ErrNotExist if there is none yet.
func (o Options) OpenMain(ctx context.Context) (*db.DB, error) {
	if !sqldb.IsPostgres(o.Database) {
		info, err := os.Stat(o.Database)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
			return nil, o.absent(ctx, "nothing has run yet")
		case err != nil:
			return nil, fmt.Errorf("look for the main database: %w; use the account that runs the daemon", err)
		}
	}
	return db.Open(ctx, db.Options{DSN: o.Database, ReadOnly: true})
}

// Effective opens a copy of the policy with the files as they are now, so that
// what is shown is what the daemon would decide, and nothing is written.
func (i *Inspection) Effective(ctx context.Context) (*taskpolicy.Store, error) {
	dir, err := os.MkdirTemp("", "runnerd-inspect-*")
	if err != nil {
		return nil, fmt.Errorf("make a place for a copy of the policy: %w", err)
	}
	i.stops.Push("copy of the policy", func() error { return os.RemoveAll(dir) })
	rules, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: filepath.Join(dir, "task_policies.db")})
	if err != nil {
		return nil, err
	}
	i.stops.Push("policy", rules.Close)
	if err := i.copyPolicy(ctx, rules); err != nil {
		return nil, err
	}
	return rules, rules.SyncFiles(ctx, policyRows(i.Set), i.Set.Daemon.Policy(), "files")
}

// Dial opens connectors, all at once. One that is down is no error; that a person
// ended the wait is.
func (i *Inspection) Dial(ctx context.Context, log *zap.Logger, ids []string) (map[string]policy.Connected, *connector.Pool, error) {
	pool := connector.New(i.options.connectors(i.secrets, i.redact, log))
	i.stops.Push("connectors", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return pool.Close(ctx)
	})
	pool.Set(connectorSpecs(i.Set))
	return listAll(ctx, pool, ids), pool, ctx.Err()
}

// listAll lists the tools of connectors, all at once.
func listAll(ctx context.Context, pool *connector.Pool, ids []string) map[string]policy.Connected {
	type answer struct {
		id string
		c  policy.Connected
	}
	answers := make(chan answer, len(ids))
	for _, id := range ids {
		go func() {
			tools, err := pool.Tools(ctx, id)
			c := policy.Connected{ID: id, Up: err == nil, Tools: tools}
			if err != nil {
				c.Down = err.Error()
			}
			answers <- answer{id, c}
		}()
	}
	all := map[string]policy.Connected{}
	for range ids {
		got := <-answers
		all[got.id] = got.c
	}
	return all
}

// Upcoming lists the next n instants of a task.
func Upcoming(t task.Task, after time.Time, n int) ([]time.Time, error) {
	if len(t.Schedule.Specs) == 0 {
		return nil, nil
	}
	s, err := scheduler.Parse(t.Schedule)
	if err != nil {
		return nil, err
	}
	return s.List(after, n), nil
}

// ConfigDir is the directory that was read.
func (i *Inspection) ConfigDir() string { return i.options.ConfigDir }
