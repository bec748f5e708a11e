package deliver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"runnerd/confine"
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

// place is the file that a result goes to.
func (d *Deliverer) place(to task.Delivery, data pathData) (string, error) {
	path, err := render(to.Path, data)
	if err != nil {
		return "", final{err}
	}
	if path, err = d.opts.ResolvePath(path); err != nil {
		return "", fmt.Errorf("path: %w", err)
	}
	if !filepath.IsAbs(path) || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q is not the absolute path of a file", path)
	}
	return filepath.Clean(path), nil
}

// entry is the place of a result as the builtin stores know it, without links; ""
// where it goes to no file.
func (d *Deliverer) entry(res Result, index int) string {
	to := res.Task.Deliver[index]
	if to.To != ToFile {
		return ""
	}
	path, err := d.place(to, newPathData(res))
	if err != nil {
		return ""
	}
	if real := confine.Real([]string{path}); len(real) > 0 {
		return real[0]
	}
	return path
}

func (d *Deliverer) toFile(to task.Delivery, m message) (send, error) {
	path, err := d.place(to, m.data)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		err := d.opts.Door.Replace(path, []byte(m.text), 0o644)
		var refused *confine.Refused
		if errors.As(err, &refused) {
			return final{err}
		}
		return err
	}, nil
}

// judgePath says why nothing can be written to the places that a path template may
// mean, as far as that can be known before: what stands behind a reference that
// cannot be resolved is not looked at.
func (d *Deliverer) judgePath(template string) error {
	path, err := render(template, sampleData)
	if err != nil {
		return err
	}
	if path, err = d.opts.ResolvePath(path); err != nil || !filepath.IsAbs(path) {
		return nil
	}
	return d.opts.Door.Judge(filepath.Clean(path))
}
