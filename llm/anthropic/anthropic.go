package anthropic

import (
	"context"
	"net/http"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
)

const (
	// DefaultBaseURL is where a model without a base_url is asked.
	DefaultBaseURL = "https://api.anthropic.com"
	// DefaultVersion is the version of the wire that this package speaks.
	DefaultVersion = "2023-06-01"
	// DefaultMaxTokens caps an answer where neither request nor endpoint does:
	// the wire knows no request without a cap.
	DefaultMaxTokens = 8192
)

// Options are an endpoint and what the wire wants told beside it.
type Options struct {
	llm.Endpoint
	// Version is sent as anthropic-version; empty means DefaultVersion.
	Version string
	// Betas are sent as anthropic-beta.
	Betas []string
}

// Model is one model at one endpoint.
type Model struct {
	client  *wire.Client
	path    string
	version string
	betas   string
	vendor  string
}

// New checks the options. It does no I/O. A base URL may end in /v1 or not.
func New(opts Options) (*Model, error) {
	client, err := wire.NewClient(opts.Endpoint, DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	m := &Model{
		client: client, path: "/v1/messages", version: opts.Version, betas: strings.Join(opts.Betas, ","),
		vendor: "anthropic:" + client.Host() + "/" + client.Model(),
	}
	if strings.HasSuffix(client.BasePath(), "/v1") {
		m.path = "/messages"
	}
	if m.version == "" {
		m.version = DefaultVersion
	}
	return m, nil
}

// Close drops idle connections.
func (m *Model) Close() error { return m.client.Close() }

// Next asks for one answer.
func (m *Model) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	entries, err := wire.Prepare(req.Messages, m.vendor)
	if err != nil {
		return nil, err
	}
	header, err := m.header()
	if err != nil {
		return nil, err
	}
	return m.client.Ask(ctx, len(req.Tools) > 0, wire.Question{
		Path: m.path, Header: header, Vendor: m.vendor,
		Body:   func() wire.Request { return m.body(req, entries) },
		Answer: func() wire.Answer { return newAnswer(req) },
	})
}

// Adapted tells what the endpoint refused and is sent otherwise now.
func (m *Model) Adapted() []string { return m.client.Adapted() }

// Params are the parameters that a server of this wire may not know and that can
// be done without.
func (r request) Params() []wire.Param {
	var list []wire.Param
	if r.cached {
		list = append(list, wire.Param{Name: cacheControl})
	}
	if r.ToolChoice != nil {
		list = append(list, wire.Param{Name: "tool_choice"})
	}
	if r.Stream {
		list = append(list, wire.Param{Name: "stream"})
	}
	return list
}

func (m *Model) header() (http.Header, error) {
	key, err := m.client.Key()
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	h.Set("Accept", "text/event-stream")
	h.Set("Anthropic-Version", m.version)
	if m.betas != "" {
		h.Set("Anthropic-Beta", m.betas)
	}
	if key != "" {
		h.Set("X-Api-Key", key)
	}
	return h, nil
}
