package anthropic

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
		`{"type":"message_start","message":{"content":[{"type":"text","text":"x"}],"usage":{"input_tokens":3}}}` + "\n\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n" + `data: {"type":"message_stop"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":1,"signature":"a"}}` + "\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"signature":"\u12ab","thinking":"x"}}` + "\n\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n" + `data: {"type":"message_stop"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":[1],"x":{}}}` + "\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":7}}` + "\n\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n" + `data: {"type":"message_stop"}`,
		`{"type":"error","error":{"type":"overloaded_error"}}`,
	} {
		f.Add([]byte("data: " + s + "\n\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := newAnswer(&llm.Request{})
		if wire.Read(wire.NewBody(bytes.NewReader(data)), a, true) != nil {
			return
		}
		r, err := a.Response("v")
		if err != nil {
			if llm.ErrorKind(err) == "" {
				t.Fatalf("an error that is not the model's: %v", err)
			}
			return
		}
		if len(r.Opaque) > 0 && !json.Valid(r.Opaque) {
			t.Fatalf("opaque is no JSON: %q", r.Opaque)
		}
		for _, b := range assistant(wire.Entry{Role: task.RoleAssistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque}) {
			var o object
			if json.Unmarshal(b, &o) != nil || o.Text("type") == "" {
				t.Fatalf("block %s cannot be sent back", b)
			}
		}
	})
}
