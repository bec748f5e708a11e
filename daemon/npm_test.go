package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runnerd/internal/npmtest"
	"runnerd/task"
)

// TestRealServers runs one task against the four reference servers, as the
// processes that people would run: a read and a granted write on each where it
// has them, and a refused one.
func TestRealServers(t *testing.T) {
	modules := filepath.Dir(filepath.Dir(npmtest.Bin(t, npmtest.Everything)))
	files, graph := t.TempDir(), filepath.Join(t.TempDir(), "graph.json")
	a := testApp(t, map[string]string{
		"models.yaml":     "models:\n  default: {provider: scripted, script: s.yaml}\n",
		"connectors.yaml": strings.NewReplacer("MODULES", modules, "FILES", files, "GRAPH", graph).Replace(realConnectors),
		"tasks/real.yaml": "tools: [everything, filesystem, memory, thinking]\nallow:\n  - memory/create_entities\n  - tool: filesystem/write_file\n    where: {path: {under: " + files + "}, content: any}\nprompt: Try each.\n",
		"s.yaml":          strings.ReplaceAll(realScript, "FILES", files),
	})
	a.Getenv = os.Getenv
	h := openTest(t, a)
	run := runTest(t, h, "real")
	if run.Status() != task.StatusDenied {
		t.Errorf("status %s: %s, want denied for the one refused call", run.Status(), run.Reason)
	}
	receipts, err := h.main.RunReceipts(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"everything/echo read allow ok", "everything/get-env exec deny none", "memory/read_graph read allow ok", "memory/create_entities write allow ok",
		"filesystem/write_file write allow ok", "filesystem/read_text_file read allow ok", "filesystem/write_file write deny none",
		"thinking/sequentialthinking read allow ok",
	}
	if len(receipts) != len(want) {
		t.Fatalf("%d receipts, want %d", len(receipts), len(want))
	}
	for i, r := range receipts {
		if got := strings.Join([]string{r.Connector + "/" + r.Tool, r.Class, string(r.Decision), string(r.Outcome)}, " "); got != want[i] {
			t.Errorf("receipt %d: %s (%s), want %s", i, got, r.Rule, want[i])
		}
	}
	if text, err := os.ReadFile(filepath.Join(files, "a.txt")); string(text) != "written by a tool" {
		t.Errorf("a.txt holds %q (%v)", text, err)
	}
	var entity struct{ Name string }
	data, err := os.ReadFile(graph)
	if err != nil || json.Unmarshal([]byte(strings.SplitN(string(data), "\n", 2)[0]), &entity) != nil || entity.Name != "runnerd" {
		t.Errorf("the graph holds %q (%v), want the entity runnerd", data, err)
	}
}

const realConnectors = `
mcpServers:
  everything: {command: node, args: [MODULES/@modelcontextprotocol/server-everything/dist/index.js]}
  filesystem: {command: node, args: [MODULES/@modelcontextprotocol/server-filesystem/dist/index.js, FILES], root: FILES}
  memory: {command: node, args: [MODULES/@modelcontextprotocol/server-memory/dist/index.js], env: {MEMORY_FILE_PATH: GRAPH}}
  thinking: {command: node, args: [MODULES/@modelcontextprotocol/server-sequential-thinking/dist/index.js], trust_annotations: true}
`

const realScript = `
turns:
  - call: [{tool: everything/echo, args: {message: hello}}, {tool: everything/get-env, args: {}}, {tool: memory/read_graph, args: {}}]
  - call:
      - tool: memory/create_entities
        args: {entities: [{name: runnerd, entityType: daemon, observations: [runs agents]}]}
      - {tool: filesystem/write_file, args: {path: FILES/a.txt, content: written by a tool}}
  - call:
      - {tool: filesystem/read_text_file, args: {path: FILES/a.txt}}
      - {tool: filesystem/write_file, args: {path: FILES/../b.txt, content: outside}}
  - expect: {results_contain: written by a tool}
    call:
      - tool: thinking/sequentialthinking
        args: {thought: All tried., nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1}
  - say: I wrote a.txt and stored the entity.
`
