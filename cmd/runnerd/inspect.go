package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// inspection is what the verbs that only look work with: the files as they are on
// disk, and the databases opened for reading. It changes neither, and works
// beside a running daemon.
type inspection struct {
	settings Settings
	zone     *time.Location
	secrets  *config.Resolver
	redact   *redact.Set
	set      *config.Set
	stops    stack
	warn     io.Writer
}

// inspect reads the files. Broken ones are in set.Problems.
func (a *app) inspect(ctx context.Context) (*inspection, error) {
	zone, err := a.zone(a.getenv)
	if err != nil {
		return nil, &exit{task.ExitUsage, err}
	}
	i := &inspection{settings: a.Settings, zone: zone, redact: redact.New(), warn: a.err}
	i.secrets = a.resolver(i.redact)
	loader := config.NewLoader(config.Options{Dir: a.ConfigDir, Zone: zone.String(), CheckSchedule: checkSchedule, CheckPath: a.checkPath(i.secrets), Stored: a.stored(ctx)})
	if i.set, err = loader.Load(ctx); err != nil {
		return nil, a.unread(err)
	}
	if i.set.Away != nil {
		text.Fprintf(a.err, "warning: these are the files that were in force last: %v\n", i.set.Away)
	}
	return i, nil
}

// stored reads what was in force last, which serve would fall back to.
func (a *app) stored(ctx context.Context) func() map[string][]byte {
	return func() (files map[string][]byte) {
		if was := sqldb.Remembered(a.StateDir).Config; was != "" && was != a.ConfigDir {
			return nil // as house.stored has it
		}
		err := a.reading(ctx, func(main *db.DB) (err error) {
			files, err = main.Files(ctx)
			return err
		})
		if err != nil {
			return nil // the directory's own error is the one to tell
		}
		return files
	}
}

// unread says what to do about a config directory that cannot be read.
func (a *app) unread(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usage("there is no config directory %s; `runnerd init %s` writes one, --config names another", a.ConfigDir, a.ConfigDir)
	}
	return &exit{task.ExitUsage, fmt.Errorf("read %s: %w", a.ConfigDir, err)}
}

// problems are those of the files as the daemon would report them.
func (i *inspection) problems() []string {
	return problemLines(slices.Concat(i.set.Problems, faults(i.set, i.secrets)))
}

func (i *inspection) close() error { return i.stops.close() }

// task returns a task of the set, or says what is wrong with the name.
func (i *inspection) task(id string) (config.TaskFile, error) {
	t, ok := i.set.Tasks[id]
	if ok {
		return t, nil
	}
	return t, usage("%s", noTask(i.set, id))
}

// broken tells whether the file of a task has problems.
func (i *inspection) broken(id string) bool {
	return slices.ContainsFunc(i.set.Problems, func(p config.Problem) bool { return taskOf(p.File) == id })
}

// noTask says why there is no such task: its file is broken, or the nearest name.
func noTask(set *config.Set, id string) string {
	for _, p := range set.Problems {
		if p.File == "tasks/"+id+".md" || p.File == "tasks/"+id+".yaml" {
			return fmt.Sprintf("task %s is not usable: %v", id, p)
		}
	}
	if near := config.Nearest(id, set.TaskIDs()); near != "" {
		return fmt.Sprintf("there is no task %s; did you mean %s?", id, near)
	}
	return fmt.Sprintf("there is no task %s; `runnerd tasks` lists them", id)
}

// openMain opens the main database for reading; ErrNotExist if there is none yet.
func (a *app) openMain(ctx context.Context) (*db.DB, error) {
	if !sqldb.IsPostgres(a.Database) {
		info, err := os.Stat(a.Database)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
			return nil, a.absent(ctx, "nothing has run yet")
		case err != nil:
			return nil, fmt.Errorf("look for the main database: %w; use the account that runs the daemon", err)
		}
	}
	return db.Open(ctx, db.Options{DSN: a.Database, ReadOnly: true})
}

// effective opens a copy of the policy with the files as they are now, so that
// what is shown is what the daemon would decide, and nothing is written.
func (i *inspection) effective(ctx context.Context) (*taskpolicy.Store, error) {
	dir, err := os.MkdirTemp("", "runnerd-inspect-*")
	if err != nil {
		return nil, fmt.Errorf("make a place for a copy of the policy: %w", err)
	}
	i.stops.push("copy of the policy", func() error { return os.RemoveAll(dir) })
	rules, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: filepath.Join(dir, "task_policies.db")})
	if err != nil {
		return nil, err
	}
	i.stops.push("policy", rules.Close)
	if err := i.copyPolicy(ctx, rules); err != nil {
		return nil, err
	}
	return rules, rules.SyncFiles(ctx, policyRows(i.set), i.set.Daemon.Policy(), "files")
}

// dial opens connectors, all at once. One that is down is no error; that a person
// ended the wait is.
func (i *inspection) dial(ctx context.Context, a *app, log *zap.Logger, ids []string) (map[string]policy.Connected, *connector.Pool, error) {
	pool := connector.New(connectorOptions(a, i.secrets, i.redact, log))
	i.stops.push("connectors", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return pool.Close(ctx)
	})
	pool.Set(connectorSpecs(i.set))
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

// upcoming lists the next n instants of a task.
func upcoming(t task.Task, after time.Time, n int) ([]time.Time, error) {
	if len(t.Schedule.Specs) == 0 {
		return nil, nil
	}
	s, err := scheduler.Parse(t.Schedule)
	if err != nil {
		return nil, err
	}
	return s.List(after, n), nil
}
