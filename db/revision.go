package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"runnerd/task"
)

type revisionRow struct {
	bun.BaseModel `bun:"table:revisions,alias:rv"`

	Hash    string `bun:"hash,pk"`
	Task    string `bun:"task"`
	Body    string `bun:"body"`
	SavedAt stamp  `bun:"saved_at"`
}

// RevisionHash is the name of a task as it stands: the SHA-256, in hex, of its
// JSON. Equal tasks have equal hashes.
func RevisionHash(t task.Task) (string, error) {
	hash, _, err := encodeRevision(t)
	return hash, err
}

func encodeRevision(t task.Task) (hash, body string, err error) {
	data, err := json.Marshal(t)
	if err != nil {
		return "", "", fmt.Errorf("encode task %s: %w", t.ID, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), string(data), nil
}

// SaveRevision keeps the task as it stands and answers its hash. Saving it again
// changes nothing.
func (d *DB) SaveRevision(ctx context.Context, t task.Task) (string, error) {
	hashes, err := d.SaveRevisions(ctx, []task.Task{t})
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

// SaveRevisions is SaveRevision for many tasks in one transaction; the hashes are
// in the order of the tasks. Most are stored already at most starts, so that the
// texts of the others alone are kept at hand.
func (d *DB) SaveRevisions(ctx context.Context, tasks []task.Task) ([]string, error) {
	hashes := make([]string, len(tasks))
	for i := range tasks {
		var err error
		if hashes[i], err = RevisionHash(tasks[i]); err != nil {
			return nil, err
		}
	}
	fresh, err := d.unsaved(ctx, "revisions", "hash", hashes)
	if err != nil || len(fresh) == 0 {
		return hashes, wrap("save revisions", err)
	}
	err = d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return inChunks(fresh, func(places []int) error {
			rows := make([]revisionRow, len(places))
			for i, place := range places {
				t := tasks[place]
				hash, body, err := encodeRevision(t)
				if err != nil {
					return err
				}
				rows[i] = revisionRow{Hash: hash, Task: t.ID, Body: body, SavedAt: at(time.Now())}
			}
			_, err := tx.NewInsert().Model(&rows).On("CONFLICT DO NOTHING").Exec(ctx)
			return err
		})
	})
	return hashes, wrap("save revisions", err)
}

// unsaved answers the places of those keys that the table does not have, each key
// once.
func (d *DB) unsaved(ctx context.Context, table, column string, keys []string) (fresh []int, err error) {
	known := make(map[string]bool, len(keys))
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return inChunks(keys, func(keys []string) error {
			var found []string
			err := q.NewSelect().Table(table).Column(column).Where("? IN (?)", bun.Ident(column), bun.List(keys)).Scan(ctx, &found)
			for _, key := range found {
				known[key] = true
			}
			return err
		})
	})
	for i, key := range keys {
		if !known[key] {
			known[key] = true
			fresh = append(fresh, i)
		}
	}
	return fresh, err
}

// Revision reads a task as it stood. It answers ErrNotFound.
func (d *DB) Revision(ctx context.Context, hash string) (t task.Task, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var row revisionRow
		if err := q.NewSelect().Model(&row).Where("rv.hash = ?", hash).Scan(ctx); err != nil {
			return err
		}
		return json.Unmarshal([]byte(row.Body), &t)
	})
	return t, wrap(fmt.Sprintf("read revision %.12s", hash), err)
}

type scheduleRow struct {
	bun.BaseModel `bun:"table:schedules,alias:sc"`

	Revision string `bun:"revision,pk"`
	Body     string `bun:"body"`
}

// SaveSchedules keeps schedules by their schedule revision, so that what an
// edited one left unfired can be told later. Saving one again changes nothing.
func (d *DB) SaveSchedules(ctx context.Context, byRevision map[string]task.Schedule) error {
	revisions := slices.Sorted(maps.Keys(byRevision))
	fresh, err := d.unsaved(ctx, "schedules", "revision", revisions)
	if err != nil || len(fresh) == 0 {
		return wrap("save schedules", err)
	}
	rows := make([]scheduleRow, len(fresh))
	for i, place := range fresh {
		revision := revisions[place]
		data, err := json.Marshal(byRevision[revision])
		if err != nil {
			return fmt.Errorf("encode schedule %s: %w", revision, err)
		}
		rows[i] = scheduleRow{Revision: revision, Body: string(data)}
	}
	return wrap("save schedules", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return inChunks(rows, func(rows []scheduleRow) error {
			_, err := tx.NewInsert().Model(&rows).On("CONFLICT DO NOTHING").Exec(ctx)
			return err
		})
	}))
}

// OldSchedule reads the schedule of a schedule revision; ok is false if it was
// never saved.
func (d *DB) OldSchedule(ctx context.Context, revision string) (s task.Schedule, ok bool, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var row scheduleRow
		if err := q.NewSelect().Model(&row).Where("sc.revision = ?", revision).Scan(ctx); err != nil {
			return err
		}
		return json.Unmarshal([]byte(row.Body), &s)
	})
	if errors.Is(notFound(err), ErrNotFound) {
		return task.Schedule{}, false, nil
	}
	return s, err == nil, wrap("read schedule "+revision, err)
}
