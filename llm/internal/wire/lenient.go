package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"runnerd/llm"
	"runnerd/task"
)

// Object is a JSON object whose values are kept as they came.
type Object map[string]json.RawMessage

// Parse returns the object that raw is; nil for null and for anything else.
func Parse(raw json.RawMessage) Object {
	var o Object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// List returns the members of the list that raw is, or an object as a list of
// one. ok is false for anything else that is not null.
func List(raw json.RawMessage) (list []json.RawMessage, ok bool) {
	switch {
	case IsNull(raw):
		return nil, true
	case Parse(raw) != nil:
		return []json.RawMessage{raw}, true
	}
	return list, json.Unmarshal(raw, &list) == nil
}

// Text returns the string in a field; "" if there is none.
func (o Object) Text(field string) string {
	var s string
	_ = json.Unmarshal(o[field], &s) // anything else has no text
	return s
}

// Has tells whether a field is there and not null.
func (o Object) Has(field string) bool { return !IsNull(o[field]) }

// Without returns what an object holds beyond known fields and nulls; nil if that is
// nothing.
func (o Object) Without(known ...string) Object {
	rest := Object{}
	for name, raw := range o {
		if !slices.Contains(known, name) && !IsNull(raw) {
			rest[name] = raw
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// Encode writes the fields in the order of their names, each value as it came.
func (o Object) Encode() json.RawMessage { return Splice(json.RawMessage("{}"), o) }

// Splice adds fields to a JSON object, in the order of their names. Fields that the
// object has already win, and what is no JSON is left out.
func Splice(obj json.RawMessage, more Object) json.RawMessage {
	if len(more) == 0 {
		return obj
	}
	has := Parse(obj)
	if has == nil {
		return obj
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(obj, []byte("}")))
	comma := len(has) > 0
	for _, k := range slices.Sorted(maps.Keys(more)) {
		if _, known := has[k]; known || !json.Valid(more[k]) {
			continue
		}
		if comma {
			b.WriteByte(',')
		}
		comma = true
		b.Write(JSON(k))
		b.WriteByte(':')
		b.Write(more[k])
	}
	b.WriteByte('}')
	return b.Bytes()
}

// IsNull tells whether a value is absent or null.
func IsNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// maxCount bounds what is believed of a count of tokens.
const maxCount = 1 << 40

// Count reads a count of tokens, or any other number that is beside the answer: a
// number or its text, with a fraction rounded up. ok is false for what is no count:
// nothing, a negative or absurdly large number, any other type.
func Count(raw json.RawMessage) (n int64, ok bool) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(f >= 0 && f <= maxCount) {
		return 0, false
	}
	return int64(math.Ceil(f)), true
}

// Usage makes a vendor's counts fit each other: what came from a cache or went to
// one is part of the input.
func Usage(u task.Usage) task.Usage {
	u.CacheRead = min(u.CacheRead, u.Input)
	u.CacheWrite = min(u.CacheWrite, u.Input-u.CacheRead)
	return u
}

// Malformed is the error of an answer that cannot be read.
func Malformed(format string, args ...any) error {
	return &llm.Error{Kind: llm.Malformed, Message: fmt.Sprintf(format, args...)}
}
