package attack

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/internal/looptest"
)

// counter numbers the calls of all servers.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// server is what stands behind a relay: it lists whatever its scenario says, odd
// names and doubles included, and records what reaches it.
type server struct {
	spec  Server
	arena *Arena

	mu    sync.Mutex
	added []Tool
	edits map[string]func(*Tool)
	calls []looptest.Called
	live  *mcp.Server
	lists int
}

func (s *server) received() []looptest.Called {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]looptest.Called{}, s.calls...)
}

// tools are the tools as they stand now.
func (s *server) tools() []Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Tool
	for _, t := range append(append([]Tool{}, s.spec.Tools...), s.added...) {
		if t.Evil && !s.arena.attack {
			continue
		}
		if edit := s.edits[t.Name]; edit != nil {
			edit(&t)
		}
		list = append(list, t)
	}
	return list
}

// serving is a server that lists and answers what it is told to.
func serving(id, instructions string, list func() *mcp.ListToolsResult, call func(tool, args string) *mcp.CallToolResult) *mcp.Server {
	srv := mcp.NewServer(&mcp.Implementation{Name: id, Version: "1"}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	srv.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch r := req.(type) {
			case *mcp.ListToolsRequest:
				return list(), nil
			case *mcp.CallToolRequest:
				return call(r.Params.Name, string(r.Params.Arguments)), nil
			}
			return next(ctx, method, req)
		}
	})
	return srv
}

func (s *server) list() *mcp.ListToolsResult {
	res := &mcp.ListToolsResult{}
	for _, t := range s.tools() {
		schema := t.Schema
		if schema == "" {
			schema = `{"type":"object"}`
		}
		def := &mcp.Tool{
			Name: t.Name, Description: s.arena.fill(t.Description),
			InputSchema: json.RawMessage(strings.ReplaceAll(schema, "{{poison}}", inJSON(s.arena.fill("{{poison}}")))),
		}
		if t.ReadOnly != nil {
			def.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: *t.ReadOnly}
		}
		res.Tools = append(res.Tools, def)
	}
	s.mu.Lock()
	s.lists++
	s.mu.Unlock()
	return res
}

func inJSON(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return ""
	}
	return string(data[1 : len(data)-1])
}

func (s *server) call(name, args string) *mcp.CallToolResult {
	s.mu.Lock()
	s.calls = append(s.calls, looptest.Called{Tool: name, Args: args})
	s.mu.Unlock()
	n := s.arena.count.next()
	if s.arena.attack && s.arena.s.Twist != nil {
		s.arena.s.Twist(s.arena, n)
	}
	answer, failed := "no such tool", true
	for _, t := range s.tools() {
		if t.Name != name {
			continue
		}
		answer, failed = t.Answer, t.Failed
		if t.Do != nil {
			if text := t.Do(s.arena, args); text != "" {
				answer = text
			}
		}
		if answer == "" {
			answer = "ok"
		}
	}
	return &mcp.CallToolResult{IsError: failed, Content: []mcp.Content{&mcp.TextContent{Text: s.arena.fill(answer)}}}
}

// Edit changes a tool's definition while sessions are open and returns when the
// pool has seen it.
func (a *Arena) Edit(connector, tool string, edit func(*Tool)) {
	s := a.servers[connector]
	s.mu.Lock()
	if s.edits == nil {
		s.edits = map[string]func(*Tool){}
	}
	s.edits[tool] = edit
	s.mu.Unlock()
	s.announce()
}

// Add makes a server offer one more tool.
func (a *Arena) Add(connector string, t Tool) {
	s := a.servers[connector]
	s.mu.Lock()
	s.added = append(s.added, t)
	s.mu.Unlock()
	s.announce()
}

// announce sends list_changed, which the SDK does when a tool is registered, and
// waits until the pool has asked for the list again.
func (s *server) announce() {
	s.mu.Lock()
	before := s.lists
	s.mu.Unlock()
	s.live.AddTool(&mcp.Tool{Name: "announce", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		_, err := s.arena.Pool.Tools(ctx, s.spec.ID)
		s.mu.Lock()
		seen := s.lists > before
		s.mu.Unlock()
		if seen || err != nil || ctx.Err() != nil {
			tick.Stop()
			if !seen {
				s.arena.T.Errorf("connector %s did not ask for its list again: %v", s.spec.ID, err)
			}
			return
		}
	}
}
