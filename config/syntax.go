package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// mark is a place in a file; both parts count from 1.
type mark struct{ line, col int32 }

// source is the text of one file, or of one part of it.
type source struct {
	file string
	text []byte
	// firstLine is the line of the file that text begins on.
	firstLine int
}

func (s source) problem(at mark, what, expected, hint string) Problem {
	return Problem{File: s.file, Line: int(at.line), Col: int(at.col), What: what, Expected: expected, Hint: hint}
}

// markOf turns a byte offset into a place.
func (s source) markOf(offset int) mark {
	offset = min(max(offset, 0), len(s.text))
	before := s.text[:offset]
	line := bytes.Count(before, []byte("\n"))
	start := bytes.LastIndexByte(before, '\n') + 1
	return mark{int32(s.firstLine + line), int32(utf8.RuneCount(before[start:]) + 1)}
}

// lineMark is the first character of a line of text, lines counted from 1.
func (s source) lineMark(line int) mark {
	lines := bytes.SplitAfter(s.text, []byte("\n"))
	line = min(max(line, 1), len(lines))
	text := lines[line-1]
	indent := len(text) - len(bytes.TrimLeft(text, " \t"))
	return mark{int32(s.firstLine + line - 1), int32(indent + 1)}
}

// readable strips a byte order mark and refuses what is no text at all.
func readable(file string, content []byte) (source, *Problem) {
	src := source{file: file, text: bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), firstLine: 1}
	if len(bytes.TrimSpace(src.text)) == 0 {
		p := src.problem(mark{1, 1}, "file is empty", "", "")
		return src, &p
	}
	if !utf8.Valid(src.text) {
		at := 0
		for at < len(src.text) {
			r, n := utf8.DecodeRune(src.text[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		p := src.problem(src.markOf(at), fmt.Sprintf("byte 0x%02x is not UTF-8", src.text[at]), "UTF-8 text", "save the file as UTF-8")
		return src, &p
	}
	return src, nil
}

// parseYAML returns the root node, nil if nothing could be read. After a syntax
// error it leaves out the top-level entry that holds the error and reads on, so
// that one error does not hide the others; broken is then true.
func parseYAML(src source) (root *yaml.Node, problems []Problem, broken bool) {
	text := src.text
	for range 8 {
		node, err := yamlNode(text)
		if err == nil {
			return node, problems, broken
		}
		cur := source{src.file, text, src.firstLine}
		line := errorLine(text, err)
		if fixed, at, ok := tabsToSpaces(text); ok {
			node, still := yamlNode(fixed)
			if still == nil || indentedByTab(text, line) {
				problems = append(problems, cur.problem(cur.markOf(at), "a tab in the indentation", "spaces", "replace each tab with spaces"))
				return node, problems, still != nil || broken
			}
		}
		broken = true
		problems = append(problems, syntaxProblem(cur, line, err))
		rest, ok := withoutEntry(text, line)
		if !ok {
			return nil, problems, true
		}
		text = rest
	}
	return nil, problems, true
}

// errManyDocuments is what a second "---" means here.
var errManyDocuments = errors.New("a second YAML document begins")

// yamlNode decodes exactly one document. The library reports some of its own
// failures by panic; those come back as errors, since a file must not end the
// daemon.
func yamlNode(text []byte) (node *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			node, err = nil, fmt.Errorf("yaml: %v", r)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil // only comments
		}
		return nil, err
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errManyDocuments
		}
		return nil, err
	}
	if len(doc.Content) != 1 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// tabsToSpaces replaces tabs in indentation; at is the offset of the first.
func tabsToSpaces(text []byte) (fixed []byte, at int, found bool) {
	var out bytes.Buffer
	offset := 0
	for line := range bytes.SplitAfterSeq(text, []byte("\n")) {
		body := bytes.TrimLeft(line, " \t")
		indent := line[:len(line)-len(body)]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && len(bytes.TrimSpace(body)) > 0 {
			if !found {
				at, found = offset+tab, true
			}
			indent = bytes.ReplaceAll(indent, []byte("\t"), []byte("  "))
		}
		out.Write(indent)
		out.Write(body)
		offset += len(line)
	}
	return out.Bytes(), at, found
}

func indentedByTab(text []byte, line int) bool {
	lines := bytes.SplitAfter(text, []byte("\n"))
	l := lines[min(line, len(lines))-1]
	return bytes.IndexByte(l[:len(l)-len(bytes.TrimLeft(l, " \t"))], '\t') >= 0
}

