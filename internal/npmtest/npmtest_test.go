package npmtest_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/internal/npmtest"
)

// TestServers proves that each pinned server starts and speaks MCP, so that a
// failure elsewhere is not a failed installation.
func TestServers(t *testing.T) {
	for _, tc := range []struct {
		bin, tool string
		args      []string
	}{
		{npmtest.Everything, "echo", nil},
		{npmtest.Filesystem, "write_file", []string{t.TempDir()}},
		{npmtest.Memory, "read_graph", nil},
		{npmtest.Thinking, "sequentialthinking", nil},
	} {
		t.Run(tc.bin, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.Command(npmtest.Bin(t, tc.bin), tc.args...)
			cmd.Env = append(cmd.Environ(), "MEMORY_FILE_PATH="+t.TempDir()+"/graph.json")
			client := mcp.NewClient(&mcp.Implementation{Name: "npmtest", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
			session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: 100 * time.Millisecond}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			tools, err := session.ListTools(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range tools.Tools {
				if tool.Name == tc.tool {
					return
				}
				names = append(names, tool.Name)
			}
			t.Errorf("no tool %q; have %s", tc.tool, strings.Join(names, " "))
		})
	}
}

func TestMock(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, npmtest.Bin(t, npmtest.Mock), "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--fixtures") {
		t.Errorf("%s --help: %v\n%s", npmtest.Mock, err, out)
	}
}
