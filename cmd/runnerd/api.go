package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"runnerd/sqldb"
	"runnerd/systemd"
	"runnerd/task"
)

// listen opens the control socket: the one that systemd hands over, or our own.
func (h *house) listen(a *app) (net.Listener, error) {
	if a.listener != nil {
		return a.listener(), nil
	}
	given, err := systemd.Listeners(a.getenv)
	if err != nil {
		return nil, err
	}
	switch len(given) {
	case 0:
		return control.Listen(h.settings.Socket)
	case 1:
		return given[0], nil
	}
	return nil, fmt.Errorf("systemd handed over %d sockets, want one", len(given))
}

// server speaks for the parts of the daemon.
func (h *house) server(a *app) (*control.Server, error) {
	token, err := h.openDoor(a)
	if err != nil {
		return nil, &exit{task.ExitUsage, err}
	}
	now := time.Now()
	return control.New(control.Options{
		Main: h.main, Policies: h.rules, Files: inForce{h}, Workers: h.workers, Connectors: asked{h.pool},
		Start: h.startManual, Reload: h.reloadView, ToolSupport: h.toolSupport, Healthy: h.healthy,
		Daemon:    control.DaemonView{Running: true, PID: os.Getpid(), Version: versionText(), StartedAt: &now},
		ConfigDir: h.settings.ConfigDir, StateDir: h.settings.StateDir, Zone: h.zone.String(), ZoneFrom: h.zoneFrom,
		Rights: h.rightsOf, Token: token, Ours: h.starter.Ours, Logger: h.log, Metrics: h.metrics(),
	}), nil
}

// inForce shows the files as they are in force.
type inForce struct{ h *house }

func (f inForce) Tasks(context.Context) ([]control.TaskRow, error) {
	return taskRows(f.h.applied.Load(), f.h.clock.Next), nil
}

func (f inForce) Task(id string) (task.Task, bool) {
	t, ok := f.h.applied.Load().Tasks[id]
	return t.Task, ok
}

// problems are those of the files in force, as check words them.
func (h *house) problems() []string {
	return problemLines(slices.Concat(h.applied.Load().Problems, *h.faulty.Load()))
}

func (f inForce) Problems() []string {
	lines := f.h.problems()
	if away := f.h.awayText.Load(); away != nil && *away != "" {
		lines = append(lines, *away)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := f.h.held(ctx); err != nil {
		lines = append(lines, err.Error())
	}
	return lines
}

// asked shows connectors as the API does.
type asked struct{ *connector.Pool }

func (p asked) Status() []control.ConnectorRow { return connectorRows(p.Pool.Status()) }

func connectorRows(states []connector.State) []control.ConnectorRow {
	rows := make([]control.ConnectorRow, 0, len(states))
	for _, s := range states {
		rows = append(rows, control.ConnectorRow(s))
	}
	return rows
}

// startManual queues a run that a person asked for, of the files as they are on
// disk: who has just saved one means that.
func (h *house) startManual(ctx context.Context, id string, script task.Script) (task.Run, error) {
	if err := h.reload(ctx); err != nil {
		h.log.Error("reload", zap.Error(err))
	}
	if script != (task.Script{}) {
		if _, err := scripted.Parse(script.Name, []byte(script.Text)); err != nil {
			return task.Run{}, &control.Error{Status: http.StatusUnprocessableEntity, Code: control.CodeInvalidValue, Message: err.Error()}
		}
	}
	return h.newManual(ctx, id, script)
}

func (h *house) reloadView(ctx context.Context, empty bool) (control.ReloadView, error) {
	load := h.loader.Load
	if empty {
		load = h.loader.LoadEmpty
	}
	err := h.reloadBy(ctx, load)
	h.lookAgain()
	var lost *config.LostError
	if errors.As(err, &lost) {
		err = &control.Error{Status: http.StatusConflict, Code: control.CodeConflict, Message: err.Error()}
	}
	if err == nil {
		h.away(h.applied.Load().Away)
	}
	set := h.applied.Load()
	return control.ReloadView{
		Tasks: len(set.Tasks), Connectors: len(set.Connectors), Problems: h.problems(),
		Warnings: problemLines(set.Warnings), Kept: append([]string{}, set.Kept...),
	}, err
}

// toolSupport says how the model of a session's task takes tools. It asks no
// model: what `auto` turns out to be shows at the first call.
func (h *house) toolSupport(_ context.Context, session string) (control.ToolSupport, error) {
	set := h.applied.Load()
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

// client speaks to the daemon of these settings.
func (a *app) client() *control.Client {
	return control.NewClient(a.Socket, func() string {
		token, err := control.ReadToken(a.StateDir)
		if err != nil {
			return "" // the daemon says what is missing
		}
		return token
	})
}

// live answers with the daemon's client if one runs, else nil. Who may not read the
// state directory may still be let in at the socket.
func (a *app) live(ctx context.Context) *control.Client {
	if held, err := sqldb.Holder(a.StateDir); held == nil && !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	c := a.client()
	if err := c.Health(ctx); errors.Is(err, control.ErrNoDaemon) {
		return nil
	}
	return c
}

// instead answers with the daemon's client where err is that the caller may not
// read the daemon's own files, else nil.
func (a *app) instead(ctx context.Context, err error) *control.Client {
	if !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return a.live(ctx)
}

// asDaemon does something with the stores under the state lock, for verbs that
// work with no daemon running; the next `serve` goes on from there.
func (a *app) asDaemon(ctx context.Context, do func(h *house) error) error {
	h, err := a.openHouse(ctx, quiet(a))
	var held *sqldb.HeldError
	if errors.As(err, &held) {
		return a.unheard(held.PID)
	}
	if err != nil {
		return err
	}
	return errors.Join(do(h), h.close())
}

// unheard says that a daemon holds the state directory and does not answer.
func (a *app) unheard(pid int) error {
	return usage("process %d holds %s, but nothing listens at %s; if its socket is elsewhere say so with RUNNERD_SOCKET, else wait for it or restart it", pid, a.StateDir, a.Socket)
}
