package ollama_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runnerd/internal/npmtest"
	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/ollama"
	"runnerd/task"
)

// mock starts a wire-format server that somebody else wrote and returns its URL.
func mock(t *testing.T, fixtures string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fixtures.json")
	if err := os.WriteFile(file, []byte(fixtures), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(npmtest.Bin(t, npmtest.Mock), append([]string{"-p", "0", "-f", file, "--validate-on-load"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		late.Stop()
		cmd.Process.Kill()
		io.Copy(io.Discard, out)
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
			return strings.TrimSpace(url)
		}
	}
	t.Fatalf("the mock ended before it listened: %v", lines.Err())
	return ""
}

func TestMock(t *testing.T) {
	url := mock(t, `{"fixtures":[
		{"match":{"userMessage":"Do your work.","hasToolResult":false},"response":{"content":"I look it up.","reasoning":"First the list.",
			"toolCalls":[{"name":"mcp__files__list","arguments":{"path":"a"}},{"name":"report","arguments":{}}]}},
		{"match":{"userMessage":"Do your work.","hasToolResult":true},"response":{"content":"Done, in more than one piece."}}]}`)
	m := open(t, ollama.Options{Endpoint: llm.Endpoint{BaseURL: url, Model: "qwen3"}})
	first, err := ask(m, llmtest.Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	if first.Finish != llm.FinishToolCalls || first.Text != "I look it up." || len(first.Calls) != 2 ||
		first.Calls[0].Arguments != `{"path":"a"}` || first.Calls[1].Arguments != "{}" || !strings.Contains(string(first.Opaque), "First the list.") {
		t.Fatalf("answer %+v, opaque %s", first, first.Opaque)
	}
	history := append([]task.Message{llmtest.Opening()}, llmtest.Answered(first)...)
	second, err := m.Next(t.Context(), &llm.Request{System: "You are a test.", Messages: history, Tools: llmtest.Tools()})
	if err != nil || second.Text != "Done, in more than one piece." || second.Finish != llm.FinishStop {
		t.Fatalf("second answer %+v, %v", second, err)
	}
}
