package agentloop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"runnerd/task"
)

// previewRunes bounds the preview of a call that a person is asked to approve.
const previewRunes = 400

// preview shows a person the arguments of a call: each field by name, control
// characters escaped, cut where it is too long, in which case it says so and
// names the hash of the whole.
func preview(arguments string) string {
	text := strconv.Quote(arguments)
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &fields) == nil {
		names := make([]string, 0, len(fields))
		for name := range fields {
			names = append(names, name)
		}
		slices.Sort(names)
		parts := make([]string, 0, len(names))
		for _, name := range names {
			parts = append(parts, plain(name)+"="+plain(string(fields[name])))
		}
		text = strings.Join(parts, " ")
	}
	if utf8.RuneCountInString(text) <= previewRunes {
		return text
	}
	tail := fmt.Sprintf(" … (cut; %d bytes in all, sha256 %s)", len(arguments), task.ArgsHash(arguments))
	return string([]rune(text)[:previewRunes-utf8.RuneCountInString(tail)]) + tail
}

// plain escapes everything that a terminal could take for more than text.
func plain(s string) string {
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
