package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type runRow struct {
	bun.BaseModel `bun:"table:runs,alias:r"`

	ID           string `bun:"id,pk"`
	Task         string `bun:"task"`
	Session      string `bun:"session"`
	Revision     string `bun:"revision"`
	Due          stamp  `bun:"due"`
	TriggerKind  string `bun:"trigger_kind"`
	Attempt      int    `bun:"attempt"`
	NotBefore    stamp  `bun:"not_before"`
	Execution    string `bun:"execution"`
	Outcome      string `bun:"outcome"`
	Delivery     string `bun:"delivery"`
	Marks        string `bun:"marks"` // a JSON array
	Reason       string `bun:"reason"`
	CreatedAt    stamp  `bun:"created_at"`
	StartedAt    stamp  `bun:"started_at"`
	FinishedAt   stamp  `bun:"finished_at"` // NULL exactly while the run is active
	Wall         int64  `bun:"wall"`        // microseconds
	InputTokens  int64  `bun:"input_tokens"`
	OutputTokens int64  `bun:"output_tokens"`
	CacheRead    int64  `bun:"cache_read"`
	CacheWrite   int64  `bun:"cache_write"`
	Cost         *int64 `bun:"cost"`
	Steps        int    `bun:"steps"`
	Calls        int    `bun:"calls"`
	Output       string `bun:"output"`
	Script       string `bun:"script"` // JSON of a task.Script; '' unless it is a rehearsal
}

// counted keeps rehearsals out of what tells how a task does and what it may still
// do. Whatever reads runs for that has it, here and nowhere above.
const counted = "script = ''"

func newRunRow(r task.Run) (runRow, error) {
	marks, err := marksJSON(r.Marks)
	script := ""
	if r.Script != (task.Script{}) {
		data, jerr := json.Marshal(r.Script)
		script, err = string(data), errors.Join(err, jerr)
	}
	return runRow{
		ID: r.ID, Task: r.Task, Session: r.Session, Revision: r.Revision, Due: at(r.Due),
		TriggerKind: string(r.Trigger), Attempt: r.Attempt, NotBefore: at(r.NotBefore),
		Execution: string(r.Execution), Outcome: string(r.Outcome), Delivery: string(r.Delivery),
		Marks: marks, Reason: clean(r.Reason), CreatedAt: at(r.CreatedAt), StartedAt: at(r.StartedAt),
		FinishedAt: at(r.FinishedAt), Wall: r.Wall.Microseconds(),
		InputTokens: r.Usage.Input, OutputTokens: r.Usage.Output, CacheRead: r.Usage.CacheRead,
		CacheWrite: r.Usage.CacheWrite, Cost: costOf(r.Usage), Steps: r.Steps, Calls: r.Calls, Output: clean(r.Output), Script: script,
	}, err
}

func (r *runRow) run() (task.Run, error) {
	run := task.Run{
		ID: r.ID, Task: r.Task, Session: r.Session, Revision: r.Revision, Due: r.Due.t,
		Trigger: task.Trigger(r.TriggerKind), Attempt: r.Attempt, NotBefore: r.NotBefore.t,
		Execution: task.Execution(r.Execution), Outcome: task.Outcome(r.Outcome),
		Delivery: task.DeliveryState(r.Delivery), Reason: r.Reason, Output: r.Output,
		CreatedAt: r.CreatedAt.t, StartedAt: r.StartedAt.t, FinishedAt: r.FinishedAt.t,
		Wall: time.Duration(r.Wall) * time.Microsecond, Steps: r.Steps, Calls: r.Calls,
		Usage: usageOf(r.InputTokens, r.OutputTokens, r.CacheRead, r.CacheWrite, r.Cost),
	}
	if r.Marks != noMarks {
		if err := json.Unmarshal([]byte(r.Marks), &run.Marks); err != nil {
			return run, fmt.Errorf("run %s: column marks: %w", r.ID, err)
		}
	}
	if r.Script != "" {
		if err := json.Unmarshal([]byte(r.Script), &run.Script); err != nil {
			return run, fmt.Errorf("run %s: column script: %w", r.ID, err)
		}
	}
	return run, nil
}

const noMarks = "[]"

func marksJSON(marks []string) (string, error) {
	if len(marks) == 0 {
		return noMarks, nil
	}
	data, err := json.Marshal(marks)
	return string(data), err
}

func costOf(u task.Usage) *int64 {
	if u.Cost == nil {
		return nil
	}
	cost := int64(*u.Cost)
	return &cost
}

