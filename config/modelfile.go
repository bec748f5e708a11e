package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"runnerd/task"
)

type modelsFile struct {
	Models map[string]modelKeys `json:"models,omitempty" jsonschema:"endpoints by name; a task without a model key uses the one named default"`
}

type modelKeys struct {
	Provider        string     `json:"provider" enum:"openai,anthropic,ollama,command,scripted" jsonschema:"wire format; openai is any compatible endpoint, scripted plays a file of turns for rehearsals"`
	BaseURL         string     `json:"base_url,omitempty" title:"Base URL" example:"http://127.0.0.1:11434/v1" jsonschema:"endpoint; default: the vendor's own"`
	Model           string     `json:"model,omitempty" example:"qwen3:8b" jsonschema:"the vendor's name of the model"`
	APIKey          string     `json:"api_key,omitempty" title:"API key" example:"${credential:openai}" jsonschema:"a reference to the key, never the key itself"`
	Command         *[]string  `json:"command,omitempty" empty:"ok" jsonschema:"of provider command: program and arguments"`
	Script          string     `json:"script,omitempty" example:"scripts/hello.yaml" jsonschema:"of provider scripted: a file of turns, relative to the config directory"`
	ToolMode        string     `json:"tool_mode,omitempty" enum:"auto,native,fenced,none" default:"auto" jsonschema:"how tools are offered; auto is native until the vendor rejects tools, then fenced"`
	ContextTokens   int        `json:"context_tokens,omitempty" min:"256" default:"32768" jsonschema:"size of the context window"`
	MaxOutputTokens int        `json:"max_output_tokens,omitempty" min:"1" default:"4096" jsonschema:"cap on one answer"`
	Price           *priceKeys `json:"price,omitempty" jsonschema:"per million tokens; absent means unknown, not free"`
	Fallback        *[]string  `json:"fallback,omitempty" jsonschema:"models to try, in order, when this one cannot be reached; no other is ever used"`
	Timeout         *duration  `json:"timeout,omitempty" default:"2m" jsonschema:"deadline of one call"`
}

type priceKeys struct {
	Input      float64  `json:"input" min:"0" jsonschema:"per million input tokens"`
	Output     float64  `json:"output" min:"0" jsonschema:"per million output tokens"`
	CacheRead  *float64 `json:"cache_read,omitempty" min:"0" jsonschema:"per million tokens read from the vendor's cache"`
	CacheWrite *float64 `json:"cache_write,omitempty" min:"0" jsonschema:"per million tokens written to the vendor's cache"`
}

// What a model has where its entry is silent.
const (
	defaultContextTokens   = 32768
	defaultMaxOutputTokens = 4096
	defaultModelTimeout    = 2 * time.Minute
)

func (m modelKeys) contextTokens() int {
	if m.ContextTokens == 0 {
		return defaultContextTokens
	}
	return m.ContextTokens
}

func (m modelKeys) maxOutputTokens() int {
	if m.MaxOutputTokens == 0 {
		return min(defaultMaxOutputTokens, m.contextTokens()/2)
	}
	return m.MaxOutputTokens
}

// spec is the entry as the models are built from it; dir makes paths absolute.
func (m modelKeys) spec(name, dir string) task.ModelSpec {
	s := task.ModelSpec{
		Name: name, Provider: m.Provider, BaseURL: m.BaseURL, Model: m.Model, APIKey: m.APIKey,
		Command: values(m.Command), Script: m.Script, ToolMode: m.ToolMode,
		ContextTokens: m.contextTokens(), MaxOutputTokens: m.maxOutputTokens(),
		Fallback: values(m.Fallback), Timeout: orElse(m.Timeout, defaultModelTimeout),
	}
	if s.ToolMode == "" {
		s.ToolMode = "auto"
	}
	if s.Script != "" && !filepath.IsAbs(s.Script) {
		s.Script = filepath.Join(dir, s.Script)
	}
	if m.Price != nil {
		s.Price = &task.Price{Input: m.Price.Input, Output: m.Price.Output, CacheRead: m.Price.CacheRead, CacheWrite: m.Price.CacheWrite}
	}
	return s
}

func values(list *[]string) []string {
	if list == nil {
		return nil
	}
	return *list
}

func orElse(d *duration, other time.Duration) time.Duration {
	if d == nil {
		return other
	}
	return time.Duration(*d)
}

func (p *parsed) checkModels() {
	for _, name := range slices.Sorted(maps.Keys(p.models.Models)) {
		at := []string{"models", name}
		if !task.ValidID(name) {
			p.complain(at, "bad model name "+quoted(name), expectedID, "")
		}
		p.checkModel(at, p.models.Models[name])
		p.checkFallback(name)
	}
}

// modelNeeds says which key each provider cannot do without.
var modelNeeds = map[string]string{
	"openai": "model", "anthropic": "model", "ollama": "model", "command": "command", "scripted": "script",
}

func (p *parsed) checkModel(at []string, m modelKeys) {
	if need := modelNeeds[m.Provider]; need != "" && !p.tree.has(below(at, need)...) {
		p.complain(at, fmt.Sprintf("provider %s without a key %s", m.Provider, need), need, "")
	}
	for _, key := range []string{"command", "script"} {
		if here := below(at, key); m.Provider != "" && p.tree.has(here...) && modelNeeds[m.Provider] != key {
			p.complainKey(here, fmt.Sprintf("key %q does not belong to provider %s", key, m.Provider), "", "")
		}
	}
	if m.maxOutputTokens() >= m.contextTokens() {
		p.complain(below(at, "max_output_tokens"), "the answer's cap leaves no room in the context window",
			fmt.Sprintf("less than context_tokens, %d", m.contextTokens()), "")
	}
	if m.Timeout != nil && *m.Timeout <= 0 {
		p.complain(below(at, "timeout"), "0 is too short", expectedDuration, "")
	}
	p.reference(below(at, "base_url"), m.BaseURL, forSecret)
	p.reference(below(at, "api_key"), m.APIKey, forSecret)
	p.checkURL(below(at, "base_url"), m.BaseURL)
	if m.Command != nil {
		p.checkCommand(below(at, "command"), *m.Command)
	}
}

// checkFallback wants every fallback to exist and none to lead back.
func (p *parsed) checkFallback(name string) {
	models := p.models.Models
	for i, next := range values(models[name].Fallback) {
		at := []string{"models", name, "fallback", fmt.Sprint(i)}
		if _, ok := models[next]; !ok {
			if !p.tree.has("models", next) {
				names := slices.Sorted(maps.Keys(models))
				p.complain(at, "unknown model "+quoted(next), "a model of this file", didYouMean(next, names))
			}
			continue
		}
		if leadsTo(models, next, name, make(map[string]bool)) {
			p.complain(at, fmt.Sprintf("%s falls back to %s, which leads back to %s", name, next, name), "no cycle", "")
		}
	}
}

func leadsTo(models map[string]modelKeys, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, next := range values(models[from].Fallback) {
		if leadsTo(models, next, to, seen) {
			return true
		}
	}
	return false
}
