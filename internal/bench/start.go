package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// readyTasks is how many files the start is measured with, readyAim its bound.
const (
	readyTasks = 10_000
	readyAim   = 2 * time.Second
)

// ready measures a start with many task files: the first, which stores them all,
// and those after it.
func ready(ctx context.Context, b *bench) error {
	place, err := b.site()
	if err != nil {
		return err
	}
	defer b.remove(place)
	if err := place.tasks(readyTasks, farOff(time.Now().Year())); err != nil {
		return err
	}
	for _, what := range []string{"first", "second", "third"} {
		d, err := place.start(ctx)
		if err != nil {
			return err
		}
		err = errors.Join(d.settle(ctx, time.Minute), d.stop())
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("time to ready, %d tasks, %s start", readyTasks, what),
			fmt.Sprintf("%s (CPU %s)", seconds(d.ready), seconds(d.startCPU)), "< 2 s", below(d.ready, readyAim))
	}
	return nil
}

// The history that a restart is measured with.
const (
	historyTasks  = 500
	historyRounds = 200 // 100,000 runs
)

// history measures a restart with 100,000 runs behind it, each with its
// occurrence, its events and two messages.
func history(ctx context.Context, b *bench) error {
	place, err := b.site()
	if err != nil {
		return err
	}
	defer b.remove(place)
	if err := place.tasks(historyTasks, farOff(time.Now().Year())); err != nil {
		return err
	}
	if err := place.past(ctx); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	var took []string
	for range 3 {
		d, err := place.start(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(d.settle(ctx, time.Minute), d.stop()); err != nil {
			return err
		}
		took = append(took, seconds(d.ready))
	}
	b.add(fmt.Sprintf("restart, %d runs of history", historyTasks*historyRounds), strings.Join(took, ", "), "", unjudged)
	return nil
}

// past fills the main database: each round ends the runs of the round before and
// inserts one for each task, in one transaction.
func (s *site) past(ctx context.Context) error {
	store, err := db.Open(ctx, db.Options{DSN: s.state + "/runnerd.db", Timeout: 5 * time.Minute})
	if err != nil {
		return err
	}
	ids := make([]string, historyTasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("task-%06d", i)
	}
	start := time.Now().Add(-historyRounds * time.Hour).Truncate(time.Hour)
	for round := range historyRounds + 1 {
		due := start.Add(time.Duration(round) * time.Hour)
		if err = pastRound(ctx, store, ids, round, due); err != nil {
			break
		}
	}
	return errors.Join(err, store.Close())
}

// pastRound writes one round; the last only ends what is active.
func pastRound(ctx context.Context, store *db.DB, ids []string, round int, due time.Time) error {
	var messages []*task.Message
	_, err := store.Fire(ctx, ids, func(state task.FireState) (plan task.FirePlan) {
		for _, r := range state.Active {
			plan.Cancel = append(plan.Cancel, r.ID)
		}
		if round == historyRounds {
			return plan
		}
		run := task.Run{
			ID: fmt.Sprintf("%06d-%s", round, state.Task), Task: state.Task, Session: state.Task, Revision: "past",
			Due: due, NotBefore: due, CreatedAt: due, Trigger: task.TriggerSchedule,
		}
		plan.Runs = []task.Run{run}
		plan.Occurrences = []task.Occurrence{{
			Task: state.Task, ScheduleRevision: "past", Due: due, Count: 1, End: task.EndRun, RunID: run.ID, RecordedAt: due,
		}}
		messages = append(messages,
			&task.Message{Session: run.Session, Run: run.ID, Role: task.RoleUser, At: due, Text: strings.Repeat("What is new? ", 20)},
			&task.Message{Session: run.Session, Run: run.ID, Role: task.RoleAssistant, Step: 1, At: due, Text: strings.Repeat("Nothing much. ", 40)})
		return plan
	})
	if err != nil || len(messages) == 0 {
		return err
	}
	return store.Append(ctx, task.Days{Task: due.Format(time.DateOnly), Total: due.Format(time.DateOnly)}, messages...)
}
