package openai

import (
	"encoding/json"

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
