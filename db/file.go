package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/uptrace/bun"
)

type fileRow struct {
	bun.BaseModel `bun:"table:files,alias:f"`

	Path    string `bun:"path,pk"`
	Hash    string `bun:"hash"`
	Content []byte `bun:"content"`
	SavedAt stamp  `bun:"saved_at"`
}

// SaveFiles keeps the contents of files that were accepted, by path, so that a
// broken one can fall back to its last good content also across a restart.
func (d *DB) SaveFiles(ctx context.Context, contents map[string][]byte) error {
	rows := make([]fileRow, 0, len(contents))
	for path, content := range contents {
		sum := sha256.Sum256(content)
		rows = append(rows, fileRow{
			Path: path, Hash: hex.EncodeToString(sum[:]), Content: append([]byte{}, content...), SavedAt: at(time.Now()),
		})
	}
	rows, err := d.changed(ctx, rows)
	if err != nil || len(rows) == 0 {
		return wrap("save files", err)
	}
	return wrap("save files", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return inChunks(rows, func(rows []fileRow) error {
			_, err := tx.NewInsert().Model(&rows).On("CONFLICT (path) DO UPDATE").
				Set("hash = EXCLUDED.hash").Set("content = EXCLUDED.content").Set("saved_at = EXCLUDED.saved_at").Exec(ctx)
			return err
		})
	}))
}

func (d *DB) changed(ctx context.Context, rows []fileRow) (fresh []fileRow, err error) {
	stored := map[string]string{}
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return inChunks(rows, func(rows []fileRow) error {
			paths := make([]string, len(rows))
			for i := range rows {
				paths[i] = rows[i].Path
			}
			var found []fileRow
			err := q.NewSelect().Model(&found).Column("path", "hash").Where("f.path IN (?)", bun.List(paths)).Scan(ctx)
			for _, f := range found {
				stored[f.Path] = f.Hash
			}
			return err
		})
	})
	for _, r := range rows {
		if stored[r.Path] != r.Hash {
			fresh = append(fresh, r)
		}
	}
	return fresh, err
}

// LastGood reads the last accepted content of a file. It answers ErrNotFound.
func (d *DB) LastGood(ctx context.Context, path string) (content []byte, err error) {
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var row fileRow
		err := q.NewSelect().Model(&row).Where("f.path = ?", path).Scan(ctx)
		content = row.Content
		return err
	})
	return content, wrap("read last good "+path, err)
}

// Files reads every kept file by path.
func (d *DB) Files(ctx context.Context) (map[string][]byte, error) {
	contents := map[string][]byte{}
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		var rows []fileRow
		err := q.NewSelect().Model(&rows).Scan(ctx)
		for _, r := range rows {
			contents[r.Path] = r.Content
		}
		return err
	})
	return contents, wrap("read files", err)
}

// ForgetFiles drops files that are gone on purpose.
func (d *DB) ForgetFiles(ctx context.Context, paths ...string) error {
	return wrap("forget files", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return inChunks(paths, func(paths []string) error {
			_, err := tx.NewDelete().Table("files").Where("path IN (?)", bun.List(paths)).Exec(ctx)
			return err
		})
	}))
}
