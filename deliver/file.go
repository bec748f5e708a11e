package deliver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"runnerd/task"
)

// maxPath bounds a rendered path, in bytes.
const maxPath = 4096

// pathData is what a path template may name. Nothing in it was written by a
// model.
type pathData struct {
	Task string // id
	Run  string // id
	// Due, Started and Finished are in the task's zone. A run without a due
	// instant is due when it was created.
	Due, Started, Finished time.Time
	Trigger                string // schedule | catch_up | manual
	Status                 string
	Outcome                string
	Attempt                int
}

var sampleData = pathData{
	Task: "task", Run: "run", Due: time.Unix(0, 0).UTC(), Started: time.Unix(0, 0).UTC(), Finished: time.Unix(0, 0).UTC(),
	Trigger: "schedule", Status: "ok", Attempt: 1,
}

func newPathData(res Result) pathData {
	zone, err := time.LoadLocation(res.Task.Schedule.Zone)
	if err != nil {
		zone = time.UTC
	}
	due := res.Run.Due
	if due.IsZero() {
		due = res.Run.CreatedAt
	}
	return pathData{
		Task: res.Run.Task, Run: res.Run.ID,
		Due: due.In(zone), Started: res.Run.StartedAt.In(zone), Finished: res.Run.FinishedAt.In(zone),
		Trigger: string(res.Run.Trigger), Status: string(res.Run.Status()), Outcome: string(res.Run.Outcome), Attempt: res.Run.Attempt,
	}
}

// render fills a path template in; references are still in it.
func render(path string, data pathData) (string, error) {
	t, err := template.New("path").Option("missingkey=error").Parse(path)
	if err != nil {
		return "", fmt.Errorf("path template: %s", strings.TrimPrefix(err.Error(), "template: path:"))
	}
	out := &bounded{max: maxPath}
	if err := t.Execute(out, data); err != nil {
		return "", fmt.Errorf("path template: %s", strings.TrimPrefix(err.Error(), "template: path:"))
	}
	return out.b.String(), nil
}

// bounded refuses to grow beyond max bytes.
type bounded struct {
	b   strings.Builder
	max int
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > w.max {
		return 0, fmt.Errorf("longer than %d bytes", w.max)
	}
	return w.b.Write(p)
}

func (d *Deliverer) toFile(to task.Delivery, m message) (send, error) {
	path, err := render(to.Path, m.data)
	if err != nil {
		return nil, final{err}
	}
	if path, err = d.opts.ResolvePath(path); err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	if !filepath.IsAbs(path) || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("path %q is not the absolute path of a file", path)
	}
	path = filepath.Clean(path)
	return func(context.Context) error { return d.writeFile(path, m.text) }, nil
}

// writeFile replaces a file in one step; its directory is made if need be. A
// link is followed, so that `latest.md` may point to where it likes.
func (d *Deliverer) writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	path, err := followed(path)
	if err != nil {
		return err
	}
	if err := d.inRoots(path); err != nil {
		return final{err}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return final{fmt.Errorf("%s is there and is no file", path)}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return replace(path, text, info)
}

// followed resolves the links in a path whose last element need not exist.
func followed(path string) (string, error) {
	if full, err := filepath.EvalSymlinks(path); err == nil {
		return full, nil
	}
	if target, err := os.Readlink(path); err == nil {
		return "", final{fmt.Errorf("%s is a link to %s, which is not there", path, target)}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

func (d *Deliverer) inRoots(path string) error {
	if len(d.opts.Roots) == 0 {
		return nil
	}
	for _, root := range d.opts.Roots {
		if full, err := filepath.EvalSymlinks(root); err == nil {
			root = full
		}
		if rel, err := filepath.Rel(root, path); err == nil && rel != "." && filepath.IsLocal(rel) {
			return nil
		}
	}
	return fmt.Errorf("%s is outside the directories that files may be delivered to (%s)", path, strings.Join(d.opts.Roots, ", "))
}

// replace writes beside the file and renames over it. An existing file's mode is
// kept; a new one gets 0644 less the umask.
func replace(path, text string, old fs.FileInfo) error {
	dir := filepath.Dir(path)
	temp := filepath.Join(dir, ".runnerd-"+rand.Text()[:16]+".tmp")
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err == nil && old != nil {
		err = file.Chmod(old.Mode().Perm())
	}
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
