package main

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
	// script, if set, stands in for every model: `run --script`.
	script string

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
	if m.script != "" {
		return m.rehearsal(spec)
	}
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

// rehearsal is the script, with the limits of the model that it stands in for.
func (m *models) rehearsal(spec task.ModelSpec) (llm.Model, task.ModelSpec, error) {
	spec.Name, spec.Provider, spec.Script, spec.Fallback = "script", "scripted", m.script, nil
	if spec.ToolMode == "" {
		spec.ToolMode = "auto"
	}
	if o, ok := m.open[m.script]; ok {
		return o.model, spec, nil
	}
	model, err := scripted.Open(m.script)
	if err == nil {
		m.open[m.script] = openModel{model: model}
	}
	return model, spec, err
}
