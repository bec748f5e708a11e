package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"runnerd/task"
)

// FenceTag is what a fenced call's opening fence says.
const FenceTag = "tool_call"

const openFence = "```" + FenceTag

// RenderTools describes tools, and how to call them, for a system prompt. The
// same tools always give the same bytes.
func RenderTools(tools []Tool) string {
	var b strings.Builder
	b.WriteString("To call a tool, write a block of exactly this form, the fences at the beginning of their lines:\n\n" +
		openFence + "\n{\"tool\": \"NAME\", \"arguments\": {}}\n```\n\n" +
		"One block is one call; write several blocks for several calls, and nothing after the last. " +
		"The results come in the next message. Blocks of any other form are not run.\n\nThe tools:\n")
	for _, t := range tools {
		fmt.Fprintf(&b, "\n- %s", t.Name)
		if d := strings.Join(strings.Fields(t.Description), " "); d != "" {
			b.WriteString(": " + d)
		}
		if schema := compact(t.InputSchema); schema != "" {
			b.WriteString("\n  arguments: " + schema)
		}
	}
	return b.String()
}

// compact is a schema on one line; "" if it is none.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// ParseFenced finds the fenced calls of a text and returns it without them. It
// is strict: a block counts only if its fences stand at the beginning of their
// lines, outside of any other code block, and hold one JSON object with the keys
// "tool" and "arguments" and no others.
//
// A block that is opened but does not keep to that form is a call all the same,
// so that the model hears of it: its arguments are the whole block, fences
// included, which never parse as arguments and so are never dispatched; its name
// is what can be read of it. The error, if not nil, joins one line for each such
// block.
func ParseFenced(text string) (clean string, calls []task.ToolCall, err error) {
	var f fences
	var errs []error
	var shown strings.Builder
	for number, line := range numbered(text) {
		shown.WriteString(f.line(number, line))
	}
	f.end()
	for i, b := range f.blocks {
		call, err := b.call()
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", b.number, err))
		}
		call.ID = fmt.Sprintf("fenced_%d", i+1)
		calls = append(calls, call)
	}
	return strings.TrimSpace(shown.String()), calls, errors.Join(errs...)
}

// numbered yields the lines of a text, their ends included, numbered from 1.
func numbered(text string) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			if !yield(number, line) {
				return
			}
		}
	}
}

// fences reads a text line by line and takes the blocks of calls out of it.
type fences struct {
	blocks []*block
	open   *block // the block that is being read
	other  string // the fence of another code block that is being read
}

// block is one fenced call as it was written.
type block struct {
	number int // of its first line
	raw    strings.Builder
	body   strings.Builder
	closed bool
	askew  bool // its opening fence is indented or does not stand alone
}

var opensCall = regexp.MustCompile("^[ \t]*```" + FenceTag + `\b`)

var anyFence = regexp.MustCompile("^ {0,3}(`{3,}|~{3,})(.*)$")

// line takes the next line and returns what of it is not part of a call.
func (f *fences) line(number int, line string) string {
	text := strings.TrimRight(line, "\r\n")
	switch {
	case f.open != nil:
		f.open.raw.WriteString(line)
		if strings.TrimSpace(text) == "```" {
			f.open.closed = true
			f.end()
		} else {
			f.open.body.WriteString(line)
		}
		return ""
	case f.other != "":
		if m := anyFence.FindStringSubmatch(text); m != nil && strings.HasPrefix(m[1], f.other) && strings.TrimSpace(m[2]) == "" {
			f.other = ""
		}
	case opensCall.MatchString(text):
		rest := strings.TrimSpace(opensCall.ReplaceAllString(text, ""))
		f.open = &block{number: number, askew: rest != "" || text[0] != '`'}
		f.open.raw.WriteString(line)
		f.open.body.WriteString(rest)
		if strings.HasSuffix(rest, "```") {
			f.end()
		}
		return ""
	default:
		if m := anyFence.FindStringSubmatch(text); m != nil {
			f.other = m[1]
		}
	}
	return line
}

// end closes a block that is still open.
func (f *fences) end() {
	if f.open != nil {
		f.blocks = append(f.blocks, f.open)
		f.open = nil
	}
}

// call reads a block. With an error the call is the one that stands for it.
func (b *block) call() (task.ToolCall, error) {
	name, arguments, err := b.parse()
	if err == nil {
		return task.ToolCall{Name: name, Arguments: arguments}, nil
	}
	return task.ToolCall{Name: legibleName(b.body.String()), Arguments: b.raw.String()}, err
}

func (b *block) parse() (name, arguments string, err error) {
	if b.askew {
		return "", "", errors.New("tool_call block: its opening fence must stand alone, at the beginning of its line")
	}
	if !b.closed {
		return "", "", errors.New("tool_call block without its closing fence: write ``` on a line of its own")
	}
	fields, err := strictObject(b.body.String())
	if err != nil {
		return "", "", fmt.Errorf("tool_call block: %w", err)
	}
	for key := range fields {
		if key != "tool" && key != "arguments" {
			return "", "", fmt.Errorf("tool_call block: unknown key %q: want \"tool\" and \"arguments\"", key)
		}
	}
	if json.Unmarshal(fields["tool"], &name) != nil || name == "" {
		return "", "", errors.New("tool_call block: \"tool\": want the tool's name")
	}
	if arguments = string(fields["arguments"]); arguments == "" {
		arguments = "{}"
	}
	return name, arguments, nil
}

// strictObject reads exactly one JSON object without a key twice and keeps the
// bytes of its values.
func strictObject(text string) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("want one JSON object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		name, _ := key.(string) // the keys of an object are strings
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("key %q is there twice", name)
		}
		fields[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("the JSON object has no end")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want nothing after the JSON object")
	}
	return fields, nil
}

var nameField = regexp.MustCompile(`"tool"\s*:\s*"([A-Za-z0-9_-]{1,64})"`)

// legibleName is the tool that a broken block most likely means. It serves to word
// the refusal; the call is refused in any case.
func legibleName(body string) string {
	if m := nameField.FindStringSubmatch(body); m != nil {
		return m[1]
	}
	return FenceTag
}
