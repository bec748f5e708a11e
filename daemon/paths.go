package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"runnerd/config"
)

// pathOf is a path as a connector of the set reads it, without links.
func pathOf(set *config.Set, secrets *config.Resolver, id, path string) (string, error) {
	c, ok := set.Connectors[id]
	if !ok || c.Connector.URL != "" {
		return "", fmt.Errorf("resolve path: connector %s has no files here", id)
	}
	root := c.Connector.Root
	if root == "" {
		root = c.Connector.Dir
	}
	root, err := secrets.ResolvePath(root)
	if err != nil {
		return "", err
	}
	return resolvePath(root, path)
}

// resolvePath makes a path absolute and free of links the way the kernel would,
// component by component, as far as it exists; what does not exist yet is taken
// as written. Relative paths start at root. Anything that cannot be followed to
// its end is an error, which policy never lets match in allow (DESIGN, section
// 6).
func resolvePath(root, path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("resolve path %q: not a path", path)
	}
	if !filepath.IsAbs(path) {
		if !filepath.IsAbs(root) {
			return "", fmt.Errorf("resolve path %q: it is relative and its connector has no root", path)
		}
		path = root + "/" + path
	}
	at := "/"
	parts := strings.Split(path, "/")
	for i, part := range parts {
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return below(at, parts[i:])
		case err != nil:
			return "", fmt.Errorf("resolve path: %w", err)
		case info.Mode()&fs.ModeSymlink != 0:
			if next, err = filepath.EvalSymlinks(next); err != nil {
				return "", fmt.Errorf("resolve path: %w", err)
			}
		}
		at = next
	}
	return at, nil
}

// below appends what does not exist yet, which must not climb out again.
func below(at string, rest []string) (string, error) {
	for _, part := range rest {
		if part == ".." {
			return "", fmt.Errorf("resolve path: %s/%s climbs out of what does not exist", at, strings.Join(rest, "/"))
		}
	}
	return filepath.Join(append([]string{at}, rest...)...), nil
}