// errorLine finds the line of text, from 1, that a syntax error sits on. The
// library's own number is often that of the enclosing block, so this looks for
// the longest beginning of the text that still parses, within a budget of work.
func errorLine(text []byte, err error) int {
	lines := bytes.SplitAfter(text, []byte("\n"))
	reported := 1
	if _, rest, ok := strings.Cut(err.Error(), "line "); ok {
		digits, _, _ := strings.Cut(rest, ":")
		if n, e := strconv.Atoi(digits); e == nil {
			reported = n
		}
	}
	budget := 4 << 20
	for k := min(len(lines)-1, reported+200); k > 0; k-- {
		n := 0
		for _, l := range lines[:k] {
			n += len(l)
		}
		if budget -= n; budget < 0 {
			return reported
		}
		if _, e := yamlNode(text[:n]); e == nil {
			for k < len(lines)-1 && len(bytes.TrimSpace(lines[k])) == 0 {
				k++
			}
			return k + 1
		}
	}
	return 1
}

// withoutEntry blanks the top-level entry that line belongs to, keeping every
// other line where it was.
func withoutEntry(text []byte, line int) ([]byte, bool) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	top := func(l []byte) bool {
		return len(l) > 0 && !bytes.ContainsAny(l[:1], " \t\r\n#-]}")
	}
	start := min(line, len(lines)) - 1
	for start > 0 && !top(lines[start]) {
		start--
	}
	end := max(start+1, min(line, len(lines)))
	for end < len(lines) && !top(lines[end]) {
		end++
	}
	if start == 0 && end == len(lines) {
		return nil, false
	}
	var out bytes.Buffer
	for i, l := range lines {
		if i < start || i >= end {
			out.Write(l)
		} else if bytes.HasSuffix(l, []byte("\n")) {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), true
}

// syntaxProblem words the library's messages for a person.
func syntaxProblem(src source, line int, err error) Problem {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if _, after, ok := strings.Cut(rest, ": "); ok {
			msg = after
		}
	}
	expected, hint := "", ""
	switch {
	case errors.Is(err, errManyDocuments):
		expected = "one document in a file"
	case strings.Contains(msg, "mapping values are not allowed"):
		expected, hint = "one `key: value` on a line", "put a value that holds \": \" in quotes, or check the indentation"
	case strings.Contains(msg, "could not find expected ':'"):
		expected = "`key: value`"
	case strings.Contains(msg, "did not find expected key"), strings.Contains(msg, "block collection"):
		expected, hint = "`key: value` in line with its neighbours", "check the indentation"
	case strings.Contains(msg, "unexpected end of stream"), strings.Contains(msg, "',' or"):
		hint = "close the quote or bracket that opens here"
	case strings.Contains(msg, "cannot start any token"), strings.Contains(msg, "alphabetic or numeric character"):
		hint = "put the value in quotes"
	}
	return src.problem(src.lineMark(line), "not valid YAML: "+msg, expected, hint)
}

// parseJSON reads strict JSON into the same nodes that YAML becomes, so that one
// set of checks serves both.
func parseJSON(src source) (*yaml.Node, []Problem) {
	dec := json.NewDecoder(bytes.NewReader(src.text))
	dec.UseNumber()
	r := jsonReader{src: src, dec: dec}
	root, err := r.value(0)
	if err == nil {
		if _, extra := dec.Token(); !errors.Is(extra, io.EOF) {
			err = errors.New("more text after the end of the value")
		}
	}
	if err == nil {
		return root, nil
	}
	at := int(dec.InputOffset())
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = max(at, int(syntax.Offset)-1) // the decoder counts some offsets from its buffer
		for at < len(src.text) && strings.IndexByte(" \t\r\n,:", src.text[at]) >= 0 {
			at++
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		at, err = len(src.text), errors.New("the text ends too early")
	}
	return nil, []Problem{src.problem(src.markOf(at), "not valid JSON: "+err.Error(), "", "")}
}

type jsonReader struct {
	src source
	dec *json.Decoder
}

func (r jsonReader) value(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	at := r.next()
	tok, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: int(at.line) - r.src.firstLine + 1, Column: int(at.col)}
	switch v := tok.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if v == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for r.dec.More() {
			child, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err = r.dec.Token()
		return n, err
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// next is where the next token begins.
func (r jsonReader) next() mark {
	at := int(r.dec.InputOffset())
	for at < len(r.src.text) && strings.IndexByte(" \t\r\n,:", r.src.text[at]) >= 0 {
		at++
	}
	return r.src.markOf(at)
}
