package control

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"runnerd/task"
)

func TestTasksAndStatus(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	run := must[RunRow](t)(c.Start(ctx, "brief"))
	must[RunRow](t)(c.Cancel(ctx, run.ID, "enough"))
	list := must[[]TaskRow](t)(c.Tasks(ctx))
	if len(list) != 3 || list[1].ID != "brief" || list[1].LastStatus != task.StatusCancelled || list[1].Next == nil || list[2].Error == "" {
		t.Errorf("tasks %+v", list)
	}
	v := must[TaskView](t)(c.Task(ctx, "brief"))
	if v.ID != "brief" || v.Spec == nil || v.Spec.Project != projectOfBrief || v.Last == nil || v.Last.ID != run.ID || len(v.Runs) != 0 {
		t.Errorf("task %+v", v)
	}
	if _, _, body := r.raw("GET", "/api/tasks/brief", ""); strings.Contains(body, "secret") || !strings.Contains(body, `"notify"`) {
		t.Errorf("task shows %s", body)
	}
	if v := must[TaskView](t)(c.Task(ctx, "broken")); v.Spec != nil || v.Error == "" {
		t.Errorf("broken %+v", v)
	}
	s := must[StatusView](t)(c.Status(ctx))
	if !s.Daemon.Running || s.Config != "/etc/runnerd" || len(s.Problems) != 1 || len(s.Tasks) != 3 || len(s.Active) != 0 ||
		len(s.Trouble) != 1 || s.Trouble[0].ID != run.ID || s.Paused != "" {
		t.Errorf("status %+v", s)
	}
}

func TestPauseAndResume(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	if v := must[PauseView](t)(c.Pause(ctx, "brief", "holiday")); !v.Paused || v.Task != "brief" || v.Note != "holiday" || v.By != "root" {
		t.Errorf("pause %+v", v)
	}
	paused := func() (list []string) {
		for _, row := range must[[]TaskRow](t)(c.Tasks(ctx)) {
			if row.Paused {
				list = append(list, row.ID)
			}
		}
		return list
	}
	if got := paused(); len(got) != 1 || got[0] != "brief" {
		t.Errorf("paused %v", got)
	}
	if v := must[TaskView](t)(c.Task(ctx, "brief")); v.Pause != "holiday" {
		t.Errorf("note %q", v.Pause)
	}
	must[PauseView](t)(c.Pause(ctx, "", ""))
	if got := paused(); len(got) != 3 {
		t.Errorf("paused %v, want all", got)
	}
	if s := must[StatusView](t)(c.Status(ctx)); s.Paused != "paused by root" {
		t.Errorf("status says %q", s.Paused)
	}
	if v := must[PauseView](t)(c.Resume(ctx, "")); v.Paused || !v.Was {
		t.Errorf("resume %+v", v)
	}
	if got := paused(); len(got) != 1 {
		t.Errorf("paused %v: resuming everything must leave a task's own pause", got)
	}
	must[PauseView](t)(c.Resume(ctx, "brief"))
	if v := must[PauseView](t)(c.Resume(ctx, "brief")); v.Was {
		t.Error("a second resume ended a pause")
	}
}

func TestRuns(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	status, header, _ := r.raw("POST", "/api/tasks/brief/run", "")
	if status != http.StatusCreated || header.Get("Location") != "/api/runs/run01" {
		t.Fatalf("start: %d, %v", status, header)
	}
	_, err := c.Start(ctx, "brief")
	if e := refusedWith(t, err, http.StatusConflict, CodeActiveRun); e.Run != "run01" || e.State != "queued" || !strings.Contains(e.Message, "run01") {
		t.Errorf("a second start: %+v", e)
	}
	run, _, err := r.main.Claim(ctx, time.Now().Add(time.Hour))
	ok(t, err)
	r.says(run, "hello")
	view := must[RunView](t)(c.Run(ctx, "run0")) // a beginning is enough
	if view.Run.ID != "run01" || view.Run.Status != task.StatusRunning || len(view.Messages) != 1 || view.Messages[0].Text != "hello" || view.Receipts == nil {
		t.Errorf("run %+v", view)
	}
	must[RunRow](t)(c.Start(ctx, "backup"))
	list := must[[]RunRow](t)(c.Runs(ctx, "", 0, ""))
	if len(list) != 2 || list[0].Task != "backup" {
		t.Errorf("runs %+v", list)
	}
	if list := must[[]RunRow](t)(c.Runs(ctx, "brief", 5, "")); len(list) != 1 {
		t.Errorf("runs of brief %+v", list)
	}
	if list := must[[]RunRow](t)(c.Runs(ctx, "", 1, "run03")); len(list) != 1 || list[0].ID != "run01" {
		t.Errorf("runs before run03 %+v", list)
	}
	_, err = c.Run(ctx, "run")
	refusedWith(t, err, http.StatusBadRequest, CodeAmbiguous)
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	must[RunRow](t)(c.Start(ctx, "brief"))
	if row := must[RunRow](t)(c.Cancel(ctx, "run01", "")); row.Status != task.StatusCancelled {
		t.Errorf("cancelled %+v", row)
	}
	if len(r.cancel) != 1 || r.cancel[0] != "run01: by root" {
		t.Errorf("the pool heard %q", r.cancel)
	}
	_, err := c.Cancel(ctx, "run01", "again")
	if e := refusedWith(t, err, http.StatusConflict, CodeConflict); e.State != "cancelled" {
		t.Errorf("again: %+v", e)
	}
	if len(r.cancel) != 1 {
		t.Error("the pool heard of an ended run")
	}
}

func TestWhy(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		due := noon.Add(time.Duration(i) * time.Hour)
		_, err := r.main.Fire(ctx, []string{"brief"}, func(task.FireState) task.FirePlan {
			return task.FirePlan{
				Cursor:      task.Cursor{Task: "brief", ScheduleRevision: "rev", Through: due},
				Occurrences: []task.Occurrence{{Task: "brief", ScheduleRevision: "rev", Due: due, Count: 1, End: task.EndSkipped, Reason: task.ReasonPaused, RecordedAt: due}},
			}
		})
		ok(t, err)
	}
	c := r.as(operator)
	list := must[[]WhyRow](t)(c.Why(ctx, "brief", time.Time{}, noon.Add(time.Hour)))
	if len(list) != 2 || !list[0].Due.Equal(noon.Add(2*time.Hour)) || list[0].End != task.EndSkipped {
		t.Errorf("since: %+v", list)
	}
	if list := must[[]WhyRow](t)(c.Why(ctx, "brief", noon, time.Time{})); len(list) != 1 || list[0].Reason != task.ReasonPaused {
		t.Errorf("at: %+v", list)
	}
	if list := must[[]WhyRow](t)(c.Why(ctx, "brief", noon.Add(time.Minute), time.Time{})); list == nil || len(list) != 0 {
		t.Errorf("between: %+v", list)
	}
}

func TestReload(t *testing.T) {
	r := newRig(t)
	v := must[ReloadView](t)(r.as(operator).Reload(ctx, false))
	if v.Tasks != 2 || v.Problems == nil {
		t.Errorf("reload %+v", v)
	}
}
