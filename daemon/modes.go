package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"runnerd/sqldb"
)

// modes are the permissions, by path, of what the daemon lives from. Landlock does not
// keep a child of the daemon's own user from changing them, so they are put back.
type modes map[string]fs.FileMode

// ownModes are those of the state directory and of what lies in it, as they are now.
func ownModes(s Settings) modes {
	m := modes{}
	paths := []string{s.StateDir, filepath.Join(s.StateDir, "control.token")}
	for _, dsn := range []string{s.Database, s.PolicyDatabase} {
		if !sqldb.IsPostgres(dsn) {
			paths = append(paths, dsn)
		}
	}
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			m[path] = info.Mode().Perm()
		}
	}
	return m
}

// restore puts back what has changed and says so.
func (m modes) restore(log *zap.Logger) {
	for path, mode := range m {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Mode().Perm() == mode || info.Mode()&fs.ModeSymlink != 0) {
			continue
		}
		if err == nil {
			err = os.Chmod(path, mode)
		}
		if err != nil {
			log.Error("permissions not restored", zap.String("path", path), zap.Error(err))
			continue
		}
		log.Error("somebody changed permissions, which were put back: see what runs as the daemon's user", zap.String("path", path),
			zap.Stringer("found", info.Mode().Perm()), zap.Stringer("restored", mode))
	}
}
