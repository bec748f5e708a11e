// Package provider opens the vendor that an entry of models.yaml names. The
// wiring calls it; the vendors know nothing of each other.
package provider

import (
	"fmt"

	"runnerd/llm"
	"runnerd/llm/openai"
	"runnerd/llm/scripted"
	"runnerd/task"
)

// The providers, as models.yaml names them.
const (
	OpenAI   = "openai"
	Scripted = "scripted"
)

// Open returns the model of a spec. resolve replaces ${...} references; a key is
// resolved anew for each call, so that a rotated credential counts at once.
func Open(spec task.ModelSpec, resolve func(string) (string, error)) (llm.Model, error) {
	switch spec.Provider {
	case Scripted:
		return scripted.Open(spec.Script)
	case OpenAI:
		end, err := endpoint(spec, resolve)
		if err != nil {
			return nil, err
		}
		return openai.New(openai.Options{Endpoint: end})
	}
	return nil, fmt.Errorf("open model %s: provider %q is not known", spec.Name, spec.Provider)
}

// endpoint is what the vendors over HTTP have in common.
func endpoint(spec task.ModelSpec, resolve func(string) (string, error)) (llm.Endpoint, error) {
	base, err := resolve(spec.BaseURL)
	if err != nil {
		return llm.Endpoint{}, fmt.Errorf("open model %s: base_url: %w", spec.Name, err)
	}
	return llm.Endpoint{
		BaseURL: base, Model: spec.Model, MaxOutputTokens: spec.MaxOutputTokens, Timeout: spec.Timeout,
		Key: func() (string, error) { return resolve(spec.APIKey) },
	}, nil
}
