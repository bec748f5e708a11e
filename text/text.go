// Package text makes texts of others fit to be shown. Whoever prints, logs or
// sends word of something passes each text that a model, a server, a file or a
// caller may have worded through it, so that no such text can write a line of its
// own, move a terminal's cursor, or hide or reorder what a person reads.
package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape writes what a terminal could obey, or what could hide or reorder text, as
// \x1b or \u202e: control, format and private characters, line ends and
// separators, letters that are never seen, bytes that are no UTF-8. Everything
// else stays, so that escaping twice changes nothing.
func Escape(s string) string { return escape(s, odd) }

// Line is a text in one line: white space of any kind as one blank, the rest
// escaped.
func Line(s string) string { return Escape(strings.Join(strings.Fields(s), " ")) }

// Field is a text in one line that keeps its blanks: each line end and tab becomes
// one, the rest is escaped.
func Field(s string) string { return Escape(blanks.Replace(s)) }

var blanks = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ", "\v", " ", "\f", " ")

// Block is a text in its own lines, tabs as blanks and the rest escaped.
func Block(s string) string {
	return escape(lines.Replace(s), func(r rune) bool { return r != '\n' && odd(r) })
}

var lines = strings.NewReplacer("\r\n", "\n", "\t", "    ")

// Indent is a text in its own lines, each after the first led by so many blanks,
// so that none can pass for a line of ours.
func Indent(s string, blanks int) string {
	return strings.ReplaceAll(Block(s), "\n", "\n"+strings.Repeat(" ", blanks))
}

// Cut shortens s to at most limit bytes and an ellipsis, on a rune boundary.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// JSON is a document with what Escape would escape, and JSON allows as it is,
// escaped in JSON's own way: the same document, fit for a terminal.
func JSON(doc []byte) []byte {
	if bytes.IndexFunc(doc, hidden) < 0 {
		return doc
	}
	var b bytes.Buffer
	for _, r := range string(doc) {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// hidden is what is odd and can only stand inside a string of a JSON document.
func hidden(r rune) bool { return r >= 0x7f && odd(r) }

func escape(s string, odd func(rune) bool) string {
	if strings.IndexFunc(s, odd) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !odd(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unseen are letters and marks that show nothing, beyond those that are format
// characters. The selectors between text and emoji form stay.
const unseen = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"

func odd(r rune) bool {
	switch {
	case r == ' ' || r > ' ' && r < 0x7f:
		return false
	case !unicode.IsGraphic(r), r >= 0xE0100 && r <= 0xE01EF:
		return true
	}
	return strings.ContainsRune(unseen, r)
}

// Raw is a text that the caller made fit to be printed.
type Raw string

// Fprintf prints like fmt.Fprintf, with every argument that is not Raw as a Field.
func Fprintf(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, Sprintf(format, args...)) // a reader who has gone misses nothing
}

// Sprintf is Fprintf for a text.
func Sprintf(format string, args ...any) string {
	clean := make([]any, len(args))
	for i, a := range args {
		clean[i] = fit(a)
	}
	return fmt.Sprintf(format, clean...)
}

// fit is an argument as it may be printed: what is a number or nothing stays.
func fit(a any) any {
	switch a := a.(type) {
	case Raw:
		return string(a)
	case string:
		return Field(a)
	case []byte:
		return Field(string(a))
	case json.RawMessage:
		return Field(string(a))
	case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return a
	}
	return shown{a}
}

// shown prints any other value under the verb it is asked for with, made fit.
type shown struct{ v any }

// Format implements [fmt.Formatter].
func (s shown) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, Field(fmt.Sprintf(fmt.FormatString(f, verb), s.v)))
}
