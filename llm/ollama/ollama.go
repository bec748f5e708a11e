package ollama

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
)

// DefaultBaseURL is where a model without a base_url is asked.
const DefaultBaseURL = "http://127.0.0.1:11434"

// Options are an endpoint and the context window that its model is to have.
type Options struct {
	llm.Endpoint
	// ContextTokens is sent as num_ctx; 0 leaves the window to the server, whose
	// own default is small.
	ContextTokens int
}

// Model is one model at one server.
type Model struct {
	client  *wire.Client
	path    string
	context int
	vendor  string
}

// New checks the options. It does no I/O. A base URL may end in /api or not.
func New(opts Options) (*Model, error) {
	client, err := wire.NewClient(opts.Endpoint, DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	m := &Model{
		client: client, path: "/api/chat", context: opts.ContextTokens,
		vendor: "ollama:" + client.Host() + "/" + client.Model(),
	}
	switch base := client.BasePath(); {
	case strings.HasSuffix(base, "/v1"):
		return nil, fmt.Errorf("base_url %q: is the OpenAI-compatible wire; leave off /v1, or use provider openai", opts.BaseURL)
	case strings.HasSuffix(base, "/api"):
		m.path = "/chat"
	}
	return m, nil
}

// Close drops idle connections.
func (m *Model) Close() error { return m.client.Close() }

// Next asks for one answer. A prompt that does not fit the context window is an
// error of kind ContextOverflow where the server is new enough to be told so;
// older ones drop the oldest messages without a word.
func (m *Model) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	entries, err := wire.Prepare(req.Messages, m.vendor)
	if err != nil {
		return nil, err
	}
	header, err := m.client.Bearer("application/x-ndjson")
	if err != nil {
		return nil, err
	}
	r, err := m.client.Ask(ctx, len(req.Tools) > 0, wire.Question{
		Path: m.path, Header: header, Vendor: m.vendor,
		Body:   func() wire.Request { return m.body(req, entries) },
		Answer: func() wire.Answer { return newAnswer(req) },
	})
	m.explain(err)
	return r, err
}

// Adapted tells what the server refused and is sent otherwise now.
func (m *Model) Adapted() []string { return m.client.Adapted() }

// Params are the parameters that a server of this wire may not know and that can
// be done without.
func (r request) Params() []wire.Param {
	var list []wire.Param
	if r.Truncate != nil {
		list = append(list, wire.Param{Name: "truncate"})
	}
	if r.Shift != nil {
		list = append(list, wire.Param{Name: "shift"})
	}
	if r.Stream {
		list = append(list, wire.Param{Name: "stream"})
	}
	return list
}

var (
	overflowWords = regexp.MustCompile(`(?i)longer than the context (?:length|window)|prompt (?:is )?too long|exceed(?:s|ed|ing)? (?:the )?(?:max(?:imum)? )?context`)
	missingWords  = regexp.MustCompile(`(?i)\bmodel\b.*(?:not found|does not exist)`)
)

// explain adds to a server's words what it leaves to be guessed.
func (m *Model) explain(err error) {
	var said *llm.Error
	switch {
	case !errors.As(err, &said):
	case said.Kind == llm.NotFound && missingWords.MatchString(said.Message):
		said.Message += "; run: ollama pull " + m.client.Model()
	case (said.Kind == llm.BadRequest || said.Kind == llm.ServerError) && overflowWords.MatchString(said.Message):
		said.Kind = llm.ContextOverflow
	}
}
