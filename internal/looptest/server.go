package looptest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/policy"
)

// Tool is one tool of a Server.
type Tool struct {
	Name        string
	Description string
	// Schema defaults to any object.
	Schema string
	// ReadOnly and Destructive are hints; nil is no hint.
	ReadOnly, Destructive *bool
	// Do answers a call; nil answers "ok". An error is a failed tool.
	Do func(args string) (string, error)
}

// Called is one call that reached a server.
type Called struct{ Tool, Args string }

// Server is an MCP server in memory that records what reaches it.
type Server struct {
	id string
	// Instructions are what the server tells its clients on connecting.
	Instructions string

	mu      sync.Mutex
	tools   []Tool
	calls   []Called
	down    bool
	servers []*mcp.Server
}

// Server adds a connector with these tools, and what the connectors file says
// about it.
func (w *World) Server(id string, f policy.Fields, tools ...Tool) *Server {
	w.T.Helper()
	s := &Server{id: id, tools: tools}
	w.mu.Lock()
	w.servers[id] = s
	w.mu.Unlock()
	w.Pool.Set(w.specs())
	w.Policy(policy.ScopeConnector, id, f)
	return s
}

// Calls is what reached the server so far.
func (s *Server) Calls() []Called {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Called{}, s.calls...)
}

// Set replaces the server's tools, live: sessions hear list_changed.
func (s *Server) Set(tools ...Tool) {
	s.mu.Lock()
	old := s.tools
	s.tools = tools
	servers := append([]*mcp.Server{}, s.servers...)
	s.mu.Unlock()
	for _, srv := range servers {
		for _, t := range old {
			srv.RemoveTools(t.Name)
		}
		for _, t := range tools {
			s.add(srv, t)
		}
	}
}

// Down makes further sessions fail, or work again.
func (s *Server) Down(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *Server) connect() (mcp.Transport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("server is down")
	}
	srv := mcp.NewServer(&mcp.Implementation{Name: s.id, Version: "1"}, &mcp.ServerOptions{
		Instructions: s.Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	for _, t := range s.tools {
		s.add(srv, t)
	}
	s.servers = append(s.servers, srv)
	client, server := mcp.NewInMemoryTransports()
	if _, err := srv.Connect(context.Background(), server, nil); err != nil {
		return nil, err
	}
	return client, nil
}

func (s *Server) add(srv *mcp.Server, t Tool) {
	schema := t.Schema
	if schema == "" {
		schema = `{"type":"object"}`
	}
	def := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(schema)}
	if t.ReadOnly != nil || t.Destructive != nil {
		def.Annotations = &mcp.ToolAnnotations{DestructiveHint: t.Destructive}
		if t.ReadOnly != nil {
			def.Annotations.ReadOnlyHint = *t.ReadOnly
		}
	}
	srv.AddTool(def, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args := string(req.Params.Arguments)
		s.mu.Lock()
		s.calls = append(s.calls, Called{t.Name, args})
		s.mu.Unlock()
		text := "ok"
		if t.Do != nil {
			answer, err := t.Do(args)
			if err != nil {
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
			}
			text = answer
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
}
