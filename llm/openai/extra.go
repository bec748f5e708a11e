package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"runnerd/llm/internal/wire"
)

// object is a JSON object whose values are kept as they came.
type object = wire.Object

// extra is what an assistant message held beyond the fields that we know:
// reasoning, signatures, whatever a vendor adds. It is stored as the message's
// opaque part and goes back to the same endpoint and model.
type extra struct {
	Message object         `json:"message,omitempty"`
	Calls   map[int]object `json:"calls,omitempty"` // by index of the call
}

func parseExtra(opaque json.RawMessage) extra {
	var x extra
	if len(opaque) > 0 && json.Unmarshal(opaque, &x) != nil {
		return extra{}
	}
	return x
}

// encode returns nil if there is nothing to keep.
func (x extra) encode() json.RawMessage {
	if len(x.Message) == 0 && len(x.Calls) == 0 {
		return nil
	}
	return wire.JSON(x)
}

// splice adds fields to a JSON object, in the order of their names. Fields that
// the object has already win.
func splice(obj json.RawMessage, more object) json.RawMessage {
	if len(more) == 0 {
		return obj
	}
	var has object
	if json.Unmarshal(obj, &has) != nil {
		return obj
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(obj, []byte("}")))
	for _, k := range slices.Sorted(maps.Keys(more)) {
		if _, known := has[k]; known || !json.Valid(more[k]) {
			continue
		}
		b.WriteByte(',')
		b.Write(wire.JSON(k))
		b.WriteByte(':')
		b.Write(more[k])
	}
	b.WriteByte('}')
	return b.Bytes()
}
