package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"runnerd/db"
	"runnerd/task"
)

// DaemonView is the daemon in StatusView.
type DaemonView struct {
	Running bool `json:"running"`
	PID     int  `json:"pid,omitempty"`
	// Silent says that it was not asked, since it does not answer.
	Silent    bool       `json:"silent,omitempty"`
	Version   string     `json:"version,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
}

// StatusView is `status --json`.
type StatusView struct {
	Daemon DaemonView `json:"daemon"`
	Config string     `json:"config"`
	State  string     `json:"state"`
	// Zone is the daemon's time zone, ZoneFrom where that was found.
	Zone     string    `json:"zone"`
	ZoneFrom string    `json:"zone_from"`
	Problems []string  `json:"problems"`
	Tasks    []TaskRow `json:"tasks"`
	// Active are the runs that have not ended, Trouble the last runs that ended
	// other than ok.
	Active  []RunRow `json:"active"`
	Trouble []RunRow `json:"trouble"`
	// Paused is the note of a pause of everything.
	Paused           string `json:"paused,omitempty"`
	PendingApprovals int    `json:"pending_approvals"`
}

// TaskRow is a task as `tasks --json` and the API show it (DESIGN, appendix).
type TaskRow struct {
	ID      string `json:"id"`
	Enabled bool   `json:"enabled"`
	Paused  bool   `json:"paused"`
	// Pause is the note of the task's own pause.
	Pause      string      `json:"pause,omitempty"`
	Schedule   []string    `json:"schedule"`
	Timezone   string      `json:"timezone"`
	Next       *time.Time  `json:"next,omitempty"`
	LastStatus task.Status `json:"last_status,omitempty"`
	File       string      `json:"file"`
	Error      string      `json:"error,omitempty"`
}

// NewTaskRow shows a task. next is its next instant, zero if there is none.
func NewTaskRow(t task.Task, next time.Time) TaskRow {
	row := TaskRow{ID: t.ID, Enabled: t.Enabled, Schedule: append([]string{}, t.Schedule.Specs...), Timezone: t.Schedule.Zone, File: t.File}
	if t.Enabled {
		row.Next = stamp(next)
	}
	return row
}

// FillTasks adds what the main database knows: each task's last status and whether
// it is paused, itself or with everything.
func FillTasks(rows []TaskRow, last map[string]task.Run, pauses []db.Pause) {
	paused := map[string]string{}
	for _, p := range pauses {
		paused[p.Task] = pauseNote(p)
	}
	for i := range rows {
		rows[i].Pause = paused[rows[i].ID]
		rows[i].Paused = rows[i].Pause != "" || paused[db.Everything] != ""
		if r, ok := last[rows[i].ID]; ok {
			rows[i].LastStatus = r.Status()
		}
	}
}

// ReloadView is what a reload found.
type ReloadView struct {
	Tasks      int      `json:"tasks"`
	Connectors int      `json:"connectors"`
	Problems   []string `json:"problems"`
	Warnings   []string `json:"warnings"`
	// Kept are files whose last good revision stays in force.
	Kept []string `json:"kept"`
}

// PauseView is what a pause or a resume answers. Task is "*" for everything.
type PauseView struct {
	Task   string     `json:"task"`
	Paused bool       `json:"paused"`
	Note   string     `json:"note,omitempty"`
	By     string     `json:"by,omitempty"`
	At     *time.Time `json:"at,omitempty"`
	// Was says of a resume whether there was a pause to end.
	Was bool `json:"was,omitempty"`
}

// HealthView is what /healthz answers while all is well.
type HealthView struct {
	Status string `json:"status"`
	PID    int    `json:"pid,omitempty"`
}

// health needs no right, so that whoever gets to the socket can see whether somebody
// is there; what is wrong is for those who may read.
func (s *Server) health(ctx context.Context, r *request) (any, error) {
	if s.o.Healthy != nil {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		if err := s.o.Healthy(ctx); err != nil {
			message := "unhealthy"
			if s.o.Rights(r.peer).Read {
				message += ": " + err.Error()
			}
			return nil, &Error{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: message, PID: s.o.Daemon.PID}
		}
	}
	return HealthView{Status: "ok", PID: s.o.Daemon.PID}, nil
}

func (s *Server) status(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	v := StatusView{
		Daemon: s.o.Daemon, Config: s.o.ConfigDir, State: s.o.StateDir, Zone: s.o.Zone, ZoneFrom: s.o.ZoneFrom,
		Problems: append([]string{}, s.o.Files.Problems()...), Trouble: []RunRow{},
	}
	list, last, pauses, err := s.taskRows(ctx)
	active, aerr := s.o.Main.Runs(ctx, db.RunFilter{Active: true, Limit: maxLimit})
	pending, perr := s.o.Main.Approvals(ctx, db.ApprovalFilter{States: []task.ApprovalState{task.ApprovalPending}, Limit: maxLimit})
	if err := errors.Join(err, aerr, perr); err != nil {
		return nil, err
	}
	v.Tasks, v.Active, v.PendingApprovals = list, NewRunRows(active), len(pending)
	for _, t := range list {
		if run, ok := last[t.ID]; ok && run.Execution.Finished() && run.Status() != task.StatusOK {
			v.Trouble = append(v.Trouble, NewRunRow(run))
		}
	}
	v.Paused = PausedAll(pauses)
	return v, nil
}

// PausedAll is the note of a pause of everything, "" if there is none.
func PausedAll(pauses []db.Pause) string {
	for _, p := range pauses {
		if p.Task == db.Everything {
			return pauseNote(p)
		}
	}
	return ""
}

// pauseNote is never empty: it says that there is a pause.
func pauseNote(p db.Pause) string {
	if p.Note != "" {
		return p.Note
	}
	return "paused by " + p.By
}

// taskRows are the tasks with what the database knows of them.
func (s *Server) taskRows(ctx context.Context) ([]TaskRow, map[string]task.Run, []db.Pause, error) {
	list, err := s.o.Files.Tasks(ctx)
	last, lerr := s.o.Main.LastRuns(ctx)
	pauses, perr := s.o.Main.Pauses(ctx)
	if err := errors.Join(err, lerr, perr); err != nil {
		return nil, nil, nil, err
	}
	list = append([]TaskRow{}, list...) // the caller's own, and [] rather than null
	FillTasks(list, last, pauses)
	return list, last, pauses, nil
}

func (s *Server) tasks(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	list, _, _, err := s.taskRows(ctx)
	return list, err
}

// TaskView is one task.
type TaskView struct {
	TaskRow
	// Spec is the task as it is in force, null if its file was never good. Where
	// its result goes is named by kind and path only: a URL may hold a secret.
	Spec *Spec `json:"spec"`
	// Pause is the note of the pause that holds it back.
	Pause string   `json:"pause,omitempty"`
	Last  *RunRow  `json:"last_run,omitempty"`
	Runs  []RunRow `json:"active"`
}

func (s *Server) task(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	list, last, pauses, err := s.taskRows(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range list {
		if row.ID != r.id() {
			continue
		}
		v := TaskView{TaskRow: row}
		if t, ok := s.o.Files.Task(row.ID); ok {
			v.Spec = shown(t)
		}
		for _, p := range pauses {
			if p.Task == row.ID || v.Pause == "" && p.Task == db.Everything {
				v.Pause = pauseNote(p)
			}
		}
		if run, ok := last[row.ID]; ok {
			lastRow := NewRunRow(run)
			v.Last = &lastRow
		}
		active, err := s.o.Main.Runs(ctx, db.RunFilter{Task: row.ID, Active: true})
		v.Runs = NewRunRows(active)
		return v, err
	}
	return nil, noTask(r.id())
}

// shown is a task without what may hold a secret.
func shown(t task.Task) *Spec {
	t.Deliver = append([]task.Delivery(nil), t.Deliver...)
	for i := range t.Deliver {
		t.Deliver[i].URL, t.Deliver[i].Command = "", nil
	}
	t.Ping = ""
	return &Spec{t}
}

// paused is the task that a pause or a resume is about.
func (s *Server) paused(r *request) (string, error) {
	id := r.id()
	if id == "" {
		return db.Everything, nil
	}
	if _, ok := s.o.Files.Task(id); !ok {
		return "", noTask(id)
	}
	return id, nil
}

func (s *Server) pause(ctx context.Context, r *request) (any, error) {
	fields, err := r.object(true, "note")
	if err != nil {
		return nil, err
	}
	note, err := textField(fields, "note")
	if err != nil {
		return nil, err
	}
	name, err := s.paused(r)
	if err != nil {
		return nil, err
	}
	p := db.Pause{Task: name, Note: note, By: r.by(), At: time.Now()}
	return PauseView{Task: name, Paused: true, Note: note, By: p.By, At: stamp(p.At)}, s.o.Main.SetPause(ctx, p)
}

func (s *Server) resume(ctx context.Context, r *request) (any, error) {
	if _, err := r.object(true); err != nil {
		return nil, err
	}
	name, err := s.paused(r)
	if err != nil {
		return nil, err
	}
	was, err := s.o.Main.Resume(ctx, name)
	if err == nil {
		s.o.Workers.Wake()
	}
	return PauseView{Task: name, Was: was}, err
}

func (s *Server) reload(ctx context.Context, r *request) (any, error) {
	fields, err := r.object(true, "empty")
	if err != nil {
		return nil, err
	}
	empty, err := flag(fields, "empty")
	if err != nil {
		return nil, err
	}
	v, err := s.o.Reload(ctx, empty)
	v.Problems, v.Warnings, v.Kept = append([]string{}, v.Problems...), append([]string{}, v.Warnings...), append([]string{}, v.Kept...)
	return v, err
}
