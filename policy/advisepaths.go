package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// filesPaths are the arguments of our files server that are paths.
var filesPaths = []string{"path", "to"}

// isPath tells whether the argument is a path below the connector's root, and
// nothing else.
func (j judge) isPath(p property) bool {
	return j.origin.Package == StoreFiles && slices.Contains(filesPaths, p.name)
}

// unreachable are the values of a path that the files server refuses.
func (j judge) unreachable(p property, values []any) (out []string) {
	if !j.isPath(p) {
		return nil
	}
	for _, v := range values {
		path, ok := v.(string)
		if top, real, known := j.places(path); ok && (known && !within(real, top) || path == "" || hasDots(path)) {
			out = append(out, path)
		}
	}
	return out
}

// noCall says why no call has the path.
func (j judge) noCall(path string) string {
	if path == "" || hasDots(path) {
		return fmt.Sprintf("no call has %s: the server refuses a path that is empty or holds \"..\"", quote(path))
	}
	top, _, _ := j.places(path)
	return fmt.Sprintf("no call reaches %s: connector %s serves %s", path, j.connector, top)
}

// reachesNone says why none of the values of a condition is a path that the
// connector serves.
func (j judge) reachesNone(p property, values []any) (why, cure string) {
	if out := j.unreachable(p, values); len(out) > 0 && len(out) == len(values) {
		return j.noCall(out[0]), "name a path below its root, or change the root"
	}
	return "", ""
}

// asUnder says how to name the listed paths by place.
func (c Condition) asUnder() string {
	if len(c.values()) > 1 {
		return fmt.Sprintf("write a line with {under: %v}, one for each", c.In[0])
	}
	return fmt.Sprintf("write {under: %v}", c.values()[0])
}

// outsideRoot says why nothing that the connector reads can lie under the path.
func (j judge) outsideRoot(under string) (why, cure string) {
	root := j.origin.Root
	switch {
	case j.origin.URL != "":
		return fmt.Sprintf("connector %s runs elsewhere, so its paths cannot be checked", j.connector), "write exact paths with eq or in"
	case root == "" && !filepath.IsAbs(under):
		return fmt.Sprintf("%s is relative, and nothing says where the paths of connector %s begin", under, j.connector), "write an absolute path, or root: at the connector"
	case j.origin.Package != StoreFiles:
		return "", ""
	}
	if top, outside := j.outside(under); outside {
		return fmt.Sprintf("nothing under %s can be reached: connector %s serves %s", under, j.connector, top), "name a path below that, or change its root"
	}
	return "", ""
}

// outside tells whether the path lies beside the connector's root, top.
func (j judge) outside(under string) (top string, is bool) {
	top, real, known := j.places(under)
	return top, known && !within(real, top) && !within(top, real)
}

// places are the connector's root and where the path leads, if that is known.
func (j judge) places(path string) (top, real string, known bool) {
	root, resolve := j.origin.Root, j.resolve
	if root == "" {
		return "", "", false
	}
	if resolve == nil {
		resolve = func(_, path string) (string, error) { return lexical(root, path) }
	}
	real, err := resolve(j.connector, path)
	top, bad := resolve(j.connector, ".")
	return top, real, err == nil && bad == nil
}

// lexical resolves a path as text: relative ones from the root, no links.
func lexical(root, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	if !filepath.IsAbs(path) {
		return "", errors.New("relative to a root that is not known")
	}
	return filepath.Clean(path), nil
}

// within tells whether a clean absolute path is the base or below it.
func within(path, base string) bool {
	return base == "/" || path == base || strings.HasPrefix(path, base+"/")
}
