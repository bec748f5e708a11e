package ollama

import (
	"encoding/json"
	"slices"

	"runnerd/llm/internal/wire"
)

// object is a JSON object whose values are kept as they came.
type object = wire.Object

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
