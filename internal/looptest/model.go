package looptest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"runnerd/llm"
	"runnerd/task"
)

// ModelFunc is a model written as a function.
type ModelFunc func(ctx context.Context, req *llm.Request) (*llm.Response, error)

// Next implements llm.Model.
func (f ModelFunc) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	return f(ctx, req)
}

// recorder keeps what a model was asked.
type recorder struct {
	llm.Model
	mu   sync.Mutex
	reqs []llm.Request
}

func (r *recorder) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	kept := *req
	kept.Messages = slices.Clone(req.Messages)
	r.mu.Lock()
	r.reqs = append(r.reqs, kept)
	r.mu.Unlock()
	return r.Model.Next(ctx, req)
}

// Requests is what the models were asked so far, in order.
func (w *World) Requests() []llm.Request {
	w.asked.mu.Lock()
	defer w.asked.mu.Unlock()
	return slices.Clone(w.asked.reqs)
}

// Answers makes a model that gives these answers one after another, whatever it is
// asked, and then the last for ever.
func (w *World) Answers(answers ...llm.Response) {
	var mu sync.Mutex
	n := 0
	w.Use(ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		answer := answers[min(n, len(answers)-1)]
		n++
		return &answer, nil
	}))
}

// Ask is an answer that calls tools: pairs of a name as the model writes it and
// arguments.
func Ask(pairs ...string) llm.Response {
	r := llm.Response{Finish: llm.FinishToolCalls}
	for i := 0; i+1 < len(pairs); i += 2 {
		r.Calls = append(r.Calls, task.ToolCall{Name: pairs[i], Arguments: pairs[i+1]})
	}
	return r
}

// Say is a final answer.
func Say(text string) llm.Response { return llm.Response{Text: text, Finish: llm.FinishStop} }

// Named puts a further model, with its spec, beside the default one.
func (w *World) Named(spec task.ModelSpec, m llm.Model) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.named[spec.Name] = namedModel{spec, m}
}

type namedModel struct {
	spec  task.ModelSpec
	model llm.Model
}

func rawPatch(patch map[string]string) map[string]json.RawMessage {
	raw := map[string]json.RawMessage{}
	for name, text := range patch {
		raw[name] = json.RawMessage(text)
	}
	return raw
}
