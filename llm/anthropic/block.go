package anthropic

import (
	"encoding/json"
	"maps"
	"strings"

	"runnerd/llm/internal/wire"
)

// object is a JSON object whose values are kept as they came.
type object = wire.Object

// block is one content block as it grows.
type block struct {
	kind   string
	fields object // as the block began
	// grown are the strings that deltas added to, by field, as they are written
	// in JSON and without their quotes: joined so, a signature keeps each byte.
	grown map[string]*strings.Builder
	// text is what a text block says, input what a tool_use block passes.
	text, input strings.Builder
}

func newBlock(start object) *block {
	if start == nil {
		start = object{}
	}
	b := &block{kind: start.Text("type"), fields: start, grown: map[string]*strings.Builder{}}
	if b.kind == "text" {
		b.text.WriteString(start.Text("text"))
	}
	return b
}

// add takes a delta and returns the text that it adds to the answer.
func (b *block) add(delta object) string {
	switch {
	case delta.Text("type") == "input_json_delta":
		b.input.WriteString(delta.Text("partial_json"))
	case b.kind == "text":
		s := delta.Text("text")
		b.text.WriteString(s)
		return s
	default:
		b.grow(delta)
	}
	return ""
}

// grow adds a delta's strings to the fields of the same name, which is how every
// kind of reasoning streams; anything else replaces.
func (b *block) grow(delta object) {
	for name, raw := range delta {
		switch {
		case name == "type" || string(raw) == "null":
		case raw[0] != '"':
			b.fields[name] = raw
		default:
			if b.grown[name] == nil {
				b.grown[name] = &strings.Builder{}
				b.grown[name].Write(inside(b.fields[name]))
			}
			b.grown[name].Write(inside(raw))
		}
	}
}

// inside is a JSON string without its quotes; nothing if it is none.
func inside(raw json.RawMessage) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// raw is the whole block, to be sent back as it came.
func (b *block) raw() json.RawMessage {
	o := maps.Clone(b.fields)
	for name, s := range b.grown {
		o[name] = json.RawMessage(`"` + s.String() + `"`)
	}
	if json.Valid([]byte(b.input.String())) {
		o["input"] = json.RawMessage(b.input.String())
	}
	return o.Encode()
}

// arguments are the exact bytes of a tool_use block's input: as it streamed, or
// as the block began where it did not stream.
func (b *block) arguments() string {
	if b.input.Len() > 0 {
		return b.input.String()
	}
	if wire.IsNull(b.fields["input"]) {
		return ""
	}
	return string(b.fields["input"])
}

// extra are the fields of a tool_use block that have no place in a call; never nil.
func (b *block) extra() object {
	if o := b.fields.Without("type", "id", "name", "input"); o != nil {
		return o
	}
	return object{}
}
