package anthropic_test

import (
	"strings"
	"testing"

	"runnerd/internal/npmtest"
	"runnerd/llm"
	"runnerd/llm/anthropic"
	"runnerd/llm/llmtest"
	"runnerd/task"
)

func TestMock(t *testing.T) {
	url := npmtest.StartMock(t, `{"fixtures":[
		{"match":{"userMessage":"Do your work.","hasToolResult":false},"response":{"content":"I look it up.","reasoning":"First the list.",
			"toolCalls":[{"name":"mcp__files__list","arguments":{"path":"a"}},{"name":"report","arguments":{}}]}},
		{"match":{"userMessage":"Do your work.","hasToolResult":true},"response":{"content":"Done, in more than one piece."}},
		{"match":{"userMessage":"Fail."},"response":{"error":{"message":"Overloaded","type":"overloaded_error"},"status":529}}]}`)
	m := open(t, anthropic.Options{Endpoint: llm.Endpoint{BaseURL: url, Model: "claude-test"}})
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
	_, err = m.Next(t.Context(), &llm.Request{Messages: []task.Message{{Role: task.RoleUser, Text: "Fail."}}})
	if llm.ErrorKind(err) != llm.Overloaded {
		t.Errorf("got %v", err)
	}
}

func TestMockChaos(t *testing.T) {
	url := npmtest.StartMock(t, `{"fixtures":[{"match":{"userMessage":"Do your work."},"response":{"content":"never"}}]}`, "--chaos-ratelimit", "1")
	_, err := ask(open(t, anthropic.Options{Endpoint: llm.Endpoint{BaseURL: url, Model: "m"}}))
	if llm.ErrorKind(err) != llm.RateLimited {
		t.Errorf("got %v", err)
	}
}
