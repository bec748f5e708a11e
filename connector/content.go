package connector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"runnerd/task"
)

// flatten turns a result, as the server wrote it, into text: texts and texts of
// resources as they are, a line in brackets for what is no text, structured
// content only where there is no text at all. Links are named, never fetched. An
// answer that came is an answer: what is odd in it is named or left out, and
// spoils nothing else. Secrets are taken out before anything is cut.
func (s *session) flatten(result json.RawMessage) task.ToolResult {
	r := fields(result)
	if plainText(r["resultType"]) == "input_required" {
		return task.ToolResult{IsError: true, Text: "the tool asks for input from a person or a model, which an unattended run does not give"}
	}
	var parts []string
	if r == nil {
		parts = append(parts, cmp.Or(plainText(result), "[an answer without a result]"))
	}
	for _, c := range blocks(r["content"]) {
		if text := contentText(c); text != "" {
			parts = append(parts, text)
		}
	}
	if s := r["structuredContent"]; len(parts) == 0 && len(s) > 0 && !isNull(s) {
		parts = append(parts, string(s))
	}
	return s.result(strings.Join(parts, "\n"), isTrue(r["isError"]))
}

// fields are those of a JSON object; nil if data is none.
func fields(data json.RawMessage) map[string]json.RawMessage {
	var f map[string]json.RawMessage
	if isNull(data) || json.Unmarshal(data, &f) != nil {
		return nil
	}
	return f
}

// isTrue tells whether a flag is set. One of another type counts as set.
func isTrue(data json.RawMessage) bool {
	switch strings.Trim(string(data), `"`) {
	case "", "null", "false", "0":
		return false
	}
	return true
}

// blocks are the parts of a result's content: a list, or one part alone.
func blocks(content json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	switch {
	case len(content) == 0 || isNull(content):
		return nil
	case json.Unmarshal(content, &list) == nil:
		return list
	}
	return []json.RawMessage{content}
}

func contentText(block json.RawMessage) string {
	var text string
	if !isNull(block) && json.Unmarshal(block, &text) == nil {
		return text
	}
	b := fields(block)
	kind, known := "", json.Unmarshal(b["type"], &text) == nil && !isNull(b["type"])
	if known {
		kind = text
	}
	mime := plainText(b["mimeType"])
	switch {
	case kind == "text" || !known && len(b["text"]) > 0:
		return plainText(b["text"])
	case kind == "image" || kind == "audio":
		return placeholder(kind, mime, size(b["data"]))
	case kind == "resource_link":
		return fmt.Sprintf("[link, not followed: %s %s]", oneLine(plainText(b["uri"]), 2048), oneLine(plainText(b["name"]), 256))
	case kind == "resource":
		return resourceText(fields(b["resource"]))
	case kind != "":
		return fmt.Sprintf("[%s, not shown]", oneLine(kind, 64))
	}
	return "[content of no known kind, not shown]"
}

func resourceText(r map[string]json.RawMessage) string {
	text, blob := plainText(r["text"]), r["blob"]
	switch {
	case r == nil:
		return "[resource without contents]"
	case text != "" || len(blob) == 0 || isNull(blob):
		return text
	}
	return placeholder("resource "+oneLine(plainText(r["uri"]), 2048), plainText(r["mimeType"]), size(blob))
}

// size is how many bytes a field in base64 holds, roughly if it is malformed.
func size(data json.RawMessage) int {
	var s string
	if json.Unmarshal(data, &s) != nil {
		return 0
	}
	return len(strings.TrimRight(s, "=")) * 3 / 4
}

func placeholder(kind, mime string, size int) string {
	if mime == "" {
		mime = "unknown type"
	}
	return fmt.Sprintf("[%s, %s, %d bytes, not shown]", kind, oneLine(mime, 128), size)
}

// refusal is the result of a call that the server answered with a protocol
// error, such as an unknown tool: an answer did come.
func (s *session) refusal(e *jsonrpc.Error) task.ToolResult {
	return s.result(fmt.Sprintf("the server refused the call: %s (code %d)", e.Message, e.Code), true)
}

func (s *session) result(text string, isError bool) task.ToolResult {
	text = s.conn.pool.redact(strings.ToValidUTF8(text, "\uFFFD"))
	text, cut := cutMiddle(text, s.conn.pool.limits.ResultBytes)
	return task.ToolResult{Text: text, IsError: isError, Cut: cut}
}

// cutMiddle keeps the beginning and the end of a text of more than limit bytes
// and says between them how much is missing.
func cutMiddle(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	head, tail := s[:limit/4*3], s[len(s)-limit/4:]
	head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, len(s)-len(head)-len(tail), tail), true
}

// touched is what a server of ours reports of the entries of its store; nil if it
// reports none.
func touched(result json.RawMessage) *task.Touched {
	var t task.Touched
	data := fields(fields(result)["_meta"])[task.TouchedMeta]
	if len(data) == 0 || json.Unmarshal(data, &t) != nil {
		return nil
	}
	return &t
}
