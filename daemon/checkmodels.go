package daemon

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/llm"
	"runnerd/llm/provider"
	"runnerd/procgroup"
	"runnerd/task"
)

// ModelCheck is what one model answered when it was asked for one word.
type ModelCheck struct {
	Name string `json:"name"`
	// Answer is the beginning of what it said; empty with an error.
	Answer string  `json:"answer,omitempty"`
	Error  string  `json:"error,omitempty"`
	TookS  float64 `json:"took_s"`
	// Adapted is what the endpoint refused and is sent otherwise.
	Adapted []string `json:"adapted,omitempty"`
	// Counted tells whether the vendor counted the tokens; without it spend is
	// estimated.
	Counted bool `json:"counted"`
}

// probeTime bounds how long one model may take for one word.
const probeTime = time.Minute

// AskModels asks every model of models.yaml, but for scripted ones, for one word.
// It spends a few tokens at each, which are booked nowhere.
func (i *Inspection) AskModels(ctx context.Context) []ModelCheck {
	options := provider.Options{Resolve: i.secrets.ResolveSecret, Env: i.options.childEnviron("HOME"), Starter: &procgroup.Starter{Mark: procgroup.MarkOf(i.options.StateDir)}, Logger: zap.NewNop()}
	list := []ModelCheck{}
	for _, name := range slices.Sorted(maps.Keys(i.Set.Models)) {
		if spec := i.Set.Models[name]; spec.Provider != provider.Scripted {
			list = append(list, i.askModel(ctx, options, spec))
		}
	}
	return list
}

func (i *Inspection) askModel(ctx context.Context, options provider.Options, spec task.ModelSpec) (c ModelCheck) {
	c.Name = spec.Name
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	begin := time.Now()
	model, err := options.Open(spec)
	if err == nil {
		var resp *llm.Response
		resp, err = model.Next(ctx, &llm.Request{Messages: []task.Message{{Role: task.RoleUser, Text: "Answer with the one word: ready"}}})
		if err == nil {
			c.Answer, c.Counted = shown(i.redact.Text(resp.Text)), resp.Usage.Input > 0 && resp.Usage.Output > 0
		}
		if m, ok := model.(interface{ Adapted() []string }); ok {
			c.Adapted = m.Adapted()
		}
		if m, ok := model.(io.Closer); ok {
			_ = m.Close() // idle connections, which end with the process anyway
		}
	}
	if err != nil {
		c.Error = i.redact.Text(err.Error())
	}
	c.TookS = time.Since(begin).Seconds()
	return c
}

// shown is the beginning of an answer on one line.
func shown(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 60 {
		text = string(r[:60]) + "…"
	}
	return text
}
