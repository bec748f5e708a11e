package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Number is a decimal as it is written, so that 19.99 stays 19.99. Empty says
// nothing.
type Number string

// UnmarshalJSON takes a JSON number and nothing else, text that looks like one
// included.
func (n *Number) UnmarshalJSON(data []byte) error {
	if rational(json.Number(data)) == nil {
		return errors.New("want a number")
	}
	*n = Number(data)
	return nil
}

// MarshalJSON writes the number as it was read.
func (n Number) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return []byte(n), nil
}

// rational is the exact value of a number as it is written, nil for anything else.
func rational(v any) *big.Rat {
	var text string
	switch n := v.(type) {
	case Number:
		text = string(n)
	case json.Number:
		text = n.String()
	case float64:
		text = strconv.FormatFloat(n, 'g', -1, 64)
	case float32:
		text = strconv.FormatFloat(float64(n), 'g', -1, 32)
	case int:
		text = strconv.Itoa(n)
	case int64:
		text = strconv.FormatInt(n, 10)
	case uint64:
		text = strconv.FormatUint(n, 10)
	default:
		return nil
	}
	if len(text) > maxNumberBytes || !json.Valid([]byte(text)) || strings.IndexByte("-0123456789", text[0]) < 0 {
		return nil
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exp, err := strconv.Atoi(text[i+1:]); err != nil || exp > maxExponent || exp < -maxExponent {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}

// equalValues compares a value of a file with one of a call: numbers by value and
// exactly, lists and objects member by member, everything else as it is.
func equalValues(want, have any) bool {
	if w := rational(want); w != nil {
		h := rational(have)
		return h != nil && w.Cmp(h) == 0
	}
	switch w := want.(type) {
	case []any:
		h, ok := have.([]any)
		return ok && slices.EqualFunc(w, h, equalValues)
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok || len(w) != len(h) {
			return false
		}
		for key, item := range w {
			other, present := h[key]
			if !present || !equalValues(item, other) {
				return false
			}
		}
		return true
	case string:
		h, ok := have.(string)
		return ok && h == w
	case bool:
		h, ok := have.(bool)
		return ok && h == w
	case nil:
		return have == nil
	}
	return false
}

// typeOf is the JSON type of a value of a file or of a call.
func typeOf(v any) string {
	if rational(v) != nil {
		return kindOf(json.Number(""))
	}
	return kindOf(v)
}

// maxValueText is how many characters of a value a rule's words show.
const maxValueText = 200

// valueText words a value. A long one is cut and told apart from others that begin
// alike by its hash, since calls are counted by the words of their rule.
func valueText(v any) string {
	text := jsonText(v)
	length := utf8.RuneCountInString(text)
	if length <= maxValueText {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s… (%d characters, sha256 %s)", string([]rune(text)[:60]), length, hex.EncodeToString(sum[:8]))
}

// jsonText is a value as JSON that YAML reads as the same value: what is no visible
// character is escaped.
func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return quote(fmt.Sprint(v))
	}
	return escapeHidden(strings.TrimSuffix(b.String(), "\n"))
}

// escapeHidden writes what is no visible character of a JSON text, which stands in
// strings only, as an escape that YAML knows, and JSON too below U+10000.
func escapeHidden(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) }
