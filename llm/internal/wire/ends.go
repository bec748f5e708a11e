package wire

import (
	"fmt"
	"strings"

	"runnerd/llm"
)

// Ends are the words with which one vendor's wire ends an answer. A word that is
// not listed is no good end: the answer behind it is not taken for one.
type Ends struct {
	// Field is what the wire calls the word.
	Field string
	words map[string]end
}

// end is what a word means: a finish, or with a kind an answer that failed.
type end struct {
	finish llm.Finish
	kind   llm.Kind
}

var (
	stopped  = end{finish: llm.FinishStop}
	called   = end{finish: llm.FinishToolCalls}
	tooLong  = end{finish: llm.FinishLength}
	filtered = end{finish: llm.FinishContentFilter}
)

// The ends that are known, in lower case.
var (
	OpenAIEnds = Ends{"finish_reason", map[string]end{
		"stop": stopped, "eos": stopped, "eos_token": stopped, "stop_sequence": stopped, "end_turn": stopped, "complete": stopped,
		"tool_calls": called, "tool_call": called, "tool_use": called, "function_call": called,
		"length": tooLong, "max_tokens": tooLong, "model_length": tooLong, "max_output_tokens": tooLong,
		"content_filter": filtered, "safety": filtered, "recitation": filtered, "blocklist": filtered, "prohibited_content": filtered,
		"spii": filtered, "refusal": filtered, "sensitive": filtered, "image_safety": filtered, "language": filtered,
		"error": {kind: llm.ServerError}, "network_error": {kind: llm.ServerError},
		"insufficient_system_resource": {kind: llm.Overloaded},
		"malformed_function_call":      {kind: llm.Malformed}, "unexpected_tool_call": {kind: llm.Malformed},
		"abort": {kind: llm.CutStream}, "cancelled": {kind: llm.CutStream},
	}}
	AnthropicEnds = Ends{"stop_reason", map[string]end{
		"end_turn": stopped, "stop_sequence": stopped, "tool_use": called,
		// pause_turn is an answer that the vendor interrupted and would go on with.
		"max_tokens": tooLong, "model_context_window_exceeded": tooLong, "pause_turn": tooLong,
		"refusal": filtered,
	}}
	// "load" and "unload" answer nothing; an end without a word is a connection that
	// the server's runner lost.
	OllamaEnds = Ends{"done_reason", map[string]end{
		"stop": stopped, "length": tooLong, "tool_calls": called,
	}}
)

// Judge tells how an answer with so many calls ended by its vendor's last word.
func (e Ends) Judge(word string, calls int) (llm.Finish, error) {
	what, known := e.words[strings.ToLower(strings.TrimSpace(word))]
	switch {
	case word == "":
		return "", e.fail(llm.CutStream, "the answer ended without a %s", e.Field)
	case !known:
		return "", e.fail(llm.UnknownEnd, "the vendor ended the answer with the %s %q, which is not known as a good end", e.Field, word)
	case what.kind != "":
		return "", e.fail(what.kind, "the vendor ended the answer with the %s %q", e.Field, word)
	case what.finish == llm.FinishToolCalls && calls == 0:
		return "", e.fail(llm.Malformed, "the %s is %q, but the answer holds no call", e.Field, word)
	case what.finish == llm.FinishStop && calls > 0:
		return llm.FinishToolCalls, nil // many servers say stop for calls too
	}
	return what.finish, nil
}

func (e Ends) fail(kind llm.Kind, format string, args ...any) error {
	return &llm.Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
