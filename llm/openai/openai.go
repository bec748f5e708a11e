// Package openai speaks the chat-completions wire as a client of our own, to
// OpenAI itself and to the servers that follow it: Ollama and llama.cpp, vLLM,
// OpenRouter. It streams, keeps the exact bytes of arguments and every field of
// an assistant message that it does not know, and never retries. The wiring
// opens it for `provider: openai`.
package openai

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
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
	key, err := m.client.Key()
	if err != nil {
		return nil, err
	}
	header := http.Header{"Accept": {"text/event-stream"}}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	a := newAnswer(req)
	err = m.client.Do(ctx, wire.Post{
		Path: "/chat/completions", Header: header, Body: m.body(req, entries), Tools: len(req.Tools) > 0,
		Read: func(contentType string, body io.Reader) error {
			if media, _, _ := mime.ParseMediaType(contentType); media == "application/json" {
				return a.readWhole(body)
			}
			return a.readStream(body)
		},
	})
	if err != nil {
		return nil, err
	}
	return a.response(m.vendor)
}

// request is the body of a call. Its fields keep their order, so that equal
// histories begin with equal bytes.
type request struct {
	Model         string            `json:"model"`
	Messages      []json.RawMessage `json:"messages"`
	Tools         []tool            `json:"tools,omitempty"`
	Stream        bool              `json:"stream"`
	StreamOptions streamOptions     `json:"stream_options"`
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

func (m *Model) body(req *llm.Request, entries []wire.Entry) []byte {
	r := request{Model: m.client.Model(), Stream: true, StreamOptions: streamOptions{IncludeUsage: true}}
	if m.param == MaxCompletionTokens {
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
	return wire.JSON(r)
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
			out = append(out, wire.JSON(message{Role: "tool", Content: &r.Text, ToolCallID: r.CallID}))
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
		m.ToolCalls = append(m.ToolCalls, splice(wire.JSON(tc), extra.Calls[i]))
	}
	return splice(wire.JSON(m), extra.Message)
}
