package ollama

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"runnerd/llm/internal/wire"
)

// object is a JSON object whose values are kept as they came.
type object map[string]json.RawMessage

// text is the string in a field; "" if there is none.
func (o object) text(field string) string {
	var s string
	_ = json.Unmarshal(o[field], &s) // anything else has no text
	return s
}

// without returns what an object holds beyond known fields and nulls; nil if
// that is nothing.
func (o object) without(known ...string) object {
	rest := object{}
	for name, raw := range o {
		if !slices.Contains(known, name) && string(raw) != "null" {
			rest[name] = raw
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// extra is what an assistant message held beyond the fields that we know, the
// thinking above all. It is stored as the message's opaque part and goes back to
// the same server and model.
type extra struct {
	Message object      `json:"message,omitempty"`
	Calls   []callExtra `json:"calls,omitempty"` // one for each call, if any has some
}

type callExtra struct {
	Call     object `json:"call,omitempty"`
	Function object `json:"function,omitempty"`
}

func parseExtra(opaque json.RawMessage) extra {
	var x extra
	if len(opaque) > 0 && json.Unmarshal(opaque, &x) != nil {
		return extra{}
	}
	return x
}

func (x extra) call(i int) callExtra {
	if i < len(x.Calls) {
		return x.Calls[i]
	}
	return callExtra{}
}

// encode returns nil if there is nothing to keep.
func (x extra) encode() json.RawMessage {
	if !slices.ContainsFunc(x.Calls, func(c callExtra) bool { return len(c.Call)+len(c.Function) > 0 }) {
		x.Calls = nil
	}
	if len(x.Message) == 0 && x.Calls == nil {
		return nil
	}
	return wire.JSON(x)
}

// splice adds fields that a JSON object does not have, in the order of their
// names.
func splice(obj json.RawMessage, more object) json.RawMessage {
	if len(more) == 0 {
		return obj
	}
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(string(obj), "}"))
	for _, name := range slices.Sorted(maps.Keys(more)) {
		b.WriteByte(',')
		b.Write(wire.JSON(name))
		b.WriteByte(':')
		b.Write(more[name])
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}
