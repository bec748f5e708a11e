package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// request is the body of a call. Its fields keep their order, so that equal
// histories begin with equal bytes.
type request struct {
	Model      string            `json:"model"`
	MaxTokens  int               `json:"max_tokens"`
	System     []json.RawMessage `json:"system,omitempty"`
	Tools      []json.RawMessage `json:"tools,omitempty"`
	ToolChoice json.RawMessage   `json:"tool_choice,omitempty"`
	Messages   []turn            `json:"messages"`
	Stream     bool              `json:"stream"`

	cached bool // a block says what the vendor should keep
}

const cacheControl = "cache_control"

// turn is one message on the wire. Neighbours have different roles.
type turn struct {
	Role    string            `json:"role"`
	Content []json.RawMessage `json:"content"`
}

// cached marks a block as the end of what the vendor should keep in its cache:
// everything before it, in the order tools, system, messages.
var cached = object{cacheControl: json.RawMessage(`{"type":"ephemeral"}`)}

func (m *Model) body(req *llm.Request, entries []wire.Entry) request {
	r := request{
		Model: m.client.Model(), MaxTokens: m.client.MaxTokens(req), Stream: !m.client.Without("stream"),
		cached: !m.client.Without(cacheControl),
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = DefaultMaxTokens
	}
	r.Messages = turns(entries)
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, tool(t.Name, t.Description, schema(t.InputSchema)))
	}
	if len(r.Tools) == 0 {
		r.Tools, r.ToolChoice = formerTools(entries)
		if m.client.Without("tool_choice") {
			r.ToolChoice = nil
		}
	}
	if strings.TrimSpace(req.System) != "" {
		r.System = []json.RawMessage{r.end(textBlock(req.System))}
	} else if n := len(r.Tools); n > 0 {
		r.Tools[n-1] = r.end(r.Tools[n-1])
	}
	last := r.Messages[len(r.Messages)-1].Content
	last[len(last)-1] = r.end(last[len(last)-1])
	return r
}

// end marks a block as the end of what is to be kept, if the server takes that.
func (r request) end(block json.RawMessage) json.RawMessage {
	if !r.cached {
		return block
	}
	return wire.Splice(block, cached)
}

// turns makes roles alternate, as the vendor wants them: the results of a step are
// one user message, and what the user says next goes into it.
func turns(entries []wire.Entry) []turn {
	var all []turn
	add := func(role string, content ...json.RawMessage) {
		n := len(all)
		switch {
		case len(content) == 0:
		case n > 0 && all[n-1].Role == role:
			all[n-1].Content = append(all[n-1].Content, content...)
		default:
			all = append(all, turn{role, content})
		}
	}
	for _, e := range entries {
		switch {
		case e.Role == task.RoleTool:
			add("user", results(e)...)
		case e.Role == task.RoleAssistant:
			content := assistant(e)
			if len(all) == 0 && len(content) > 0 {
				add("user", textBlock("(The conversation before this is left out.)"))
			}
			add("assistant", content...)
		case strings.TrimSpace(e.Text) != "":
			add("user", textBlock(e.Text))
		case len(all) == 0 || all[len(all)-1].Role != "user":
			add("user", textBlock("(empty message)")) // a blank text is refused
		}
	}
	return all
}

func results(e wire.Entry) []json.RawMessage {
	var content []json.RawMessage
	for _, r := range e.Results {
		text := r.Text
		if strings.TrimSpace(text) == "" {
			text = "" // a result may be without text, but not blank
		}
		if text == "" && r.IsError {
			text = "(error without words)"
		}
		content = append(content, wire.JSON(struct {
			Type    string `json:"type"`
			ID      string `json:"tool_use_id"`
			Content string `json:"content,omitempty"`
			IsError bool   `json:"is_error,omitempty"`
		}{"tool_result", r.CallID, text, r.IsError}))
	}
	return content
}

func tool(name, description string, schema json.RawMessage) json.RawMessage {
	return wire.JSON(struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"input_schema"`
	}{name, description, schema})
}

// schema makes a tool's schema one that the vendor takes: of type object, and
// without alternatives at its top. The model may then write arguments that the
// whole schema refuses; they are checked against it before any call.
func schema(raw json.RawMessage) json.RawMessage {
	raw = wire.Schema(raw)
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return raw
	}
	n := len(o)
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		delete(o, key)
	}
	if bytes.Equal(o["type"], []byte(`"object"`)) && len(o) == n {
		return raw
	}
	o["type"] = json.RawMessage(`"object"`)
	return o.Encode()
}

// formerTools are the tools that a history called, for a request that offers none:
// the vendor wants the tools of every call defined. The choice keeps the model
// from calling them again.
func formerTools(entries []wire.Entry) (tools []json.RawMessage, choice json.RawMessage) {
	seen := map[string]bool{}
	for _, e := range entries {
		for _, c := range e.Calls {
			if !seen[c.Name] {
				seen[c.Name] = true
				tools = append(tools, tool(c.Name, "Not available now.", wire.Schema(nil)))
			}
		}
	}
	if len(tools) == 0 {
		return nil, nil
	}
	return tools, json.RawMessage(`{"type":"none"}`)
}
