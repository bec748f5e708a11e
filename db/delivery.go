package db

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type deliveryRow struct {
	bun.BaseModel `bun:"table:deliveries,alias:dl"`

	Run       string `bun:"run,pk"`
	Place     int    `bun:"place,pk"`
	Kind      string `bun:"kind"`
	State     string `bun:"state"`
	Attempts  int    `bun:"attempts"`
	Error     string `bun:"error"`
	NextAt    stamp  `bun:"next_at"`
	UpdatedAt stamp  `bun:"updated_at"`
}

func (r *deliveryRow) record() task.DeliveryRecord {
	return task.DeliveryRecord{
		Run: r.Run, Index: r.Place, To: r.Kind, State: task.DestinationState(r.State), Attempts: r.Attempts,
		Error: r.Error, NextAt: r.NextAt.t, UpdatedAt: r.UpdatedAt.t,
	}
}

// Undelivered lists finished runs whose result is still to be delivered, the one
// that finished first coming first, at most so many, each with what is recorded
// of its destinations.
func (d *DB) Undelivered(ctx context.Context, limit int) (list []task.Undelivered, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []runRow
		if err := undeliveredQuery(q, limit, &rows).Scan(ctx); err != nil || len(rows) == 0 {
			return err
		}
		runs, err := toRuns(rows)
		if err != nil {
			return err
		}
		byRun := map[string]int{}
		for i, run := range runs {
			list = append(list, task.Undelivered{Run: run})
			byRun[run.ID] = i
		}
		var found []deliveryRow
		err = q.NewSelect().Model(&found).Where("dl.run IN (?)", bun.List(keysOf(byRun))).Order("dl.run", "dl.place").Scan(ctx)
		for i := range found {
			of := &list[byRun[found[i].Run]]
			of.Records = append(of.Records, found[i].record())
		}
		return err
	})
	return list, wrap("list undelivered runs", err)
}

func undeliveredQuery(q bun.IDB, limit int, rows *[]runRow) *bun.SelectQuery {
	return q.NewSelect().Model(rows).ExcludeColumn(unlisted...).
		Where("r.delivery = 'pending' AND r.finished_at IS NOT NULL").Order("r.finished_at", "r.id").Limit(limitOr(limit))
}

func keysOf(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// Deliveries reads what is recorded of a run's destinations, in the task's order.
func (d *DB) Deliveries(ctx context.Context, run string) (list []task.DeliveryRecord, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []deliveryRow
		err := q.NewSelect().Model(&rows).Where("dl.run = ?", run).Order("dl.place").Scan(ctx)
		for i := range rows {
			list = append(list, rows[i].record())
		}
		return err
	})
	return list, wrap("read deliveries of run "+run, err)
}

// SaveDelivery stores what became of one destination.
func (d *DB) SaveDelivery(ctx context.Context, rec task.DeliveryRecord) error {
	row := &deliveryRow{
		Run: rec.Run, Place: rec.Index, Kind: rec.To, State: string(rec.State), Attempts: rec.Attempts,
		Error: clean(rec.Error), NextAt: at(rec.NextAt), UpdatedAt: at(rec.UpdatedAt),
	}
	return wrap("store delivery of run "+rec.Run, d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		run, err := selectRun(ctx, tx, rec.Run)
		if err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(row).On("CONFLICT (run, place) DO UPDATE").
			Set("kind = EXCLUDED.kind").Set("state = EXCLUDED.state").Set("attempts = EXCLUDED.attempts").
			Set("error = EXCLUDED.error").Set("next_at = EXCLUDED.next_at").Set("updated_at = EXCLUDED.updated_at").Exec(ctx)
		if err != nil {
			return err
		}
		before := run.Status()
		if err := saveRun(ctx, tx, &run); err != nil || run.Status() == before {
			return err
		}
		return emit(ctx, tx, runEvent(run, rec.UpdatedAt))
	}))
}

// accountDeliveries marks a finished run whose result is not at a destination
// although an attempt was made, for as long as it is not.
func accountDeliveries(ctx context.Context, tx bun.Tx, run *task.Run) error {
	var rows []deliveryRow
	if run.Delivery == task.DeliveryPending {
		if err := tx.NewSelect().Model(&rows).Where("dl.run = ?", run.ID).Order("dl.place").Scan(ctx); err != nil {
			return err
		}
	}
	records := make([]task.DeliveryRecord, len(rows))
	for i := range rows {
		records[i] = rows[i].record()
	}
	run.AccountDeliveries(records)
	return nil
}

