package sqldb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// beside are the endings of a SQLite file's own name and of what SQLite keeps beside it.
var beside = []string{"", "-wal", "-shm", "-journal"}

// SetAside renames a SQLite file, with what SQLite keeps beside it, so that its name
// is free and nothing is lost. It returns the new names; the file itself goes last,
// so that it never stands without its log.
func SetAside(path, suffix string) (names []string, err error) {
	if _, err := os.Lstat(path + suffix); err == nil {
		return nil, fmt.Errorf("set aside %s: %s%s is there already", path, path, suffix)
	}
	for _, part := range slices.Backward(beside) {
		err := os.Rename(path+part, path+suffix+part)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return names, err
		}
		names = append(names, path+suffix+part)
	}
	return names, nil
}

// WriteFile writes a small file and has it on the disk when it returns.
func WriteFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// CopyFile copies a file to where none stands, readable by its owner only, and has it
// on the disk when it returns.
func CopyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // read only
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// Place gives a finished file its name.
func Place(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Left are the files of databases, with what SQLite keeps beside them, that are there.
func Left(paths ...string) (names []string) {
	for _, path := range paths {
		for _, suffix := range beside {
			if _, err := os.Lstat(path + suffix); err == nil {
				names = append(names, path+suffix)
			}
		}
	}
	return names
}

// Remove removes databases with what SQLite keeps beside them.
func Remove(paths ...string) error {
	for _, path := range paths {
		for _, suffix := range beside {
			if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
