package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"runnerd/config"
	"runnerd/connector"
	"runnerd/control"
	"runnerd/llm/scripted"
	"runnerd/systemd"
	"runnerd/task"
)

// listen opens the control socket: the one that systemd hands over, or our own.
func (d *Daemon) listen() (net.Listener, error) {
	if d.options.Listener != nil {
		return d.options.Listener(), nil
	}
	given, err := systemd.Listeners(d.options.Getenv)
	if err != nil {
		return nil, err
	}
	switch len(given) {
	case 0:
		return control.Listen(d.options.Socket)
	case 1:
		return given[0], nil
	}
	return nil, fmt.Errorf("systemd handed over %d sockets, want one", len(given))
}

// server speaks for the parts of the daemon.
func (d *Daemon) server() (*control.Server, error) {
	token, err := d.openDoor()
	if err != nil {
		return nil, &UsageError{err}
	}
	now := time.Now()
	return control.New(control.Options{
		Main: d.main, Policies: d.rules, Files: inForce{d}, Workers: d.workers, Connectors: asked{d.pool},
		Start: d.startManual, Reload: d.ReloadView, ToolSupport: d.toolSupport, Healthy: d.healthy,
		Daemon:    control.DaemonView{Running: true, PID: os.Getpid(), Version: d.options.Version, StartedAt: &now},
		ConfigDir: d.options.ConfigDir, StateDir: d.options.StateDir, Zone: d.zone.String(), ZoneFrom: d.zoneFrom,
		Rights: d.rightsOf, Token: token, Ours: d.starter.Ours, Logger: d.log, Metrics: d.metrics(),
	}), nil
}

// inForce shows the files as they are in force.
type inForce struct{ d *Daemon }

func (f inForce) Tasks(context.Context) ([]control.TaskRow, error) {
	return TaskRows(f.d.applied.Load(), f.d.clock.Next), nil
}

func (f inForce) Task(id string) (task.Task, bool) {
	t, ok := f.d.applied.Load().Tasks[id]
	return t.Task, ok
}

// problems are those of the files in force, as check words them.
func (d *Daemon) problems() []string {
	return problemLines(slices.Concat(d.applied.Load().Problems, *d.faulty.Load()))
}

func (f inForce) Problems() []string {
	lines := f.d.problems()
	if away := f.d.awayText.Load(); away != nil && *away != "" {
		lines = append(lines, *away)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := f.d.held(ctx); err != nil {
		lines = append(lines, err.Error())
	}
	return lines
}

// asked shows connectors as the API does.
type asked struct{ *connector.Pool }

func (p asked) Status() []control.ConnectorRow { return ConnectorRows(p.Pool.Status()) }

// ConnectorRows shows connectors as the API does.
func ConnectorRows(states []connector.State) []control.ConnectorRow {
	rows := make([]control.ConnectorRow, 0, len(states))
	for _, s := range states {
		rows = append(rows, control.ConnectorRow(s))
	}
	return rows
}

// startManual queues a run that a person asked for, of the files as they are on
// disk: who has just saved one means that.
func (d *Daemon) startManual(ctx context.Context, id string, script task.Script) (task.Run, error) {
	if err := d.Reload(ctx); err != nil {
		d.log.Error("reload", zap.Error(err))
	}
	if script != (task.Script{}) {
		if _, err := scripted.Parse(script.Name, []byte(script.Text)); err != nil {
			return task.Run{}, &control.Error{Status: http.StatusUnprocessableEntity, Code: control.CodeInvalidValue, Message: err.Error()}
		}
	}
	return d.NewManual(ctx, id, script)
}

func (d *Daemon) ReloadView(ctx context.Context, empty bool) (control.ReloadView, error) {
	load := d.loader.Load
	if empty {
		load = d.loader.LoadEmpty
	}
	err := d.reloadBy(ctx, load)
	d.lookAgain()
	var lost *config.LostError
	if errors.As(err, &lost) {
		err = &control.Error{Status: http.StatusConflict, Code: control.CodeConflict, Message: err.Error()}
	}
	if err == nil {
		d.away(d.applied.Load().Away)
	}
	set := d.applied.Load()
	return control.ReloadView{
		Tasks: len(set.Tasks), Connectors: len(set.Connectors), Problems: d.problems(),
		Warnings: problemLines(set.Warnings), Kept: append([]string{}, set.Kept...),
	}, err
}

// toolSupport says how the model of a session's task takes tools. It asks no
// model: what `auto` turns out to be shows at the first call.
func (d *Daemon) toolSupport(_ context.Context, session string) (control.ToolSupport, error) {
	set := d.applied.Load()
	t, ok := set.Tasks[session]
	if !ok {
		return control.ToolSupport{Supported: "unknown", Reason: "no task of this session is in force"}, nil
	}
	m, ok := set.Models[t.Task.Model]
	if !ok {
		return control.ToolSupport{Supported: "unknown", Reason: "the task's model is not in models.yaml"}, nil
	}
	mode := m.ToolMode
	switch mode {
	case "none":
		return control.ToolSupport{Supported: false, Mode: &mode, Reason: "tool_mode of model " + m.Name + " is none"}, nil
	case "auto":
		mode = "native"
		return control.ToolSupport{Supported: true, Mode: &mode, Reason: "native; fenced for a run in which the vendor rejects tools"}, nil
	}
	return control.ToolSupport{Supported: true, Mode: &mode, Reason: "tool_mode of model " + m.Name + " is " + mode}, nil
}
