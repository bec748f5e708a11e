package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runnerd/control"
	"runnerd/internal/npmtest"
	"runnerd/task"
)

// vendorFixtures are what the mock answers, by the prompt of the task.
const vendorFixtures = `{"fixtures":[
	{"match":{"userMessage":"Remember it.","hasToolResult":false},"response":{"content":"I write it down.","toolCalls":[
		{"name":"mcp__memory__create_entities","arguments":{"entities":[{"name":"moon","entityType":"body","observations":["it is round"]}]}}]}},
	{"match":{"userMessage":"Remember it.","toolResultContains":"it is round"},"response":{"content":"I've created the entity."}},
	{"match":{"userMessage":"Too fast once.","sequenceIndex":0},"response":{"error":{"message":"Slow down a little","type":"rate_limit_error"},"status":429,"retryAfter":1}},
	{"match":{"userMessage":"Too fast once.","sequenceIndex":1},"response":{"content":"Now it went."}},
	{"match":{"userMessage":"Too fast for hours."},"response":{"error":{"message":"Come back tomorrow","type":"rate_limit_error"},"status":429,"retryAfter":7200}},
	{"match":{"userMessage":"Overloaded."},"response":{"error":{"message":"All machines are busy","type":"overloaded_error"},"status":503}},
	{"match":{"userMessage":"No such model."},"response":{"error":{"message":"The model brain-9 does not exist","type":"not_found_error"},"status":404}},
	{"match":{"userMessage":"No entry."},"response":{"error":{"message":"Your key is not known here","type":"authentication_error"},"status":401}},
	{"match":{"userMessage":"Be cut."},"response":{"content":"A text of several pieces, of which some come and some do not, since it ends before its end."},"truncateAfterChunks":2,"latency":10}
]}`

// TestVendors runs tasks through each vendor's wire against a server that somebody
// else wrote, with a real MCP server behind the call. Whatever goes wrong, the
// run fails with the vendor's own words (faults 13 and 14).
func TestVendors(t *testing.T) {
	t.Parallel()
	memory := npmtest.Bin(t, npmtest.Memory)
	cases := []struct {
		id, prompt, want string
		status           task.Status
	}{
		{"works", "Remember it.", "", task.StatusOK},
		{"patient", "Too fast once.", "", task.StatusOK},
		{"limited", "Too fast for hours.", "Come back tomorrow", task.StatusFailed},
		{"busy", "Overloaded.", "All machines are busy", task.StatusFailed},
		{"nomodel", "No such model.", "The model brain-9 does not exist", task.StatusFailed},
		{"nokey", "No entry.", "Your key is not known here", task.StatusFailed},
		{"cut", "Be cut.", "cut_stream", task.StatusFailed},
	}
	for provider, path := range map[string]string{"openai": "/v1", "anthropic": "", "ollama": ""} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			url := npmtest.StartMock(t, vendorFixtures) + path
			for _, c := range cases {
				t.Run(c.id, func(t *testing.T) {
					t.Parallel()
					d := newDaemon(t, map[string]string{
						"models.yaml": fmt.Sprintf("models:\n  default: {provider: %s, base_url: %s, model: brain, context_tokens: 32768, max_output_tokens: 1000}\n", provider, url),
						"connectors.yaml": fmt.Sprintf("mcpServers:\n  memory: {command: %s, env: {MEMORY_FILE_PATH: %s}, classes: {\"create_*\": write, \"read_*\": read}}\n",
							memory, filepath.Join(t.TempDir(), "graph.json")),
						"tasks/" + c.id + ".yaml": "retry: {attempts: 1}\nlimits: {wall: 1m}\nallow: [memory/create_entities]\nprompt: " + c.prompt + "\n",
					})
					vendorRun(t, d, c.id, c.want, c.status)
				})
			}
		})
	}
}

func vendorRun(t *testing.T, d *instance, id, want string, status task.Status) {
	begun := time.Now()
	var run control.RunRow
	d.json(&run, "run", id)
	if run.Status != status || !strings.Contains(run.Reason, want) {
		t.Errorf("%s: %q, want %s with %q", run.Status, run.Reason, status, want)
	}
	if took := time.Since(begun); took > 50*time.Second {
		t.Errorf("it took %s", took)
	}
	if id != "works" {
		return
	}
	var v control.RunView
	d.json(&v, "show", run.ID)
	if len(v.Receipts) != 1 || v.Receipts[0].Outcome != task.ReceiptOK || v.Receipts[0].Tool != "create_entities" {
		t.Errorf("receipts %+v, want one call of create_entities that is ok", v.Receipts)
	}
	if last := v.Messages[len(v.Messages)-1].Text; last != "I've created the entity." {
		t.Errorf("the last message is %q", last)
	}
}
