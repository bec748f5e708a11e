package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
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
	paths, err := d.changed(ctx, contents)
	if err != nil || len(paths) == 0 {
		return wrap("save files", err)
	}
	return wrap("save files", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return inChunks(paths, func(paths []string) error {
			rows := make([]fileRow, len(paths))
			for i, path := range paths {
				content := append([]byte{}, contents[path]...) // of an empty file not NULL
				rows[i] = fileRow{Path: path, Hash: hashOf(content), Content: content, SavedAt: at(time.Now())}
			}
			_, err := tx.NewInsert().Model(&rows).On("CONFLICT (path) DO UPDATE").
				Set("hash = EXCLUDED.hash").Set("content = EXCLUDED.content").Set("saved_at = EXCLUDED.saved_at").Exec(ctx)
			return err
		})
	}))
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// changed answers the paths whose content is not the one that is stored, sorted.
func (d *DB) changed(ctx context.Context, contents map[string][]byte) (paths []string, err error) {
	stored := make(map[string]bool, len(contents))
	all := slices.Sorted(maps.Keys(contents))
	err = d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return inChunks(all, func(paths []string) error {
			var found []fileRow
			err := q.NewSelect().Model(&found).Column("path", "hash").Where("f.path IN (?)", bun.List(paths)).Scan(ctx)
			for _, f := range found {
				stored[f.Path] = f.Hash == hashOf(contents[f.Path])
			}
			return err
		})
	})
	for _, path := range all {
		if !stored[path] {
			paths = append(paths, path)
		}
	}
	return paths, err
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

// ForgetFiles drops the kept files that gone says are not in force any more; nil says
// none are.
func (d *DB) ForgetFiles(ctx context.Context, gone func(path string) bool) error {
	if gone == nil {
		return nil
	}
	var paths []string
	err := d.reading(ctx, func(ctx context.Context, q bun.IDB) error {
		return q.NewRaw("SELECT path FROM files ORDER BY path").Scan(ctx, &paths)
	})
	paths = slices.DeleteFunc(paths, func(path string) bool { return !gone(path) })
	if err != nil || len(paths) == 0 {
		return wrap("forget files", err)
	}
	return wrap("forget files", d.writing(ctx, func(ctx context.Context, tx bun.Tx) error {
		return inChunks(paths, func(paths []string) error {
			_, err := tx.NewDelete().Table("files").Where("path IN (?)", bun.List(paths)).Exec(ctx)
			return err
		})
	}))
}
