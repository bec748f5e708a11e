// Package provider opens the vendor that an entry of models.yaml names. The
// wiring calls it; the vendors know nothing of each other.
package provider

import (
	"fmt"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/llm/anthropic"
	"runnerd/llm/command"
	"runnerd/llm/ollama"
	"runnerd/llm/openai"
	"runnerd/llm/scripted"
	"runnerd/procgroup"
	"runnerd/task"
)

// The providers, as models.yaml names them.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Ollama    = "ollama"
	Command   = "command"
	Scripted  = "scripted"
)

// Options are what all models of a daemon share.
type Options struct {
	// Resolve replaces ${...} references. A key and a command's arguments are
	// resolved anew for each call, so that a rotated credential counts at once.
	Resolve func(string) (string, error)
	// Env is the whole environment of models that are commands; nil means
	// command.DefaultEnv.
	Env []string
	// Starter starts models that are commands; nil is one without a mark.
	Starter *procgroup.Starter
	Logger  *zap.Logger
}

// Open returns the model of a spec, with options that say no more than how
// references are resolved.
func Open(spec task.ModelSpec, resolve func(string) (string, error)) (llm.Model, error) {
	return Options{Resolve: resolve}.Open(spec)
}

// Open returns the model of a spec. It does no I/O but for the script of a
// scripted one.
func (o Options) Open(spec task.ModelSpec) (llm.Model, error) {
	model, err := o.open(spec)
	if err != nil {
		return nil, fmt.Errorf("open model %s: %w", spec.Name, err)
	}
	return model, nil
}

func (o Options) open(spec task.ModelSpec) (llm.Model, error) {
	switch spec.Provider {
	case Scripted:
		return scripted.Open(spec.Script)
	case Command:
		return command.New(command.Options{
			Starter: o.Starter,
			Argv:    spec.Command, Resolve: o.Resolve, Env: o.Env, Timeout: spec.Timeout, Logger: o.Logger})
	}
	end, err := o.endpoint(spec)
	if err != nil {
		return nil, err
	}
	switch spec.Provider {
	case OpenAI:
		return openai.New(openai.Options{Endpoint: end})
	case Anthropic:
		return anthropic.New(anthropic.Options{Endpoint: end})
	case Ollama:
		return ollama.New(ollama.Options{Endpoint: end, ContextTokens: spec.ContextTokens})
	}
	return nil, fmt.Errorf("provider %q is not known: want openai, anthropic, ollama, command or scripted", spec.Provider)
}

// endpoint is what the vendors over HTTP have in common.
func (o Options) endpoint(spec task.ModelSpec) (llm.Endpoint, error) {
	base, err := o.Resolve(spec.BaseURL)
	if err != nil {
		return llm.Endpoint{}, fmt.Errorf("base_url: %w", err)
	}
	return llm.Endpoint{
		BaseURL: base, Model: spec.Model, MaxOutputTokens: spec.MaxOutputTokens, Timeout: spec.Timeout, Logger: o.Logger,
		Key: func() (string, error) { return o.Resolve(spec.APIKey) },
	}, nil
}
