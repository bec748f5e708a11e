package builtin

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// files serves one directory. Everything goes through os.Root, so that no link
// and no race leads out of it. Two rules keep what policy resolved and what is
// done here the same: a path with ".." is refused, and no tool that changes
// something follows or touches a link as its last element.
type files struct {
	root *os.Root
	// dir is the root as configured and real the same without links; absolute
	// paths are accepted below either.
	dir, real string
}

func openFiles(s *mcp.Server, args []string) (func() error, error) {
	var dir string
	err := parseFlags(args, func(f *flag.FlagSet) { f.StringVar(&dir, "root", "", "directory to serve") })
	if err != nil {
		return nil, err
	}
	f, err := newFiles(dir)
	if err != nil {
		return nil, err
	}
	if err := f.register(s); err != nil {
		return nil, errors.Join(err, f.root.Close())
	}
	return f.root.Close, nil
}

func newFiles(dir string) (*files, error) {
	if dir == "" {
		return nil, errors.New("--root is missing; give the directory to serve")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("--root %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("--root %s: %w", dir, reason(err))
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, fmt.Errorf("--root %s: %w", dir, reason(err))
	}
	return &files{root: root, dir: abs, real: real}, nil
}

func (f *files) register(s *mcp.Server) error {
	return errors.Join(
		addTool(s, &mcp.Tool{Name: "read_file", Annotations: reads(false),
			Description: "Read a text file, or a part of it by lines. A note at the end says when there is more."},
			f.readFile, between("limit", 1, maxLines)),
		addTool(s, &mcp.Tool{Name: "list_directory", Annotations: reads(false),
			Description: "List a directory: kind, size in bytes, time of last change (UTC), name."},
			f.listDirectory),
		addTool(s, &mcp.Tool{Name: "search_files", Annotations: reads(false),
			Description: "Find files below a directory by name, by content, or both. Links are not followed; binary files are left out of content search."},
			f.searchFiles, between("limit", 1, maxHits)),
		addTool(s, &mcp.Tool{Name: "stat_file", Annotations: reads(false),
			Description: "Tell what a path is: kind, size, mode, time of last change, target of a link."},
			f.statFile),
		addTool(s, &mcp.Tool{Name: "write_file", Annotations: writes(true, true),
			Description: "Write a whole file at once, replacing it unless mode is create. Missing directories are made."},
			f.writeFile, oneOf("mode", modeOverwrite, modeCreate)),
		addTool(s, &mcp.Tool{Name: "append_file", Annotations: writes(false, false),
			Description: "Add text at the end of a file. The file and missing directories are made."},
			f.appendFile),
		addTool(s, &mcp.Tool{Name: "make_directory", Annotations: writes(false, true),
			Description: "Make a directory and its missing parents. It is no error if it exists."},
			f.makeDirectory),
		addTool(s, &mcp.Tool{Name: "move_file", Annotations: writes(true, false),
			Description: "Move or rename a file or directory. Nothing is ever replaced."},
			f.moveFile),
		addTool(s, &mcp.Tool{Name: "delete_file", Annotations: writes(true, false),
			Description: "Delete one file or one empty directory."},
			f.deleteFile),
	)
}

// name turns a tool's path into a name inside the root; "." is the root itself.
func (f *files) name(path string) (string, error) {
	if path == "" {
		return "", errors.New(`path is empty; give one relative to the root, or "." for the root itself`)
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q holds a NUL character", path)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return "", fmt.Errorf("path %q holds \"..\"; write it without, relative to the root %s", path, f.dir)
		}
	}
	if !filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	for _, base := range []string{f.dir, f.real} {
		if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", fmt.Errorf("path %q is outside the root %s", path, f.dir)
}

// inner is name for tools that change something: the root itself is no target.
func (f *files) inner(path string) (string, error) {
	name, err := f.name(path)
	if err == nil && name == "." {
		err = fmt.Errorf("path %q is the root itself", path)
	}
	return name, err
}

// parent opens the directory that holds name, as a root of its own, and returns
// the last element. make creates missing directories first.
func (f *files) parent(name string, make bool) (*os.Root, string, error) {
	dir, base := filepath.Split(name)
	dir = filepath.Clean(dir)
	if make {
		if err := f.makeDirs(dir); err != nil {
			return nil, "", err
		}
	}
	d, err := f.root.OpenRoot(dir)
	if err != nil {
		return nil, "", f.fail(dir, err)
	}
	return d, base, nil
}

// makeDirs makes a directory and its missing parents.
func (f *files) makeDirs(name string) error {
	err := f.root.MkdirAll(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: exists and is not a directory", name)
	}
	if err != nil {
		return f.fail(name, err)
	}
	return nil
}

// openRegular opens a regular file for reading. It never blocks: a pipe or a
// device is refused after the fact.
func (f *files) openRegular(name string) (*os.File, fs.FileInfo, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, f.fail(name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("is a %s, not a file", kind(info.Mode()))
	}
	if err != nil {
		file.Close()
		return nil, nil, f.fail(name, err)
	}
	return file, info, nil
}

// fail words an error of the file system for a model.
func (f *files) fail(name string, err error) error {
	err = reason(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: does not exist below the root %s", name, f.dir)
	case strings.Contains(err.Error(), "path escapes from parent"):
		return fmt.Errorf("%s: leads out of the root %s through a link; nothing was done", name, f.dir)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// reason takes the operation and path off an error of package os.
func reason(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}

// kind names a file's type in one word.
func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "link"
	}
	return "special file"
}