func usageOf(input, output, cacheRead, cacheWrite int64, cost *int64) task.Usage {
	u := task.Usage{Input: input, Output: output, CacheRead: cacheRead, CacheWrite: cacheWrite}
	if cost != nil {
		m := task.Money(*cost)
		u.Cost = &m
	}
	return u
}

// clean makes a free text storable everywhere: PostgreSQL takes no NUL and no
// broken UTF-8, and bun drops a NUL anyway. What must keep its exact bytes is
// stored as bytes or inside JSON.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func toRuns(rows []runRow) ([]task.Run, error) {
	runs := make([]task.Run, 0, len(rows))
	for i := range rows {
		run, err := rows[i].run()
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func selectRun(ctx context.Context, q bun.IDB, id string) (task.Run, error) {
	var row runRow
	if err := q.NewSelect().Model(&row).Where("r.id = ?", id).Scan(ctx); err != nil {
		return task.Run{}, fmt.Errorf("run %s: %w", id, notFound(err))
	}
	return row.run()
}

func notFound(err error) error {
	if kindOf(err) == ErrNotFound {
		return ErrNotFound
	}
	return err
}

// Run reads one run, its output included. It answers ErrNotFound.
func (d *DB) Run(ctx context.Context, id string) (run task.Run, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		run, err = selectRun(ctx, q, id)
		return err
	})
	return run, wrap("read", err)
}

// FindRun reads the run whose id is, or alone begins with, the given text. It
// answers ErrNotFound or ErrAmbiguous.
func (d *DB) FindRun(ctx context.Context, prefix string) (run task.Run, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		id, err := findID(ctx, q, "runs", prefix)
		if err != nil {
			return fmt.Errorf("run %s: %w", prefix, err)
		}
		run, err = selectRun(ctx, q, id)
		return err
	})
	return run, wrap("find", err)
}

// findID resolves an id or its prefix through the primary key's own index.
func findID(ctx context.Context, q bun.IDB, table, prefix string) (string, error) {
	if prefix == "" {
		return "", ErrNotFound
	}
	var ids []string
	err := q.NewSelect().Table(table).Column("id").
		Where("id >= ? AND id < ?", prefix, prefix+"\U0010FFFF").Order("id").Limit(2).Scan(ctx, &ids)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", ErrNotFound
	case len(ids) == 2 && ids[0] != prefix:
		return "", ErrAmbiguous
	}
	return ids[0], nil
}

// RunFilter selects runs. Zero fields select everything.
type RunFilter struct {
	Task string
	// Executions to keep.
	Executions []task.Execution
	// Active keeps only runs that have not finished.
	Active bool
	// Before is the id of a run: only older ones follow, for paging.
	Before string
	// Since and Until bound created_at: from, inclusive, and to, exclusive.
	Since, Until time.Time
	// Limit is 100 unless set.
	Limit int
}

// unlisted are the columns that listings leave out: they may be long.
var unlisted = []string{"output", "script"}

// Runs lists runs, newest first, without their Output and Script.
func (d *DB) Runs(ctx context.Context, f RunFilter) (runs []task.Run, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []runRow
		if err := runsQuery(q, f, &rows).Scan(ctx); err != nil {
			return err
		}
		runs, err = toRuns(rows)
		return err
	})
	return runs, wrap("list runs", err)
}

func runsQuery(q bun.IDB, f RunFilter, rows *[]runRow) *bun.SelectQuery {
	sel := q.NewSelect().Model(rows).ExcludeColumn(unlisted...).Order("r.created_at DESC", "r.id DESC").Limit(limitOr(f.Limit))
	if f.Task != "" {
		sel.Where("r.task = ?", f.Task)
	}
	if f.Active {
		sel.Where("r.finished_at IS NULL")
	}
	if len(f.Executions) > 0 {
		sel.Where("r.execution IN (?)", bun.List(f.Executions))
	}
	if f.Before != "" {
		sel.Where("(r.created_at, r.id) < (SELECT b.created_at, b.id FROM runs AS b WHERE b.id = ?)", f.Before)
	}
	if !f.Since.IsZero() {
		sel.Where("r.created_at >= ?", micros(f.Since))
	}
	if !f.Until.IsZero() {
		sel.Where("r.created_at < ?", micros(f.Until))
	}
	return sel
}

func limitOr(n int) int64 {
	if n <= 0 {
		return 100
	}
	return int64(n)
}

