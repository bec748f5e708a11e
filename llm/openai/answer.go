package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tmaxmax/go-sse"

	"runnerd/llm"
	"runnerd/llm/internal/wire"
	"runnerd/task"
)

// answer puts an answer together from its chunks.
type answer struct {
	tools  bool
	onText func(string)

	text    strings.Builder
	refused bool
	calls   []*call
	extra   growing
	finish  string
	usage   task.Usage

	began bool // a choice was seen
	done  bool // [DONE] was seen
}

// call is one tool call as it grows.
type call struct {
	index     int
	id, name  string
	arguments strings.Builder
	extra     growing
}

func newAnswer(req *llm.Request) *answer {
	return &answer{tools: len(req.Tools) > 0, onText: req.OnText, extra: growing{}}
}

// chunk is one event of a stream, or a whole answer with message for delta.
type chunk struct {
	Choices []struct {
		Index        int    `json:"index"`
		Delta        object `json:"delta"`
		Message      object `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	Details          struct {
		CachedTokens int64 `json:"cached_tokens"`
		WriteTokens  int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
}

func (a *answer) readStream(body io.Reader) error {
	for ev, err := range sse.Read(body, &sse.ReadConfig{MaxEventSize: int(llm.DefaultMaxBytes)}) {
		if err != nil {
			if a.finish != "" {
				return nil // the answer is whole; only what follows it is lost
			}
			return err
		}
		if strings.TrimSpace(ev.Data) == "[DONE]" {
			a.done = true
			return nil
		}
		if ev.Type == "error" {
			return wire.ParseComplaint([]byte(ev.Data)).Classify(a.tools)
		}
		if err := a.take([]byte(ev.Data)); err != nil {
			return err
		}
	}
	return nil
}

// readWhole reads the answer of a server that does not stream.
func (a *answer) readWhole(body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	a.done = true
	return a.take(data)
}

func (a *answer) take(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return &llm.Error{Kind: llm.Malformed, Message: "read answer: " + err.Error(), Err: err}
	}
	if !isNull(c.Error) {
		return wire.ParseComplaint(data).Classify(a.tools)
	}
	if c.Usage != nil {
		a.usage = task.Usage{Input: c.Usage.PromptTokens, Output: c.Usage.CompletionTokens,
			CacheRead: c.Usage.Details.CachedTokens, CacheWrite: c.Usage.Details.WriteTokens}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.began = true
		delta := choice.Delta
		if delta == nil {
			delta = choice.Message
		}
		if err := a.takeDelta(delta); err != nil {
			return err
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	return nil
}

func (a *answer) takeDelta(delta object) error {
	a.say(content(delta["content"]))
	if refusal := content(delta["refusal"]); refusal != "" {
		a.refused = true
		a.say(refusal)
	}
	if !isNull(delta["tool_calls"]) {
		var calls []object
		if err := json.Unmarshal(delta["tool_calls"], &calls); err != nil {
			return &llm.Error{Kind: llm.Malformed, Message: "read tool_calls: " + err.Error(), Err: err}
		}
		for i, c := range calls {
			if err := a.takeCall(i, c); err != nil {
				return err
			}
		}
	}
	a.extra.merge(delta, "role", "content", "refusal", "tool_calls", "function_call", "name", "annotations", "audio")
	return nil
}

func (a *answer) say(text string) {
	if text == "" {
		return
	}
	a.text.WriteString(text)
	if a.onText != nil {
		a.onText(text)
	}
}

// content is the text of a content field: a string, or a list of parts.
func content(raw json.RawMessage) string {
	var s string
	if isNull(raw) || json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	for _, p := range parts {
		if p.Type == "text" || p.Type == "output_text" {
			s += p.Text
		}
	}
	return s
}

// takeCall adds a fragment to the call that it belongs to. Most servers number
// the calls; some give every call the number 0, or none, and tell them apart by
// id; some give each fragment an id of its own, but only the first a name.
func (a *answer) takeCall(pos int, delta object) error {
	var d struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if err := json.Unmarshal(wire.JSON(delta), &d); err != nil {
		return &llm.Error{Kind: llm.Malformed, Message: "read tool call: " + err.Error(), Err: err}
	}
	index := pos
	if d.Index != nil {
		index = *d.Index
	} else if d.ID == "" && d.Function.Name == "" && len(a.calls) > 0 {
		index = a.calls[len(a.calls)-1].index
	}
	c := a.find(index)
	if c == nil || (d.Function.Name != "" && c.differs(d.ID, d.Index != nil)) {
		if len(a.calls) >= wire.MaxCalls {
			return &llm.Error{Kind: llm.Malformed, Message: fmt.Sprintf("more than %d calls in one answer", wire.MaxCalls)}
		}
		c = &call{index: index, extra: growing{}}
		a.calls = append(a.calls, c)
	}
	if c.id == "" {
		c.id = d.ID
	}
	if c.name != d.Function.Name { // some repeat the whole name with each fragment
		c.name += d.Function.Name
	}
	c.arguments.WriteString(plainArguments(d.Function.Arguments))
	c.extra.merge(delta, "index", "id", "type", "function")
	return nil
}

// differs tells whether a named fragment begins another call than c.
func (c *call) differs(id string, numbered bool) bool {
	if id != "" && c.id != "" {
		return id != c.id
	}
	return !numbered
}

// find returns the newest call of an index.
func (a *answer) find(index int) *call {
	for i := len(a.calls) - 1; i >= 0; i-- {
		if a.calls[i].index == index {
			return a.calls[i]
		}
	}
	return nil
}

// plainArguments is the string that arguments are, or the bytes of the object
// that some servers send instead.
func plainArguments(raw json.RawMessage) string {
	var s string
	if isNull(raw) || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// response checks that the answer is whole and turns it into neutral form.
func (a *answer) response(vendor string) (*llm.Response, error) {
	switch {
	case a.finish == "" && !a.done:
		return nil, &llm.Error{Kind: llm.CutStream, Message: fmt.Sprintf(
			"the stream ended before its end marker, after %d characters of text and %d calls", a.text.Len(), len(a.calls))}
	case a.finish == "error":
		return nil, &llm.Error{Kind: llm.ServerError, Message: "the vendor ended the answer with an error that it did not name"}
	case !a.began:
		return nil, &llm.Error{Kind: llm.Malformed, Message: "the answer holds no choice"}
	}
	r := &llm.Response{Text: a.text.String(), Usage: a.usage, Vendor: vendor}
	x := extra{Message: a.extra.object(), Calls: map[int]object{}}
	for i, c := range a.calls {
		r.Calls = append(r.Calls, task.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
		if len(c.extra) > 0 {
			x.Calls[i] = c.extra.object()
		}
	}
	r.Calls = wire.Calls(r.Calls)
	r.Opaque = x.encode()
	r.Finish = a.finished()
	return r, nil
}

func (a *answer) finished() llm.Finish {
	switch {
	case a.finish == "length":
		return llm.FinishLength
	case a.finish == "content_filter" || a.refused:
		return llm.FinishContentFilter
	case len(a.calls) > 0:
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
