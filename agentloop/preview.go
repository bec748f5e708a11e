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
// characters escaped. What is too long is cut, in which case it says so and names
// the hash of the whole. A long field is cut before a short one is left out, so that
// no text can push a recipient out of sight.
func preview(arguments string) string {
	parts := fieldsOf(arguments)
	text := strings.Join(parts, " ")
	if utf8.RuneCountInString(text) <= previewRunes {
		return text
	}
	tail := fmt.Sprintf(" … (cut; %d fields, %d bytes in all, sha256 %s)", len(parts), len(arguments), task.ArgsHash(arguments))
	return strings.Join(shared(parts, previewRunes-utf8.RuneCountInString(tail)), " ") + tail
}

// fieldsOf words each argument as name=value, sorted by name; what is no object is
// one field.
func fieldsOf(arguments string) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &fields) != nil {
		return []string{strconv.Quote(arguments)}
	}
	parts := make([]string, 0, len(fields))
	for name, value := range fields {
		parts = append(parts, plain(name)+"="+plain(string(value)))
	}
	slices.Sort(parts)
	return parts
}

// shared cuts parts to fit into room with a space between them: all to the same
// length, so that what is shorter stays whole. Parts that would get less than
// minShare are left out from the end.
func shared(parts []string, room int) []string {
	const minShare = 16
	parts = parts[:min(len(parts), room/(minShare+1))]
	room -= len(parts) - 1
	share := room
	for ; share > minShare; share-- {
		sum := 0
		for _, p := range parts {
			sum += min(utf8.RuneCountInString(p), share)
		}
		if sum <= room {
			break
		}
	}
	cut := make([]string, len(parts))
	for i, p := range parts {
		if cut[i] = p; utf8.RuneCountInString(p) > share {
			cut[i] = string([]rune(p)[:share-1]) + "…"
		}
	}
	return cut
}

// plain escapes everything that a terminal could take for more than text.
func plain(s string) string {
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