// LastRuns reads each task's newest run but rehearsals, without its Output, by task id, in one
// query that walks the index from task to task.
func (d *DB) LastRuns(ctx context.Context) (map[string]task.Run, error) {
	last := map[string]task.Run{}
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []runRow
		err := q.NewSelect().Model(&rows).ExcludeColumn(unlisted...).
			WithRecursive("tasks", q.NewRaw(everyTask)).
			Join("JOIN tasks ON r.id = (SELECT n.id FROM runs AS n WHERE n.task = tasks.task AND n." + counted + " ORDER BY n.created_at DESC, n.id DESC LIMIT 1)").
			Scan(ctx)
		if err != nil {
			return err
		}
		runs, err := toRuns(rows)
		for _, run := range runs {
			last[run.Task] = run
		}
		return err
	})
	return last, wrap("read last runs", err)
}

// everyTask lists the tasks that have runs by one index seek each.
const everyTask = `SELECT MIN(f.task) AS task FROM runs AS f
UNION ALL SELECT (SELECT MIN(g.task) FROM runs AS g WHERE g.task > tasks.task) FROM tasks WHERE tasks.task IS NOT NULL`

// RunsBetween counts the runs that were created from one instant to before
// another: those of the named tasks, or of every task if none is named.
func (d *DB) RunsBetween(ctx context.Context, from, to time.Time, tasks ...string) (n int64, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		sel := q.NewSelect().Table("runs").Where("created_at >= ? AND created_at < ?", micros(from), micros(to)).Where(counted)
		if len(tasks) > 0 {
			sel.Where("task IN (?)", bun.List(tasks))
		}
		n, err = sel.Count(ctx)
		return err
	})
	return n, wrap("count runs", err)
}

// InsertManual stores a manual run as queued, unless its task has an active run:
// then it answers *ActiveError naming it (DESIGN, section 8). A rehearsal is in
// nobody's way, and nobody in its.
func (d *DB) InsertManual(ctx context.Context, run task.Run) error {
	if run.Trigger == "" {
		run.Trigger = task.TriggerManual
	}
	err := d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		active, err := activeRuns(ctx, tx, []string{run.Task})
		if err != nil {
			return err
		}
		if runs := active[run.Task]; len(runs) > 0 && run.Script == (task.Script{}) {
			return &ActiveError{Run: runs[0]}
		}
		noteQueued(ctx)
		return d.insertRuns(ctx, tx, []task.Run{run})
	})
	return wrap("insert run "+run.ID, err)
}

// insertRuns stores queued runs with their events and calls the enqueue hook.
func (d *DB) insertRuns(ctx context.Context, tx bun.Tx, runs []task.Run) error {
	if len(runs) == 0 {
		return nil
	}
	rows, events := make([]runRow, len(runs)), make([]eventRow, len(runs))
	for i := range runs {
		if err := fillRun(&runs[i]); err != nil {
			return err
		}
		row, err := newRunRow(runs[i])
		if err != nil {
			return err
		}
		rows[i] = row
		events[i] = runEvent(runs[i], runs[i].CreatedAt)
	}
	err := inChunks(rows, func(rows []runRow) error {
		_, err := tx.NewInsert().Model(&rows).Exec(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := emit(ctx, tx, events...); err != nil {
		return err
	}
	if d.opts.OnEnqueue == nil {
		return nil
	}
	return d.opts.OnEnqueue(ctx, tx.Tx, runs)
}

// throwaway begins the name of a rehearsal's session, which goes with its run. No
// task can be called so.
const throwaway = "~"

// fillRun gives a new run what it must have, and refuses one without a name.
func fillRun(r *task.Run) error {
	if r.ID == "" || r.Task == "" {
		return errors.New("a run needs an id and a task")
	}
	if r.Session == "" {
		r.Session = r.Task
	}
	if r.Script != (task.Script{}) {
		r.Session = throwaway + r.ID
		r.Mark(task.MarkRehearsal)
	}
	if r.CreatedAt.IsZero() {
		r.CreatedAt = time.Now()
	}
	if r.NotBefore.IsZero() {
		r.NotBefore = r.CreatedAt
	}
	if r.Attempt == 0 {
		r.Attempt = 1
	}
	if r.Delivery == "" {
		r.Delivery = task.DeliveryNone
	}
	if r.Execution == "" {
		r.Execution = task.Queued
	}
	if r.Execution != task.Queued {
		return fmt.Errorf("run %s: a new run is queued, not %s", r.ID, r.Execution)
	}
	return nil
}
