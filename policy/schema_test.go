package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestPatternsOfECMAScript (E4): a pattern that a server may well understand, and RE2
// does not, is the server's to judge; a broken one is no schema.
func TestPatternsOfECMAScript(t *testing.T) {
	for pattern, usable := range map[string]bool{
		`^(?!\.)[a-z]+@x$`: true, `(?<=a)b`: true, `(?<!a)b`: true, `(?<year>\d+)`: true, `(a)\1`: true, `^.{1,5000}$`: true, `^[\w-.]+@[^]+$`: true,
		`\p{Letter}`: true, `[^]`: true, `a\/b`: true, `(?:(?:a{1,500}){1,500}){1,500}`: true,
		`[`: false, `(a`: false, `a)`: false, `a**`: false, `x[a`: false,
	} {
		raw, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"pattern": pattern}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := SchemaError(raw); (err == nil) != usable {
			t.Errorf("%s: %v, want usable %v", pattern, err, usable)
		}
	}
}

// TestSchemaErrorIsPlain (E4): what is wrong with a schema is said once, with its place.
func TestSchemaErrorIsPlain(t *testing.T) {
	err := SchemaError(json.RawMessage(`{"type":"object","properties":{"required":["q"],"q":{"type":"string"}}}`))
	const want = "the tool's input schema cannot be used: at '/properties/required': got array, want boolean or object"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := SchemaError(json.RawMessage(`{"type":"objct"}`)); err == nil || strings.Contains(err.Error(), "metaschema") || strings.Contains(err.Error(), "allOf") {
		t.Errorf("got %v", err)
	}
}
