package llm_test

import (
	"strings"
	"testing"

	"runnerd/llm"
	"runnerd/task"
)

func TestCheckHistory(t *testing.T) {
	user := task.Message{Role: task.RoleUser, Text: "go"}
	summary := task.Message{Role: task.RoleSummary, Text: "before"}
	said := task.Message{Role: task.RoleAssistant, Text: "hello"}
	calls := func(ids ...string) task.Message {
		m := task.Message{Role: task.RoleAssistant}
		for _, id := range ids {
			m.Calls = append(m.Calls, task.ToolCall{ID: id, Name: "x", Arguments: "{}"})
		}
		return m
	}
	result := func(id string) task.Message { return task.Message{Role: task.RoleTool, CallID: id} }
	userCalls := calls("a")
	userCalls.Role = task.RoleUser

	tests := []struct {
		name string
		msgs []task.Message
		want string // part of the error; "" for none
	}{
		{"one user message", []task.Message{user}, ""},
		{"summary then user", []task.Message{summary, user}, ""},
		{"begins with the last output", []task.Message{said, user}, ""},
		{"answered in another order", []task.Message{user, calls("a", "b"), result("b"), result("a")}, ""},
		{"ids used again in a later step", []task.Message{user, calls("a"), result("a"), calls("a"), result("a")}, ""},
		{"empty", nil, "is empty"},
		{"ends with the assistant", []task.Message{user, said}, "ends with the assistant"},
		{"orphan result", []task.Message{user, result("a")}, `message 2 (tool) answers call "a", which`},
		{"orphan after a cut", []task.Message{result("a"), user}, "message 1 (tool)"},
		{"result of an older step", []task.Message{user, calls("a"), result("a"), calls("b"), result("a")}, `message 5 (tool) answers call "a"`},
		{"missing result", []task.Message{user, calls("a", "b"), result("a"), user}, `message 4 (user) comes before call "b"`},
		{"missing at the end", []task.Message{user, calls("a", "b"), result("a")}, `ends before call "b"`},
		{"answered twice", []task.Message{user, calls("a"), result("a"), result("a")}, "a second time"},
		{"two calls of one id", []task.Message{user, calls("a", "a"), result("a")}, "two calls"},
		{"calls of a user", []task.Message{userCalls, result("a")}, "only an assistant"},
		{"unknown role", []task.Message{{Role: "system"}}, "no known role"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := llm.CheckHistory(tt.msgs)
			if tt.want == "" {
				if err != nil {
					t.Fatalf("unexpected error: %v", err)
				}
				return
			}
			if llm.ErrorKind(err) != llm.BadRequest || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want a bad_request with %q", err, tt.want)
			}
		})
	}
}
