package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"runnerd/connector"
	"runnerd/task"
)

// scenarioVar is what the suite sets for the client that it starts, with the
// server's URL as last argument.
const scenarioVar = "MCP_CONFORMANCE_SCENARIO"

// TestMain makes the test binary the client when the suite starts it.
func TestMain(m *testing.M) {
	if os.Getenv(scenarioVar) == "" {
		os.Exit(m.Run())
	}
	if err := client(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// client does with a server what a run does: it opens it, lists its tools and
// calls them, by the connector package alone. Which calls, and with what, the
// suite says for a few scenarios; else each tool is called once.
func client(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	pool := connector.New(connector.Options{Version: "conformance"})
	defer func() { err = errors.Join(err, pool.Close(ctx)) }()
	pool.Set([]task.Connector{{ID: "suite", URL: url}})
	tools, err := pool.Tools(ctx, "suite")
	if err != nil {
		return err
	}
	calls, err := asked(tools)
	if err != nil {
		return err
	}
	for _, c := range calls {
		result, err := pool.Call(ctx, "suite", c.Name, c.Arguments)
		fmt.Printf("%s %s: %+v, %v\n", c.Name, c.Arguments, result, err)
		if err != nil {
			return err
		}
	}
	return nil
}

type call struct {
	Name      string
	Arguments json.RawMessage
}

func asked(tools []task.Tool) ([]call, error) {
	var given struct{ ToolCalls []call }
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &given); err != nil || len(given.ToolCalls) > 0 {
			return given.ToolCalls, err
		}
	}
	var calls []call
	for _, tool := range tools {
		args, err := arguments(tool.InputSchema)
		if tool.Name == "json_schema_echo" {
			args, err = echo(tools)
		}
		if err != nil {
			return nil, err
		}
		calls = append(calls, call{tool.Name, args})
	}
	return calls, nil
}

// echo gives a tool's schema back as it reached us.
func echo(tools []task.Tool) (json.RawMessage, error) {
	for _, tool := range tools {
		if tool.Name == "json_schema_2020_12_tool" {
			return json.Marshal(map[string]any{"schema": tool.InputSchema})
		}
	}
	return nil, errors.New("json_schema_2020_12_tool is not listed")
}

// arguments are values that fit a schema's properties.
func arguments(schema json.RawMessage) (json.RawMessage, error) {
	var s struct {
		Properties map[string]struct {
			Type any
			Enum []any
		}
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	args := map[string]any{}
	for name, p := range s.Properties {
		switch {
		case len(p.Enum) > 0:
			args[name] = p.Enum[0]
		case p.Type == "number" || p.Type == "integer":
			args[name] = 5
		case p.Type == "boolean":
			args[name] = true
		case p.Type == "string":
			args[name] = "text"
		}
	}
	return json.Marshal(args)
}