// FinishDelivery sets a finished run's delivery fact, once: from pending to what
// it came to. The reason is kept where the run has none of its own.
func (d *DB) FinishDelivery(ctx context.Context, runID string, state task.DeliveryState, reason string) error {
	return wrap("finish delivery", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		run, err := selectRun(ctx, tx, runID)
		if err != nil {
			return err
		}
		if run.Delivery != task.DeliveryPending || !run.Execution.Finished() {
			return fmt.Errorf("run %s: %w: delivery is %s, execution %s", runID, ErrConflict, run.Delivery, run.Execution)
		}
		run.Delivery = state
		run.AccountDeliveries(nil)
		if run.Reason == "" {
			run.Reason = reason
		}
		if err := saveRun(ctx, tx, &run); err != nil {
			return err
		}
		return emit(ctx, tx, runEvent(run, time.Now()))
	}))
}

// Untried counts the destinations of a finished run whose first attempt is not over.
// Where all are settled and the run has yet to say so, that is one more step to wait for.
func (d *DB) Untried(ctx context.Context, run task.Run) (n int, err error) {
	if run.Delivery != task.DeliveryPending || !run.Execution.Finished() {
		return 0, nil
	}
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		spec, err := specOf(ctx, q, run)
		n = len(spec.Deliver)
		return err
	})
	if err != nil {
		return 0, wrap("read destinations of run "+run.ID, err)
	}
	list, err := d.Deliveries(ctx, run.ID)
	settled := 0
	for _, rec := range list {
		if rec.State.Settled() {
			settled++
		}
		if rec.State.Settled() || rec.Missed() || rec.State == task.DestinationHeld {
			n--
		}
	}
	if err == nil && n == 0 && settled == len(list) {
		n = 1
	}
	return n, err
}

// specOf is the task as it stood when the run was created; the zero Task if nothing
// readable is kept of it, which is said where it is used.
func specOf(ctx context.Context, q bun.IDB, run task.Run) (spec task.Task, err error) {
	var bodies []string
	err = q.NewSelect().Table("revisions").Column("body").Where("hash = ?", run.Revision).Scan(ctx, &bodies)
	if err == nil && len(bodies) > 0 && json.Unmarshal([]byte(bodies[0]), &spec) != nil {
		spec = task.Task{}
	}
	return spec, err
}

// owed is the delivery state of a run that ends without its runner's word on it.
func owed(ctx context.Context, q bun.IDB, run task.Run) (task.DeliveryState, error) {
	spec, err := specOf(ctx, q, run)
	if err != nil || len(spec.Deliver) == 0 {
		return task.DeliveryNone, err
	}
	return task.DeliveryPending, nil
}

// PreviousOutput is the text of the task's newest completed run before this one.
// ok is false if there is none.
func (d *DB) PreviousOutput(ctx context.Context, run task.Run) (text string, ok bool, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var found []string
		err := previousQuery(q, run).Scan(ctx, &found)
		if len(found) > 0 {
			text, ok = found[0], true
		}
		return err
	})
	return text, ok, wrap("read the output before run "+run.ID, err)
}

func previousQuery(q bun.IDB, run task.Run) *bun.SelectQuery {
	return q.NewSelect().TableExpr("runs AS r").Column("r.output").Where("r.task = ?", run.Task).
		Where("(r.created_at, r.id) < (?, ?)", micros(run.CreatedAt), run.ID).Where("r.execution = ?", task.Completed).Where("r."+counted).
		Order("r.created_at DESC", "r.id DESC").Limit(1)
}

// LastFinished reads each task's newest run that has ended by itself, by task id:
// not cancelled ones, which tell nothing of how the task does.
func (d *DB) LastFinished(ctx context.Context) (map[string]task.Run, error) {
	last := map[string]task.Run{}
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []runRow
		err := q.NewSelect().Model(&rows).ExcludeColumn(unlisted...).
			WithRecursive("tasks", q.NewRaw(everyTask)).
			Join("JOIN tasks ON r.id = (SELECT n.id FROM runs AS n WHERE n.task = tasks.task AND n.execution IN (?) AND n."+counted+
				" ORDER BY n.created_at DESC, n.id DESC LIMIT 1)", bun.List([]task.Execution{task.Completed, task.Failed, task.Limited})).
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
	return last, wrap("read last finished runs", err)
}
