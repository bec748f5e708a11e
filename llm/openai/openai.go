// Package openai speaks the chat-completions wire as a client of our own, to
// OpenAI itself and to the servers that follow it: Ollama and llama.cpp, vLLM,
// OpenRouter. It streams, keeps the exact bytes of arguments and every field of
// an assistant message that it does not know, and asks again only without a
// parameter that the endpoint refused. The wiring opens it for `provider: openai`.
package openai

import (
	"context"
	"encoding/json"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// DefaultBaseURL is where a model without a base_url is asked.
const DefaultBaseURL = "https://api.openai.com/v1"

// The names under which servers take the cap on an answer.
const (
	MaxTokens           = "max_tokens"
	MaxCompletionTokens = "max_completion_tokens"
)

// Options are an endpoint and what its dialect needs.
type Options struct {
	llm.Endpoint
	// TokenParam is MaxTokens or MaxCompletionTokens; empty means the newer name
	// for OpenAI's and Azure's own hosts, the older one, which all others know,
	// elsewhere.
	TokenParam string
}

// Model is one model at one endpoint.
type Model struct {
	client *wire.Client
	param  string
	vendor string
}

// New checks the options. It does no I/O.
func New(opts Options) (*Model, error) {
	client, err := wire.NewClient(opts.Endpoint, DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	m := &Model{client: client, param: opts.TokenParam, vendor: "openai:" + client.Host() + "/" + client.Model()}
	if m.param == "" {
		m.param = tokenParam(client.Host())
	}
	return m, nil
}

func tokenParam(host string) string {
	if host == "api.openai.com" || strings.HasSuffix(host, ".openai.com") || strings.HasSuffix(host, ".openai.azure.com") {
		return MaxCompletionTokens
	}
	return MaxTokens
}

// Close drops idle connections.
func (m *Model) Close() error { return m.client.Close() }

// Next asks for one answer.
func (m *Model) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	entries, err := wire.Prepare(req.Messages, m.vendor)
	if err != nil {
		return nil, err
	}
	header, err := m.client.Bearer("text/event-stream")
	if err != nil {
		return nil, err
	}
	return m.client.Ask(ctx, len(req.Tools) > 0, wire.Question{
		Path: "/chat/completions", Header: header, Vendor: m.vendor,
		Body:   func() wire.Request { return m.body(req, entries) },
		Answer: func() wire.Answer { return newAnswer(req) },
	})
}

// Adapted tells what the endpoint refused and is sent otherwise now.
func (m *Model) Adapted() []string { return m.client.Adapted() }

// Params are the parameters of a request that an endpoint may not know and that
// can be done without, or under another name.
func (r request) Params() []wire.Param {
	var list []wire.Param
	if r.StreamOptions != nil {
		list = append(list, wire.Param{Name: "stream_options"})
	}
	if r.Stream {
		list = append(list, wire.Param{Name: "stream"})
	}
	if r.MaxTokens > 0 {
		list = append(list, wire.Param{Name: MaxTokens, Instead: MaxCompletionTokens})
	}
	if r.MaxCompletion > 0 {
		list = append(list, wire.Param{Name: MaxCompletionTokens, Instead: MaxTokens})
	}
	return list
}

// request is the body of a call. Its fields keep their order, so that equal
// histories begin with equal bytes.
type request struct {
	Model         string            `json:"model"`
	Messages      []json.RawMessage `json:"messages"`
	Tools         []tool            `json:"tools,omitempty"`
	Stream        bool              `json:"stream"`
	StreamOptions *streamOptions    `json:"stream_options,omitempty"`
	MaxTokens     int               `json:"max_tokens,omitempty"`
	MaxCompletion int               `json:"max_completion_tokens,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

func (m *Model) body(req *llm.Request, entries []wire.Entry) request {
	r := request{Model: m.client.Model(), Stream: !m.client.Without("stream")}
	if r.Stream && !m.client.Without("stream_options") {
		r.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if m.client.Name(m.param) == MaxCompletionTokens {
		r.MaxCompletion = m.client.MaxTokens(req)
	} else {
		r.MaxTokens = m.client.MaxTokens(req)
	}
	if req.System != "" {
		r.Messages = append(r.Messages, wire.JSON(message{Role: "system", Content: &req.System}))
	}
	for _, e := range entries {
		r.Messages = append(r.Messages, messages(e)...)
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, tool{Type: "function", Function: function{
			Name: t.Name, Description: t.Description, Parameters: wire.Schema(t.InputSchema)}})
	}
	return r
}

// message is one message on the wire. Content is null beside calls without text.
type message struct {
	Role       string            `json:"role"`
	Content    *string           `json:"content"`
	ToolCalls  []json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func messages(e wire.Entry) []json.RawMessage {
	switch e.Role {
	case task.RoleTool:
		var out []json.RawMessage
		for _, r := range e.Results {
			text := r.Said()
			out = append(out, wire.JSON(message{Role: "tool", Content: &text, ToolCallID: r.CallID}))
		}
		return out
	case task.RoleAssistant:
		return []json.RawMessage{assistant(e)}
	}
	return []json.RawMessage{wire.JSON(message{Role: "user", Content: &e.Text})}
}

func assistant(e wire.Entry) json.RawMessage {
	extra := parseExtra(e.Opaque)
	m := message{Role: "assistant", Content: &e.Text}
	if e.Text == "" && len(e.Calls) > 0 {
		m.Content = nil
	}
	for i, c := range e.Calls {
		tc := toolCall{ID: c.ID, Type: "function"}
		tc.Function.Name, tc.Function.Arguments = c.Name, wire.Arguments(c.Arguments)
		m.ToolCalls = append(m.ToolCalls, wire.Splice(wire.JSON(tc), extra.Calls[i]))
	}
	return wire.Splice(wire.JSON(m), extra.Message)
}
