package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"runnerd/db"
	"runnerd/sqldb"
	"runnerd/text"
)

type pauseCmd struct {
	Task string `arg:"" optional:"" help:"Task to pause."`
	All  bool   `help:"Pause every task."`
	Note string `help:"Why; it is shown wherever the pause is." placeholder:"TEXT"`
}

// Help says what a pause does and what it does not.
func (pauseCmd) Help() string {
	return "A paused task's instants are recorded as skipped(paused) until `runnerd resume`. A run under way goes on, " +
		"and `runnerd run` still runs it. A pause survives a restart."
}

func (c pauseCmd) Run(ctx context.Context, a *app) error {
	name, err := a.pausable(ctx, c.Task, c.All)
	if err != nil {
		return err
	}
	if client := a.live(ctx); client != nil {
		id := name
		if c.All {
			id = ""
		}
		_, err = client.Pause(ctx, id, c.Note)
		err = remote(err)
	} else {
		err = a.writing(ctx, func(main *db.DB) error {
			return main.SetPause(ctx, db.Pause{Task: name, Note: c.Note, By: whoami(), At: time.Now()})
		})
	}
	if err != nil {
		return err
	}
	text.Fprintf(a.out, "%s paused; `%s resume %s` ends it\n", pausedName(name), a.again(), argument(c.Task))
	return nil
}

type resumeCmd struct {
	Task string `arg:"" optional:"" help:"Task to resume."`
	All  bool   `help:"End the pause of every task. Tasks that were paused by name stay so."`
}

func (c resumeCmd) Run(ctx context.Context, a *app) (err error) {
	name, err := a.pausable(ctx, c.Task, c.All)
	if err != nil {
		return err
	}
	var was bool
	defer func() {
		if err == nil {
			err = a.stillPaused(ctx, c.Task)
		}
	}()
	if client := a.live(ctx); client != nil {
		id := name
		if c.All {
			id = ""
		}
		v, rerr := client.Resume(ctx, id)
		was, err = v.Was, remote(rerr)
	} else {
		err = a.writing(ctx, func(main *db.DB) (err error) {
			was, err = main.Resume(ctx, name)
			return err
		})
	}
	switch {
	case err != nil:
		return err
	case !was:
		text.Fprintf(a.out, "%s was not paused\n", pausedName(name))
	default:
		text.Fprintf(a.out, "%s resumed\n", pausedName(name))
	}
	return nil
}

// stillPaused says what a resume has left paused: the task by itself or with every
// other, or, after every task was resumed, those that were paused by name.
func (a *app) stillPaused(ctx context.Context, id string) error {
	v, err := statusCmd{}.view(ctx, a)
	if err != nil {
		return err
	}
	switch {
	case id != "" && v.Paused != "":
		text.Fprintf(a.out, "task %s is still paused with every other: %s; `%s resume --all` ends that\n", id, v.Paused, a.again())
	case v.Paused == "" && id == "":
		for _, t := range v.Tasks {
			if t.Paused {
				text.Fprintf(a.out, "task %s is still paused%s; `%s resume %s` ends that\n", t.ID, colonise(t.Pause), a.again(), t.ID)
			}
		}
	}
	return nil
}

// pausable is the name under which a pause is kept: a task's that there is, or
// everything's.
func (a *app) pausable(ctx context.Context, id string, all bool) (string, error) {
	switch {
	case all && id != "":
		return "", usage("either a task or --all, not both")
	case all:
		return db.Everything, nil
	case id == "":
		return "", usage("name a task, or say --all")
	}
	if a.live(ctx) != nil {
		return id, nil // it knows its tasks, whatever became of their files
	}
	i, err := a.Inspect(ctx)
	if err != nil {
		return "", err
	}
	if _, err := i.Task(id); err != nil {
		return "", err
	}
	return id, nil
}

// writing lets write change the main database when no daemon runs, or none that
// answers: the database itself keeps the writers apart.
func (a *app) writing(ctx context.Context, write func(*db.DB) error) error {
	if err := a.Together(ctx, sqldb.Look); err != nil {
		return err
	}
	if err := os.MkdirAll(a.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	main, err := db.Open(ctx, db.Options{DSN: a.Database})
	if err != nil {
		return err
	}
	return errors.Join(write(main), main.Close())
}

// whoami names the person who calls, for the record.
func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

func pausedName(name string) string {
	if name == db.Everything {
		return "every task"
	}
	return "task " + name
}

func argument(id string) string {
	if id == "" {
		return "--all"
	}
	return id
}
