package anthropic

import (
	"encoding/json"
	"strings"

	"runnerd/llm/internal/wire"
)

// parts are the order of an answer's blocks, with those that have no neutral form
// whole. They are an assistant message's opaque part. What a message says and
// calls is not in them: it is stored once, after redaction, in the message.
type parts []part

// part is one block: exactly one field is set, but for a text of no length.
type part struct {
	Block json.RawMessage `json:"block,omitempty"`
	Text  int             `json:"text,omitempty"` // length in bytes
	Call  object          `json:"call,omitzero"`  // fields beyond id, name and input
}

// encode returns nil if the order follows from the message alone: text, then
// calls, with nothing else to keep.
func (p parts) encode() json.RawMessage {
	for i, x := range p {
		afterCall := i > 0 && p[i-1].Call != nil
		if x.Block != nil || len(x.Call) > 0 || x.Call == nil && afterCall {
			return wire.JSON(p)
		}
	}
	return nil
}

func parseParts(opaque json.RawMessage) parts {
	var p parts
	if len(opaque) > 0 && json.Unmarshal(opaque, &p) != nil {
		return nil
	}
	return p
}

// of returns the parts as they fit an assistant message. If what was stored is
// not what was said, redaction having changed its length, the blocks go first.
func (p parts) of(e wire.Entry) parts {
	text, calls := 0, 0
	for _, x := range p {
		text += max(x.Text, 0)
		if x.Call != nil {
			calls++
		}
	}
	if text == len(e.Text) && calls == len(e.Calls) {
		return p
	}
	var fit parts
	for _, x := range p {
		if x.Block != nil {
			fit = append(fit, x)
		}
	}
	fit = append(fit, part{Text: len(e.Text)})
	for range e.Calls {
		fit = append(fit, part{Call: object{}})
	}
	return fit
}

// assistant is the content of an assistant message. Blank texts are left out, and
// so are blocks at its end: the vendor takes neither. That may leave nothing.
func assistant(e wire.Entry) []json.RawMessage {
	var content []json.RawMessage
	text, calls, keep := e.Text, e.Calls, 0
	for _, x := range parseParts(e.Opaque).of(e) {
		switch {
		case x.Block != nil:
			content = append(content, x.Block)
			continue
		case x.Call != nil:
			content = append(content, toolUse(calls[0].ID, calls[0].Name, calls[0].Arguments, x.Call))
			calls = calls[1:]
		default:
			piece := text[:max(x.Text, 0)]
			text = text[len(piece):]
			if strings.TrimSpace(piece) == "" {
				continue
			}
			content = append(content, textBlock(piece))
		}
		keep = len(content)
	}
	return content[:keep]
}

func textBlock(text string) json.RawMessage {
	return wire.JSON(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text})
}

func toolUse(id, name, arguments string, extra object) json.RawMessage {
	raw := wire.JSON(struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}{"tool_use", id, name, json.RawMessage(wire.Arguments(arguments))})
	return wire.Splice(raw, extra)
}
