package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"runnerd/task"
)

const (
	modeOverwrite = "overwrite"
	modeCreate    = "create"
	// maxWrite is the most bytes that one call writes. Escaped at its worst it
	// still fits the transport's limit of one message.
	maxWrite = 2 << 20
)

type writeArgs struct {
	Path    string `json:"path" jsonschema:"file, relative to the root or absolute below it"`
	Content string `json:"content" jsonschema:"the whole text of the file"`
	Mode    string `json:"mode,omitempty" jsonschema:"overwrite replaces a file that exists; create refuses to"`
}

func (f *files) writeFile(ctx context.Context, in writeArgs) (string, error) {
	name, err := f.inner(in.Path)
	if err != nil {
		return "", err
	}
	if err := fits(in.Content); err != nil {
		return "", err
	}
	made := f.newDirs(filepath.Dir(name))
	dir, base, err := f.parent(name, true)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	old, err := target(dir, base)
	if err != nil {
		return "", f.fail(name, err)
	}
	if old != nil && in.Mode == modeCreate {
		return "", fmt.Errorf("%s: exists already; use mode overwrite to replace it, or another path", name)
	}
	perm := fs.FileMode(0o644)
	if old != nil {
		perm = old.Mode().Perm()
	}
	if err := writeWhole(dir, base, []byte(in.Content), perm, old != nil); err != nil {
		return "", f.fail(name, err)
	}
	touching(ctx).Wrote = append(made, f.entry(name))
	if old != nil {
		return fmt.Sprintf("replaced %s, %d bytes", name, len(in.Content)), nil
	}
	return fmt.Sprintf("created %s, %d bytes", name, len(in.Content)), nil
}

// writeWhole writes a new file beside the target and renames it over, so that
// no reader and no crash sees a part. Without replace it refuses to take the
// place of what somebody else made in the meantime, and perm is subject to the
// umask.
func writeWhole(dir *os.Root, base string, content []byte, perm fs.FileMode, replace bool) error {
	temp := ".runnerd-" + rand.Text()[:16] + ".tmp"
	file, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && replace {
		err = file.Chmod(perm)
	}
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil && replace {
		err = dir.Rename(temp, base)
	} else if err == nil {
		err = renameNew(dir, temp, dir, base)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return syncDir(dir)
}

// target looks at the last element of a path that is to be written: nil if it
// does not exist, an error if it is anything but a regular file.
func target(dir *os.Root, base string) (fs.FileInfo, error) {
	info, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, errLink
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("is a %s, not a file", kind(info.Mode()))
	}
	return info, nil
}

var errLink = errors.New("is a link; name the file that it points to")

// renameNew renames without ever replacing. Both names are single elements.
func renameNew(from *os.Root, old string, to *os.Root, name string) error {
	src, err := from.Open(".")
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := to.Open(".")
	if err != nil {
		return err
	}
	defer dst.Close()
	err = unix.Renameat2(int(src.Fd()), old, int(dst.Fd()), name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system without the flag: look first, which leaves a small race.
		if _, err := to.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return unix.EEXIST
		}
		return unix.Renameat(int(src.Fd()), old, int(dst.Fd()), name)
	}
	return err
}

func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func fits(content string) error {
	if len(content) > maxWrite {
		return fmt.Errorf("content has %d bytes; at most %d can be written at once", len(content), maxWrite)
	}
	return nil
}

type appendArgs struct {
	Path    string `json:"path" jsonschema:"file, relative to the root or absolute below it"`
	Content string `json:"content" jsonschema:"text to add; end it with a newline if it is a line"`
}

func (f *files) appendFile(ctx context.Context, in appendArgs) (string, error) {
	name, err := f.inner(in.Path)
	if err != nil {
		return "", err
	}
	if err := fits(in.Content); err != nil {
		return "", err
	}
	made := f.newDirs(filepath.Dir(name))
	dir, base, err := f.parent(name, true)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if _, err := target(dir, base); err != nil {
		return "", f.fail(name, err)
	}
	file, err := dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return "", f.fail(name, err)
	}
	touching(ctx).Added = append(made, f.entry(name))
	_, err = file.WriteString(in.Content)
	if err == nil {
		err = file.Sync()
	}
	info, serr := file.Stat()
	if err := errors.Join(err, serr, file.Close()); err != nil {
		return "", f.fail(name, err)
	}
	return fmt.Sprintf("appended %d bytes to %s, which now has %d", len(in.Content), name, info.Size()), nil
}

func (f *files) makeDirectory(ctx context.Context, in pathArgs) (string, error) {
	name, err := f.inner(in.Path)
	if err != nil {
		return "", err
	}
	made := f.newDirs(name)
	if err := f.makeDirs(name); err != nil {
		return "", err
	}
	touching(ctx).Wrote = made
	return "directory " + name + " is there", nil
}

type moveArgs struct {
	Path string `json:"path" jsonschema:"what to move, relative to the root or absolute below it"`
	To   string `json:"to" jsonschema:"its new path, which must not exist; missing directories are made"`
}

func (f *files) moveFile(ctx context.Context, in moveArgs) (string, error) {
	from, err := f.inner(in.Path)
	if err != nil {
		return "", err
	}
	to, err := f.inner(in.To)
	if err != nil {
		return "", fmt.Errorf("to: %w", err)
	}
	src, old, err := f.parent(from, false)
	if err != nil {
		return "", err
	}
	defer src.Close()
	if err := movable(src, old); err != nil {
		return "", f.fail(from, err)
	}
	was, made := f.entry(from), f.newDirs(filepath.Dir(to))
	dst, name, err := f.parent(to, true)
	if err != nil {
		return "", err
	}
	defer dst.Close()
	err = renameNew(src, old, dst, name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return "", fmt.Errorf("%s: exists already; choose another path", to)
	case errors.Is(err, unix.EINVAL):
		return "", fmt.Errorf("%s: a directory cannot move into itself (%s)", from, to)
	case err != nil:
		return "", f.fail(from, err)
	}
	t := touching(ctx)
	t.Wrote, t.Moved = made, []task.Move{{From: was, To: f.entry(to)}}
	return fmt.Sprintf("moved %s to %s", from, to), errors.Join(syncDir(src), syncDir(dst))
}

// movable tells whether an element may be moved or deleted: a file or a
// directory, but no link, since policy saw what the link points to.
func movable(dir *os.Root, base string) error {
	info, err := dir.Lstat(base)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return errLink
	case !info.IsDir() && !info.Mode().IsRegular():
		return fmt.Errorf("is a %s, not a file or directory", kind(info.Mode()))
	}
	return nil
}

func (f *files) deleteFile(ctx context.Context, in pathArgs) (string, error) {
	name, err := f.inner(in.Path)
	if err != nil {
		return "", err
	}
	dir, base, err := f.parent(name, false)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if err := movable(dir, base); err != nil {
		return "", f.fail(name, err)
	}
	gone := f.entry(name)
	if err := dir.Remove(base); err != nil {
		return "", f.fail(name, err)
	}
	touching(ctx).Gone = []string{gone}
	return "deleted " + name, syncDir(dir)
}
