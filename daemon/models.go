package daemon

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"runnerd/llm"
	"runnerd/llm/provider"
	"runnerd/llm/scripted"
	"runnerd/task"
)

// models opens models by name and keeps each until its entry changes.
type models struct {
	provider provider.Options

	mu    sync.Mutex
	specs map[string]task.ModelSpec
	open  map[string]openModel
}

type openModel struct {
	spec  task.ModelSpec
	model llm.Model
}

func newModels(p provider.Options) *models {
	return &models{provider: p, open: map[string]openModel{}}
}

// set makes specs the models there are.
func (m *models) set(specs map[string]task.ModelSpec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.specs = specs
}

// Model implements agentloop.Models.
func (m *models) Model(_ context.Context, name string) (llm.Model, task.ModelSpec, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	spec, ok := m.specs[name]
	if !ok {
		return nil, task.ModelSpec{}, fmt.Errorf("no such model in models.yaml")
	}
	if o, ok := m.open[name]; ok && reflect.DeepEqual(o.spec, spec) {
		return o.model, spec, nil
	}
	model, err := m.provider.Open(spec)
	if err != nil {
		return nil, task.ModelSpec{}, err
	}
	m.open[name] = openModel{spec, model}
	return model, spec, nil
}

// Rehearsal implements agentloop.Models.
func (m *models) Rehearsal(_ context.Context, name string, script task.Script) (llm.Model, task.ModelSpec, error) {
	parsed, err := scripted.Parse(script.Name, []byte(script.Text))
	if err != nil {
		return nil, task.ModelSpec{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	spec := m.specs[name]
	spec.Name, spec.Provider, spec.Fallback = "script", provider.Scripted, nil
	if spec.ToolMode == "" {
		spec.ToolMode = "auto"
	}
	return scripted.New(parsed), spec, nil
}
