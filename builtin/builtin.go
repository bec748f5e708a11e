// Package builtin holds the MCP servers that the binary itself serves over
// stdio: files, fetch, shell and memory. cmd/runnerd calls [Serve] for
// `runnerd mcp NAME`; the daemon starts that command like any other connector,
// so nothing here is trusted more than a server from elsewhere and nothing here
// decides policy.
//
// Every call is bounded in time and in the size of what it reads and answers.
// What goes wrong inside a tool is answered as a result with isError set, in
// words that a model can act on; only a broken connection or bad arguments on
// the command line are Go errors.
package builtin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

// The names of the servers, as `builtin:` takes them.
const (
	Files  = "files"
	Fetch  = "fetch"
	Shell  = "shell"
	Memory = "memory"
)

// version is what the servers announce; raise it when a tool's contract changes.
const version = "1"

// opener reads a server's arguments, takes what it holds open and registers its
// tools. The returned function gives back what was taken.
type opener func(s *mcp.Server, args []string) (release func() error, err error)

var openers = map[string]opener{
	Files:  openFiles,
	Fetch:  openFetch,
	Shell:  openShell,
	Memory: openMemory,
}

// Names lists the servers, sorted.
func Names() []string {
	names := make([]string, 0, len(openers))
	for name := range openers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Serve serves one MCP session of the named server on in and out, and returns
// when the input ends or ctx is cancelled; both are a nil error. If in is an
// io.Closer it is closed at the end, so that a pending read gives up.
//
// The arguments are flags:
//
//	files  --root DIR
//	fetch  [--allow-private] [--timeout 30s] [--max-bytes N]
//	shell  [--dir DIR] [--timeout 2m]
//	memory [--file FILE]     default: memory.jsonl in the home directory
//
// An unknown name or a bad argument is an error before anything is served.
func Serve(ctx context.Context, name string, args []string, in io.Reader, out io.Writer) error {
	server, release, err := open(name, args)
	if err != nil {
		return err
	}
	err = server.Run(ctx, &mcp.IOTransport{Reader: asReadCloser(in), Writer: keepOpen{out}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("serve %s: %w", name, err)
	}
	return errors.Join(err, release())
}

// open makes the named server ready to be connected.
func open(name string, args []string) (*mcp.Server, func() error, error) {
	opener, ok := openers[name]
	if !ok {
		return nil, nil, fmt.Errorf("builtin server %q: unknown; there are %s", name, strings.Join(Names(), ", "))
	}
	server := mcp.NewServer(
		&mcp.Implementation{Name: "runnerd-" + name, Version: version},
		// The tools never change while a server lives, and nothing else is offered.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	release, err := opener(server, args)
	if err != nil {
		return nil, nil, fmt.Errorf("builtin server %s: %w", name, err)
	}
	return server, release, nil
}

// parseFlags reads a server's arguments. Positional ones are refused: a
// forgotten dash must not be ignored.
func parseFlags(args []string, define func(*flag.FlagSet)) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	define(flags)
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("arguments: %q is no flag", flags.Arg(0))
	}
	return nil
}

// handler answers one call with text. Its error becomes an isError result.
type handler[In any] func(ctx context.Context, in In) (string, error)

// addTool registers a tool whose input schema comes from In's json and
// jsonschema tags; refine may narrow it further.
func addTool[In any](s *mcp.Server, tool *mcp.Tool, handle handler[In], refine ...func(*jsonschema.Schema)) error {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return fmt.Errorf("schema of %s: %w", tool.Name, err)
	}
	for _, r := range refine {
		r(schema)
	}
	tool.InputSchema = schema
	mcp.AddTool(s, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		touched := &task.Touched{}
		text, err := handle(context.WithValue(ctx, touchKey{}, touched), in)
		res := &mcp.CallToolResult{Meta: touchedMeta(touched)}
		if err != nil {
			res.SetError(err)
		} else {
			res.Content = []mcp.Content{&mcp.TextContent{Text: text}}
		}
		return res, nil, nil
	})
	return nil
}

// oneOf narrows a string property to the given values, the first its default.
func oneOf(property string, values ...string) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) {
		p := s.Properties[property]
		for _, v := range values {
			p.Enum = append(p.Enum, v)
		}
		p.Default = fmt.Appendf(nil, "%q", values[0])
	}
}

// between narrows an integer property.
func between(property string, low, high float64) func(*jsonschema.Schema) {
	return func(s *jsonschema.Schema) {
		s.Properties[property].Minimum = &low
		s.Properties[property].Maximum = &high
	}
}

// reads annotates a tool that changes nothing. openWorld says that it reaches
// beyond this machine.
func reads(openWorld bool) *mcp.ToolAnnotations {
	no := false
	return &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &openWorld}
}

// writes annotates a tool that changes something on this machine.
func writes(destructive, idempotent bool) *mcp.ToolAnnotations {
	closed := false
	return &mcp.ToolAnnotations{DestructiveHint: &destructive, IdempotentHint: idempotent, OpenWorldHint: &closed}
}

func asReadCloser(r io.Reader) io.ReadCloser {
	if rc, ok := r.(io.ReadCloser); ok {
		return rc
	}
	return io.NopCloser(r)
}

// keepOpen leaves the output to its owner: the last answer may still be on its
// way when the session closes.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
