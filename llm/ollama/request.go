package ollama

import (
	"encoding/json"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// request is the body of a call. Its fields keep their order, so that equal
// histories begin with equal bytes. Whether the model thinks is left to the
// server: asking a model for it that cannot is an error.
type request struct {
	Model    string            `json:"model"`
	Messages []json.RawMessage `json:"messages"`
	Tools    []tool            `json:"tools,omitempty"`
	Stream   bool              `json:"stream"`
	// Truncate and Shift are false: the server shall refuse what does not fit
	// and not silently forget the beginning.
	Truncate *bool   `json:"truncate,omitempty"`
	Shift    *bool   `json:"shift,omitempty"`
	Options  options `json:"options"`
}

type options struct {
	NumCtx     int `json:"num_ctx,omitempty"`
	NumPredict int `json:"num_predict,omitempty"`
}

type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func (m *Model) body(req *llm.Request, entries []wire.Entry) request {
	no := new(bool)
	r := request{
		Model: m.client.Model(), Stream: !m.client.Without("stream"), Truncate: no, Shift: no,
		Options: options{NumCtx: m.context, NumPredict: m.client.MaxTokens(req)},
	}
	if m.client.Without("truncate") {
		r.Truncate = nil
	}
	if m.client.Without("shift") {
		r.Shift = nil
	}
	if req.System != "" {
		r.Messages = append(r.Messages, wire.JSON(message{Role: "system", Content: req.System}))
	}
	r.Messages = append(r.Messages, messages(entries)...)
	for _, t := range req.Tools {
		w := tool{Type: "function"}
		w.Function.Name, w.Function.Description, w.Function.Parameters = t.Name, t.Description, wire.Schema(t.InputSchema)
		r.Tools = append(r.Tools, w)
	}
	return r
}

// message is one message on the wire.
type message struct {
	Role       string            `json:"role"`
	Content    string            `json:"content"`
	ToolCalls  []json.RawMessage `json:"tool_calls,omitempty"`
	ToolName   string            `json:"tool_name,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
}

// messages writes a history. The server tells results apart by their order and by
// the tool's name; ids go back only if it gave some.
func messages(entries []wire.Entry) []json.RawMessage {
	var out []json.RawMessage
	var ids map[string]string // of the newest step: call to the server's own id
	for _, e := range entries {
		switch e.Role {
		case task.RoleTool:
			for _, r := range e.Results {
				out = append(out, wire.JSON(message{Role: "tool", Content: r.Said(), ToolName: r.Name, ToolCallID: ids[r.CallID]}))
			}
		case task.RoleAssistant:
			var raw json.RawMessage
			raw, ids = assistant(e)
			out = append(out, raw)
		default:
			out = append(out, wire.JSON(message{Role: "user", Content: e.Text}))
		}
	}
	return out
}

func assistant(e wire.Entry) (raw json.RawMessage, ids map[string]string) {
	x := parseExtra(e.Opaque)
	m := message{Role: "assistant", Content: e.Text}
	ids = map[string]string{}
	for i, c := range e.Calls {
		own := x.call(i)
		function := wire.Splice(wire.JSON(struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}{c.Name, json.RawMessage(wire.Arguments(c.Arguments))}), own.Function)
		m.ToolCalls = append(m.ToolCalls, wire.Splice(wire.JSON(struct {
			Function json.RawMessage `json:"function"`
		}{function}), own.Call))
		ids[c.ID] = own.Call.Text("id")
	}
	return wire.Splice(wire.JSON(m), x.Message), ids
}
