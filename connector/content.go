package connector

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

// flatten turns a result into text: texts and texts of resources as they are, a
// line in brackets for what is no text, structured content only where there is
// no text at all. Links are named, never fetched.
func flatten(res *mcp.CallToolResult, limit int) task.ToolResult {
	if res.NeedsInput() {
		return task.ToolResult{IsError: true, Text: "the tool asks for input from a person or a model, which an unattended run does not give"}
	}
	var parts []string
	for _, c := range res.Content {
		if text := contentText(c); text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 && res.StructuredContent != nil {
		if data, err := json.Marshal(res.StructuredContent); err == nil {
			parts = append(parts, string(data))
		}
	}
	text, cut := cutMiddle(strings.ToValidUTF8(strings.Join(parts, "\n"), "�"), limit)
	return task.ToolResult{Text: text, IsError: res.IsError, Cut: cut}
}

func contentText(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return placeholder("image", c.MIMEType, len(c.Data))
	case *mcp.AudioContent:
		return placeholder("audio", c.MIMEType, len(c.Data))
	case *mcp.ResourceLink:
		return fmt.Sprintf("[link, not followed: %s %s]", oneLine(c.URI, 2048), oneLine(c.Name, 256))
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			return "[resource without contents]"
		}
		if c.Resource.Text != "" || c.Resource.Blob == nil {
			return c.Resource.Text
		}
		return placeholder("resource "+oneLine(c.Resource.URI, 2048), c.Resource.MIMEType, len(c.Resource.Blob))
	}
	return fmt.Sprintf("[content of a kind that is not shown: %T]", c)
}

func placeholder(kind, mime string, size int) string {
	if mime == "" {
		mime = "unknown type"
	}
	return fmt.Sprintf("[%s, %s, %d bytes, not shown]", kind, oneLine(mime, 128), size)
}

// refusal is the result of a call that the server answered with a protocol
// error, such as an unknown tool: an answer did come.
func refusal(e *jsonrpc.Error, limit int) task.ToolResult {
	text, cut := cutMiddle(strings.ToValidUTF8(fmt.Sprintf("the server refused the call: %s (code %d)", e.Message, e.Code), "�"), limit)
	return task.ToolResult{Text: text, IsError: true, Cut: cut}
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
