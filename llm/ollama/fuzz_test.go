package ollama

import (
	"bytes"
	"encoding/json"
	"testing"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// Whatever a server sends, the answer is whole or an error, and what is kept of
// it can be sent back.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		`{"message":{"content":"x","thinking":"\ud83e"},"done":false}` + "\n" + `{"message":{"thinking":"\udd80","y":[1]},"done":true,"done_reason":"stop"}`,
		`{"message":{"tool_calls":[{"id":1,"function":{"name":2,"arguments":[3],"function":{}}}]},"done":true,"done_reason":"stop"}`,
		`{"error":{"message":"m"}}`, `{"done":true,"done_reason":"stop"}`, `null`, `{"message":{"Tool_Calls":[{}]},"done":true,"done_reason":"stop"}`, `{"message":{"thinking":1},"done":false}{"message":{"thinking":"a"},"done":true,"done_reason":"stop"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := newAnswer(&llm.Request{})
		if wire.Read(wire.NewBody(bytes.NewReader(data)), a, true) != nil {
			return
		}
		r, err := a.Response("v")
		if err != nil {
			if llm.ErrorKind(err) == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		if len(r.Opaque) > 0 && !json.Valid(r.Opaque) {
			t.Fatalf("opaque is no JSON: %q", r.Opaque)
		}
		raw, _ := assistant(wire.Entry{Role: task.RoleAssistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque})
		var m object // which, unlike a struct, does not take Content for content
		var calls []json.RawMessage
		if json.Unmarshal(raw, &m) != nil || m.Text("content") != r.Text {
			t.Fatalf("%s cannot be sent back", raw)
		}
		if len(r.Calls) > 0 && (json.Unmarshal(m["tool_calls"], &calls) != nil || len(calls) != len(r.Calls)) {
			t.Fatalf("%s cannot be sent back", raw)
		}
	})
}
