package openai_test

import (
	"errors"
	"testing"
	"time"

	"runnerd/internal/npmtest"
	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/openai"
	"runnerd/task"
)

// TestMock talks to a server that was not written for this client.
func TestMock(t *testing.T) {
	url := npmtest.StartMock(t, `{"fixtures":[
		{"match":{"userMessage":"Do your work.","hasToolResult":false},"response":{"content":"I look it up.","reasoning":"First the list.",
			"toolCalls":[{"name":"mcp__files__list","arguments":{"path":"a"}},{"name":"report","arguments":{}}]}},
		{"match":{"userMessage":"Do your work.","hasToolResult":true},"response":{"content":"Done, in more than one piece.","usage":{"prompt_tokens":40,"completion_tokens":9}}},
		{"match":{"userMessage":"Cut."},"response":{"content":"A text of several pieces, of which some come and some do not, since it ends before its end."},"truncateAfterChunks":3,"latency":20},
		{"match":{"userMessage":"Wait."},"response":{"error":{"message":"Slow down","type":"rate_limit_error"},"status":429,"retryAfter":7}},
		{"match":{"userMessage":"Fail."},"response":{"error":{"message":"Overloaded","type":"server_error"},"status":503}}]}`)
	m := open(t, openai.Options{Endpoint: llm.Endpoint{BaseURL: url + "/v1", Model: "gpt-test"}})
	say := func(text string) (*llm.Response, error) {
		return m.Next(t.Context(), &llm.Request{Messages: []task.Message{{Role: task.RoleUser, Text: text}}})
	}
	first, err := ask(m, llmtest.Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	if first.Finish != llm.FinishToolCalls || first.Text != "I look it up." || len(first.Calls) != 2 ||
		first.Calls[0].Arguments != `{"path":"a"}` || first.Calls[1].Arguments != "{}" {
		t.Fatalf("answer %+v", first)
	}
	history := append([]task.Message{llmtest.Opening()}, llmtest.Answered(first)...)
	second, err := m.Next(t.Context(), &llm.Request{System: "You are a test.", Messages: history, Tools: llmtest.Tools()})
	if err != nil || second.Text != "Done, in more than one piece." || second.Finish != llm.FinishStop ||
		second.Usage != (task.Usage{Input: 40, Output: 9}) {
		t.Fatalf("second answer %+v, %v", second, err)
	}
	if r, err := say("Cut."); llm.ErrorKind(err) != llm.CutStream {
		t.Errorf("a cut stream: %+v, %v", r, err)
	}
	var e *llm.Error
	if _, err := say("Wait."); !errors.As(err, &e) || e.Kind != llm.RateLimited || e.RetryAfter != 7*time.Second || e.Message != "Slow down" {
		t.Errorf("rate limit: %#v", err)
	}
	if _, err := say("Fail."); llm.ErrorKind(err) != llm.Overloaded {
		t.Errorf("overloaded: %v", err)
	}
}
