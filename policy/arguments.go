package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on the arguments of one call.
const (
	MaxArgumentBytes = 4 << 20
	maxDepth         = 64
	maxNumberBytes   = 128
	// maxExponent keeps a number within what a float64 holds, so that no reader
	// of the same bytes sees another value, and exact arithmetic stays small.
	maxExponent = 308
)

// parseArguments reads the exact argument bytes. It is stricter than most
// readers, because the server reads the same bytes with a reader of its own and
// must not see another call: duplicate keys, keys of the top level that differ by
// case only, lone surrogates and numbers beyond float64 are refused.
func parseArguments(text string) (map[string]any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("arguments are empty; a call without arguments is written {}")
	}
	v, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	args, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("arguments must be a JSON object, not %s", kindOf(v))
	}
	return args, sameButForCase(args)
}

func sameButForCase(args map[string]any) error {
	folded := make(map[string]string, len(args))
	for key := range args {
		low := strings.ToLower(strings.ToUpper(key))
		if other, seen := folded[low]; seen {
			return fmt.Errorf("arguments %s and %s differ by case only", quote(min(key, other)), quote(max(key, other)))
		}
		folded[low] = key
	}
	return nil
}

func parseJSON(text string) (any, error) {
	switch {
	case len(text) > MaxArgumentBytes:
		return nil, fmt.Errorf("arguments have %d bytes, more than %d", len(text), MaxArgumentBytes)
	case !utf8.ValidString(text):
		return nil, errors.New("arguments are not valid UTF-8")
	}
	p := &jsonParser{text: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(text) {
		return nil, p.errorf("something follows the value")
	}
	return v, nil
}

// jsonParser reads RFC 8259 and nothing more.
type jsonParser struct {
	text string
	at   int
}

func (p *jsonParser) errorf(format string, args ...any) error {
	return fmt.Errorf("arguments are not valid JSON at byte %d: %s", p.at, fmt.Sprintf(format, args...))
}

func (p *jsonParser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *jsonParser) peek() byte {
	p.space()
	if p.at >= len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *jsonParser) take(c byte) bool {
	if p.peek() != c || p.at >= len(p.text) {
		return false
	}
	p.at++
	return true
}

func (p *jsonParser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.errorf("nested deeper than %d", maxDepth)
	}
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for word, v := range literals {
		if strings.HasPrefix(p.text[p.at:], word) {
			p.at += len(word)
			return v, nil
		}
	}
	if p.at >= len(p.text) {
		return nil, p.errorf("it ends too early")
	}
	return nil, p.errorf("unexpected character")
}

var literals = map[string]any{"true": true, "false": false, "null": nil}

func (p *jsonParser) object(depth int) (any, error) {
	p.at++
	out := map[string]any{}
	if p.take('}') {
		return out, nil
	}
	for {
		if p.peek() != '"' {
			return nil, p.errorf("want a key in double quotes")
		}
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		if _, seen := out[key]; seen {
			return nil, p.errorf("duplicate key %s", quote(key))
		}
		if !p.take(':') {
			return nil, p.errorf("want ':' after the key")
		}
		if out[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		if p.take('}') {
			return out, nil
		}
		if !p.take(',') {
			return nil, p.errorf("want ',' or '}'")
		}
	}
}

func (p *jsonParser) array(depth int) (any, error) {
	p.at++
	out := []any{}
	if p.take(']') {
		return out, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		if p.take(']') {
			return out, nil
		}
		if !p.take(',') {
			return nil, p.errorf("want ',' or ']'")
		}
	}
}

// str reads a string; p.at stands on its opening quote.
func (p *jsonParser) str() (string, error) {
	start := p.at
	escaped := false
	for i := start + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.at = i + 1
			return p.unescape(p.text[start:p.at], escaped)
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			p.at = i
			return "", p.errorf("control character in a string")
		}
	}
	return "", p.errorf("a string does not end")
}

func (p *jsonParser) unescape(literal string, escaped bool) (string, error) {
	if !escaped {
		return literal[1 : len(literal)-1], nil
	}
	if loneSurrogate(literal) {
		return "", p.errorf("a string has half of a surrogate pair")
	}
	var s string
	if err := json.Unmarshal([]byte(literal), &s); err != nil {
		return "", p.errorf("a string has a bad escape")
	}
	return s, nil
}

// loneSurrogate tells whether a \uD800..\uDFFF escape stands without its other
// half, which readers turn into different things.
func loneSurrogate(literal string) bool {
	high := false
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		unit, isUnit := escapeUnit(literal[i:])
		isLow := isUnit && unit >= 0xDC00 && unit <= 0xDFFF
		if high != isLow {
			return true
		}
		high = isUnit && unit >= 0xD800 && unit <= 0xDBFF
		if isUnit {
			i += 5
		} else {
			i++
		}
	}
	return high
}

func escapeUnit(s string) (uint64, bool) {
	if len(s) < 6 || s[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(s[2:6], 16, 16)
	return unit, err == nil
}

func (p *jsonParser) number() (any, error) {
	start := p.at
	for p.at < len(p.text) && strings.IndexByte("+-.eE0123456789", p.text[p.at]) >= 0 {
		p.at++
	}
	literal := p.text[start:p.at]
	if len(literal) > maxNumberBytes || !json.Valid([]byte(literal)) {
		p.at = start
		return nil, p.errorf("bad number")
	}
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		if exp, err := strconv.Atoi(literal[i+1:]); err != nil || exp > maxExponent || exp < -maxExponent {
			p.at = start
			return nil, p.errorf("number out of range")
		}
	}
	return json.Number(literal), nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "something else"
}

// eachString calls f for every string in v, keys included, until f returns false.
func eachString(v any, f func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for _, item := range v {
			if !eachString(item, f) {
				return false
			}
		}
	case map[string]any:
		for key, item := range v {
			if !f(key) || !eachString(item, f) {
				return false
			}
		}
	}
	return true
}

// quote shows foreign text within a line: escaped and cut.
func quote(s string) string {
	const most = 80
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return strconv.QuoteToGraphic(strings.ToValidUTF8(s, "\uFFFD"))
}
