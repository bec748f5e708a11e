package sqldb

import (
	"errors"
	"io/fs"
	"os"
)

// SetAside renames a SQLite file, with what SQLite keeps beside it, so that its name
// is free and nothing is lost. It returns the new names; the file itself goes last,
// so that it never stands without its log.
func SetAside(path, suffix string) (names []string, err error) {
	for _, beside := range []string{"-journal", "-shm", "-wal", ""} {
		err := os.Rename(path+beside, path+suffix+beside)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return names, err
		}
		names = append(names, path+suffix+beside)
	}
	return names, nil
}
