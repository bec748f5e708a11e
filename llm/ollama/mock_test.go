package ollama_test

import (
	"strings"
	"testing"

	"runnerd/internal/npmtest"
	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/ollama"
	"runnerd/task"
)

func TestMock(t *testing.T) {
	url := npmtest.StartMock(t, `{"fixtures":[
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
