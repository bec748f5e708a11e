package anthropic

import (
	"context"
	"io"
	"mime"
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
	a := newAnswer(req)
	err = m.client.Do(ctx, wire.Post{
		Path: m.path, Header: header, Body: m.body(req, entries), Tools: len(req.Tools) > 0,
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
